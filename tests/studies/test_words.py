"""The words of verdicts are short: the answer, the number and its threshold, and a caveat.

The number is the one that decides.
"""

from dataclasses import replace

import pytest
from helpers import must_fail
from small_reports import report

from icl_interp.analyses.claim import EXPLAINS, MIN_UNITS, NOT_LEARNED
from icl_interp.testing.reasons import MOST_WORDS, too_long


def check(findings):
    assert [f"{f.id}: {wrong}" for f in findings if (wrong := too_long(f.reason))] == []


@pytest.mark.slow
@pytest.mark.parametrize(("r2", "n_units"), [(0.999, 256), (0.3, 256), (0.999, MIN_UNITS - 1)])
def test_reasons_are_short(r2, n_units):
    """Also where what is known of the model forbids to decide: the reason then begins with that."""
    judged = report()
    known = ("r2", "r2_low", "r2_high", "learned", "learned_low", "learned_high")
    learned = {**judged.model["in_distribution"], **dict.fromkeys(known, r2)}
    told = {"n_units": n_units, "in_distribution": learned}
    judged = replace(judged, model={**judged.model, **told}).judge()
    asked = [f for f in judged.findings if f.verdict != "not_applicable"]
    assert len(asked) > 10
    check(asked)
    must_fail(check, [replace(asked[0], reason="so " * MOST_WORDS + "on.")])
    must_fail(check, [replace(asked[0], reason="It does. " * 4)])
    explains = EXPLAINS.partition("{")[0]
    first = (NOT_LEARNED, explains) if r2 < 0.9 else f"An interval from {n_units} units"
    begun = sum(f.reason.startswith(first) for f in asked)
    assert begun > 3 if r2 < 0.9 or n_units < MIN_UNITS else begun == 0
    if n_units < MIN_UNITS:
        assert {f.verdict for f in asked} == {"inconclusive"}
