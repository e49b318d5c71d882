"""The figure of `lipschitz.beyond_a_head`: windows of all heads, and what a smoother leaves."""

from collections.abc import Mapping, Sequence
from typing import Any

from pandas import DataFrame

from icl_interp.experiments.errors import columns_of, rows_of
from icl_interp.figures.colours import BLUE, INK
from icl_interp.figures.drawing import Axis, Drawing, Panel, Points, Rule, rows
from icl_interp.results import Result

Rows = Sequence[Mapping[Any, Any]]


def beyond_a_head(
    results: Mapping[str, Result], comparison: DataFrame | None
) -> dict[str, Drawing]:
    """A row a model: its error, the windows of its heads, and what a smoother leaves of them."""
    errors = rows_of(results, "errors")
    if not errors:
        return {}
    # A row a model; long names take two lines.
    kinds = []
    lines = []
    for row in errors:
        kind = row["model"]
        kinds.append(kind)
        lines.append(kind.replace(" with ", "\nwith "))
    names = rows(lines)
    windows = rows_of(results, "windows")
    kept = rows_of(results, "smoothers")
    panels = [
        _errors(errors, names),
        _windows(windows, kinds, names),
        _smoothers(kept, kinds, names),
    ]
    below = (
        "A mark is a head; left, a model with its 95 % interval. Rules: one head with the best "
        "window. Right: what a smoother of the labels, put in the head's place, leaves of what the "
        "head does to the prediction."
    )
    title = "Beyond one softmax head: windows of all heads"
    return {"beyond_a_head": Drawing(title, below, panels, height=330, same_y=True)}


def _errors(errors: Rows, names: Axis) -> Panel:
    """A mark a model."""
    ratio, low, high = columns_of(errors, "ratio", "low", "high")
    places = range(len(errors))
    points = Points(ratio, places, low, high, colour=INK, hover="{x:.3g}")
    x = Axis("error / error at best window")
    return Panel("error of the model", x, names, [Rule(x=1.0), points])


def _windows(windows: Rows, kinds: Sequence[str], names: Axis) -> Panel:
    """A mark a head."""
    best, w = columns_of(windows, "best w", "w")
    points = Points(w, _places(windows, kinds), colour=BLUE, hover="w = {x:.3g}")
    rule = Rule(x=float(best[0]))
    return Panel("windows of its heads", Axis("window w", 0.0), names, [rule, points])


def _smoothers(kept: Rows, kinds: Sequence[str], names: Axis) -> Panel:
    """A mark a head, or a group of heads that do the same."""
    (left,) = columns_of(kept, "left")
    points = Points(left, _places(kept, kinds), colour=BLUE, hover="{x:.2g}")
    x = Axis("share that is left", -0.03)
    return Panel("heads less a smoother", x, names, [points])


def _places(found: Rows, kinds: Sequence[str]) -> list[int]:
    """The row of each head's model."""
    return [kinds.index(row["model"]) for row in found]
