"""Errors under shifts of the prompts: against a loop, and whom the shifts say something about."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.models.constructed import descent
from icl_interp.models.tokens import Stacked
from icl_interp.provenance import generator
from icl_interp.studies.robustness.measurements import shifts as measured
from icl_interp.studies.robustness.measurements.shifts import INSIDE, NOISY
from icl_interp.tasks import LinearRegression, Normal, Polynomial, Uniform

TASK = LinearRegression(n_dims=3, n_points=9)
N_UNITS = 6
EACH = 4


def by_loop(xs, ys, weights, predictions):
    """Mean squares by unit of a model's error, least squares' and the truth, prompt by prompt."""
    rows = []
    for x, y, w, said in zip(xs, ys, weights, predictions, strict=True):
        truth = x[-1] @ w
        fit = np.linalg.lstsq(x[:-1], y[:-1], rcond=None)[0]
        rows.append([(said - truth) ** 2, (x[-1] @ fit - truth) ** 2, truth**2])
    return np.array(rows).reshape(N_UNITS, EACH, 3).mean(1).T


@pytest.mark.parametrize("shift", [INSIDE, "half-subspace", "x*3", NOISY])
def test_errors_are_those_of_a_loop(shift):
    task = measured.laws(TASK, 0)[shift]
    prompts = task.sample(N_UNITS, generator(1, "test"), n_contexts=EACH, dtype=torch.float64)
    said = torch.randn(len(prompts), 1, generator=generator(2, "test"), dtype=torch.float64)
    # The functions that the task draws, whatever it scales: read off labels without noise.
    clean = task.targets(prompts.parameters, prompts.xs)[..., 0].numpy()
    weights = [
        np.linalg.lstsq(x, y, rcond=None)[0] for x, y in zip(prompts.xs.numpy(), clean, strict=True)
    ]
    expected = by_loop(prompts.xs.numpy(), prompts.ys[..., 0].numpy(), weights, said[:, 0].numpy())

    def check(predictions):
        found = measured.squared_errors(task, prompts, predictions, N_UNITS)
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-20)

    check(said)
    must_fail(check, said.flip(0))


def check_laws(laws):
    """Each law draws what its name says."""
    draw = {name: task.sample(200, generator(3, "test")) for name, task in laws.items()}
    xs = {name: prompts.xs[:, :-1] for name, prompts in draw.items()}
    signs = xs["quadrants"].sign()
    assert bool((signs == signs[:, :1]).all())
    assert not bool((xs[INSIDE].sign() == xs[INSIDE].sign()[:, :1]).all())
    ranks = torch.linalg.matrix_rank(xs["half-subspace"], rtol=1e-4)
    assert set(ranks.tolist()) == {1}  # half of three dimensions, rounded down
    spread = {name: float(x.std()) for name, x in xs.items()}
    assert abs(spread["x*3"] / spread[INSIDE] - 3) < 0.3
    labels = {name: float(prompts.ys.std()) for name, prompts in draw.items()}
    assert abs(labels["y*3"] / labels[INSIDE] - 3) < 0.3
    assert labels[NOISY] > labels[INSIDE]


def test_laws_are_what_their_names_say():
    laws = measured.laws(TASK, 0)
    check_laws(laws)
    must_fail(check_laws, laws | {"quadrants": laws[INSIDE]})
    must_fail(check_laws, laws | {"x*3": laws["x*2"]})


def test_one_factor_is_drawn_with_the_sample():
    factors = {measured.drawn_factor(seed) for seed in range(40)}
    assert len(factors) == 40
    assert 1 / 3 < min(factors) < 0.6 < 1.6 < max(factors) < 3


def test_a_step_of_descent_is_cubic_in_the_size_of_inputs():
    """Its prediction at inputs three times as large is 9 times what it should be: (9 - 1)^2."""
    task = replace(TASK, n_points=400)
    model = descent(400, (1.0,), 3)
    lab = Lab(model, task, Stacked(), n_units=32, n_contexts=1)
    means = lab.measure(measured.shifts).mean("unit")
    share = means.sel(who="model") / means.sel(who="zero")

    def check(expected):
        assert abs(float(share.sel(shift="x*3")) - expected) < 8

    check(64)
    must_fail(check, 4)
    assert float(share.sel(shift=INSIDE)) < 0.03
    assert float(share.sel(shift="y*3")) < 0.03


UNIFORM = Uniform(-1, 1)


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (Polynomial(degrees=(1,), inputs=UNIFORM, coefficients=UNIFORM, n_points=5), "not of"),
        (LinearRegression(n_dims=1, n_points=5), "two coordinates"),
        (LinearRegression(n_dims=2, n_points=5, query=Normal(3.0)), "otherwise"),
        (LinearRegression(n_dims=2, n_points=5, weights=(1.0, 2.0)), "drawn"),
    ],
)
def test_who_is_not_asked(task, why):
    facts = Facts.of_outputs(task, {"error": 0.0, "r2": 1.0})
    assert why in (measured.needs_shifts(facts) or "")
    assert measured.needs_silence(facts) == measured.needs_shifts(facts)


def test_noise_is_no_shift_for_a_model_that_was_trained_with_it():
    loud = Facts.of_outputs(replace(TASK, noise_std=1.0), {"error": 0.0, "r2": 1.0})
    assert measured.needs_shifts(loud) is None
    assert "noise" in (measured.needs_silence(loud) or "")
    quiet = Facts.of_outputs(replace(TASK, noise_std=0.1), {"error": 0.0, "r2": 1.0})
    assert measured.needs_silence(quiet) is None
