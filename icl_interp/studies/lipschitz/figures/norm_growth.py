"""The figure of `lipschitz.norm_growth`: |M| against the step of training, a panel for each task and law of inputs."""

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go
from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments.errors import rows_of
from icl_interp.figures.grid import Drawn, add_line, add_panel, spans
from icl_interp.figures.style import finish, log_axis
from icl_interp.figures.text import plain
from icl_interp.results import Result
from icl_interp.studies.lipschitz.figures.colours import colour_of

LOWEST = 0.02  # of |M|: what is smaller is the noise of training


def norm_growth(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """A row for each law of inputs, a column for each class.

    The norm of the best window stands at the right end.
    """
    norms = results.get("norms")
    if not isinstance(norms, DataArray):
        return {}
    figure, kinds, laws = go.Figure(), norms.indexes["class"], norms.indexes["inputs"]
    columns, rows = spans(len(kinds), 0.1), spans(len(laws), 0.16)[::-1]
    held = norms.sel(quantity="|M|").values
    held = [
        *held[np.isfinite(held)].tolist(),
        *(row["best |M|"] for row in rows_of(results, "ends")),
    ]
    low, high = max(min(held), LOWEST) / 1.3, max(held) * 1.5
    last, named = float(norms["step"].values[-1]), set()
    for r, law in enumerate(laws):
        for c, kind in enumerate(kinds):
            panel = r * len(kinds) + c
            below = "step of training" if r == len(laws) - 1 else ""
            add_panel(
                figure,
                panel,
                columns[c],
                rows[r],
                f"{plain(kind)} tasks, inputs {plain(law)}",
                {"range": [0, 1.06 * last], "title": {"text": below}},
                log_axis("|M|" if c == 0 else "", low, high),
            )
            for lipschitz in norms.indexes["L"]:
                path = norms.sel(**{"class": kind, "inputs": law}, L=lipschitz)
                values = path.sel(quantity="|M|").values
                if np.isfinite(values).any():
                    name = f"L = {lipschitz:g}"
                    add_line(
                        figure,
                        panel,
                        name,
                        norms["step"].values,
                        values,
                        colour_of(lipschitz),
                        legend=name not in named,
                    )
                    named.add(name)
            _best(figure, panel, results, kind, law, last, low)
    below = (
        "|M| is the spectral norm; on isotropic inputs it is w, otherwise 4 w at M = w "
        "Σ<sup>−1</sup>. One unit at each"
        " L, Adam at a constant rate,<br>which bounds how far a step goes. Diamonds: the window of "
        "least loss by theory"
        " in the same norm (triangle: below the axis)."
    )
    return {
        "norm_growth": finish(
            figure, "|M| in training, by the Lipschitz constant L of the tasks", below, 620
        )
    }


def _best(
    figure: go.Figure,
    panel: int,
    results: Mapping[str, Result],
    kind: str,
    law: str,
    last: float,
    low: float,
) -> None:
    """The norm of the best window at the right end of a panel, one mark for each L."""
    rows = rows_of(results, "ends", **{"class": kind, "inputs": law})
    if not rows:
        return
    norms = [row["best |M|"] for row in rows]
    inside = [norm > low for norm in norms]
    add_line(
        figure,
        panel,
        "least loss",
        [1.03 * last] * len(rows),
        [norm if seen else 1.1 * low for norm, seen in zip(norms, inside, strict=True)],
        colour_of(rows[0]["L"]),
        legend=False,
        mode="markers",
        marker={
            "color": [colour_of(row["L"]) for row in rows],
            "symbol": ["diamond" if seen else "triangle-down" for seen in inside],
            "size": 9,
        },
        customdata=norms,
    )
