"""Tables for readers: rounded numbers, and rows by sigma as columns, as in a paper."""

from collections.abc import Iterable, Mapping
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
    if {"sigma", "ours"} <= set(table.columns):
        columns = _by_sigma(table, intervals)
    else:
        columns = {}
        for name in table.columns:
            columns[name] = []
        for row in table.to_dict("records"):
            for name, value in row.items():
                columns[name].append(cell(value))
    return make_table(columns, note=table.attrs["note"])


def _by_sigma(table: DataFrame, intervals: bool) -> dict[str, list[str]]:
    """Columns of a table with a row for each quantity and the sigmas as columns."""
    # The columns before "sigma" say what numbers are of. Rows that agree in them form a group.
    names = list(table.columns)
    keys = names[: names.index("sigma")]
    groups: dict[tuple[Any, ...], dict[float, Any]] = {}
    for row in table.to_dict("records"):
        group = groups.setdefault(tuple(row[name] for name in keys), {})
        group[row["sigma"]] = row

    # The interval is shown though it is no column of its own: its ends are.
    shown = [name for name in ROWS if name in names or (name == "95 %" and intervals)]
    sigmas = sorted(set(table["sigma"]))
    columns: dict[str, list[str]] = {}
    for name in (*keys, "sigma:"):
        columns[name] = []
    for sigma in sigmas:
        columns[f"{sigma:g}"] = []
    for key, group in groups.items():
        for quantity in shown:
            for name, value in zip(keys, key, strict=True):
                columns[name].append(cell(value))
            columns["sigma:"].append(quantity)
            for sigma in sigmas:
                columns[f"{sigma:g}"].append(_value(group.get(sigma), quantity))
    return columns


def markdown(table: DataFrame, intervals: bool = True) -> str:
    """`readable` as a table in Markdown."""
    shown = readable(table, intervals)
    lines = [_line(shown.columns), _line(["---"] * len(shown.columns))]
    for row in shown.to_dict("records"):
        lines.append(_line(row.values()))
    return "\n".join(lines)


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
    if name == "95 %":
        return f"{number(row['low'], 2)}–{number(row['high'], 2)}"
    return cell(float(row[name]))


def _line(cells: Iterable[str]) -> str:
    """A row of a table in Markdown."""
    escaped = [text.replace("|", "\\|") for text in cells]
    return f"| {' | '.join(escaped)} |"
