"""Measurements: named functions of the lab whose results have a static type, and the results by measurement."""

from collections import UserDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from pandas import DataFrame
from xarray import DataArray

from icl_interp.errors import InputError, shown, unknown
from icl_interp.results import Result

if TYPE_CHECKING:
    from icl_interp.analyses.lab import Lab

R = TypeVar("R", bound=Result)
TWIN = "twin/"  # in front of the names of an untrained twin's results


@dataclass(frozen=True)
class Measurement(Generic[R]):
    """A named measurement: a function of the lab. The lab runs each once, however many claims ask for it.

    It is also the key of its result: `results[far.intact]`. No two may have one name.

    Attributes:
        version: goes up when the same model would give another result: stored results are then not judged again.
    """

    name: str
    function: "Callable[[Lab], R]"
    version: int = 1

    def __call__(self, lab: "Lab") -> R:
        """Measure.

        Raises:
            TypeError: the function returned something that a report cannot hold.
        """
        result = self.function(lab)
        _check(self.name, result)
        return result


def measurement(name: str, version: int = 1) -> "Callable[[Callable[[Lab], R]], Measurement[R]]":
    """Decorator that makes a function of the lab a measurement."""
    return lambda function: Measurement(name, function, version)


class MissingResult(InputError, KeyError):
    """There is no such result. It is a `KeyError` too, as every mapping's `pop` and `setdefault` expect."""

    __str__ = InputError.__str__  # a KeyError's own shows the message in quotes


class Results(UserDict[str, Any]):
    """Results by name; a measurement is a key too, and then a type checker knows what it gives.

    >>> from icl_interp.results import make_table
    >>> certificate = Measurement("far/certificate", lambda lab: make_table({"r": [2.0]}))
    >>> results = Results({"far/certificate": certificate(None), "twin/far/certificate": make_table({"r": [3.0]})})
    >>> results[certificate]["r"].item(), results.twin["far/certificate"]["r"].item(), certificate in results
    (2.0, 3.0, True)
    """

    @overload
    def __getitem__(self, key: Measurement[R]) -> R: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...
    def __getitem__(self, key: Measurement[R] | str) -> Any:
        if key not in self:
            raise MissingResult(str(unknown("result", _name(key), self.data)))
        return self.data[_name(key)]

    @overload
    def get(self, key: Measurement[R], default: None = None) -> R | None: ...
    @overload
    def get(self, key: str, default: Any = None) -> Any: ...
    def get(self, key: Measurement[R] | str, default: Any = None) -> Any:
        """The result, or the default where it was not measured."""
        return self.data.get(_name(key), default)

    def __contains__(self, key: object) -> bool:
        return _name(key) in self.data

    @property
    def twin(self) -> "Results":
        """The results of the untrained twin."""
        return Results({name.removeprefix(TWIN): r for name, r in self.items() if name.startswith(TWIN)})


def check_distinct(measurements: "dict[str, Measurement[Any]]", new: Measurement[Any]) -> None:
    """Refuse a measurement whose name another one has: a result belongs to one of them.

    Raises:
        InputError: there is another of that name.
    """
    if measurements.setdefault(new.name, new) != new:
        raise InputError(f"two measurements are called {shown(new.name)}: give each its own name")


def _name(key: object) -> Any:
    return key.name if isinstance(key, Measurement) else key


def _check(name: str, result: Any) -> None:
    """Refuse what a report cannot hold."""
    if not isinstance(result, (DataArray, DataFrame)):
        raise TypeError(
            f"the measurement {name!r} returned {type(result).__name__}: return an xarray.DataArray or a "
            "pandas.DataFrame (icl_interp.results.make_array, make_table)"
        )
    for column, values in result.indexes.items() if isinstance(result, DataArray) else result.items():
        for value in values:
            if not isinstance(value, (str, int, float, type(None))):
                raise TypeError(
                    f"{column!r} of the measurement {name!r} holds a {type(value).__name__}: use numbers and text"
                )
