"""Sizes of steps by the number of examples, a panel a model."""

from collections.abc import Mapping

from pandas import DataFrame

from icl_interp.figures.colours import COLOURS, GREY
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel
from icl_interp.figures.text import plain
from icl_interp.results import Result

N = Axis("examples before the step", log=True, whole=True)
Y = Axis("size / first", log=True)


def convergence(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Sizes over the first of their own, beside 1 / n."""
    found = results.get("sizes")
    if not isinstance(found, DataFrame):
        return {}
    panels = []
    for model, rows in found.groupby("model", sort=False):
        # Each line is over its own first size.
        marks: list[Mark] = []
        for place, (names, part) in enumerate(rows.groupby(["weights", "labels"], sort=False)):
            n = part["examples"].to_numpy(float)
            size = part["size"].to_numpy(float)
            weights = "as trained" if names[0] == model else names[0]
            name = f"{weights}, {names[1]}"
            marks.append(Line(n, size / size[0], name=name, colour=COLOURS[place], symbol="circle"))
        marks.append(Line(n, n[0] / n, name="1 / n", colour=GREY, dash="dot", hover=""))
        panels.append(Panel(str(model), N, Y, marks))
    below = f"{plain(found.attrs['note'])}."
    return {"convergence": Drawing("Size of steps by examples", below, panels)}
