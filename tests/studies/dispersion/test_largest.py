"""Largest weights on long prompts: against softmax by hand, and models that get more room."""

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.analyses.lab import Lab
from icl_interp.interventions.attention import Temperature
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.studies.dispersion.constructions import weights
from icl_interp.studies.dispersion.measurements import largest as measured

OWN = 2.0


@pytest.fixture(scope="module")
def lab():
    """A head of softmax in which the query's own token scores 2."""
    case = weights.finding(OWN, "softmax", generator(0, "test"))
    return Lab(case.model, case.task, Stacked(), n_units=6, n_contexts=1)


def by_hand(lab, n_points, factor=1.0):
    """Log of the largest softmax weight of 2 <x, x_query> over all points, from its definition."""
    asked = measured.lengths(lab.task.n_points, lab.seed)
    law = lab.task.with_points(asked[-1])
    prompts = law.sample(lab.n_units, generator(lab.seed, "dispersion"), dtype=torch.float64)
    xs = prompts.xs[:, :n_points].numpy()
    scores = factor * OWN * np.einsum("uid,ud->ui", xs, xs[:, -1])
    return scores.max(1) - np.log(np.exp(scores).sum(1))


def test_weights_are_those_of_softmax_at_every_length(lab):
    found = lab.measure(measured.largest)
    asked = measured.lengths(lab.task.n_points, lab.seed)
    assert found["n"].values.tolist() == asked

    def check(factor):
        for n_points in asked:
            expected = by_hand(lab, n_points, factor)
            np.testing.assert_allclose(found.sel(n=n_points, head="0.0"), expected, rtol=1e-9)

    check(1.0)
    must_fail(check, 1.01)


def test_an_edit_is_made_at_its_own_length(lab):
    asked = measured.lengths(lab.task.n_points, lab.seed)
    edits = {n_points: Temperature(1 / (1 + place)) for place, n_points in enumerate(asked)}
    values, n_keys = measured.log_weights(lab, edits)
    assert n_keys == asked
    for place, n_points in enumerate(asked):
        expected = by_hand(lab, n_points, 1.0 + place)
        np.testing.assert_allclose(values[place, 0], expected, rtol=1e-9)


def test_lengths_are_drawn_in_each_octave():
    drawn = set()
    for seed in range(20):
        first, *inner, last = measured.lengths(30, seed)
        assert (first, last) == (30, 240)
        for low, found in zip((30, 60, 120), inner, strict=True):
            assert low < found <= 2 * low
        drawn.add(tuple(inner))
    assert len(drawn) > 15


@pytest.mark.parametrize("positions", ["none", "standard", "rotary", "alibi"])
def test_a_model_with_more_room_computes_the_same(positions):
    cfg = HookedTransformerConfig(
        n_layers=2, d_model=8, n_heads=2, n_ctx=9, positional_embedding_type=positions, init_std=0.5
    )
    model = HookedTransformer(cfg, seed=1).double()
    if positions == "standard":
        model.pos_embed.W_pos.data[:] = model.pos_embed.W_pos.data[0].clone()
    longer = measured.with_room(model, 40)
    tokens = torch.randn(3, 40, 1, generator=generator(0, "test"), dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(longer(tokens[:, :9]), model(tokens[:, :9]), rtol=0, atol=1e-12)
        # A causal prediction does not see what follows: the longer prompt begins with the same.
        torch.testing.assert_close(longer(tokens)[:, :9], model(tokens[:, :9]), rtol=0, atol=1e-12)
    assert model.cfg.n_ctx == 9
