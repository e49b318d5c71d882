"""Tables for readers: rounded numbers, and rows by sigma as columns, as in a paper."""

from collections.abc import Mapping, Sequence
from typing import Any

from pandas import DataFrame

from icl_interp.figures.text import number
from icl_interp.results import make_table

ROWS = ("paper", "ours", "95 %", "ours / paper")  # of each quantity


def readable(table: DataFrame, intervals: bool = True) -> DataFrame:
    """The table in words: by sigma as papers print it where it is by sigma, row by row otherwise.

    Args:
        table: a comparison of an experiment.
        intervals: show those of our numbers, where the table is by sigma.

    >>> from icl_interp.results import text
    >>> t = make_table({"model": ["a", "a"], "sigma": [1, 2],
    ...     "paper": [0.0, 2.0], "ours": [1.0, 3.0],
    ...     "low": [0.5, 2.0], "high": [1.5, 4.0], "ours / paper": [float("nan"), 1.5]})
    >>> print(text(readable(t, intervals=False)))
    model       sigma: 1   2
        a        paper 0   2
        a         ours 1   3
        a ours / paper – 1.5
    """
    rows = table.to_dict("records")
    if not {"sigma", "ours"} <= set(table.columns):
        return make_table(
            {name: [cell(row[name]) for row in rows] for name in table.columns},
            note=table.attrs["note"],
        )
    keys = list(table.columns)[: list(table.columns).index("sigma")]
    sigmas = sorted({row["sigma"] for row in rows})
    shown = [name for name in ROWS if name in table.columns or (name == "95 %" and intervals)]
    columns: dict[str, list[str]] = {
        name: [] for name in (*keys, "sigma:", *(f"{sigma:g}" for sigma in sigmas))
    }
    for key in dict.fromkeys(tuple(row[name] for name in keys) for row in rows):
        here = {row["sigma"]: row for row in rows if tuple(row[name] for name in keys) == key}
        for name in shown:
            for column, value in zip(keys, key, strict=True):
                columns[column].append(cell(value))
            columns["sigma:"].append(name)
            for sigma in sigmas:
                columns[f"{sigma:g}"].append(_value(here.get(sigma), name))
    return make_table(columns, note=table.attrs["note"])


def markdown(table: DataFrame, intervals: bool = True) -> str:
    """`readable` as a table in Markdown."""
    shown = readable(table, intervals)
    rows = [
        list(shown.columns),
        ["---"] * len(shown.columns),
        *([*row.values()] for row in shown.to_dict("records")),
    ]
    return "\n".join(f"| {' | '.join(_escaped(row))} |" for row in rows)


def cell(value: Any) -> str:
    """One value for readers."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "–" if value != value else number(value)
    return str(value)


def _value(row: Mapping[str, Any] | None, name: str) -> str:
    if row is None:
        return "–"
    return (
        f"{number(row['low'], 2)}–{number(row['high'], 2)}"
        if name == "95 %"
        else cell(float(row[name]))
    )


def _escaped(row: Sequence[str]) -> list[str]:
    return [value.replace("|", "\\|") for value in row]
