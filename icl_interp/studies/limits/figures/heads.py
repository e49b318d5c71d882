"""Heads one by one: how near each is to a hardmax, and whether it matters."""

from collections.abc import Sequence

import numpy as np
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.relevance import relevance, relevant, without_each
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import BLUE, GREY, INK, PALE
from icl_interp.figures.drawing import Axis, Column, Drawing, Line, Mark, Panel, Points, Zone, rows
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import number, plain, tested_by
from icl_interp.probes.attention import TARGETS
from icl_interp.results import Result
from icl_interp.studies.limits.measurements import concentration
from icl_interp.studies.limits.measurements.concentration import CONCENTRATED

FAR = (1e4, 1e5)  # |x| at which a hardmax is judged, in units of x
MANY = 24  # heads; more of them have lower rows


def heads(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """Delta of every head near and far, the effect of ablating it, and what it attends to."""
    delta = results.get(concentration.delta)
    if delta is None:
        return None
    below = tested_by("heads", findings)
    below += (
        "<br>Size of blue marks, and effect: the factor on the error in distribution when the "
        "head's output is replaced by its mean; in a model that has not learned, the change of "
        "the prediction in u, its standard deviation in distribution."
    )
    panel = _dumbbells(delta, results, facts)
    return Drawing("Distance of each head's pattern to its hardmax", below, [panel], height=280)


FIGURE = ReportFigure(
    heads,
    "One row for each head: the share of its attention at the last query that is not on one "
    "token, in distribution (grey) and far from the data (blue; mean over |x| = 10⁴ and 10⁵). The "
    "shaded strip counts as a hardmax. Hollow: it is not certain that the head matters. A head "
    "matters if the error at least doubles, on average or for a typical function, when its output "
    "is replaced by its mean or its attention is made uniform.",
)


def effects(results: Results, facts: Facts) -> dict[str, float]:
    """What the mean ablation of each head does; empty where that was not measured."""
    if relevance not in results:
        return {}
    return without_each(results[relevance], facts.has_learned)


def _size(effect: float | None, on_error: bool) -> float:
    """Pixels of a marker: 7, and 5 more for each factor of ten.

    The factor is in the error, or in what the prediction moves by.
    """
    if effect is None:
        return 7.0
    factor = effect if on_error else 1 + effect / 0.01
    return 7.0 + 5.0 * float(np.log10(max(factor, 1.0)))


def _words(effect: float | None, on_error: bool) -> str:
    """What ablating a head does, with its unit."""
    if effect is None:
        return ""
    return f"{number(effect)}×" if on_error else f"{number(effect)} u"


def _dumbbells(delta: DataArray, results: Results, facts: Facts) -> Panel:
    """A row for each head: delta in distribution and far from the data."""
    names = list(delta.indexes["head"])
    effect = effects(results, facts)
    on_error = facts.has_learned
    counted = set(names)
    if relevance in results:
        counted = set(relevant(results, facts))
    start, end = _ends(delta, facts)
    share = results.get(concentration.concentration)

    # What each head attends to, how large its effect is, and what hovering over it says.
    targets = []
    inks = []
    words_of_effect = []
    sizes = []
    hovers = []
    for i, name in enumerate(names):
        target = _target(delta, name)
        word = _words(effect.get(name), on_error)
        hover = _hover(name, start[i], end[i], target, share)
        if name in effect:
            what = "error" if on_error else "change of the prediction"
            hover += f"<br>ablated: {what} {word}"
        targets.append(target)
        inks.append(INK if name in counted else "#767676")
        words_of_effect.append(word)
        sizes.append(_size(effect.get(name), on_error))
        hovers.append(hover)

    # A pale line from delta near to delta far, in each row.
    ys = np.arange(len(names))
    from_to = np.stack([start, end], 1)
    paths = Line(from_to, np.stack([ys, ys], 1), colour=PALE, hover="")
    marks: list[Mark] = [Zone(x=(0, CONCENTRATED), colour=VERDICTS["supported"].pale), paths]
    for keep in (True, False):
        chosen = [i for i, name in enumerate(names) if (name in counted) == keep]
        if not chosen:
            continue
        symbol = "circle" if keep else "circle-open"
        texts = [hovers[i] for i in chosen]
        near = Points(
            start[chosen],
            ys[chosen],
            name="in distribution",
            colour=GREY,
            symbol=symbol,
            size=7,
            edge=1.3,
            texts=texts,
        )
        far = Points(
            end[chosen],
            ys[chosen],
            name="far from the data" if keep else "far from the data, not sure to matter",
            symbol=symbol,
            size=[sizes[i] for i in chosen],
            edge=1 if keep else 1.5,
            edge_colour="white" if keep else BLUE,
            texts=texts,
        )
        marks += [near, far]
    beside = [Column("far away, looks at", targets, inks), Column("effect", words_of_effect, inks)]
    x = Axis(f"δ = 1 − weight on the largest key (hardmax: δ ≤ {CONCENTRATED})", -0.02, 1.03)
    y = rows(names, "layer.head", beside=beside)
    height = 22 if len(names) <= MANY else 15
    return Panel("", x, y, marks, width=2.0, row=height)


def _ends(delta: DataArray, facts: Facts) -> tuple[np.ndarray, np.ndarray]:
    """Delta of each head in distribution, and far from the data."""
    xs = delta["x"].values
    sizes = np.abs(xs)
    low, high = facts.trained_range or (0.0, 0.0)
    near = (xs >= low) & (xs <= high)
    if not near.any():
        near = sizes == sizes.min()
    in_units = sizes[:, None] / facts.x_unit
    far = np.isclose(in_units, FAR).any(1)
    values = delta.sel(statistic="delta").values
    return values[:, near].mean(-1), values[:, far].mean(-1)


def _target(delta: DataArray, head: str) -> str:
    """What a head attends to most at both ends of the far range."""
    share = {}
    for target in TARGETS:
        if target in delta.indexes["statistic"]:
            weights = delta.sel(statistic=target, head=head).values
            share[target] = weights[[0, -1]].mean()
    return max(share, key=share.__getitem__) if share else ""


def _hover(name: str, start: float, end: float, target: str, share: Result | None) -> str:
    """What hovering over a head says."""
    lines = [f"<b>head {plain(name)}</b>"]
    lines.append(f"δ in distribution {number(start)}, far from the data {number(end)}")
    if share is not None:
        near, *far = share.sel(head=name).values.mean(-1)[:5]
        shown = number(100 * near)
        far_shown = number(100 * min(far))
        lines.append(f"a hardmax in {shown} % of contexts in distribution, {far_shown} % far")
    if target:
        lines.append(f"looks at {plain(target)}")
    return "<br>".join(lines)
