"""The numbers that the papers print, as data with their source.

They are facts, copied and not judged.
"""

import csv
from functools import cache
from pathlib import Path

from icl_interp.errors import unknown

FOLDER = Path(__file__).parents[1] / "published"
PAPER = "Naim & Asher (2025)"
SOURCES = {
    "limits.table1": f"{PAPER}, Table 1: squared error, degree 1, with and without LayerNorm",
    "limits.table2": f"{PAPER}, Table 2: squared error by degree and model",
    "limits.table3": f"{PAPER}, Table 3: squared error, degree 1, by training interval",
    "limits.table4": f"{PAPER}, Table 4: softmax of three vectors",
}


@cache
def rows(name: str) -> tuple[dict[str, str], ...]:
    """A table's rows as they are printed."""
    if name not in SOURCES:
        raise unknown("published table", name, SOURCES)
    with (FOLDER / f"{name.replace('.', '_')}.csv").open(newline="") as file:
        return tuple(csv.DictReader(file))


def errors(name: str, **key: str) -> dict[float, float]:
    """Squared error by sigma of the one row with these values.

    >>> errors("limits.table1", model="with_layernorm")[2.0]
    0.03
    """
    (row,) = [
        row for row in rows(name) if all(row[column] == value for column, value in key.items())
    ]
    return {
        float(column.removeprefix("sigma_")): float(value)
        for column, value in row.items()
        if "sigma" in column
    }
