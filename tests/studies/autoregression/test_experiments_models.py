"""Models of the experiments: exact losses and their descent, errors by point.

Heads that start alike are checked, too.
"""

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.baselines.base import Zero
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.experiments import obtain
from icl_interp.experiments.presets import PRESETS
from icl_interp.experiments.setup import Setup
from icl_interp.models import tokens
from icl_interp.models.diagonal_unit import DiagonalAttention
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.studies.autoregression.experiments import models
from icl_interp.studies.autoregression.experiments.figure8 import between, overlaps
from icl_interp.studies.autoregression.experiments.models import Unit, Weights
from icl_interp.tasks.autoregressive import AutoregressiveProcess, complex_states
from icl_interp.theory import autoregression as theory
from icl_interp.training import trainer

UNIT = Unit(2, 2, 4, False, 0.05, 0.4)
PAIRED = Unit(4, 2, 4, True, 0.05, 0.4)


@pytest.mark.parametrize("unit", [UNIT, PAIRED])
def test_the_loss_is_that_of_the_layer_on_samples(unit):
    """The exact loss against the complex unit on 4,000 sequences.

    It is over all lengths of the prompt, each with its row of P.
    """
    weights = models.start_of(unit, 1)
    law = "conjugate_pairs" if unit.paired else "unitary"
    task = AutoregressiveProcess(n_dims=unit.d, matrices=law, n_points=unit.n_tokens)
    prompts = task.sample(4000, generator(0, "test/unit"), dtype=torch.float64)
    states, after = complex_states(prompts.xs), complex_states(prompts.ys)

    def check(moved, factor):
        a, b, p = (each[0] for each in weights)
        square = torch.zeros(unit.n_tokens, unit.n_tokens, dtype=torch.float64)
        square[moved:] = (
            p if moved else torch.cat([p, p[:1]])
        )  # row t of P has query s_t: the prediction after s_{t+1}
        layer = DiagonalAttention(a.to(states), b.to(states), square)
        with torch.no_grad():
            misses = (layer(states) - after)[:, 1:].abs().square().sum(2).mean(1) / unit.d
        error = misses.std() / len(misses) ** 0.5
        assert (misses.mean() - factor * models.loss_of(unit, weights)[0]).abs() < 4 * error

    check(1, 1.0)
    must_fail(check, 0, 1.0)
    must_fail(check, 1, 1.5)


@pytest.mark.parametrize("unit", [UNIT, PAIRED])
def test_gradients_are_slopes(unit):
    weights = models.start_of(unit, 2)
    numbers = generator(0, "test/direction")
    along = Weights(
        *(torch.randn(each.shape, generator=numbers, dtype=torch.float64) for each in weights)
    )
    ends = [
        models.loss_of(unit, Weights(*(w + h * a for w, a in zip(weights, along, strict=True))))
        for h in (1e-5, -1e-5)
    ]
    slope = (ends[0] - ends[1]) / 2e-5 * unit.d * (unit.n_tokens - 1)

    def check(factor):
        found = sum(
            (g * a).flatten(1).sum(1)
            for g, a in zip(models.gradients(unit, weights), along, strict=True)
        )
        torch.testing.assert_close(factor * found, slope, rtol=1e-6, atol=1e-8)

    check(1.0)
    must_fail(check, 0.5)


@pytest.mark.slow
def test_descent_reaches_the_minimum_and_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "CHUNK", 20)
    first = Setup({}, PRESETS["smoke"], cache=tmp_path)
    early, taken = models.descend(first, UNIT, 2, 20)
    assert (taken, first.measured) == (20, 1)
    again = Setup({}, PRESETS["smoke"], cache=tmp_path)
    late, taken = models.descend(again, UNIT, 2, 600)
    assert again.reused == 1  # the first part of the way
    whole, _ = models.descend(Setup({}, PRESETS["smoke"]), UNIT, 2, 600)
    for a, b in zip(late, whole, strict=True):
        torch.testing.assert_close(a, b)

    def check(weights):
        assert (models.loss_of(UNIT, weights) < 1e-9).all()
        distance = theory.unitary_distance(weights.products[0], weights.P[0, -1])
        assert max(distance) < 1e-4

    check(late)
    must_fail(check, early)


def test_starts_do_not_depend_on_their_number():
    few, many = models.start_of(UNIT, 1), models.start_of(UNIT, 3)
    for a, b in zip(few, many, strict=True):
        assert torch.equal(a, b[:1])
    assert not torch.equal(many.A[0], many.A[1])


def test_shares_of_runs_have_intervals():
    """Wilson's interval at its ends: nothing found, and everything."""
    z2 = 1.959964**2
    none, all_ = models.share_of_runs(0, 16), models.share_of_runs(16, 16)
    assert (none.low, none.high) == pytest.approx((0.0, z2 / (16 + z2)), rel=1e-5)
    assert (all_.low, all_.high) == pytest.approx((1 - z2 / (16 + z2), 1.0), rel=1e-5)


def test_models_follow_their_task():
    plain = models.varied("autoregression_tiled", "plain", model={"n_heads": 2}, task={"tiles": 1})
    run = obtain.config_of(plain, "small")
    assert (run.model.d_in, run.model.d_out, run.model.d_head, run.model.n_heads) == (5, 5, 5, 2)
    twice = obtain.config_of(models.varied("autoregression_tiled", "twice", 3), "paper")
    assert (twice.model.d_in, twice.model.d_head, twice.task.n_points, twice.model.n_ctx) == (
        10,
        10,
        50,
        50,
    )
    assert (twice.training.seed, twice.training.steps) == (3, 4 * run.training.steps)
    smoke = obtain.config_of(plain, "smoke")
    assert smoke.task.n_points == smoke.training.curriculum.first_points == 10


class Share:
    """Predicts a share of the truth."""

    def __init__(self, share):
        self.share = share

    def predict(self, prompts):
        """Of what comes."""
        return self.share * prompts.ys


def test_errors_are_in_units_of_predicting_nothing():
    setup = Setup({}, PRESETS["smoke"])
    for tiles, matrices in ((1, "orthogonal"), (2, "orthogonal"), (1, "rotations")):
        task = AutoregressiveProcess(n_dims=4, matrices=matrices, tiles=tiles, n_points=7)
        for predictor, error in ((Zero(), 1.0), (Share(0.5), 0.25), (Share(1.0), 0.0)):
            found = models.point_errors(setup, f"{predictor}", task, predictor)
            assert found.dims == ("block", "point")
            for late in (False, True):
                assert models.scored(found, late).mean() == pytest.approx(error, abs=1e-12)


def test_the_first_point_is_not_scored():
    setup = Setup({}, PRESETS["smoke"])
    found = models.point_errors(setup, "zero", AutoregressiveProcess(n_dims=2, n_points=8), Zero())
    found.values[:, 0] = 100.0
    found.values[:, -1] = 6.0

    def check(late, expected):
        assert models.scored(found, late).mean() == pytest.approx(expected)

    check(False, (6 + 6) / 7)
    check(True, (1 + 6) / 2)
    must_fail(check, False, (100 + 6 + 6) / 8)


@pytest.mark.slow
def test_heads_start_alike_and_training_is_the_trainers(tmp_path):
    config = obtain.config_of(
        models.varied("autoregression_tiled", "", model={"n_heads": 3}), "smoke"
    )
    same, near, far = (
        between(overlaps(models.alike(config.model, spread, 0))) for spread in (0.0, 0.1, 3.0)
    )
    assert same == pytest.approx(1.0)
    assert 0.9 < near < 0.999
    assert far < 0.3

    def check(seed):
        model = models.trained(HookedTransformer(config.model, seed=seed), config)
        expected = trainer.train(config, tmp_path / "run", progress=False).model
        for (name, weight), other in zip(
            model.named_parameters(), expected.parameters(), strict=True
        ):
            torch.testing.assert_close(weight, other, msg=name)

    check(0)
    must_fail(check, 1)


def test_checkpoints_bring_their_task():
    config = obtain.config_of(models.varied("autoregression_tiled", ""), "smoke")
    found = Checkpoint(
        HookedTransformer(config.model), config.task, tokens.named(config.encoding), config, 0
    )
    assert models.task_of(found) == config.task
    assert np.isfinite(
        models.point_errors(Setup({"one": found}, PRESETS["smoke"]), "one", config.task).values
    ).all()
