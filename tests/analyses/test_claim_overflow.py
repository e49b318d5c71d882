"""Numbers that overflow far from the data: a claim is judged on them, and nobody is warned."""

import contextlib
import warnings

import numpy as np
from helpers import must_fail
from made_up_facts import facts

from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, at_most

RULE = Criterion((Condition("share", "a share", at_most(0.1)),))


def evidence(results, known):
    """A share of 0, found on the way past an overflow."""
    largest = np.array([1e308, -1e308])
    share = float(np.mean(np.isfinite(largest * 10)))
    return Evidence({"share": Estimate.exactly("share", share)}, "because.")


CLAIM = Claim("test.claim", "architecture", "a statement", RULE, (), evidence)


def test_numbers_that_overflow_are_judged_without_a_warning(monkeypatch):
    def check():
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert CLAIM.finding({}, facts()).verdict == "supported"
        assert not told

    check()
    monkeypatch.setattr(np, "errstate", lambda **kinds: contextlib.nullcontext())
    must_fail(check)
