"""The figure of `autoregression.figure8`.

It shows |cosine| between heads before and after training, as matrices, and the coordinates that
each head attends to.
"""

from collections.abc import Mapping

from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments.errors import rows_of
from icl_interp.figures.drawing import Axis, Drawing, Matrix, Panel
from icl_interp.results import Result
from icl_interp.studies.autoregression.experiments.figure8 import WHEN


def figure8(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Before and after side by side, for each number of heads, with coordinates beside them."""
    rows = [row for row in rows_of(results, "means") if row["seed"] == 0]
    if not rows:
        return {}
    panels = []
    for row in rows:
        heads = f"{row['heads']} heads"
        for when in WHEN:
            found = results[f"{when}, {heads}"]
            assert isinstance(found, DataArray)
            title = f"{heads}, {when}: {row[when]:.2f}"
            last = row is rows[-1] and when == WHEN[-1]
            panel = _alike(found, title, bar=last)
            panels.append(panel)
        # Results of earlier versions have no coordinates.
        parts = results.get(f"coordinates, {heads}")
        if isinstance(parts, DataArray):
            panel = _coordinates(parts, f"{heads}: coordinates")
            panels.append(panel)
    near = ", ".join(f"{row['random heads']:.2g} for {row['heads']} heads" for row in rows)
    below = (
        "|cosine| between the tensors V ⊗ QK of two heads, and its mean over pairs of different "
        "heads in the titles. All heads start nearly alike. Random heads with the same singular "
        f"values have a mean of {near}. Seed 0."
    )
    columns = None
    if len(panels) > len(rows) * len(WHEN):
        columns = len(WHEN) + 1
        below += (
            " Right: the part of each coordinate of a token in what a head weighs, |QK|<sup>2</sup>"
            ", after training; the second half of the coordinates is the second copy of the state."
        )
    title = "How alike heads are before and after training"
    drawing = Drawing(title, below, panels, height=250, columns=columns)
    return {"figure8": drawing}


def _coordinates(found: DataArray, title: str) -> Panel:
    heads = found["head"].values.tolist()
    places = found["coordinate"].values.tolist()
    matrix = Matrix(
        found.values,
        heads,
        places,
        0.0,
        None,
        "from zero",
        bar="",
        hover="head {row}, coordinate {column}: {z:.3g}",
    )
    x = Axis("coordinate", labels=5)
    y = Axis("head", labels=5)
    return Panel(title, x, y, [matrix])


def _alike(found: DataArray, title: str, bar: bool) -> Panel:
    across = range(1, found.shape[1] + 1)
    down = range(1, found.shape[0] + 1)
    matrix = Matrix(
        found.values,
        down,
        across,
        0.0,
        1.0,
        "from zero",
        bar="" if bar else None,
        hover="head {row}, head {column}: {z:.3g}",
    )
    x = Axis("head", labels=5)
    y = Axis("head", labels=5)
    return Panel(title, x, y, [matrix])
