"""Proposition 1 as a claim: verdicts on made-up errors, and the rule that figure 3 counts by."""

import numpy as np
import pytest
from helpers import must_fail
from made_up_facts import facts

from icl_interp import tasks
from icl_interp.analyses import registry
from icl_interp.results import make_array
from icl_interp.studies.limits.claims import matches_least_squares as claim
from icl_interp.studies.limits.experiments import figure3

ID = "limits.matches_least_squares"
U = tasks.Uniform(-1, 1)
TASK = tasks.Polynomial(degrees=(1, 3), inputs=U, coefficients=U, n_points=8)


def errors(rates):
    """Errors by degree, relative to those of zero, which differ from function to function."""
    zero = np.random.default_rng(0).uniform(0.5, 1.5, 64)
    values = np.empty((2, len(rates), 2, 64))
    for column, rate in enumerate(rates.values()):
        values[0, column, 0] = rate * zero
        values[0, column, 1] = 0.3 * zero  # on late points, which decide nothing
        values[1, column] = zero
    axes = {
        "predictor": ("model", "zero"),
        "class": [f"degree {degree}" for degree in rates],
        "points": ("own", "late"),
    }
    return make_array(values, {**axes, "unit": range(64)})


def judged(rates, control=1.0, task=TASK):
    untrained = errors(dict.fromkeys(rates, control))
    results = {"classes/errors": errors(rates), "twin/classes/errors": untrained}
    return registry.REGISTRY[ID].judge_results(results, facts(task=task))


@pytest.mark.parametrize(
    ("rates", "verdict"),
    [
        ({1: 0.001, 2: 0.5, 3: 0.009}, "supported"),  # it was not trained on degree 2
        ({1: 0.001, 2: 0.001, 3: 0.02}, "inconclusive"),
        ({1: 0.001, 2: 0.001, 3: 0.06}, "contradicted"),
        ({1: 0.06, 2: 0.001, 3: 0.001}, "contradicted"),
        ({1: 0.0, 2: 0.0, 3: 0.0}, "supported"),
    ],
)
def test_the_worst_degree_that_was_trained_on_decides(rates, verdict, monkeypatch):
    finding = judged(rates)
    assert finding.verdict == verdict
    assert finding.estimate.value == pytest.approx(max(rates[1], rates[3]), abs=1e-12)
    assert [row["class"] for row in finding.details] == ["degree 1", "degree 3"]

    def check():
        assert judged(rates).estimate.value == finding.estimate.value

    # A mutant that asks all degrees, or the first alone, gives another number.
    everything = [1, 2, 3] if rates[2] > rates[3] else [2]
    monkeypatch.setattr(claim, "trained_degrees", lambda facts: everything)
    if rates[2] != finding.estimate.value:
        must_fail(check)


def test_a_control_that_passes_leaves_it_open():
    assert judged({1: 0.001, 3: 0.001}, control=0.001).verdict == "inconclusive"


def test_prompts_too_short_to_score_a_degree():
    high = tasks.Polynomial(degrees=(5,), inputs=U, coefficients=U, n_points=4)
    finding = judged({1: 0.001}, task=high)
    assert finding.verdict == "inconclusive"
    assert finding.reason.startswith("Prompts are too short to score any degree.")


def test_figure_3_counts_by_the_same_rule():
    assert figure3.MATCHES.conditions[0].supports[1] == claim.RATE.supports[1]
    assert figure3.MATCHES.conditions[0].contradicts[0] == claim.RATE.contradicts[0]
