"""The figure of `lipschitz.norm_growth`: |M| against the step of training.

It has a panel for each task and law of inputs.
"""

from collections.abc import Mapping

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments.errors import rows_of
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Points
from icl_interp.results import Result
from icl_interp.studies.lipschitz.figures.colours import colour_of

LOWEST = 0.02  # of |M|: what is smaller is the noise of training


def norm_growth(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """A row for each law of inputs, a column for each class.

    The norm of the best window stands at the right end.
    """
    norms = results.get("norms")
    if not isinstance(norms, DataArray):
        return {}

    # Records of earlier versions have one seed, and other quantities.
    if "seed" not in norms.dims:
        norms = norms.sel(quantity="|M|").expand_dims(seed=[0])

    # A panel for each law and class.
    kinds = norms.indexes["class"]
    last = float(norms["step"].values[-1])
    panels = []
    for law in norms.indexes["inputs"]:
        for kind in kinds:
            marks = _paths(norms.sel({"class": kind, "inputs": law}))
            for row in rows_of(results, "ends", **{"class": kind, "inputs": law}):
                if row.get("seed", 0) == 0:
                    marks.append(_best(row["best |M|"], row["L"], 1.03 * last))
            x = Axis("step of training", 0, 1.06 * last)
            y = Axis("|M|", log=True, least=LOWEST)
            panels.append(Panel(f"{kind} tasks, inputs {law}", x, y, marks))
    below = (
        "|M| is the spectral norm; on isotropic inputs it is w, otherwise 4 w at M = w "
        "Σ<sup>−1</sup>. A line is one unit, of one seed; Adam at a constant rate, which bounds "
        "how far a step goes. Diamonds: the window of least loss by theory in that norm. Norms "
        f"below {LOWEST:g} are drawn there (diamonds as triangles)."
    )
    title = "|M| in training, by the Lipschitz constant L of the tasks"
    drawing = Drawing(title, below, panels, height=250, columns=len(kinds), same_y=True)
    return {"norm_growth": drawing}


def _paths(norms: DataArray) -> list[Mark]:
    """|M| by the step, a line for each L and seed that was trained."""
    marks: list[Mark] = []
    steps = norms["step"].values
    for lipschitz in norms.indexes["L"]:
        name = f"L = {lipschitz:g}"
        colour = colour_of(lipschitz)
        for values in norms.sel(L=lipschitz).transpose("seed", "step").values:
            if np.isfinite(values).any():
                marks.append(Line(steps, values, name=name, colour=colour))
    return marks


def _best(norm: float, lipschitz: float, x: float) -> Points:
    """The norm of the best window at the right end of a panel."""
    symbol = "diamond" if norm >= LOWEST else "triangle-down"
    colour = colour_of(lipschitz)
    return Points(
        [x], [norm], name="least loss", colour=colour, symbol=symbol, size=9, edge=0, listed=False
    )
