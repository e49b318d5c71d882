"""Softmax beside linear attention: how many heads miss nothing, known models.

Whom the claim is about is checked, too.
"""

import dataclasses

import numpy as np
import pytest
import torch
from helpers import mostly_slow, must_fail

from icl_interp.experiments import calibration
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.diagonal_unit import DiagonalAttention, pairs
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.studies.autoregression.claims import softmax as claims
from icl_interp.studies.autoregression.claims.softmax import SOFTMAX_CLAIM
from icl_interp.studies.autoregression.constructions import maps as made
from icl_interp.studies.autoregression.measurements import softmax_misses
from icl_interp.studies.autoregression.measurements.unit import real_heads_needed
from icl_interp.tasks import AutoregressiveProcess
from icl_interp.tasks.autoregressive import complex_states
from icl_interp.tasks.distributions import Normal
from icl_interp.testing import null_models
from icl_interp.testing.known_models import edited_case
from icl_interp.testing.reparameterisations import EDITS

CASES = {one.name: one for one in made.CONSTRUCTIONS if SOFTMAX_CLAIM.id in one.expected}
FAILS, SHORT, LEARNS = CASES


def judged(case):
    lab, facts = calibration.lab_for(case)
    return SOFTMAX_CLAIM.judge_results(calibration.measure(lab, facts, [SOFTMAX_CLAIM]), facts)


@pytest.mark.parametrize(("matrices", "d", "angles"), [("unitary", 2, 2), ("rotations", 4, 2)])
def test_linear_attention_misses_nothing_with_the_needed_heads(matrices, d, angles):
    """The unit with one complex head for each angle has no error on either task.

    It has as many real heads.
    """
    task = AutoregressiveProcess(n_dims=d, matrices=matrices, n_points=6)
    eye = torch.eye(angles, dtype=torch.complex128)
    case = calibration.Case(
        DiagonalAttention(eye, eye, torch.eye(6, dtype=torch.float64)).to_transformer(), task
    )
    assert case.model.cfg.n_heads == real_heads_needed(task)

    def misses_nothing(case):
        lab, _ = calibration.lab_for(case)
        assert float(lab.measure(softmax_misses.missed).sel(who=softmax_misses.MISSED).max()) < 1e-8

    misses_nothing(case)
    fewer = DiagonalAttention(eye[1:], eye[1:], torch.eye(6, dtype=torch.float64)).to_transformer()
    must_fail(misses_nothing, calibration.Case(fewer, task))


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(CASES))
def test_constructions(name):
    finding = judged(CASES[name].draw(1))
    assert finding.verdict == CASES[name].expected[SOFTMAX_CLAIM.id], finding.reason


def test_the_error_is_that_of_what_is_missing():
    """A share of the next state is missing.

    The normalised error is its square, since the law's mean is 0.
    """
    case = dataclasses.replace(CASES[FAILS].draw(0), predictor=lambda prompts: 0.7 * prompts.ys)
    lab, _ = calibration.lab_for(case)
    found = lab.measure(softmax_misses.missed)
    missed, all_of_it = (
        float(found.sel(who=who).mean()) for who in (softmax_misses.MISSED, softmax_misses.ALL)
    )
    np.testing.assert_allclose(missed / all_of_it, 0.09, rtol=1e-4)
    must_fail(np.testing.assert_allclose, missed / all_of_it, 0.3, rtol=1e-4)


class Elsewhere(HookedTransformer):
    """The next state by the ratio of the last two, and a tenth of a sine beside it.

    No softmax makes either.
    """

    def forward(self, tokens, positions=None):
        super().forward(tokens)
        states = complex_states(tokens.double())
        before = torch.cat([torch.ones_like(states[:, :1]), states[:, :-1]], 1)
        turned = pairs(states * before.conj() * states)
        out = (turned + 0.2 * torch.sin(1e4 * turned)).to(tokens)
        return out if positions is None else out[:, list(positions)]


def elsewhere():
    case = CASES[FAILS].draw(0)
    model = Elsewhere(case.model.cfg).double()
    model.load_state_dict(case.model.state_dict())
    return calibration.Case(model.eval(), case.task)


@pytest.mark.slow
def test_what_no_softmax_makes_says_nothing_of_softmax():
    """The error is 0.02 or more, but not the layer's.

    Without the tie to the weights the claim would be supported.
    """

    def says_nothing():
        finding = judged(elsewhere())
        assert finding.verdict == "inconclusive", finding.reason
        assert "something else makes them" in finding.reason

    says_nothing()
    without = dataclasses.replace(
        claims.CRITERION, preconditions=claims.CRITERION.preconditions[:1]
    )
    untied = dataclasses.replace(SOFTMAX_CLAIM, criterion=without, about_weights=False)
    lab, facts = calibration.lab_for(elsewhere())
    assert (
        untied.judge_results(calibration.measure(lab, facts, [untied]), facts).verdict
        == "supported"
    )


@pytest.mark.slow
def test_a_badly_trained_layer_says_nothing_of_softmax():
    """Its error is large as well; only that more training lowers it tells the two apart."""
    short, trained = judged(CASES[SHORT].draw(1)), judged(CASES[FAILS].draw(1))
    assert short.evidence["error"].low > claims.FAILS
    assert (short.verdict, trained.verdict) == ("inconclusive", "supported")
    kept = dataclasses.replace(
        claims.CRITERION, conditions=claims.CRITERION.conditions[:1], preconditions=()
    )
    assert kept.decide(short.evidence).verdict == "supported"


def test_pairs_of_softmax_heads_make_a_linear_head():
    """Predictions of the construction are those of the unit, up to third order.

    The order is that in the scores.
    """
    case = CASES[LEARNS].draw(1)
    prompts = case.task.sample(16, generator(0, "pairs"), dtype=torch.float64)

    def says_the_next_state():
        gap = (case.model(prompts.xs)[:, 1:].detach() - prompts.ys[:, 1:]).square().sum(-1).mean()
        assert float(gap) < 1e-3

    says_the_next_state()
    with torch.no_grad():
        case.model.blocks[0].attn.W_O[1::2] = 0  # of each pair one head alone
    must_fail(says_the_next_state)


@pytest.mark.slow
def test_models_that_know_nothing_support_nothing():
    case = CASES[FAILS].draw(0)
    assert case.task is not None
    known = null_models.ignorant(case.model, case.task, calibration.lab_for(case)[0].encoding)
    names = []
    for name, other in known:
        names.append(name)
        finding = judged(calibration.Case(other, case.task))
        assert finding.verdict == "inconclusive", (name, finding.reason)
    assert len(names) > 4


@pytest.mark.parametrize(
    ("task", "config", "word"),
    [
        ({"matrices": "orthogonal"}, {}, "commute"),
        ({"noise_std": 0.1}, {}, "without noise"),
        ({"start": Normal(1.0)}, {}, "without noise"),
        ({}, {"n_heads": 3}, "about 6 heads"),
        ({}, {"n_layers": 2}, "one layer"),
        ({}, {"score_fn": "linear"}, "softmax"),
    ],
)
def test_whom_it_is_not_about(task, config, word):
    _, facts = calibration.lab_for(CASES[FAILS].draw(0))
    assert SOFTMAX_CLAIM.exclusion(facts) is None
    assert isinstance(facts.task, AutoregressiveProcess)
    assert isinstance(facts.config, HookedTransformerConfig)
    other = dataclasses.replace(
        facts,
        task=dataclasses.replace(facts.task, **task),
        config=dataclasses.replace(facts.config, **config),
    )
    assert word in (SOFTMAX_CLAIM.exclusion(other) or "")


@pytest.mark.slow
def test_heads_that_nearly_cancel_leave_the_error_as_it_is():
    """Large heads that cancel one another cost digits, of which float32 has too few."""
    case = CASES[LEARNS].draw(0)
    (edit,) = (one for one in EDITS if one.name == "two random heads that cancel (large)")

    def stays(measure):
        before, after = (measure(one) for one in (case, edited_case(case, edit)))
        np.testing.assert_allclose(after, before, rtol=1e-6)

    def in_float64(case):
        lab, _ = calibration.lab_for(case)
        return float(lab.measure(softmax_misses.missed).sel(who=softmax_misses.MISSED).mean())

    def in_float32(case):
        lab, _ = calibration.lab_for(case)
        said = lab.predict(lab.few).double()
        first = lab.task.n_determining
        return float((said - lab.few.ys)[:, first:].square().sum(-1).mean())

    stays(in_float64)
    must_fail(stays, in_float32)
