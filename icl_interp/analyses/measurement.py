"""Measurements: named functions of the lab whose results have a static type; and their results."""

from collections import UserDict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from pandas import DataFrame
from torch import Tensor
from xarray import DataArray

from icl_interp.errors import InputError, shown, unknown
from icl_interp.probes.sweep import Sweep
from icl_interp.results import Result

if TYPE_CHECKING:
    from icl_interp.analyses.lab import Lab

R = TypeVar("R", bound=Result)
# Yields sweeps, is sent the predictions of each, returns the result.
Planned = Generator[tuple[Sweep, ...], Sequence[Tensor], R]
TWINS = ("twin/", "twin 2/", "twin 3/")  # in front of the names of untrained twins' results
TWIN = TWINS[0]  # the one whose numbers are shown


@dataclass(frozen=True)
class Measurement(Generic[R]):
    """A named measurement: a function of the lab.

    The lab runs each once, however many claims ask for it.

    It is also the key of its result: `results[far.intact]`. No two may have one name.

    A function that runs the model over queries is best written as a generator, which asks and is
    answered:
    `f = yield from lab.ask(xs)`. The lab then runs what all measurements ask for together, and
    reads each context once.

    Attributes:
        version: goes up when the same model would give another result: stored results are then not
            judged again.
    """

    name: str
    function: "Callable[[Lab], R | Planned[R]]"
    version: int = 1

    def __call__(self, lab: "Lab") -> R:
        """Measure by itself: what it asks for is run at once.

        Raises:
            TypeError: the function returned something that a report cannot hold.
        """
        steps = self.steps(lab)
        answers: Sequence[Tensor] | None = None
        while True:
            try:
                asked = next(steps) if answers is None else steps.send(answers)
                answers = lab.run(asked)
            except StopIteration as end:
                return end.value

    def steps(self, lab: "Lab") -> "Planned[R]":
        """What it asks for, step by step, and the result at the end."""
        result = self.function(lab)
        if isinstance(result, Generator):
            result = yield from result
        _check(self.name, result)
        return cast(R, result)


def measurement(
    name: str, version: int = 1
) -> "Callable[[Callable[[Lab], R | Planned[R]]], Measurement[R]]":
    """Decorator that makes a function of the lab a measurement."""
    return lambda function: Measurement(name, function, version)


class MissingResult(InputError, KeyError):
    """There is no such result.

    It is a `KeyError` too, as every mapping's `pop` and `setdefault` expect.
    """

    __str__ = InputError.__str__  # a KeyError's own shows the message in quotes


class Results(UserDict[str, Any]):
    """Results by name; a measurement is a key too, and then a type checker knows what it gives.

    >>> from icl_interp.results import make_table
    >>> certificate = Measurement("far/certificate", lambda lab: make_table({"r": [2.0]}))
    >>> own, twin = certificate(None), make_table({"r": [3.0]})
    >>> results = Results({"far/certificate": own, "twin/far/certificate": twin})
    >>> stored = results.twin["far/certificate"]
    >>> results[certificate]["r"].item(), stored["r"].item(), certificate in results
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
        """The results of the first untrained twin."""
        return Results(
            {name.removeprefix(TWIN): r for name, r in self.items() if name.startswith(TWIN)}
        )

    @property
    def by_twin(self) -> "list[Results]":
        """These results once for each untrained twin that was measured, as the first twin."""
        own = {name: r for name, r in self.items() if not name.startswith(TWINS)}
        found = []
        for prefix in TWINS:
            its = {
                TWIN + name.removeprefix(prefix): r
                for name, r in self.items()
                if name.startswith(prefix)
            }
            found += [Results({**own, **its})] if its else []
        return found


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
            f"the measurement {name!r} returned {type(result).__name__}: return an "
            "xarray.DataArray or a pandas.DataFrame (icl_interp.results.make_array, make_table)"
        )
    for column, values in (
        result.indexes.items() if isinstance(result, DataArray) else result.items()
    ):
        for value in values:
            if not isinstance(value, (str, int, float, type(None))):
                raise TypeError(
                    f"{column!r} of the measurement {name!r} holds a {type(value).__name__}: use "
                    "numbers and text"
                )
