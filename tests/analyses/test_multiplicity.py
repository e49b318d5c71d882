"""What a report says about verdicts that chance may have made."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from helpers import must_fail
from scipy.stats import norm

from icl_interp.analyses import multiplicity
from icl_interp.analyses.criterion import INF, Condition, Criterion
from icl_interp.analyses.finding import Finding

By = Callable[[Iterable[Finding]], str]
RULE = Criterion((Condition("size", "", (-INF, -1.0), (1.0, INF)),), terms="below 0 / above 0")
ONE = Finding(
    "a.claim",
    "a",
    "learning",
    "a statement",
    "a source",
    "inconclusive",
    "why",
    RULE,
    RULE.conditions[0],
)
# Two firm verdicts, two that are not, and one that is open.
FOUND = [
    *(replace(ONE, verdict="supported", firm=firm) for firm in (True, False)),
    *(replace(ONE, verdict="contradicted", firm=firm) for firm in (True, None)),
    ONE,
]
FIRMS = [f for f in FOUND if f.firm]


def check_counts(by_chance: By) -> None:
    text = by_chance(FOUND)
    assert text.startswith("2 of 4 verdicts are firm")
    assert "Of the other 2, at most 0.05 are expected" in text
    assert "Of the other" not in by_chance(FIRMS)
    assert by_chance([ONE]) == ""
    assert by_chance(FOUND, 1024).endswith(
        "rarer than one in 341."
    )  # 3 of 1,024 are missed with a chance of 5 %
    assert abs((1 - 3 / 1024) ** 1024 - 0.05) < 0.001


def test_counts():
    check_counts(multiplicity.by_chance)
    must_fail(
        check_counts,
        lambda found, n=0: multiplicity.by_chance((f for f in found if f.firm is not None), n),
    )
    must_fail(check_counts, lambda found, n=0: multiplicity.by_chance([*found, FOUND[1]], n))
    must_fail(check_counts, lambda found, n=0: multiplicity.by_chance(found, 3 * n))


def test_the_bounds_are_those_of_the_normal_law():
    assert abs(norm.sf(norm.isf(0.025)) - multiplicity.WRONG) < 1e-12
