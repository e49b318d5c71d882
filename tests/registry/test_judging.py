"""Entries judged again: what changes a verdict is found, and a line may explain it."""

from dataclasses import replace
from pathlib import Path

import pytest
from helpers import must_fail
from small_registries import N_UNITS, OWN, entry, evidence, filled, registered, report, rule, share

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.measurement import Measurement
from icl_interp.analyses.registry import REGISTRY
from icl_interp.registry import add, entries_of, judge, read, version_of
from icl_interp.registry.folder import CHANGES
from icl_interp.registry.judging import OUTDATED, write

pytestmark = pytest.mark.usefixtures("registry")
STRICTER = rule(support=0.04, against=0.2)  # `low` then lies between the thresholds
LINE = "own.small * supported -> inconclusive: the threshold was too generous\n"


def passes(folder):
    outcome = judge(read(folder))
    assert outcome.right, outcome.lines


BOTH = [
    pytest.param(N_UNITS, id="results"),
    pytest.param(100 * N_UNITS, id="numbers", marks=pytest.mark.slow),
]


@pytest.fixture(params=BOTH)
def stored(request, tmp_path):
    """A registry whose entry holds results, or numbers alone."""
    folder = tmp_path / "registry"
    list(add(folder, [entry("low", 0.05, n_units=request.param)]))
    outcome = judge(read(folder))
    assert outcome.judged[0].from_results is (request.param == N_UNITS)
    return folder


def test_a_changed_threshold_is_found_unless_a_line_explains_it(stored):
    passes(stored)
    registered(criterion=STRICTER)
    must_fail(passes, stored)
    (stored / CHANGES).write_text(LINE.replace("inconclusive", "contradicted"))
    must_fail(passes, stored)
    (stored / CHANGES).write_text(LINE)
    passes(stored)
    assert "the threshold was too generous" in judge(read(stored)).lines[1]


def test_explained_changes_are_written_and_the_earlier_entry_is_kept(stored):
    (before,) = read(stored).entries
    registered(criterion=STRICTER)
    assert not list(write(stored, judge(read(stored))))  # nothing explains it
    assert [one.verdict for one in read(stored).current] == ["supported"]
    (stored / CHANGES).write_text(LINE)
    list(write(stored, judge(read(stored))))
    (now,) = read(stored).current
    assert now.verdict == "inconclusive"
    assert now.version == version_of(REGISTRY[OWN.id]) != before.version
    (kept,) = [one for one in read(stored).entries if one.status == "superseded"]
    assert kept.path == before.path
    assert kept.why == "the threshold was too generous"
    passes(stored)
    (stored / CHANGES).unlink()
    passes(stored)  # the line is not needed any more


def test_another_version_with_the_same_verdict_is_written_without_a_line(stored):
    registered(criterion=rule(support=0.12))
    passes(stored)
    assert len(list(write(stored, judge(read(stored))))) == 1
    assert [one.verdict for one in read(stored).current] == ["supported"]
    assert {one.status for one in read(stored).entries} == {"current", "superseded"}
    assert not list(write(stored, judge(read(stored))))


def test_code_that_makes_other_numbers_is_found_where_results_are_stored(tmp_path):
    folder = filled(tmp_path / "registry")
    passes(folder)

    def doubled(results, facts):
        return evidence({share: 4 * results[share]}, facts)

    registered(evidence=doubled)
    must_fail(passes, folder)


def test_a_claim_that_cannot_be_judged_any_more_is_a_change(stored, errors_are_caught):
    def broken(results, facts):
        raise KeyError("gone")

    registered(criterion=replace(rule(), conditions=(*rule().conditions, _asks_for("other"))))
    must_fail(passes, stored)
    (stored / CHANGES).write_text("own.small * supported -> unjudged: it asks for more\n")
    passes(stored)
    del REGISTRY[OWN.id]
    outcome = judge(read(stored))
    assert outcome.judged[0].note == "no such claim is registered"


def _asks_for(quantity):
    return replace(rule().conditions[0], quantity=quantity)


def test_measurements_of_another_version_wait_for_an_analysis(stored):
    newer = Measurement("own/share", share.function, version=2)
    registered(measurements=(newer,), control=(newer,))
    passes(stored)
    outcome = judge(read(stored))
    assert [one.after for one in outcome.judged] == [OUTDATED]
    assert "own/share is of version 1, not 2" in outcome.lines[1]
    found, refused = entries_of(report_of_old(), "low")
    assert not found
    assert "own/share is of version 1, not 2: analyse the model again" in refused[0]


def report_of_old():
    newer = REGISTRY[OWN.id]
    made = report("low", 0.05)
    registered(measurements=newer.measurements, control=newer.control)
    return made


def test_controls_count_from_stored_numbers_too(stored):
    """A learning claim is open where the control passes as well, as it does in the end."""
    passes(stored)
    (one,) = read(stored).entries
    claim = registered(kind="learning")
    model = read(stored).entries[0].unpacked()[0]
    facts = Facts.from_dict(model)
    assert claim.decided(one.numbers, one.controls, facts)[0] == "supported"
    passing = (one.numbers, one.numbers)
    verdict, why = claim.decided(one.numbers, passing, facts)
    assert verdict == "inconclusive"
    assert "control passes as well" in why


PROJECT = Path(__file__).parents[2] / "registry"


@pytest.mark.slow
def test_the_registry_of_this_project_stands():
    passes(PROJECT)
    assert sum(path.stat().st_size for path in PROJECT.rglob("*.json")) < 20 * 10**6
    # All models of known truth in it were judged as they must be.
    planted = [one for one in read(PROJECT).current if one.planted]
    assert planted
    assert all(one.verdict == one.expected for one in planted)
