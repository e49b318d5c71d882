"""Layers whose heads share a step: they take it, and the claim that heads are orthogonal is gated and rarely wrong."""

import pytest
import torch
from helpers import must_fail

from icl_interp.experiments import calibration
from icl_interp.experiments.calibration import NO, OPEN, YES
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
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
def test_random_heads_leave_it_open(measured):
    """Three maps, each above its own 97.5 % quantile in one of forty models: at most 7.5 % are contradicted."""
    benches = [measured(random_heads(seed), ORTHOGONAL, seed=seed) for seed in range(30)]
    found = [bench.judge(ORTHOGONAL, r2=0.99).verdict for bench in benches]
    assert found.count(YES) == 0
    assert found.count(NO) <= 30 * (0.075 + 3 * (0.075 * 0.925 / 30) ** 0.5)
