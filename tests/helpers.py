"""What several test files share."""

import logging
from collections.abc import Callable
from typing import Any, Self

import pytest
from beartype import BeartypeConf, FrozenDict, beartype

_CHECKED = beartype(conf=BeartypeConf(is_pep484_tower=True, hint_overrides=FrozenDict({Self: Any})))


def check_types(function: Any) -> Any:
    """Checks a function's annotations at run time.

    An int passes for a float, as type checkers have it, and so does anything for `Self`: jaxtyping hands over methods
    one by one, where beartype can't know the class. A function within a function would be compiled anew whenever the
    outer one runs, which takes longer than most tests: it is left as it is.
    """
    return function if "<locals>" in function.__qualname__ else _CHECKED(function)


class Surface(logging.Handler):
    """Raises each error that the package catches and logs: a report goes on without a broken claim, a test must not."""

    def emit(self, record: logging.LogRecord) -> None:
        """Raise the error that the record is about, if it is about one."""
        if record.exc_info and record.exc_info[1]:
            raise record.exc_info[1]


SURFACE = Surface()  # attached in conftest.py


def must_fail(check: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Assert that `check(*args, **kwargs)` fails: the mutant beside a test, which shows that the test can fail.

    Only a failed assertion counts, and so does a `pytest.raises` inside the check that saw nothing raised. Any other
    error passes through, because a mutant that crashes shows nothing about the check.
    """
    try:
        check(*args, **kwargs)
    except (AssertionError, pytest.fail.Exception):
        return
    raise AssertionError(f"{getattr(check, '__name__', check)} accepts a mutant, so it can't fail")
