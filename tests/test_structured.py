"""Plain data becomes objects of classes, or one line that names the place of what is wrong."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from helpers import must_fail

from icl_interp import structured
from icl_interp.errors import InputError
from icl_interp.provenance import finite
from icl_interp.structured import DEPTH, LARGEST, Stored, is_number


@dataclass(frozen=True)
class Region:
    """Of numbers."""

    low: float
    high: float = math.inf

    def __post_init__(self):
        if self.low > self.high:
            raise InputError(f"a region needs low <= high, but got {self.low} > {self.high}")


@dataclass(frozen=True)
class Rule:
    """With a field of each kind."""

    name: str
    kind: Literal["linear", "log"]
    region: Region
    ends: tuple[float, float] | None = None
    steps: tuple[int, ...] = ()
    firm: bool = False
    others: Mapping[str, Region] = field(default_factory=dict)
    rest: dict[str, Any] = field(default_factory=dict)


DATA = {
    "name": "a",
    "kind": "log",
    "region": {"low": 0, "high": "inf"},
    "ends": ["-inf", 2],
    "steps": [1, 2],
    "firm": True,
    "others": {"b": {"low": -1.5}},
    "rest": {"x": [1, {"y": None}]},
}
RULE = Rule(
    "a",
    "log",
    Region(0.0),
    (-math.inf, 2.0),
    (1, 2),
    True,
    {"b": Region(-1.5)},
    {"x": [1, {"y": None}]},
)


def of(data, where="rules.json: rule"):
    return Stored(data, where).of(Rule)


def gives(data, wanted):
    assert of(data) == wanted


def test_objects_of_every_kind_are_made():
    gives(DATA, RULE)
    gives(json.loads(json.dumps(finite(DATA))), RULE)
    must_fail(gives, {**DATA, "steps": [1, 3]}, RULE)
    short = {key: DATA[key] for key in ("name", "kind", "region")}
    gives(short, Rule("a", "log", Region(0.0)))
    assert isinstance(of(DATA).ends, tuple)
    assert isinstance(of(DATA).region.low, float)
    assert math.isnan(Stored("nan", "x").of(float))


BAD = [
    ({"name": 3}, "rule.name must be text, but got 3"),
    ({"name": None}, "rule.name must be text, but got None"),
    ({"name": "nan"}, "rule.name must be text, but got 'nan'"),
    ({"kind": "exp"}, "rule.kind must be one of linear, log, but got 'exp'"),
    ({"kind": ["log"]}, r"rule.kind must be one of linear, log, but got \['log'\]"),
    ({"region": 3}, "rule.region must be a mapping, but got 3"),
    ({"region": {"low": "1"}}, "rule.region.low must be a number, but got '1'"),
    ({"region": {"low": True}}, "rule.region.low must be a number, but got True"),
    ({"region": {"high": 1}}, "rule.region lacks the key 'low'"),
    ({"region": {"low": 1, "hihg": 2}}, "unknown key in .*rule.region 'hihg'"),
    ({"region": {"hihg": 2}}, "unknown key in .*rule.region 'hihg'"),
    ({"region": {"low": 2, "high": 1}}, "rule.region: a region needs low <= high, but got 2.0"),
    ({"ends": [1]}, r"rule.ends must be a list of 2, but got \[1\]"),
    ({"ends": []}, r"rule.ends must be a list of 2, but got \[\]"),
    ({"ends": [1, 2, 3]}, r"rule.ends must be a list of 2, but got \[1, 2, 3\]"),
    ({"ends": "ab"}, "rule.ends must be a list, but got 'ab'"),
    ({"ends": [1, "x"]}, r"rule.ends\[1\] must be a number, but got 'x'"),
    ({"steps": [1, 2.5]}, r"rule.steps\[1\] must be a whole number, but got 2.5"),
    ({"steps": [1, True]}, r"rule.steps\[1\] must be a whole number, but got True"),
    ({"steps": {"a": 1}}, "rule.steps must be a list, but got {'a': 1}"),
    ({"firm": 1}, "rule.firm must be true or false, but got 1"),
    ({"firm": "yes"}, "rule.firm must be true or false, but got 'yes'"),
    ({"others": []}, r"rule.others must be a mapping, but got \[\]"),
    ({"others": {"b c": {"low": None}}}, r"rule.others\['b c'\].low must be a number, but got"),
    ({"weight": 1}, "unknown key in .*rule 'weight'"),
    ({"rest": {"x": 10**400}}, "rule.rest.x must be a whole number below 2\\*\\*63"),
    ({"rest": {"x": {1, 2}}}, "rule.rest.x must be a number, text, a truth value, a list or"),
]


@pytest.mark.parametrize(("change", "match"), BAD)
def test_what_is_wrong_is_named_with_its_place(change, match):
    with pytest.raises(InputError, match=match) as refused:
        of({**DATA, **change})
    message = str(refused.value)
    assert "\n" not in message
    assert message.count("rules.json") == 1


@pytest.mark.parametrize("data", [None, 3, "x", [], [DATA]])
def test_what_is_no_mapping_is_no_object(data):
    with pytest.raises(InputError, match=r"rules\.json: rule must be a mapping, but got"):
        of(data)


def nested(levels, of=()):
    found = list(of)
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.slow
def test_too_deep_or_too_large_is_refused(monkeypatch):
    assert Stored(nested(DEPTH - 1), "x").plain()
    for levels in (DEPTH, 500, 10**5):
        with pytest.raises(InputError, match="nests deeper than the 20 levels that are read"):
            of({**DATA, "rest": {"x": nested(levels)}})
    for number in (LARGEST, -LARGEST, 10**5000):
        assert not is_number(number)
        with pytest.raises(InputError, match="below 2\\*\\*63"):
            Stored({"x": [1, number]}, "x").plain()
    monkeypatch.setattr(structured, "LARGEST_PART", 100)
    with pytest.raises(InputError, match=r"rule has .* bytes, but at most 100 are read"):
        of({**DATA, "steps": ["x"] * 1000})


def test_text_without_bytes_is_text():
    """Names of files may hold half a surrogate pair."""
    assert of({**DATA, "name": "a\udcff"}).name == "a?"


def test_numbers_that_json_cannot_write():
    assert all(map(is_number, (0, -1.5, "nan", "inf", "-inf", LARGEST - 1)))
    assert not any(map(is_number, (True, None, "1", [], "NaN")))
