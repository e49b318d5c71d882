"""Heads of trained layers by w and weight of labels, a colour a layer."""

from collections.abc import Mapping

from pandas import DataFrame

from icl_interp.figures.colours import COLOURS
from icl_interp.figures.drawing import Axis, Drawing, Panel, Points
from icl_interp.results import Result


def by_heads(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """A point a head."""
    table = results.get("by head")
    if not isinstance(table, DataFrame):
        return {}
    marks = []
    groups = table.groupby("heads")
    for (count, mine), colour in zip(groups, COLOURS, strict=False):
        name = f"{count} head{'s' * (count != 1)}"
        w = mine["w"].to_numpy()
        weight = mine["weight of labels"].to_numpy()
        marks.append(Points(w, weight, name=name, colour=colour, size=9))
    panel = Panel("", Axis("w"), Axis("weight of labels"), marks)
    below = "A head that scores by w times <x_i, x_q> and reads labels with a weight."
    return {"by_heads": Drawing("Softmax heads of trained layers", below, [panel])}
