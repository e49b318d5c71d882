"""How heads divide coordinates: mutual information, copies, models of known truth.

Mutual information is compared with another route.
"""

import dataclasses
import math

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.experiments import calibration
from icl_interp.provenance import generator
from icl_interp.studies.autoregression.claims.specialise import SPECIALISE_CLAIM
from icl_interp.studies.autoregression.constructions import maps as made
from icl_interp.studies.autoregression.measurements import head_coordinates
from icl_interp.tasks import AutoregressiveProcess
from icl_interp.testing import null_models

CASES = {one.name: one for one in made.CONSTRUCTIONS if SPECIALISE_CLAIM.id in one.expected}
DIVIDED, SPREAD = CASES


def judged(case):
    lab, facts = calibration.lab_for(case)
    return SPECIALISE_CLAIM.judge_results(
        calibration.measure(lab, facts, [SPECIALISE_CLAIM]), facts
    )


def entropy(p):
    return -float((p[p > 0] * np.log(p[p > 0])).sum())


def test_division_is_mutual_information():
    """H(head) + H(coordinate) - H(both), of a table in which each head counts once."""
    forms = torch.randn(3, 4, 4, generator=generator(0, "division"), dtype=torch.float64)
    parts = head_coordinates.attention_to(forms)
    table = parts.numpy() / 3
    expected = entropy(table.sum(0)) + entropy(table.sum(1)) - entropy(table.ravel())
    found = float(head_coordinates.divided(parts))
    np.testing.assert_allclose(found, expected / math.log(3), rtol=1e-9)
    must_fail(np.testing.assert_allclose, found, expected / math.log(4), rtol=1e-9)


def test_heads_that_attend_alike_divide_nothing_whatever_rounds():
    """Rows and columns of a turned identity have one length, but for rounding."""
    draw = generator(0, "alike")
    turns, _ = torch.linalg.qr(torch.randn(50, 3, 4, 4, generator=draw, dtype=torch.float64))

    def check(forms):
        assert bool((head_coordinates.divided(head_coordinates.attention_to(forms)) == 0).all())

    check(turns)
    other = turns.clone()
    other[:, 0, 0] *= 1 + 1e-4
    must_fail(check, other)


def test_attention_is_to_rows_and_columns():
    form = torch.zeros(1, 3, 3)
    form[0, 0, 1] = -2.0  # the query's first coordinate, the key's second
    torch.testing.assert_close(head_coordinates.attention_to(form), torch.tensor([[0.5, 0.5, 0.0]]))
    both = head_coordinates.attention_to(torch.cat([form, 0 * form]))
    assert bool(both[1].isnan().all())


def test_folded_forms_weigh_the_same():
    draw = generator(0, "folded")
    forms, one, other = (
        torch.randn(*shape, generator=draw, dtype=torch.float64)
        for shape in ((2, 6, 6), (3,), (3,))
    )
    expected = torch.einsum("i,hij,j->h", one.repeat(2), forms, other.repeat(2))
    found = head_coordinates.folded(forms, 2)
    torch.testing.assert_close(torch.einsum("i,hij,j->h", one, found, other), expected)
    must_fail(torch.testing.assert_close, torch.einsum("i,hij,j->h", other, found, one), expected)


def test_both_constructions_say_the_same():
    """Heads differ, predictions do not."""
    case, other = (CASES[name].draw(1) for name in (DIVIDED, SPREAD))
    assert isinstance(case.task, AutoregressiveProcess)
    prompts = case.task.sample(8, generator(0, "tiled"), dtype=torch.float64)
    for model in (case.model, other.model):
        torch.testing.assert_close(model(prompts.xs)[:, 1:].detach(), prompts.ys[:, 1:])


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_constructions(name):
    finding = judged(CASES[name].draw(1))
    assert finding.verdict == CASES[name].expected[SPECIALISE_CLAIM.id], finding.reason


@pytest.mark.slow
def test_models_that_know_nothing_support_nothing():
    case = CASES[DIVIDED].draw(0)
    others = (
        null_models.blind(case.model, null_models.FAINT),
        null_models.blind(case.model),
        null_models.constant(case.model),
    )
    for other in (*others, null_models.untrained(case.model.cfg, 1)):
        assert judged(calibration.Case(other, case.task)).verdict == "inconclusive"


@pytest.mark.parametrize(
    ("task", "config", "word"),
    [
        ({"tiles": 1}, {}, "tiles"),
        ({}, {"n_layers": 2}, "one layer"),
        ({}, {"n_heads": 1}, "two heads"),
    ],
)
def test_whom_it_is_not_about(task, config, word):
    _, facts = calibration.lab_for(CASES[DIVIDED].draw(0))
    assert SPECIALISE_CLAIM.exclusion(facts) is None
    assert isinstance(facts.task, AutoregressiveProcess)
    other = dataclasses.replace(
        facts,
        task=dataclasses.replace(facts.task, **task),
        config=dataclasses.replace(facts.config, **config),
    )
    assert word in (SPECIALISE_CLAIM.exclusion(other) or "")
