"""What several test files share."""

from collections.abc import Callable
from typing import Any, Self

import pytest
from beartype import BeartypeConf, FrozenDict, beartype

# Checks a function's annotations at run time. An int passes for a float, as type checkers have it, and so does anything
# for `Self`: jaxtyping hands over methods one by one, where beartype can't know the class.
check_types = beartype(conf=BeartypeConf(is_pep484_tower=True, hint_overrides=FrozenDict({Self: Any})))


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
