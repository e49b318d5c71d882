"""The first layer's tokens: cut patterns against models that are built so.

Models of known truth are judged, and whom the claim is about is checked.
"""

import dataclasses

import numpy as np
import pytest
import torch
from helpers import mostly_slow, must_fail

from icl_interp.analyses.lab import Lab
from icl_interp.experiments import calibration
from icl_interp.models.tokens import States
from icl_interp.provenance import generator
from icl_interp.studies.autoregression.claims.augmented import AUGMENTED_CLAIM
from icl_interp.studies.autoregression.constructions import maps as made
from icl_interp.studies.autoregression.measurements import augmented_tokens
from icl_interp.tasks import AutoregressiveProcess
from icl_interp.testing import null_models
from icl_interp.testing.reparameterisations import EDITS

CASES = {one.name: one for one in made.CONSTRUCTIONS if AUGMENTED_CLAIM.id in one.expected}
TASK = AutoregressiveProcess(n_dims=3, n_points=10)
FAR_BACK = 0.6 * torch.diag(torch.ones(8, dtype=torch.float64), -2)  # two states before
EYE = 0.3 * torch.eye(10, dtype=torch.float64)


def model(past):
    """Two layers with a basis that is the same for all pasts."""
    return made.two_layers(
        generator(0, "tokens"), TASK, past, torch.full((10, 10), 0.05, dtype=torch.float64)
    )


def moved(past):
    lab = Lab(model(past), TASK, States(), n_units=16)
    return lab, lab.measure(augmented_tokens.first_layer).sel(number="moved")


def said(xs, past, left, keeps_means):
    """The model's predictions written out, with what is left of its past.

    The mean of what is not left stays.
    """
    written = left @ xs
    if keeps_means:
        written = written + ((past - left) @ xs).mean(0)
    rows = torch.full((10, 10), 0.05, dtype=torch.float64).tril()
    return torch.einsum("qk,bqi,bki,bkj->bqj", rows, xs, written, xs)


def judged(case):
    lab, facts = calibration.lab_for(case)
    return AUGMENTED_CLAIM.judge_results(calibration.measure(lab, facts, [AUGMENTED_CLAIM]), facts)


@pytest.mark.parametrize(
    ("arm", "left"),
    [
        (augmented_tokens.POSITIONS, made.before(10) + FAR_BACK + EYE),
        (augmented_tokens.LEMMA, made.before(10) + EYE),
        (augmented_tokens.OWN, EYE),
    ],
)
def test_arms_are_models_without_these_tokens(arm, left):
    """A first layer that also looks two states back, cut.

    The prediction is that of what is left, and the mean of what is cut off.
    """
    past = made.before(10) + FAR_BACK + EYE
    lab, found = moved(past)
    prompts, first = lab.few, TASK.n_determining
    own = said(prompts.xs, past, past, keeps_means=True)
    torch.testing.assert_close(own, lab.model(prompts.xs).detach())

    def agrees(name, keeps_means=True):
        other = said(prompts.xs, past, left, keeps_means)
        size = prompts.ys[:, first:].var(0, unbiased=False).sum(-1)
        expected = lab.by_unit((other - own)[:, first:].square().sum(-1) / size, prompts).T
        np.testing.assert_allclose(found.sel(arm=name).values, expected, rtol=1e-9, atol=1e-12)

    agrees(arm)
    must_fail(
        agrees, augmented_tokens.LEMMA if arm == augmented_tokens.OWN else augmented_tokens.OWN
    )
    if arm != augmented_tokens.POSITIONS:
        must_fail(agrees, arm, keeps_means=False)  # as if cut weights went to 0


def test_nothing_is_moved_by_its_own_pattern():
    _, found = moved(made.before(10) + FAR_BACK)
    assert float(found.sel(arm=augmented_tokens.POSITIONS).max()) < 1e-20
    assert float(found.sel(arm=augmented_tokens.LEMMA).mean()) > 0.01


def test_a_pattern_that_depends_on_the_prompt_is_not_by_position():
    """Scores by states: predictions move with the mean pattern.

    The share that is alike in all prompts falls.
    """
    one = model(made.before(10))
    with torch.no_grad():
        attn = one.blocks[0].attn
        attn.b_Q[0, 0] = 0.0
        attn.W_Q[0, 3:6], attn.W_K[0, 3:6] = torch.eye(3), torch.eye(3)
    lab = Lab(one, TASK, States(), n_units=32)
    heads = lab.measure(augmented_tokens.first_pattern)
    by_position = Lab(model(made.before(10)), TASK, States(), n_units=32).measure(
        augmented_tokens.first_pattern
    )
    np.testing.assert_allclose(by_position.values, 1.0, rtol=1e-9)
    assert float(heads.sel(number=augmented_tokens.ALIKE).max()) < 0.7
    assert (
        float(
            lab.measure(augmented_tokens.first_layer)
            .sel(number="moved", arm=augmented_tokens.POSITIONS)
            .mean()
        )
        > 0.01
    )


@pytest.mark.parametrize("name", mostly_slow(CASES))
def test_constructions(name):
    finding = judged(CASES[name].draw(1))
    assert finding.verdict == CASES[name].expected[AUGMENTED_CLAIM.id], finding.reason


@pytest.mark.slow
def test_a_layer_that_shows_more_is_not_the_lemmas():
    """Two states back as well: predictions move where the layer is cut to the lemma's tokens."""
    task = AutoregressiveProcess(n_dims=2, matrices="rotations", n_points=24)
    far = torch.diag(torch.ones(22, dtype=torch.float64), -2)
    rows = made.steps(task)[:, None].expand(-1, 24)
    case = calibration.Case(
        made.two_layers(generator(0, "more"), task, made.before(24) + far, rows), task
    )
    finding = judged(case)
    assert finding.verdict != "supported"
    assert finding.evidence["with the two tokens of the lemma"].low > 0.2


@pytest.mark.slow
def test_models_that_know_nothing_support_nothing():
    case = CASES["two layers that take a gradient step"].draw(0)
    for other in (
        null_models.blind(case.model, null_models.FAINT),
        null_models.constant(case.model),
    ):
        assert judged(calibration.Case(other, case.task)).verdict == "inconclusive"


@pytest.mark.slow
@pytest.mark.parametrize("family", ["width", "basis", "heads", "values"])
def test_edits_of_the_same_function_leave_the_verdict(family):
    case = CASES["two layers that take a gradient step"].draw(0)
    edit = next(one for one in EDITS if one.family == family and not one.applies(case.model.cfg))
    other = edit.apply(case.model, generator(0, "edit"))
    before, after = judged(case), judged(calibration.Case(other, case.task))
    assert after.verdict == before.verdict == "supported"
    assert before.estimate is not None
    assert after.estimate is not None
    assert abs(before.estimate.value - after.estimate.value) < 1e-9


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"n_layers": 1}, "one layer"),
        ({"attention_dir": "bidirectional"}, "causal"),
        ({"encoding": "augmented"}, "augmented already"),
    ],
)
def test_whom_it_is_not_about(change, word):
    _, facts = calibration.lab_for(CASES["two layers that take a gradient step"].draw(0))
    assert AUGMENTED_CLAIM.exclusion(facts) is None
    if "encoding" in change:
        other = dataclasses.replace(facts, **change)
    else:
        other = dataclasses.replace(facts, config=dataclasses.replace(facts.config, **change))
    assert word in (AUGMENTED_CLAIM.exclusion(other) or "")
