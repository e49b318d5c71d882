"""What a report says about verdicts that chance may have made."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from helpers import must_fail
from scipy.stats import norm
from small_reports import report

from icl_interp.analyses import multiplicity
from icl_interp.analyses.criterion import FIRM
from icl_interp.analyses.finding import Finding

By = Callable[[Iterable[Finding]], str]


@pytest.fixture(scope="module")
def found() -> list[Finding]:
    """Two firm verdicts, two that are not, and one that is open."""
    kinds = (("supported", True), ("contradicted", True), ("supported", False), ("contradicted", None))
    one = report().findings[0]
    decided = [replace(one, verdict=verdict, firm=firm) for verdict, firm in kinds]
    return [*decided, replace(one, verdict="inconclusive", firm=None)]


def check_counts(by_chance: By, found: list[Finding]) -> None:
    text = by_chance(found)
    assert text.startswith("2 of 4 verdicts are firm")
    assert "Of the other 2, at most 0.05 are expected" in text
    assert "Of the other" not in by_chance(found[:2])
    assert by_chance(found[4:]) == ""


def test_counts(found):
    check_counts(multiplicity.by_chance, found)
    must_fail(check_counts, lambda all_: multiplicity.by_chance(f for f in all_ if f.firm is not None), found)
    must_fail(check_counts, lambda all_: multiplicity.by_chance([*all_, *found[2:3]]), found)


def test_the_bounds_are_those_of_the_normal_law():
    assert abs(norm.sf(norm.isf(0.025)) - multiplicity.WRONG) < 1e-12
    assert 35 * 2 * norm.sf(FIRM) < 0.05 < 35 * 2 * norm.sf(FIRM - 0.05)
