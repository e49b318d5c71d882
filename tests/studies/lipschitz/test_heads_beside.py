"""Heads that stand idle beside what predicts: their weights say nothing, and verdicts say so."""

from dataclasses import replace

import pytest
import torch
from helpers import must_fail

from icl_interp.analyses.criterion import Estimate
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.tie import TIED, tied
from icl_interp.experiments import calibration
from icl_interp.models.single_layers import LinearSelfAttention
from icl_interp.models.tokens import Stacked
from icl_interp.provenance import generator
from icl_interp.studies.lipschitz.claims import covariance, linear
from icl_interp.studies.lipschitz.claims.covariance import INVERSE_COVARIANCE_CLAIM
from icl_interp.studies.lipschitz.claims.directions import IRRELEVANT_DIRECTIONS_CLAIM
from icl_interp.studies.lipschitz.claims.smoother import SMOOTHER_CLAIM
from icl_interp.studies.lipschitz.claims.window import OPTIMAL_WINDOW_CLAIM
from icl_interp.studies.lipschitz.claims.window_adapts import FAMILY_CLAIM
from icl_interp.studies.lipschitz.constructions import heads as made
from icl_interp.studies.lipschitz.constructions.kernels import SmoothedBeside, by_window
from icl_interp.studies.lipschitz.constructions.units import pair, unit_with
from icl_interp.studies.lipschitz.measurements import example_weights, heads
from icl_interp.studies.lipschitz.measurements.prediction import predicted, tied_window
from icl_interp.studies.lipschitz.measurements.transfer_errors import best_window
from icl_interp.tasks import RidgeFunction, Sphere

TASK = RidgeFunction(inputs=Sphere(3), link="relu", lipschitz=2.0, noise_std=0.8, n_points=41)
EYE = torch.eye(3, dtype=torch.float64)


def judged(case, *claims):
    lab, facts = calibration.lab_for(case)
    results = calibration.measure(lab, facts, claims)
    return [claim.judge_results(results, facts) for claim in claims]


def untied(claim):
    """The mutant: the same claim, which asks nothing about what predicts."""
    asked = tuple(p for p in claim.criterion.preconditions if p not in TIED)
    criterion = replace(claim.criterion, preconditions=asked)
    return replace(claim, about_weights=False, criterion=criterion)


def beside(factor, share=0.0):
    """M = w* I, beside a smoother with a multiple of w*."""
    w = best_window(TASK)
    unit = unit_with(w * EYE, TASK.n_points)
    return SmoothedBeside.of(unit, by_window(factor * w), share)


def test_a_model_with_a_path_beside_it_is_one_model():
    model = beside(3.0, share=0.4)
    lab = Lab(model, TASK, Stacked(), n_units=8, n_contexts=1)
    whole = predicted(lab, lab.model, lab.prompts)
    torch.testing.assert_close(lab.sweep()[:, 0], whole)
    tokens = lab.tokens(lab.prompts)
    torch.testing.assert_close(lab.model(tokens)[:, -1], whole)
    window = unit_with(3 * best_window(TASK) * EYE, TASK.n_points)
    path = predicted(lab, window, lab.prompts)
    own = predicted(lab, unit_with(best_window(TASK) * EYE, TASK.n_points), lab.prompts)
    torch.testing.assert_close(whole, 0.4 * own + 0.6 * path)


@pytest.mark.parametrize("factor", [0.3, 1.0, 4.0])
def test_the_tie_tells_what_predicts(factor):
    idle = tied(Lab(beside(factor), TASK, Stacked(), n_units=32).measure(tied_window))
    assert abs(idle["used"].value) < 1e-9
    assert (idle["reading"].low > 0.999) == (factor == 1.0)
    alone = tied(Lab(beside(factor, share=1.0), TASK, Stacked(), n_units=32).measure(tied_window))
    assert alone["used"].low > 0.9
    assert alone["reading"].low > 0.999


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.3, 1.0, 4.0])
def test_an_idle_head_is_not_judged(factor):
    claims = (OPTIMAL_WINDOW_CLAIM, INVERSE_COVARIANCE_CLAIM)
    case = calibration.Case(beside(factor), TASK)
    for finding in judged(case, *claims):
        assert finding.verdict == "inconclusive", finding.reason
        # A path that smooths as the idle head would is told apart by the ablation alone.
        unused, other = "Without the part that was read", "so something else makes them"
        assert (unused if factor == 1 else other) in finding.reason
    for finding in judged(case, *map(untied, claims)):
        assert finding.verdict == "supported"  # what stood there before


@pytest.mark.slow
def test_a_family_is_not_decided_by_an_idle_head():
    case = made.in_family(1.0, generator(1, "test"))
    assert isinstance(case.task, RidgeFunction)
    w = best_window(case.task)
    case = replace(case, model=SmoothedBeside.of(case.model, by_window(0.3 * w)))
    assert judged(case, FAMILY_CLAIM)[0].verdict == "inconclusive"
    assert judged(case, untied(FAMILY_CLAIM))[0].verdict == "supported"


@pytest.mark.slow
def test_directions_of_an_idle_head_are_not_judged():
    """The head acts within the relevant directions; the path beside it in all of them alike.

    The path beside it is what predicts.
    """
    case = pair(0.0, generator(1, "test"))
    everywhere = pair(1.0, generator(1, "test")).model
    matrix = everywhere.blocks[0].attn.W_Q[0, :-1, :-1].T.detach()

    def scores(xs, ys, query):
        return torch.einsum("bnd,de,be->bn", xs, matrix.to(xs), query)

    half = replace(case, model=SmoothedBeside.of(case.model, scores, share=0.5))
    claim = IRRELEVANT_DIRECTIONS_CLAIM
    assert judged(case, claim)[0].verdict == "supported"
    assert judged(half, claim)[0].verdict == "inconclusive"
    kept = {"energy", "angle"}  # what is read off weights: the mutant
    conditions = tuple(c for c in claim.criterion.conditions if c.quantity in kept)
    mutant = untied(claim)
    mutant = replace(mutant, criterion=replace(mutant.criterion, conditions=conditions))
    assert judged(half, mutant)[0].verdict == "supported"


class Elsewhere(SmoothedBeside):
    """The path is there in whole prompts alone: short ways give the head's own prediction."""

    def resume_after(self, memory, stream, block):
        return super(SmoothedBeside, self).resume_after(memory, stream, block)


def test_smoothers_are_those_of_the_model_that_predicts(monkeypatch):
    model = Elsewhere.of(unit_with(best_window(TASK) * EYE, TASK.n_points), by_window(9.0))
    case = calibration.Case(model, TASK)

    def check():
        [finding] = judged(case, SMOOTHER_CLAIM)
        assert "No head is sure to matter" in finding.reason

    check()
    monkeypatch.setattr(heads, "ONE_MODEL", float("inf"))
    must_fail(check)


@pytest.mark.slow
def test_linear_attention_is_not_judged_by_a_softmax_path(monkeypatch):
    """Weights of the examples gather near the query, and it is the path that gathers them."""
    product = LinearSelfAttention.from_product(2.0 * EYE).to_transformer(TASK.n_points)
    model = SmoothedBeside.of(product, by_window(best_window(TASK)), share=0.3)
    case = calibration.Case(model, TASK)
    [finding] = judged(case, linear.LINEAR_CLAIM)
    assert finding.verdict == "inconclusive"
    assert "something beside linear attention reads the examples" in finding.reason
    asked = tuple(p for p in linear.CRITERION.preconditions if p.quantity != "beside")
    mutant = replace(linear.LINEAR_CLAIM, criterion=replace(linear.CRITERION, preconditions=asked))
    assert judged(case, mutant)[0].verdict == "contradicted"


def test_nothing_beside_attention_reads_the_examples_of_a_transformer():
    case = made.straight(generator(1, "test"))
    lab, _ = calibration.lab_for(case, n_units=8, n_contexts=1)
    result = lab.measure(example_weights.label_weights_near)
    assert result.sel(number="weights").values.min() > 0
    assert abs(result.sel(number="weights beside attention").values).max() == 0


def test_the_sign_of_the_window_has_a_zone():
    rest = {
        name: Estimate.exactly(name, 1.0)
        for name in ("learned", "fit", "telling", "reading", "used")
    }
    rest["distance"] = Estimate.exactly("distance", 0.0)

    def verdict(sign):
        return covariance.CRITERION.decide(
            {**rest, "window": Estimate.exactly("window", sign)}
        ).verdict

    assert [verdict(sign) for sign in (1.0, 0.3, 1e-9, 0.0, -1e-9, -0.3, -1.0)] == [
        "supported",
        *["inconclusive"] * 5,
        "contradicted",
    ]
    assert covariance.NEGATIVE < 0 < covariance.POSITIVE
