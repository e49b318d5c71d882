"""Measurements: what each needs and asks, and a function of the answers; results by measurement."""

from collections import UserDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isgenerator, isgeneratorfunction
from typing import Any, Generic, TypeVar, overload

from pandas import DataFrame
from xarray import DataArray

from icl_interp.errors import InputError, shown, unknown
from icl_interp.probes.sweep import Sweep
from icl_interp.renamed import with_old_names
from icl_interp.results import Result

R = TypeVar("R", bound=Result)
# What a measurement asks for; its answers come in the same form, a `Swept` in place of each sweep.
Asked = Sweep | Sequence[Sweep] | Mapping[Any, Sweep] | None
CONTROLS = ("twin/", "twin 2/", "twin 3/")  # in front of the names of untrained controls' results
CONTROL = CONTROLS[0]  # the one whose numbers are shown


@dataclass(frozen=True)
class Measurement(Generic[R]):
    """A named measurement: a function of the lab.

    The lab runs each once, however many claims ask for it.

    A measurement is also the key of its result: `results[far.intact]`. No two may have one name.

    A measurement that runs the model over queries declares what it asks. The lab then runs what all
    measurements ask for together, and reads each context once:

        @measurement("own/spread", needs=(output_unit.own,), asks=lambda lab: lab.ask([0.5]))
        def spread(lab, swept, own): ...

    Attributes:
        function: of the lab, of the answers where it asks for any, and of the results of `needs`.
        version: goes up when the same model would give another result: stored results are then not
            judged again.
        needs: measurements whose results it builds on; they are taken before it.
        asks: gives the sweeps that it asks for, from the lab and the results of `needs`: one
            (`lab.ask(...)`), several in a list or by key, or None for nothing. The answers come in
            the same form: a `Swept` with predictions `f` and the probes, which have read.

    Raises:
        InputError: the function or what it asks is a generator.
    """

    name: str
    function: Callable[..., R]
    version: int = 1
    needs: "tuple[Measurement[Any], ...]" = ()
    asks: Callable[..., Asked] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "needs", tuple(self.needs))
        if isgeneratorfunction(self.function) or isgeneratorfunction(self.asks):
            raise _is_generator(self.name)

    def __call__(self, lab: Any) -> R:
        """Measure by itself: what it needs is taken from the lab, what it asks for is run at once.

        Raises:
            TypeError: the function returned something that a report cannot hold.
        """
        needed = [lab.measure(one) for one in self.needs]
        return self.reduce(lab, self.ask(lab, needed), needed)

    def ask(self, lab: Any, needed: Sequence[Any]) -> Asked:
        """The sweeps that it asks for, given the results of what it needs."""
        asked = None if self.asks is None else self.asks(lab, *needed)
        _check_asked(self.name, asked)
        return asked

    def reduce(self, lab: Any, asked: Asked, needed: Sequence[Any]) -> R:
        """The result. The lab answers what was asked: sweeps that have run are not run again."""
        if self.asks is None:
            result = self.function(lab, *needed)
        else:
            result = self.function(lab, _answered(lab, asked), *needed)
        _check(self.name, result)
        return result


def measurement(
    name: str,
    version: int = 1,
    *,
    needs: Sequence[Measurement[Any]] = (),
    asks: Callable[..., Asked] | None = None,
) -> Callable[[Callable[..., R]], Measurement[R]]:
    """Decorator that makes a function a measurement; arguments as of `Measurement`."""
    return lambda function: Measurement(name, function, version, tuple(needs), asks)


def with_needs(measurements: Iterable[Measurement[Any]]) -> list[Measurement[Any]]:
    """These measurements and all that they need, each once."""
    found: dict[int, Measurement[Any]] = {}
    ahead = list(measurements)
    for one in ahead:  # grows on the way
        if id(one) not in found:
            found[id(one)] = one
            ahead += one.needs
    return list(found.values())


def sweeps_in(asked: Asked) -> list[Sweep]:
    """The sweeps that a measurement asks for."""
    if asked is None:
        return []
    if isinstance(asked, Sweep):
        return [asked]
    return list(asked.values() if isinstance(asked, Mapping) else asked)


def _answered(lab: Any, asked: Asked) -> Any:
    """The answers, in the form in which a measurement asked."""
    sweeps = sweeps_in(asked)
    answers = lab.answers(sweeps) if sweeps else []
    if asked is None:
        return None
    if isinstance(asked, Sweep):
        return answers[0]
    return dict(zip(asked, answers, strict=True)) if isinstance(asked, Mapping) else answers


class MissingResult(InputError, KeyError):
    """There is no such result.

    It is a `KeyError` too, as every mapping's `pop` and `setdefault` expect.
    """

    __str__ = InputError.__str__  # a KeyError's own shows the message in quotes


@with_old_names(twin="control", by_twin="by_control")
class Results(UserDict[str, Any]):
    """Results by name; a measurement is a key too, and then a type checker knows what it gives.

    >>> from icl_interp.results import make_table
    >>> certificate = Measurement("far/certificate", lambda lab: make_table({"r": [2.0]}))
    >>> its = make_table({"r": [3.0]})
    >>> results = Results({"far/certificate": certificate(None), "twin/far/certificate": its})
    >>> results[certificate]["r"].item(), results.control["far/certificate"]["r"].item()
    (2.0, 3.0)
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
    def control(self) -> "Results":
        """The results of the first untrained control."""
        return Results(
            {name.removeprefix(CONTROL): r for name, r in self.items() if name.startswith(CONTROL)}
        )

    @property
    def by_control(self) -> "list[Results]":
        """These results once for each control that was measured, which then stands as the first."""
        own = {name: r for name, r in self.items() if not name.startswith(CONTROLS)}
        found = []
        for prefix in CONTROLS:
            its = {
                CONTROL + name.removeprefix(prefix): r
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


def _is_generator(name: str) -> InputError:
    """Says to those who wrote a measurement that asks while it runs what to write instead."""
    return InputError(
        f"the measurement {name!r} is a generator (`yield`), which no longer asks: declare what it "
        "asks, `@measurement(name, needs=(other,), asks=lambda lab: lab.ask(xs))`, and take the "
        "answers, `def function(lab, swept, other)`, with the predictions in `swept.f`"
    )


def _check_asked(name: str, asked: Any) -> None:
    """Refuse what is no question."""
    if isgenerator(asked):
        raise _is_generator(name)
    if isinstance(asked, Mapping):
        several = list(asked.values())
    elif isinstance(asked, (list, tuple)):
        several = asked
    else:
        several = [] if asked is None else [asked]
    if not all(isinstance(one, Sweep) for one in several):
        raise InputError(
            f"the measurement {name!r} asks for {shown(asked)}: `asks` returns a sweep "
            "(`lab.ask(...)`), a list of sweeps, sweeps by key, or None"
        )


def _check(name: str, result: Any) -> None:
    """Refuse what a report cannot hold."""
    if isgenerator(result):
        raise _is_generator(name)
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
