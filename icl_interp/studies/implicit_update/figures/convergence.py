"""Errors with examples and under the update, and sizes of steps, by the number of examples."""

from collections.abc import Mapping

import numpy as np
from pandas import DataFrame

from icl_interp.figures.colours import COLOURS, GREY
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Points
from icl_interp.figures.text import plain
from icl_interp.results import Result

N = Axis("examples", log=True, whole=True)
ERROR = Axis("error / error of predicting 0", log=True)
SIZE = Axis("size of the next step / first", log=True)
LOOKS = {"as trained": "solid", "untrained": "dash"}


def convergence(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Two panels: lines of errors with those under the update as dots, and a line a size."""
    found = results.get("by length")
    if not isinstance(found, DataFrame):
        return {}
    errors: list[Mark] = []
    sizes: list[Mark] = []
    groups = found.groupby("model", sort=False)
    for (model, mine), colour in zip(groups, COLOURS, strict=False):
        name = str(model)
        for weights, dash in LOOKS.items():
            rows = DataFrame(mine[mine["weights"] == weights])
            part = rows.to_dict("list")
            n = part["examples"]
            size = np.divide(part["size"], part["size"][0])
            if dash == "solid":
                # Under the update: dots on the line, by algebra.
                under = part["error under the update"]
                errors.append(Line(n, part["error"], name=name, colour=colour))
                errors.append(Points(n, under, colour=colour, listed=False))
            else:
                name = f"{model}, {weights}"
            line = Line(n, size, name=name, colour=colour, dash=dash, symbol="circle")
            sizes.append(line)
    n = np.unique(found["examples"])
    average = Line(n, n[0] / n, name="1 / n", colour=GREY, dash="dot", hover="")
    sizes.append(average)
    panels = [
        Panel("Lines: with examples; dots: under the update", N, ERROR, errors),
        Panel("Steps of the implicit weights", N, SIZE, sizes),
    ]
    below = f"{plain(found.attrs['note'])}."
    return {"convergence": Drawing("The implicit update by examples", below, panels)}
