"""Windows that models of a family learned, at other L and other noise."""

from collections.abc import Sequence

import numpy as np

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import BLUE, GREEN, GREY, INK, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Points
from icl_interp.figures.text import plain, tested_by
from icl_interp.studies.lipschitz.claims.window_adapts import grids
from icl_interp.studies.lipschitz.measurements import window_family

COLOURS = (GREEN, BLUE, ORANGE)
LOWEST = 1e-3  # the model's w, which may be 0 or less, is drawn there at the lowest


def family(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """Windows of all runs of a kind against L, a colour a noise; the best windows as lines."""
    table = results.get(window_family.family)
    if table is None:
        return None
    own, best, noises, lipschitz = grids(table)
    if not len(own):
        return None
    by_l: list[Mark] = []
    by_best: list[Mark] = []
    for i, noise in enumerate(noises):
        colour = COLOURS[i % len(COLOURS)]
        name = f"σ = {noise:g}"
        optimum = np.exp(best[0, i])
        learned = np.exp(own[:, i])  # (run, L)
        line = Line(
            lipschitz,
            optimum,
            name=f"{name}, w*",
            colour=colour,
            dash="dash",
            width=1.4,
            hover="L = {x:g}: w* = {y:.3g}",
        )
        by_l += [line, _runs(lipschitz, learned, name, colour)]
        by_best.append(_runs(optimum, learned, name, colour))
    mine = table[table["run"] == window_family.THIS]
    model = Points(
        mine["best"],
        mine["w"],
        name="this model",
        colour=INK,
        symbol="x",
        size=10,
        hover="w* = {x:.3g}: w = {y:.3g}",
    )

    # Where the learned window is the best one.
    both = np.exp([min(own.min(), best.min()), max(own.max(), best.max())])
    equal = Line(both, both, colour=GREY, dash="dot", width=1, hover="")
    y = Axis("w, wide windows to narrow ones", log=True)
    x_best = Axis("best window w*", log=True)
    y_best = Axis("learned window w", log=True, least=LOWEST)
    panels = [
        Panel("Against L", Axis("L", log=True), y, by_l),
        Panel("Against the best window", x_best, y_best, [equal, *by_best, model]),
    ]
    below = tested_by("lipschitz_family", findings) + f"<br>{plain(table.attrs['note'])}."
    return Drawing("Windows learned at other L and other noise", below, panels)


FIGURE = ReportFigure(
    family,
    "A dot is a training run: the window w that it learned, a colour for each standard "
    "deviation σ of the label noise. Large w are narrow windows. Dashed lines are the windows "
    "w* with the least loss. On the right dots on the dotted line have learned it; the cross "
    "is this model.",
)


def _runs(xs: np.ndarray, learned: np.ndarray, noise: str, colour: str) -> Points:
    """The windows of all runs at one noise: `learned` is (run, L), xs has a number for each L."""
    return Points(
        np.tile(xs, len(learned)),
        learned.ravel(),
        name=f"{noise}, runs",
        colour=colour,
        size=6,
        opacity=0.6,
        edge=0,
        hover="{x:.3g}: w = {y:.3g}",
    )
