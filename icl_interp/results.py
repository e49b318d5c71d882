"""What measurements return: `xarray.DataArray`s and `pandas.DataFrame`s.

They are written to JSON and read back without loss.

An array has a coordinate for every axis. Its `attrs` hold "units" (of the values), "note" (how they
were measured, in a sentence) and "kind": "curve" where the last axis is a number that runs, an
abscissa to draw against, else "matrix". A table's `attrs` hold "units" by column and "note".
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from icl_interp.errors import InputError, shown
from icl_interp.provenance import finite
from icl_interp.structured import Stored, is_number

Result = xr.DataArray | pd.DataFrame
Kind = Literal["matrix", "curve", "table"]
DTYPES = {int: np.int64, float: np.float64, bool: np.bool_}


def make_array(
    values: ArrayLike,
    axes: Mapping[str, Iterable[Any]],
    units: str = "",
    note: str = "",
    kind: str = "matrix",
) -> xr.DataArray:
    """Numbers over named axes.

    Args:
        values: float64 after this; one dimension for each axis.
        axes: coordinates of each axis by its name, in the order of the dimensions: numbers or
            names.
        units: of the values.
        note: how they were measured, in a sentence.
        kind: "matrix" or "curve".

    Raises:
        InputError: the shape of the values is not that of the axes.

    >>> m = make_array([[1, 2], [3, 4]], {"layer": (0, 1), "head": ("a", "b")})
    >>> m.sel(layer=1).values
    array([3., 4.])
    """
    # In the order of the axes also in memory: sums then have the last bits that they have after a
    # trip through JSON.
    array = np.array(values, dtype=np.float64, order="C")
    coordinates = {}
    for name, items in axes.items():
        # A variable, because xarray would copy the index, which costs more than all the rest.
        coordinates[name] = xr.IndexVariable(name, _index(items, name))
    expected = tuple(map(len, coordinates.values()))
    if array.shape != expected:
        raise InputError(
            f"values have shape {array.shape}, but the axes {shown(list(axes))} ask for {expected}"
        )
    attrs = {"kind": kind, "units": units, "note": note}
    return xr.DataArray(array, coordinates, dims=tuple(coordinates), attrs=attrs)


def make_arrays(
    values: Mapping[str, ArrayLike],
    axes: Mapping[str, Iterable[Any]],
    units: Mapping[str, str] | None = None,
    note: str = "",
) -> dict[str, xr.DataArray]:
    """`make_array` for several quantities over the same axes, which are made once.

    Args:
        values: of each quantity.
        axes: coordinates of each axis by its name.
        units: of a quantity, where it has one.
        note: how they were measured, in a sentence.

    Raises:
        InputError: the shape of some values is not that of the axes.

    >>> made = make_arrays({"entropy": [0.5], "keys": [3]}, {"head": (0,)}, {"entropy": "nats"})
    >>> made["keys"].values, made["entropy"].attrs["units"]
    (array([3.]), 'nats')
    """
    units = units or {}
    made: dict[str, xr.DataArray] = {}
    first = None
    for name, numbers in values.items():
        unit = units.get(name, "")
        array = np.array(numbers, dtype=np.float64, order="C")
        if first is None or array.shape != first.shape:
            first = make_array(array, axes, unit, note)
            made[name] = first
            continue
        other = first.copy(deep=False, data=array)
        other.attrs = {**first.attrs, "units": unit}
        made[name] = other
    return made


def make_curve(
    values: ArrayLike, axes: Mapping[str, Iterable[Any]], units: str = "", note: str = ""
) -> xr.DataArray:
    """`make_array` whose last axis is a number that runs: an abscissa to draw against.

    >>> make_curve([[1, 2]], {"arm": ("intact",), "x": (0.5, 1)})["x"].values
    array([0.5, 1. ])
    """
    return make_array(values, axes, units, note, "curve")


def make_table(
    columns: Mapping[str, Iterable[Any]], units: Mapping[str, str] | None = None, note: str = ""
) -> pd.DataFrame:
    """Columns of equal length, numbers or names.

    Raises:
        InputError: columns of different lengths.

    >>> print(make_table({"model": ["a", "b"], "error": [0.5, 0.25]}).to_string(index=False))
    model  error
        a   0.50
        b   0.25
    """
    series = {}
    lengths = {}
    for name, items in columns.items():
        series[name] = pd.Series(_index(items, name))
        lengths[name] = len(series[name])
    if len(set(lengths.values())) > 1:
        raise InputError(f"columns of a table must be equally long, but got {shown(lengths)}")
    table = pd.DataFrame(series)
    table.attrs = {"units": dict(units or {}), "note": note}
    return table


def table_of_rows(rows: Sequence[Mapping[str, Any]], note: str = "") -> pd.DataFrame:
    """A table from its rows, which all have the keys of the first; without rows, no columns."""
    columns = {}
    for name in rows[0] if rows else ():
        columns[name] = [row[name] for row in rows]
    return make_table(columns, note=note)


def rows_in(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table, each by the names of the columns.

    >>> rows_in(make_table({"model": ["a", "b"], "error": [0.5, 0.25]}))
    [{'model': 'a', 'error': 0.5}, {'model': 'b', 'error': 0.25}]
    """
    rows = []
    for row in table.to_dict("records"):
        rows.append({str(key): value for key, value in row.items()})
    return rows


def table_of_numbers(numbers: Mapping[str, Any], note: str = "") -> pd.DataFrame:
    """Single numbers by name as a table, a row each."""
    values = list(map(float, numbers.values()))
    return make_table({"name": list(numbers), "value": values}, note=note)


def numbers_in(table: pd.DataFrame) -> dict[str, float]:
    """The numbers by name that `table_of_numbers` holds.

    >>> numbers_in(table_of_numbers({"w": 2, "loss": 0.5}))
    {'w': 2.0, 'loss': 0.5}
    """
    return dict(zip(table["name"], table["value"], strict=True))


def described(result: Result) -> dict[str, Any]:
    """The units and the note of a result, for one that is made of it."""
    return {"units": result.attrs["units"], "note": result.attrs["note"]}


def text(table: pd.DataFrame, width: int | None = None) -> str:
    """A table for the terminal: four digits, no index.

    Args:
        table: the table.
        width: of the screen, in characters. Where a row does not fit, it takes several lines, and
            those after the first are indented; a column that is wider by itself stays as it is.

    >>> table = make_table({"model": ["affine", "b"], "error": [0.123456, 2e-9]})
    >>> print(text(table))
     model  error
    affine 0.1235
         b  2e-09
    >>> print(text(table, 10))
     model
       error
    affine
      0.1235
         b
       2e-09
    """
    shown = _string(table)
    longest = max(map(len, shown.splitlines()))
    if width is None or longest <= width:
        return shown
    # Columns by themselves, each a list of cells of one length under its head.
    columns = []
    for name in table:
        alone = _string(table.loc[:, [name]])
        columns.append(alone.splitlines())
    # Where a line is full, the next one begins; it is indented.
    pieces: list[list[list[str]]] = [[]]
    room = width
    for column in columns:
        size = len(column[0])
        if pieces[-1] and size > room:
            pieces.append([])
            room = width - 2
        pieces[-1].append(column)
        room -= size + 1
    lines: list[str] = []
    for row in range(len(table) + 1):
        for piece in pieces:
            indent = "" if piece is pieces[0] else "  "
            cells = " ".join(column[row] for column in piece)
            lines.append(indent + cells)
    return "\n".join(lines)


def _string(table: pd.DataFrame) -> str:
    """A table as it is written by pandas."""
    return table.to_string(index=False, float_format="{:.4g}".format)


def to_dict(result: Result) -> dict[str, Any]:
    """Plain JSON data, unrounded; NaN and infinities as strings.

    >>> to_dict(make_table({"error": [0.5]}))
    {'kind': 'table', 'columns': {'error': [0.5]}, 'units': {}, 'note': ''}
    """
    note = result.attrs.get("note", "")
    if isinstance(result, pd.DataFrame):
        columns = {}
        for name, column in result.items():
            columns[str(name)] = finite(column.tolist())
        return {
            "kind": "table",
            "columns": columns,
            "units": dict(result.attrs.get("units", {})),
            "note": note,
        }
    axes = {}
    for name in result.dims:
        axes[str(name)] = finite(coordinates(result, name))
    numbers = result.values.astype(np.float64)
    values = numbers.tolist()
    return {
        "kind": result.attrs.get("kind", "matrix"),
        "axes": axes,
        "unit": result.attrs.get("units", ""),
        "note": note,
        "values": values if np.isfinite(numbers).all() else finite(values),
    }


def coordinates(array: xr.DataArray, axis: Any) -> list[Any]:
    """Coordinates of an axis as plain numbers and names; positions where it has none.

    >>> coordinates(make_array([1.0, 2.0], {"head": ("0.0", "0.1")}), "head")
    ['0.0', '0.1']
    """
    return array.get_index(axis).tolist()


def from_dict(data: Mapping[str, Any], where: str = "result") -> Result:
    """The result that `to_dict` wrote.

    Args:
        data: what `to_dict` gave.
        where: names the place of the data in messages.

    Raises:
        InputError: the data are no such result; the message names the place.
    """
    stored = Stored(data, where)
    kind = stored["kind"].of(Kind)
    note = stored["note"].of(str)
    # Each kind has fields of its own, and no others.
    try:
        if kind == "table":
            stored.members(("kind", "columns", "units", "note"))
            columns = _scalars(stored["columns"])
            units = stored["units"].of(dict[str, str])
            return make_table(columns, units, note)
        stored.members(("kind", "axes", "unit", "note", "values"))
        axes = _scalars(stored["axes"])
        values = _values(stored["values"], axes)
        unit = stored["unit"].of(str)
        return make_array(values, axes, unit, note, kind)
    except InputError as error:
        if where in str(error):
            raise
        raise InputError(f"{stored.place}: {error}") from error


def _index(items: Iterable[Any], name: str) -> pd.Index:
    """Coordinates or a column with values and types unchanged; of mixed types they are objects."""
    plain = [item.item() if isinstance(item, np.generic) else item for item in items]
    kinds = set(map(type, plain))
    if kinds == {int, float} and all(float(item) == item or item != item for item in plain):
        kinds = {float}
    dtype = DTYPES.get(kinds.pop(), object) if len(kinds) == 1 else object
    try:
        return pd.Index(plain, dtype=dtype, name=name, tupleize_cols=False)
    except OverflowError:  # whole numbers of more than 64 bits
        return pd.Index(plain, dtype=object, name=name)


def _scalars(lists: Stored) -> dict[str, list[Any]]:
    """Lists of numbers and names, by name."""
    for items in lists.members().values():
        for item in items.items():
            if isinstance(item.value, (Mapping, list, tuple)):
                raise item.refused("a number or text")
    return lists.of(dict[str, list[Any]])


def _values(stored: Stored, axes: Mapping[str, Sequence[Any]]) -> np.ndarray:
    """Nested lists of numbers as an array over the axes."""
    leaves = [stored.value]
    for _ in axes:
        if not all(isinstance(leaf, (list, tuple)) for leaf in leaves):
            raise stored.refused(
                f"lists within lists, one level for each of the axes {shown(list(axes))}"
            )
        leaves = list(chain.from_iterable(leaves))
    for leaf in leaves:
        if not is_number(leaf):
            raise InputError(f"{stored.where} must hold numbers only, but holds {shown(leaf)}")
    shape = tuple(map(len, axes.values()))
    if not leaves and 0 in shape:  # nested lists lose the lengths of the axes after an empty one
        return np.zeros(shape)
    try:
        return np.array(stored.value, dtype=np.float64)  # it reads "nan" and "inf" by itself
    except ValueError as error:
        raise InputError(
            f"{stored.where} holds lists of different lengths, but the axes ask for {shape}"
        ) from error
