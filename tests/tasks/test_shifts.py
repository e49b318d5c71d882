"""Named shifts: each changes what it says, and nothing else."""

import json

import numpy as np
import pytest
import torch
from helpers import must_fail

import icl_interp
from icl_interp.checkpoints.config import RunConfig, check_round_trip
from icl_interp.errors import InputError
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.provenance import generator
from icl_interp.tasks import SHIFTS, LinearRegression, Mixture, ReLUNetwork, Sphere, shifted
from icl_interp.tasks.shifts import Arranged, possible

TASK = LinearRegression(n_dims=4, n_points=9)


def drawn(task, n=2048):
    return task.sample(n, generator(0, "test"), dtype=torch.float64)


def check_values(task):
    prompts = drawn(task, 64)
    truth = (prompts.xs * prompts.parameters[:, None]).sum(-1, keepdim=True)
    torch.testing.assert_close(prompts.ys, truth)


@pytest.mark.parametrize("name", [name for name in SHIFTS if name != "noisy"])
def test_labels_are_values_at_the_new_inputs(name):
    check_values(shifted(TASK, name))


def test_noise_is_added():
    must_fail(check_values, shifted(TASK, "noisy"))
    for task in (shifted(TASK, "noisy"), Arranged.of(ReLUNetwork(n_dims=4, n_points=9), noise=1.0)):
        prompts = drawn(task)
        noise = prompts.ys - task.targets(prompts.parameters, prompts.xs)
        # 2048 x 9 numbers: four standard errors of a variance of 1.
        assert float(noise.var()) == pytest.approx(1, abs=4 * (2 / noise.numel()) ** 0.5)


def test_quadrants():
    prompts = drawn(shifted(TASK, "quadrants"))
    signs = prompts.xs[:, :-1].sign()
    assert bool((signs == signs[:, :1]).all())
    same = (prompts.xs[:, -1].sign() == signs[:, 0]).double().mean()
    assert float(same) == pytest.approx(0.5, abs=4 * 0.5 / (2048 * 4) ** 0.5)


def check_orthogonal(prompts):
    along = (prompts.xs[:, :-1] * prompts.xs[:, -1:]).sum(-1)
    assert float(along.abs().max()) < 1e-9
    torch.testing.assert_close(prompts.xs[:, -1].norm(dim=-1), torch.full((64,), 2.0).double())


def test_orthogonal():
    check_orthogonal(drawn(shifted(TASK, "orthogonal"), 64))
    must_fail(check_orthogonal, drawn(TASK, 64))
    with pytest.raises(InputError, match="no query is orthogonal to 8 examples of 4"):
        Arranged(task=TASK, arrangement="orthogonal", inputs=TASK.inputs, n_points=9)


def check_spectrum(task, expected):
    xs = drawn(task).xs.flatten(0, 1)
    found = np.linalg.eigvalsh((xs.T @ xs / len(xs)).numpy())[::-1]
    # Relative standard error of a variance: (2 / n)^.5.
    np.testing.assert_allclose(found, expected, rtol=6 * (2 / len(xs)) ** 0.5, atol=1e-9)


def test_spectra():
    inverse_squares = 1 / np.arange(1, 5) ** 2
    skewed = 4 * inverse_squares / inverse_squares.sum()
    check_spectrum(shifted(TASK, "skewed"), skewed)
    check_spectrum(shifted(TASK, "half-subspace"), [2, 2, 0, 0])
    must_fail(check_spectrum, shifted(TASK, "half-subspace"), skewed)


def test_scales():
    xs = drawn(TASK, 8)
    torch.testing.assert_close(drawn(shifted(TASK, "x*3"), 8).xs, 3 * xs.xs)
    torch.testing.assert_close(drawn(shifted(TASK, "y*1/3"), 8).ys, xs.ys / 3)


def test_other_tasks_and_names():
    network = ReLUNetwork(n_dims=4, n_points=9, inputs=Sphere(4))
    assert set(possible(network)) == set(SHIFTS)
    with pytest.raises(InputError, match="skewed"):
        shifted(TASK, "skewd")
    one = LinearRegression(n_dims=1, n_points=9)
    with pytest.raises(InputError, match="one coordinate"):
        shifted(one, "skewed")
    assert "skewed" not in possible(one)


def test_a_pool_is_kept():
    pooled = LinearRegression(n_dims=4, n_points=9, n_tasks=3)
    prompts = drawn(shifted(pooled, "quadrants"), 64)
    assert len(prompts.parameters.unique(dim=0)) == 3


@pytest.mark.parametrize("task", [Arranged.of(TASK, "skewed"), Mixture.of(TASK, TASK)])
def test_runs_are_saved(task):
    cfg = HookedTransformerConfig(n_layers=1, d_model=8, n_ctx=40, d_in=4)
    check_round_trip(RunConfig(cfg, task))
    json.dumps(icl_interp.checkpoints.config.encode(task))


def test_a_model_is_evaluated():
    table = icl_interp.evaluate(
        icl_interp.baselines.Averaging(), shifted(TASK, "skewed"), n_functions=8, n_contexts=4
    )
    errors = table.set_index("predictor")["error"]
    assert errors["least squares"] < 1e-9 < errors["model"]
