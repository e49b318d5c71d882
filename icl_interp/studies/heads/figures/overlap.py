"""How much what two heads of a layer write overlaps, beside what random directions would give."""

from collections.abc import Sequence

import numpy as np

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import INK, ORANGE, PALE
from icl_interp.figures.drawing import Axis, Drawing, Panel, Points, rows
from icl_interp.figures.text import plain, tested_by
from icl_interp.studies.heads.claims.orthogonality import mean_of
from icl_interp.studies.heads.measurements import overlaps

MAPS = (
    "OV: what a head writes for what it reads\nQK: what it looks for\n"
    "outputs: what it writes in distribution, less its mean\n(the claim is about outputs)"
)


def overlap(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """Every pair of heads of a layer, their mean, and what random directions give.

    This is shown for each map: what heads write, what they look for, and what they say.
    """
    found = results.get(overlaps.overlap)
    pairs = overlaps.pairs_in(found) if found is not None else []
    if found is None or not pairs:  # not measured, or each layer has a single head
        return None
    maps = list(overlaps.MAPS)
    # (map, pair); NaN for heads that write a constant.
    each = found.sel(pair=pairs, value=maps).values.T
    places = np.arange(len(maps))
    every = Points(
        each.ravel(),
        np.repeat(places, len(pairs)),
        name="pair of heads",
        colour=PALE,
        symbol="line-ns-open",
        size=12,
        edge=1.2,
        texts=[plain(pair) for pair in pairs] * len(maps),
        hover="{text}: {x:.3g}",
    )
    # Chance is measured for the last map, what heads write in distribution.
    random = Points(
        [mean_of(found.sel(pair=pairs, value="chance").values)],
        places[-1:],
        name="random directions",
        colour=INK,
        symbol="square-open",
        size=10,
        hover="root mean square: {x:.3g}",
    )
    means = [mean_of(row) for row in each]
    mean = Points(means, places, name="mean of pairs", colour=ORANGE, size=11, hover="{x:.3g}")
    top = max(1.0, float(np.nan_to_num(each).max(initial=0.0))) * 1.03
    panel = Panel(
        "Overlap of heads within a layer",
        Axis("overlap |⟨A, B⟩| / |A| |B| of two heads A, B", -0.02, top, labels=6),
        rows(maps),
        [every, random, mean],
        height=170,
        below=MAPS,
    )
    return Drawing("Are heads orthogonal", tested_by("overlap", findings), [panel], height=170)


FIGURE = ReportFigure(
    overlap,
    "How much the outputs of two heads of a layer overlap. A bar is a pair of heads; 0 is "
    "orthogonal, 1 is parallel or opposite. The overlap of outputs is compared with that of "
    "random directions (square), and this decides.",
)
