"""Entries: what names them, what they hold, and their way to a file and back."""

from dataclasses import replace

import pytest
from helpers import must_fail
from made_up_facts import facts
from small_registries import N_UNITS, OWN, entry, report, rule, share

from icl_interp.analyses.criterion import Precondition
from icl_interp.analyses.measurement import Measurement
from icl_interp.errors import InputError
from icl_interp.provenance import parse_json
from icl_interp.registry import Entry, version_of
from icl_interp.registry.entry import LARGEST_PACKED, pack, unpack

pytestmark = pytest.mark.usefixtures("registry")


def read_back(one: Entry) -> Entry:
    return Entry.from_dict(parse_json(one.text().encode(), "a file"), "a file")


def test_an_entry_is_read_as_it_was_written():
    one = entry("low", 0.05)
    assert read_back(one) == one
    assert read_back(one).path == one.path
    assert one.verdict == "supported"
    assert one.quote == OWN.quote
    assert one.estimate is not None
    assert one.estimate == one.numbers["mean"]
    # The control is another model, with another number.
    assert one.controls[0]["mean"].value == pytest.approx(one.estimate.value + 0.3)
    assert one.measurements == {"own/share": 1, "twin/own/share": 1}


def test_results_that_a_claim_needs_come_along_and_no_others():
    given = report("low", 0.05)
    one = entry("low", 0.05)
    _, results = one.unpacked()
    assert results is not None
    assert set(results) == {"own/share", "twin/own/share"}
    for name, result in results.items():
        assert result.equals(given.results[name])


@pytest.mark.slow
def test_large_results_are_left_out():
    one = entry("low", 0.05, n_units=100 * N_UNITS)
    model, results = one.unpacked()
    assert results is None
    assert len(one.stored) <= LARGEST_PACKED
    assert model["n_units"] == 100 * N_UNITS


def other_version(**changes):
    assert version_of(replace(OWN, **changes)) != version_of(OWN)


def test_the_version_of_a_claim_is_what_decides():
    other_version(criterion=rule(support=0.11))
    other_version(criterion=rule(against=0.21))
    asked = (Precondition("mean", (0.0, 1.0), "It is out of range."),)
    other_version(criterion=replace(rule(), preconditions=asked))
    other_version(kind="learning")
    other_version(measurements=(Measurement("own/share", share.function, version=2),))
    # Words, and the code behind numbers, are no part of it.
    for changes in (
        {"statement": "It is tiny."},
        {"criterion": replace(rule(), terms="Small is at most 0.1.")},
        {"evidence": lambda results, facts: {"mean": 0.0}},
    ):
        must_fail(other_version, **changes)


def damaged(data: dict, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        Entry.from_dict(data, "a file")


def test_damage_is_named():
    data = entry("low", 0.05).to_dict()
    damaged({**data, "verdict": "perhaps"}, "a file: verdict must be one of supported")
    damaged({**data, "schema": "icl_interp.registry/9"}, "a file has schema")
    damaged({key: v for key, v in data.items() if key != "numbers"}, "lacks the key 'numbers'")
    damaged({**data, "rank": 1}, "unknown key in a file 'rank'")
    short = {**data["numbers"]["mean"], "extremes": [[0.0, 1.0]]}
    damaged({**data, "numbers": {"mean": short}}, "extremes must be a list of 3")
    with pytest.raises(InputError, match="stored is damaged"):
        replace(entry("low", 0.05), stored="no base 85 \n").unpacked()
    with pytest.raises(InputError, match="cut off or too large"):
        unpack(pack(facts().to_dict(), {})[:-40], "a file")
