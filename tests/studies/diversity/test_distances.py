"""Distances from ridge and from the Bayes predictor of a pool, against loops in numpy."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from made_up_facts import facts

from icl_interp.experiments import calibration
from icl_interp.provenance import generator
from icl_interp.studies.diversity.constructions.predictors import TASK, case_of
from icl_interp.studies.diversity.measurements import distances as measured
from icl_interp.studies.diversity.measurements.distances import APART, NEW, POOL, RIDGE, SEEN, SIZE
from icl_interp.tasks.distributions import Normal, Uniform

SMALL = replace(TASK, n_dims=2, n_points=6, n_tasks=3, noise_std=0.7, weights=Normal(1.5))


def by_hand(prompts, pool, noise, spread):
    """What both predictors say of each query: one prompt and one function of the pool at a time."""
    of_ridge = []
    of_pool = []
    for xs, ys in zip(prompts.xs.numpy(), prompts.ys[..., 0].numpy(), strict=True):
        examples = xs[:-1]
        labels = ys[:-1]
        penalty = noise**2 / spread**2
        w = np.linalg.inv(examples.T @ examples + penalty * np.eye(2)) @ examples.T @ labels
        of_ridge.append(w @ xs[-1])
        # Each function of the pool by how likely the labels are under it.
        densities = []
        for function in pool:
            missed = labels - examples @ function
            densities.append(np.exp(-np.sum(missed**2) / (2 * noise**2)))
        weights = np.array(densities) / np.sum(densities)
        of_pool.append(
            sum(p * (function @ xs[-1]) for p, function in zip(weights, pool, strict=True))
        )
    return np.array(of_ridge), np.array(of_pool)


def test_differences_are_those_of_both_predictors_by_hand():
    prompts = SMALL.fresh().sample(5, generator(0, "test"), n_contexts=2, dtype=torch.float64)
    said = torch.randn(10, generator=generator(1, "test"), dtype=torch.float64)
    found = measured.differences(SMALL, prompts, said)

    def check(noise, spread):
        ridge, pool = by_hand(prompts, SMALL.pool.numpy(), noise, spread)
        expected = {
            RIDGE: (said.numpy() - ridge) ** 2,
            POOL: (said.numpy() - pool) ** 2,
            APART: (ridge - pool) ** 2,
            SIZE: ridge**2,
        }
        for name, squares in expected.items():
            np.testing.assert_allclose(found[name].numpy(), squares, rtol=1e-9, atol=1e-12)

    check(0.7, 1.5)
    must_fail(check, 0.8, 1.5)
    must_fail(check, 0.7, 1.4)


def lab_of(share):
    return calibration.lab_for(case_of(TASK, share), n_units=16, n_contexts=2)[0]


def test_new_functions_are_new_and_those_of_the_pool_are_of_the_pool(monkeypatch):
    asked = {}

    def seen(task, prompts, said):
        asked[len(asked)] = prompts
        return {name: said.square() for name in (RIDGE, POOL, APART, SIZE)}

    monkeypatch.setattr(measured, "differences", seen)
    lab_of(0.0).measure(measured.distances)
    pool = {tuple(row) for row in TASK.pool.tolist()}

    def check(prompts):
        assert {tuple(row) for row in prompts.parameters.tolist()} <= pool

    check(asked[0])
    must_fail(check, asked[1])
    assert not {tuple(row) for row in asked[1].parameters.tolist()} & pool


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_on_the_way_from_ridge_to_the_pool(share):
    """Squared distances are share^2 and (1 - share)^2 of that between both."""
    result = lab_of(share).measure(measured.distances)
    assert result.sizes["unit"] == 16
    for functions in (SEEN, NEW):
        ridge, pool, apart, _ = result.sel(functions=functions).mean("unit").values
        assert ridge == pytest.approx(share**2 * apart, rel=1e-6, abs=1e-12)
        assert pool == pytest.approx((1 - share) ** 2 * apart, rel=1e-6, abs=1e-12)


def test_large_pools_are_weighed_by_one_prompt_of_each_function(monkeypatch):
    monkeypatch.setattr(measured, "LARGE_POOL", TASK.n_tasks)
    note = lab_of(0.0).measure(measured.distances).attrs["note"]
    assert "16 functions, 1 prompts of each" in note


def test_whom_it_is_about():
    assert measured.needs_pool(facts(task=TASK)) is None
    for task, word in (
        (TASK.fresh(), "n_tasks is not given"),
        (replace(TASK, noise_std=0.0), "noise of 0"),
        (replace(TASK, weights=Uniform(-1, 1)), "weights are from Uniform"),
        (replace(TASK, weights=Normal(1.0, mean=2.0)), "centred normal"),
        (replace(TASK, single_orthant=True), "was trained otherwise"),
    ):
        assert word in measured.needs_pool(facts(task=task))
