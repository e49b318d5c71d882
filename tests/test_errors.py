"""Error messages stay one short line, whatever came."""

import time

import pytest
from helpers import must_fail

from icl_interp.errors import LONGEST, InputError, shown, unknown, whole

HUGE = [
    10**100_000,
    [10**5000],
    "x" * 10**7,
    [[0] * 10**6] * 10**6,
    {i: "x" * 10**6 for i in range(9)},
    b"x" * 10**7,
]
DEEP: list = []
for _ in range(10**5):
    DEEP = [DEEP]


def check_short(show, value):
    started = time.perf_counter()
    text = show(value)
    assert len(text) <= 60
    assert "\n" not in text
    assert time.perf_counter() - started < 1


@pytest.mark.parametrize(
    "value", [*HUGE, DEEP, "a\nb", None, 1.5, object()], ids=range(len(HUGE) + 5)
)
def test_any_value_is_shown_in_a_short_line(value):
    check_short(shown, value)
    check_short(lambda v: shown(v, 20), value)


def test_a_long_text_is_noticed():
    must_fail(check_short, repr, "x" * 100)
    must_fail(check_short, str, "a\nb")


def test_short_values_are_shown_as_they_are():
    for value in (64.5, True, "many", -1, [1, 2], {"a": None}, (1,)):
        assert shown(value) == repr(value)


@pytest.mark.parametrize("value", HUGE, ids=range(len(HUGE)))
def test_messages_about_any_value_are_short(value):
    assert len(str(unknown("claim", value, ["a", "b"]))) < 200
    with pytest.raises(InputError) as refused:
        whole(value, "n", 1)
    assert len(str(refused.value)) < 200


def test_a_message_has_an_end():
    assert len(str(InputError("x" * 10**6))) == LONGEST
    assert len(str(unknown("x", "y", map(str, range(10**5))))) < LONGEST
    assert str(InputError("short")) == "short"


@pytest.mark.parametrize("value", [64.5, True, "many", -1, 0, 101, None, float("nan"), [3]])
def test_what_is_no_whole_number_in_range_is_refused(value):
    with pytest.raises(InputError, match="n must be a whole number from 1 to 100, but got"):
        whole(value, "n", 1, 100)


def test_whole_numbers_pass():
    import numpy as np

    assert [whole(value, "n", 1, 100) for value in (1, 100, np.int64(7))] == [1, 100, 7]
    assert type(whole(np.int64(7), "n", 1)) is int
