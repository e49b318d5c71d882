"""Looking into tables of results."""

from typing import Any

from pandas import DataFrame

from icl_interp.results import rows_in


def row_of(table: DataFrame, **key: Any) -> dict[str, Any]:
    """The only row with these values."""
    (row,) = (
        row for row in rows_in(table) if all(row[name] == value for name, value in key.items())
    )
    return row
