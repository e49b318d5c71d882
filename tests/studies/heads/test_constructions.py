"""Layers whose heads share a step: they take it, and the claim that heads are orthogonal is gated and rarely wrong."""

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.analyses.lab import Lab
from icl_interp.experiments import calibration
from icl_interp.experiments.calibration import OPEN, YES
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Interleaved, Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.heads import n_directions
from icl_interp.provenance import generator
from icl_interp.studies.heads.claims.orthogonality import compared, overlap, pairs_in
from icl_interp.studies.heads.constructions import CONSTRUCTIONS, ORTHOGONAL, a_coordinate_each
from icl_interp.tasks import LinearRegression

NAMED = {construction.name: construction for construction in CONSTRUCTIONS}


def check_one_step(case):
    """The prediction for the query is rate sum_j y_j <x_j, x> / n, with a rate within 5 % of 1 / E x^2."""
    assert isinstance(case.task, LinearRegression)
    prompts = case.task.sample(50, generator(0, "test/step"), dtype=torch.float64)
    with torch.no_grad():
        out = case.model(Stacked().encode(prompts))[:, -1, 0]
    slope = (prompts.xs[:, :-1] * prompts.ys[:, :-1]).mean(1)
    step = (slope * prompts.xs[:, -1]).sum(-1)
    rate = out @ step / (step @ step)
    assert torch.allclose(out, rate * step)
    assert float(rate) * case.task.inputs.std**2 == pytest.approx(1, abs=0.051)


@pytest.mark.parametrize("name", NAMED)
def test_heads_take_one_step_together(name):
    case = NAMED[name].draw(0)
    check_one_step(case)
    with torch.no_grad():
        case.model.blocks[0].attn.W_O[0] *= 1.5
    must_fail(check_one_step, case)


@pytest.mark.slow
def test_the_gate_holds_what_did_not_learn_open():
    """With the read-out turned round the heads overlap as before, but the model is wrong about every function."""
    case = a_coordinate_each(generator(0, "test/gate"), 0.0)
    (learned,) = calibration.judge(case, (ORTHOGONAL,))
    with torch.no_grad():
        case.model.unembed.W_U *= -1
    (wrong,) = calibration.judge(case, (ORTHOGONAL,))
    assert (learned.verdict, wrong.verdict) == (YES, OPEN)
    assert wrong.test.value == pytest.approx(learned.test.value)
    assert "has not learned its task" in wrong.reason


def random_heads(seed: int) -> HookedTransformer:
    """Four heads of one layer with random maps."""
    cfg = HookedTransformerConfig(
        n_layers=1,
        d_model=16,
        n_heads=4,
        attn_only=True,
        normalization_type=None,
        positional_embedding_type="none",
        init_std=0.25,
    )
    return HookedTransformer(cfg, seed=seed).double().eval()


@pytest.mark.slow
def test_random_heads_lie_where_chance_puts_them():
    """Outputs of random heads lie above the 97.5 % quantile, by the margin, in at most 2.5 % of models, and below."""
    positions = []
    for seed in range(40):
        lab = Lab(random_heads(seed), calibration.TASK, Interleaved(), n_units=32, n_contexts=1, seed=seed)
        result = overlap(lab)
        found = compared(result, n_directions(lab.model.cfg), pairs_in(result))
        assert found is not None
        positions.append(found.positions)
    _, low, high = np.array(positions).T
    most = 40 * (0.025 + 3 * (0.025 * 0.975 / 40) ** 0.5)
    assert (low >= 0.975).sum() <= most
    assert (high <= 0.025).sum() <= most
