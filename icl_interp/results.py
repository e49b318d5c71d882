"""What measurements return: arrays with named axes, units and a note. They go to JSON and back without loss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from icl_interp.errors import InputError, shown, unknown
from icl_interp.provenance import finite
from icl_interp.stored import Stored, is_number


@dataclass(frozen=True)
class Matrix:
    """Numbers over named axes.

    Attributes:
        values: float64 array; one dimension for each axis.
        axes: coordinates of each axis by its name, in the order of the dimensions: numbers or names.
        unit: of the values.
        note: how they were measured, in a sentence.

    >>> m = Matrix([[1, 2], [3, 4]], {"layer": (0, 1), "head": ("a", "b")})
    >>> m.at(layer=1)
    array([3., 4.])
    """

    values: ArrayLike
    axes: Mapping[str, Sequence[Any]]
    unit: str = ""
    note: str = ""
    kind: ClassVar[str] = "matrix"

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", np.asarray(self.values, dtype=np.float64))
        object.__setattr__(self, "axes", {name: tuple(_plain(c) for c in coords) for name, coords in self.axes.items()})
        expected = tuple(len(coordinates) for coordinates in self.axes.values())
        if self.values.shape != expected:
            raise InputError(
                f"values have shape {self.values.shape}, but the axes {shown(list(self.axes))} ask for {expected}"
            )

    def at(self, **coordinates: Any) -> np.ndarray:
        """Values at one coordinate of each axis named, in the order of the axes that remain."""
        values = self.values
        for name in reversed(list(self.axes)):
            if name in coordinates:
                if coordinates[name] not in self.axes[name]:
                    raise unknown(f"coordinate of axis {name}", coordinates[name], map(str, self.axes[name]))
                values = values.take(self.axes[name].index(coordinates[name]), axis=list(self.axes).index(name))
        for name in coordinates:
            if name not in self.axes:
                raise unknown("axis", name, self.axes)
        return np.asarray(values)

    def __repr__(self) -> str:
        axes = " x ".join(f"{shown(name, 24)[1:-1]} ({len(c)})" for name, c in islice(self.axes.items(), 6))
        return f"{type(self).__name__}({axes or 'one number'}{f', unit {shown(self.unit)}' if self.unit else ''})"

    def axis(self, name: str) -> np.ndarray:
        """Coordinates of an axis as an array."""
        return np.asarray(self.axes[name])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data, unrounded; NaN and infinities as strings."""
        axes = {name: finite(coordinates) for name, coordinates in self.axes.items()}
        return {
            "kind": self.kind,
            "axes": axes,
            "unit": self.unit,
            "note": self.note,
            "values": self.values.tolist() if np.isfinite(self.values).all() else finite(self.values.tolist()),
        }


@dataclass(frozen=True, repr=False)
class Curve(Matrix):
    """A `Matrix` whose last axis is a number that runs: an abscissa to draw against."""

    kind: ClassVar[str] = "curve"

    @property
    def x(self) -> np.ndarray:
        """The abscissa."""
        coordinates = list(self.axes.values())[-1] if self.axes else ()
        if not all(isinstance(c, (int, float)) for c in coordinates):
            raise InputError(f"the last axis of a curve must hold numbers, but got {shown(coordinates)}")
        return np.asarray(coordinates, dtype=np.float64)

    @property
    def x_name(self) -> str:
        """Its name."""
        return list(self.axes)[-1]


@dataclass(frozen=True)
class Table:
    """Columns of equal length, numbers or names.

    >>> print(Table({"model": ["a", "b"], "error": [0.5, 0.25]}))
    model  error
    a      0.5
    b      0.25
    """

    columns: Mapping[str, Sequence[Any]]
    units: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    kind: ClassVar[str] = "table"

    def __post_init__(self) -> None:
        columns = {name: [_plain(value) for value in column] for name, column in self.columns.items()}
        object.__setattr__(self, "columns", columns)
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(f"columns of a table must be equally long, but got {shown(lengths)}")

    def __getitem__(self, column: str) -> Sequence[Any]:
        if column not in self.columns:
            raise unknown("column", column, self.columns)
        return self.columns[column]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def rows(self) -> list[dict[str, Any]]:
        """One mapping a row."""
        return [dict(zip(self.columns, values, strict=True)) for values in zip(*self.columns.values(), strict=True)]

    def row(self, **key: Any) -> dict[str, Any]:
        """The first row with these values."""
        for row in self.rows():
            if all(row[name] == value for name, value in key.items()):
                return row
        raise InputError(f"the table has no row with {shown(key)}")

    def __repr__(self) -> str:
        return f"Table({len(self)} rows, columns {shown(list(self.columns), 120)})"

    def __str__(self) -> str:
        cells = [list(self.columns), *([_cell(v) for v in row.values()] for row in self.rows())]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data, unrounded; NaN and infinities as strings."""
        return {"kind": self.kind, "columns": finite(dict(self.columns)), "units": dict(self.units), "note": self.note}


Result = Matrix | Curve | Table


def from_dict(data: Mapping[str, Any], where: str = "result") -> Result:
    """The result that `to_dict` wrote.

    Args:
        where: names the place of the data in messages.

    Raises:
        InputError: the data are no such result; the message names the place.
    """
    stored = Stored(data, where)
    cls = {"matrix": Matrix, "curve": Curve, "table": Table}[stored["kind"].one_of(("matrix", "curve", "table"))]
    note = stored["note"].text()
    try:
        if cls is Table:
            stored.members(("kind", "columns", "units", "note"))
            units = {name: unit.text() for name, unit in stored["units"].members().items()}
            return Table(_scalars(stored["columns"]), units, note)
        stored.members(("kind", "axes", "unit", "note", "values"))
        return cls(_values(stored["values"], axes := _scalars(stored["axes"])), axes, stored["unit"].text(), note)
    except InputError as error:
        raise error if where in str(error) else InputError(f"{where.rstrip(' :')}: {error}") from error


def _scalars(lists: Stored) -> dict[str, tuple[Any, ...]]:
    """Lists of numbers and names, by name."""
    return {name: tuple(item.scalar() for item in stored.items()) for name, stored in lists.members().items()}


def _values(stored: Stored, axes: Mapping[str, Sequence[Any]]) -> np.ndarray:
    """Nested lists of numbers as an array over the axes."""
    leaves = [stored.value]
    for _ in axes:
        if not all(isinstance(leaf, (list, tuple)) for leaf in leaves):
            raise stored.refused(f"lists within lists, one level for each of the axes {shown(list(axes))}")
        leaves = [item for leaf in leaves for item in leaf]
    for leaf in leaves:
        if not is_number(leaf):
            raise InputError(f"{stored.where} must hold numbers only, but holds {shown(leaf)}")
    shape = tuple(len(coordinates) for coordinates in axes.values())
    if not leaves and 0 in shape:  # nested lists lose the lengths of the axes after an empty one
        return np.zeros(shape)
    try:
        return np.array(stored.value, dtype=np.float64)  # numpy reads "nan" and "inf" back by itself
    except ValueError as error:
        raise InputError(f"{stored.where} holds lists of different lengths, but the axes ask for {shape}") from error


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
