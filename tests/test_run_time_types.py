"""`support/run_time_types.py` refuses the annotations that jaxtyping's own decorator refuses."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn, Self

import jaxtyping
import pytest
import run_time_types
import torch
from beartype import BeartypeConf, beartype
from helpers import must_fail
from jaxtyping import Float
from run_time_types import ORIGINAL
from run_time_types import jaxtyped as checked
from torch import Tensor

import icl_interp.resampling
from icl_interp.prompts import Prompts

pytestmark = pytest.mark.skipif(
    jaxtyping.config.jaxtyping_disable, reason="annotations are not checked in this run"
)


def rows(
    x: Float[Tensor, "row column"], weights: Float[Tensor, " row"]
) -> Float[Tensor, " column"]:
    return weights @ x


def columns(x: Float[Tensor, "row column"]) -> Float[Tensor, " column"]:
    return x.sum(1)


def outer(x: Float[Tensor, " n"], inner: Callable) -> Float[Tensor, " n"]:
    inner(torch.zeros(7))  # its n is another
    return x


def kinds(a: int, /, b: float, *rest: str, c: "int" = 1, **more: bool) -> "str":
    return f"{a}{b}{rest}{c}{more}"


def numbers(n: int) -> Iterator[int]:
    yield from range(n)


def never() -> NoReturn:
    """It returns."""


def unknown(x: "NameForTypeCheckers") -> int:  # noqa: F821
    return x


@dataclass
class Box:
    sides: tuple[float, ...]
    names: list[str] = field(default_factory=list)

    @property
    def volume(self) -> float:
        return "large" if not self.sides else 1.0

    @classmethod
    def cube(cls, side: float) -> Self:
        return cls((side,) * 3)

    @staticmethod
    def twice(side: float) -> float:
        return 2 * side


X, ROW = torch.ones(2, 3), torch.ones(2)
RIGHT = (
    (rows, (X, ROW), {}),
    (columns, (torch.ones(2, 2),), {}),
    (kinds, (1, 2, "x"), {"c": 3, "d": True}),
    (kinds, (1,), {"b": 2.0}),
    (numbers, (3,), {}),
    (unknown, (3,), {}),
)
WRONG = (
    (rows, (X, torch.ones(3)), {}),  # two lengths of one axis
    (rows, (X.double().long(), ROW), {}),  # a dtype
    (rows, (X, [1.0, 1.0]), {}),
    (columns, (X,), {}),  # what is returned has another length than the arguments have set
    (kinds, (1.5, 2, "x"), {}),
    (kinds, (1, "2"), {}),
    (kinds, (1, 2, 3), {}),
    (kinds, (1, 2), {"c": "3"}),
    (kinds, (1, 2), {"d": "x"}),
    (kinds, (), {"a": 1, "b": 2}),  # a is positional
    (kinds, (1,), {}),
    (numbers, ("3",), {}),
    (never, (), {}),
    (unknown, ("x",), {}),
)


def refuses(decorator, wrong):
    function, args, kwargs = wrong
    with pytest.raises(TypeError):
        decorator(function)(*args, **kwargs)


def theirs(function):
    return ORIGINAL(function, typechecker=beartype(conf=BeartypeConf(is_pep484_tower=True)))


@pytest.mark.parametrize("wrong", WRONG, ids=lambda case: f"{case[0].__name__}-{case[1]}-{case[2]}")
def test_what_is_wrong_is_refused(wrong):
    refuses(checked, wrong)
    refuses(theirs, wrong)
    must_fail(refuses, lambda function: lambda *args, **kwargs: None, wrong)


@pytest.mark.parametrize("right", RIGHT, ids=lambda case: f"{case[0].__name__}-{case[2]}")
def test_what_is_right_passes_and_the_function_looks_as_before(right):
    function, args, kwargs = right
    said, expected = checked(function)(*args, **kwargs), function(*args, **kwargs)
    if isinstance(said, Iterator):
        said, expected = list(said), list(expected)
    torch.testing.assert_close(said, expected) if isinstance(said, Tensor) else None
    assert isinstance(said, Tensor) or said == expected
    assert inspect.signature(checked(function)) == inspect.signature(function)
    assert checked(function).__name__ == function.__name__


def test_each_call_has_axes_of_its_own():
    inner = checked(rows)
    torch.testing.assert_close(
        checked(outer)(X[0], lambda x: inner(torch.ones(5, 4), torch.ones(5))), X[0]
    )
    for n in (2, 3):  # nothing is left of the call before
        checked(rows)(torch.ones(n, 4), torch.ones(n))


def test_methods_and_dataclasses():
    class_ = checked(Box)
    assert checked(class_) is class_
    assert class_((1, 2.0)).names == []
    with pytest.raises(TypeError):
        class_(sides=("x",))
    with pytest.raises(TypeError):
        class_((1.0,), names=[1])
    with pytest.raises(TypeError):
        checked(Box.__dict__["volume"]).fget(class_(()))
    assert checked(Box.__dict__["volume"]).fget(class_((1.0,))) == 1.0
    assert checked(Box.__dict__["cube"]).__func__(Box, 2).sides == (2, 2, 2)
    for name, args in (("cube", (Box, "x")), ("twice", ("x",))):
        with pytest.raises(TypeError):
            checked(Box.__dict__[name]).__func__(*args)


def test_a_wrong_call_changes_nothing():
    done = []

    def act(x):
        done.append(x)

    act.__qualname__, act.__annotations__ = "act", {"x": int}
    with pytest.raises(jaxtyping.TypeCheckError):
        checked(act)("x")
    assert done == []
    checked(act)(1)
    assert done == [1]


def test_a_function_that_is_called_often_is_checked_now_and_then(monkeypatch):
    monkeypatch.setattr(run_time_types, "FIRST", 30)
    monkeypatch.setattr(run_time_types, "THEN", 10)

    def act(x):
        return x

    act.__qualname__, act.__annotations__ = "act", {"x": int}
    often = checked(act)
    refused = []
    for call in range(65):
        try:
            often("x")
        except jaxtyping.TypeCheckError:
            refused.append(call)
    assert refused == [*range(30), 30, 40, 50, 60]


def test_the_package_is_checked(monkeypatch):
    monkeypatch.setattr(run_time_types, "FIRST", 10**9)
    with pytest.raises(jaxtyping.TypeCheckError):
        icl_interp.resampling.bootstrap("x")
    one = (
        torch.zeros(6, 5, 2),
        torch.zeros(6, 5),
        torch.zeros(6, 3),
        torch.zeros(6, dtype=torch.int64),
    )
    Prompts(*one)
    with pytest.raises(jaxtyping.TypeCheckError):
        Prompts(one[0], [1.0], *one[2:])
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    checked(columns)(X)
