"""Heads that share a prediction: they make it, and the claim on orthogonal heads is gated.

The claim is rarely wrong.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.analyses import relevance
from icl_interp.analyses.lab import Lab
from icl_interp.experiments import calibration
from icl_interp.experiments.calibration import NO, OPEN, YES
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import States
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes import heads as probed
from icl_interp.probes import maps
from icl_interp.provenance import generator
from icl_interp.studies.heads.constructions import overlaps as known
from icl_interp.studies.heads.constructions.overlaps import (
    CONSTRUCTIONS,
    ORTHOGONAL,
    OWN,
    predictor,
)
from icl_interp.studies.heads.measurements.overlaps import compared, overlap, pairs_of_distinct
from icl_interp.tasks import AutoregressiveProcess

NAMED = {construction.name: construction for construction in CONSTRUCTIONS}


def check_prediction(case):
    """(2 / t) sum_k s_k <s_{k-1}, s_t> over all tokens, s_{-1} = 0, as the module says.

    Heads attend a little more to a coordinate of their own, and differ from it by so much.
    """
    prompts = case.task.sample(20, generator(0, "test/step"), dtype=torch.float64)
    with torch.no_grad():
        out = case.model(case.reads().encode(prompts))[:, -1]
    now = prompts.xs
    before = torch.cat([torch.zeros_like(now[:, :1]), now[:, :-1]], 1)
    expected = 2 * (now * (before @ now[:, -1, :, None])).mean(1)
    off = (out - expected).square().sum() / expected.square().sum()
    assert float(off) < (2 * known.MORE) ** 2
    missed = (out - prompts.ys[:, -1]).square().sum() / prompts.ys[:, -1].square().sum()
    assert 0.01 < float(missed) < 0.08


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED)
def test_heads_make_one_prediction_together(name):
    case = NAMED[name].draw(0)
    check_prediction(case)
    with torch.no_grad():
        case.model.blocks[0].attn.W_O[0] *= 1.5
    must_fail(check_prediction, case)


def verdict_of(parts, unread=None) -> str:
    case = predictor(generator(0, "test/verdict"), parts, unread)
    (finding,) = calibration.judge(case, (ORTHOGONAL,))
    return finding.verdict


def whole_stream(model, layer, reading):
    """What a head writes, read or not."""
    return model.blocks[layer].attn.W_O.detach()


def each_alone(products, firsts=None):
    """Every head that writes anything is one of its own."""
    return [h if products[h, h] > 0 else probed.NO_HEAD for h in range(len(products))]


def check_unread():
    """Coordinates that nobody reads, one for each head: they hid before that heads do the same."""
    assert verdict_of(known.alike(0.15), 30 * torch.eye(3, dtype=torch.float64)) == NO


def check_cancelling():
    """Two heads that cancel each other beside orthogonal ones: they overlap, and write nothing."""
    noise = torch.randn(3, 3, generator=generator(0, "test/noise"), dtype=torch.float64)
    assert verdict_of(torch.cat([OWN, noise[None], -noise[None]])) == YES


@pytest.mark.slow
def test_what_nobody_reads_or_gets_turns_no_verdict(monkeypatch):
    check_unread()
    check_cancelling()
    with monkeypatch.context() as patch:
        patch.setattr(maps, "read_as", whole_stream)
        must_fail(check_unread)
    # Two that take each other off neither matter nor count as heads: either suffices.
    monkeypatch.setattr(probed, "told_apart", each_alone)
    check_cancelling()
    monkeypatch.setattr(relevance, "first_alike", lambda lab: list(range(len(lab.heads))))
    monkeypatch.setattr(relevance, "joined", lambda firsts, changes: list(firsts))
    must_fail(check_cancelling)


def with_a_part_taken_off(case):
    """The same function: each head writes more, which a copy of it takes off."""
    attn = case.model.blocks[0].attn
    g = generator(0, "test/part")
    cfg = replace(case.model.cfg, n_heads=2 * case.model.cfg.n_heads)
    model = HookedTransformer(cfg).double()
    more = torch.randn(attn.W_O.shape, generator=g, dtype=torch.float64) * attn.W_O.std()
    weights = {**case.model.state_dict()}
    for name in ("W_Q", "W_K", "W_V", "b_Q", "b_K", "b_V"):
        key = f"blocks.0.attn.{name}"
        if key in weights:
            weights[key] = torch.cat([weights[key], weights[key]])
    weights["blocks.0.attn.W_O"] = torch.cat([attn.W_O.detach() + more, -more])
    model.load_state_dict(weights)
    return replace(case, model=model.eval())


def check_parts(case):
    """Heads are compared by what they and their copies write together."""
    other = with_a_part_taken_off(case)
    one, two = (
        compared(result, pairs_of_distinct(result))
        for result in (overlap(Lab(c.model, c.task, c.reads(), n_units=32)) for c in (case, other))
    )
    assert one is not None
    assert two is not None
    assert two.mean.value == pytest.approx(one.mean.value, abs=1e-9)
    np.testing.assert_allclose(np.mean(two.chance), np.mean(one.chance), rtol=1e-6)


@pytest.mark.slow
def test_what_one_part_of_a_head_writes_and_another_takes_off_is_written_by_none(monkeypatch):
    case = predictor(generator(0, "test/parts"), known.alike(0.3), n_points=24)
    check_parts(case)
    monkeypatch.setattr(relevance, "first_alike", lambda lab: list(range(len(lab.heads))))
    must_fail(check_parts, case)


@pytest.mark.slow
def test_the_gate_holds_what_did_not_learn_open():
    """With the read-out reversed the heads overlap as before.

    But the model is wrong about every function.
    """
    case = predictor(generator(0, "test/gate"), OWN)
    (learned,) = calibration.judge(case, (ORTHOGONAL,))
    with torch.no_grad():
        case.model.unembed.W_U *= -1
    (wrong,) = calibration.judge(case, (ORTHOGONAL,))
    assert (learned.verdict, wrong.verdict) == (YES, OPEN)
    assert wrong.test.value == pytest.approx(learned.test.value)
    assert "has not learned its task" in wrong.reason


def random_heads(seed: int) -> HookedTransformer:
    """Four heads of one layer with random maps, which predict a path of six coordinates."""
    cfg = HookedTransformerConfig(
        n_layers=1,
        d_model=16,
        n_heads=4,
        n_ctx=8,
        d_in=6,
        d_out=6,
        attn_only=True,
        normalization_type=None,
        positional_embedding_type="none",
        init_std=0.25,
    )
    return HookedTransformer(cfg, seed=seed).double().eval()


@pytest.mark.slow
def test_random_heads_lie_about_where_chance_puts_them():
    """Directions of heads are random in the stream, but predictions read some more than others.

    So they overlap a little more than in a space that is read evenly: by less than a third on
    average, and less than chance in hardly any model.
    """
    task = AutoregressiveProcess(n_dims=3, matrices="unitary", n_points=8)
    ratios, below = [], 0
    for seed in range(40):
        lab = Lab(random_heads(seed), task, States(), n_units=32, n_contexts=1, seed=seed)
        result = overlap(lab)
        found = compared(result, pairs_of_distinct(result))
        assert found is not None
        ratios.append(found.mean.value / float(np.mean(found.chance)))
        below += found.positions[2] <= 0.025
    assert 0.9 < float(np.mean(ratios)) < 1.35
    assert below <= 1
