"""The figure of `autoregression.figure8`: |cosine| between heads before and after training, as matrices."""

from collections.abc import Mapping

import plotly.graph_objects as go
from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments.errors import rows_of
from icl_interp.figures.grid import Drawn, add_matrix, spans
from icl_interp.figures.style import finish
from icl_interp.results import Result
from icl_interp.studies.autoregression.experiments.figure8 import WHEN


def figure8(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """Before and after side by side, for each number of heads."""
    rows = [row for row in rows_of(results, "means") if row["seed"] == 0]
    if not rows:
        return {}
    figure, columns = go.Figure(), spans(2 * len(rows), 0.09)
    for i, row in enumerate(rows):
        for j, when in enumerate(WHEN):
            matrix = results[f"{when}, {row['heads']} heads"]
            assert isinstance(matrix, DataArray)
            panel = 2 * i + j
            last = panel == 2 * len(rows) - 1
            title = f"{row['heads']} heads, {when}: {row[when]:.2f}"
            bar = {"x": columns[panel][1] + 0.005, "y": 0.5, "len": 1.0} if last else None
            add_matrix(
                figure,
                panel,
                columns[panel],
                (0, 1),
                title,
                matrix,
                1.0,
                bar,
                ("head", "head"),
                signed=False,
            )
    near = ", ".join(f"{row['random heads']:.2g} for {row['heads']} heads" for row in rows)
    below = (
        "|cosine| between the tensors V ⊗ QK of two heads, and its mean over pairs of different "
        "heads in the titles. All heads start nearly alike.<br>Random heads with the same singular "
        f"values have a mean of {near}. Seed 0."
    )
    return {"figure8": finish(figure, "How alike heads are before and after training", below, 250)}
