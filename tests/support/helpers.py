"""What several test files share."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from icl_interp.errors import InputError


class Surface(logging.Handler):
    """Raises each error that the package logs instead, since no test should hide a broken claim."""

    def emit(self, record: logging.LogRecord) -> None:
        """Raise the error that the record is about, if it is about one."""
        if record.exc_info and record.exc_info[1]:
            raise record.exc_info[1]


SURFACE = Surface()  # attached in conftest.py


def must_fail(check: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Assert that `check(*args, **kwargs)` fails, which shows that the test can fail.

    Only a failed assertion counts, and so does a `pytest.raises` inside the check that saw nothing
    raised. Any other error passes through, because a mutant that crashes shows nothing about the
    check.
    """
    try:
        check(*args, **kwargs)
    except (AssertionError, pytest.fail.Exception):
        return
    raise AssertionError(f"{getattr(check, '__name__', check)} accepts a mutant, so it can't fail")


def refuse(message: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Assert that a call is refused in one clear line."""
    with pytest.raises(InputError, match=message) as refused:
        call(*args, **kwargs)
    assert "\n" not in str(refused.value)


def mostly_slow(values: Iterable[Any], fast: int = 1, *, single: bool = False) -> list[Any]:
    """Values of parameters: the fast suite has the first ones, the slow suite all others.

    Args:
        values: of one parameter, or tuples with a value for each.
        fast: how many the fast suite has.
        single: tuples are values of one parameter.
    """
    return [_slow(value, single) if i >= fast else value for i, value in enumerate(values)]


def one_in(n: int, values: Iterable[Any], *, single: bool = False) -> list[Any]:
    """Values of parameters: the fast suite has the first of every n, the slow suite the others.

    See `mostly_slow`.
    """
    return [_slow(value, single) if i % n else value for i, value in enumerate(values)]


def _slow(value: Any, single: bool) -> Any:
    values = value if isinstance(value, tuple) and not single else (value,)
    return pytest.param(*values, marks=pytest.mark.slow)
