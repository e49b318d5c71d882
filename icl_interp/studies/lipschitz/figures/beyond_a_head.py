"""The figure of `lipschitz.beyond_a_head`: windows of all heads, and what a smoother leaves."""

from collections.abc import Mapping, Sequence
from typing import Any

from pandas import DataFrame

from icl_interp.experiments.errors import columns_of, rows_of
from icl_interp.figures.colours import BLUE, INK
from icl_interp.figures.drawing import Axis, Drawing, Mark, Panel, Points, Rule, rows
from icl_interp.results import Result

Rows = Sequence[Mapping[Any, Any]]


def beyond_a_head(
    results: Mapping[str, Result], comparison: DataFrame | None
) -> dict[str, Drawing]:
    """A row a model: its error, the windows of its heads, and what a smoother leaves of them."""
    errors = rows_of(results, "errors")
    if not errors:
        return {}
    kinds = [row["model"] for row in errors]
    names = rows([kind.replace(" with ", "\nwith ") for kind in kinds])
    windows = rows_of(results, "windows")
    kept = rows_of(results, "smoothers")

    ratio, low, high = columns_of(errors, "ratio", "low", "high")
    marks: list[Mark] = [Rule(x=1.0)]
    marks.append(Points(ratio, range(len(kinds)), low, high, colour=INK, hover="{x:.3g}"))
    error = Panel("error of the model", Axis("error / error at best window"), names, marks)

    best, w = columns_of(windows, "best w", "w")
    marks = [Rule(x=float(best[0]))]
    marks.append(Points(w, _places(windows, kinds), colour=BLUE, hover="w = {x:.3g}"))
    panels = [error, Panel("windows of its heads", Axis("window w", 0.0), names, marks)]

    if kept:
        (left,) = columns_of(kept, "left")
        points = Points(left, _places(kept, kinds), colour=BLUE, hover="{x:.2g}")
        x = Axis("share that is left", -0.03)
        panels.append(Panel("heads less a smoother", x, names, [points]))
    below = (
        "A mark is a head; left, a model with its 95 % interval. Rules: one head with the best "
        "window. Right: what a smoother of the labels, put in the head's place, leaves of what the "
        "head does to the prediction."
    )
    title = "Beyond one softmax head: windows of all heads"
    return {"beyond_a_head": Drawing(title, below, panels, height=330, same_y=True)}


def _places(found: Rows, kinds: Sequence[str]) -> list[int]:
    """The row of each head's model."""
    return [kinds.index(row["model"]) for row in found]
