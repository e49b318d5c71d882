"""What measurements return: arrays with named axes, units and a note. They go to JSON and back without loss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from icl_interp.errors import InputError, unknown
from icl_interp.provenance import finite


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
                f"values have shape {self.values.shape}, but the axes {list(self.axes)} ask for {expected}"
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


@dataclass(frozen=True)
class Curve(Matrix):
    """A `Matrix` whose last axis is a number that runs: an abscissa to draw against."""

    kind: ClassVar[str] = "curve"

    @property
    def x(self) -> np.ndarray:
        """The abscissa."""
        return np.asarray(list(self.axes.values())[-1], dtype=np.float64)

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
            raise InputError(f"columns of a table must be equally long, but got {lengths}")

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
        raise InputError(f"the table has no row with {key}")

    def __str__(self) -> str:
        cells = [list(self.columns), *([_cell(v) for v in row.values()] for row in self.rows())]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data, unrounded; NaN and infinities as strings."""
        return {"kind": self.kind, "columns": finite(dict(self.columns)), "units": dict(self.units), "note": self.note}


Result = Matrix | Curve | Table


def from_dict(data: Mapping[str, Any]) -> Result:
    """The result that `to_dict` wrote."""
    if data["kind"] == "table":
        columns = {name: [_unstring(v) for v in column] for name, column in data["columns"].items()}
        return Table(columns, data["units"], data["note"])
    cls = {"matrix": Matrix, "curve": Curve}[data["kind"]]
    axes = {name: tuple(_unstring(c) for c in coordinates) for name, coordinates in data["axes"].items()}
    # numpy reads "nan" and "inf" back by itself.
    values = np.array(data["values"], dtype=np.float64)
    if not values.size:  # nested lists lose the lengths of the axes after an empty one
        values = values.reshape([len(coordinates) for coordinates in axes.values()])
    return cls(values, axes, data["unit"], data["note"])


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _unstring(value: Any) -> Any:
    return float(value) if value in ("nan", "inf", "-inf") else value


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
