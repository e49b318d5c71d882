"""Table 4: softmax of small and of large values."""

from collections.abc import Mapping

import numpy as np
from pandas import DataFrame

from icl_interp.figures.colours import BLUE, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Mark, Panel, Points, rows
from icl_interp.figures.text import number
from icl_interp.results import Result

PAPERS = ("a", "b", "c")  # vectors that the paper has


def softmax_examples(
    results: Mapping[str, Result], comparison: DataFrame | None
) -> dict[str, Drawing]:
    """The weights of each vector, a row each: those with the same gaps look the same.

    This holds whatever the size of a vector.
    """
    table = results.get("softmax")
    if not isinstance(table, DataFrame):
        return {}
    marks: list[Mark] = []
    labels = []
    for row, (name, part) in enumerate(table.groupby("vector", sort=False)):
        values = part["value"].tolist()
        labels.append(f"{name}: {number(values[0])} … {number(values[-1], 5)}")
        points = Points(
            part["softmax"],
            np.full(len(values), row),
            colour=BLUE if name in PAPERS else ORANGE,
            size=11,
            opacity=0.7,
            texts=[number(value, 6) for value in values],
            hover="softmax of {text}: {x:.6f}",
        )
        marks.append(points)
    below = (
        "Blue: the paper's three vectors. Orange: the same, moved or stretched. Equal gaps give "
        "equal weights."
    )
    panel = Panel("", Axis("softmax weight", -0.02, 1.02), rows(labels), marks)
    return {"softmax": Drawing("Softmax sees gaps, not sizes", below, [panel], height=260)}
