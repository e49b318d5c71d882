"""Squares on functions of a mixture and on combinations, against loops over prompts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.analyses.lab import Lab
from icl_interp.experiments import calibration
from icl_interp.models import tokens
from icl_interp.models.constructed import newton
from icl_interp.provenance import generator
from icl_interp.studies.mixtures.constructions import predictors
from icl_interp.studies.mixtures.measurements import distances as measured
from icl_interp.studies.mixtures.measurements.distances import (
    ALL,
    BAYES,
    BEST,
    DRAWN,
    INSIDE,
    LENGTHS,
    MODEL,
    OUTSIDE,
    SIZE,
    distance,
)
from icl_interp.studies.mixtures.measurements.laws import ONE, bayes, combinations
from icl_interp.tasks.distributions import Normal

TASK = predictors.mixture(Normal(0.25, mean=2.0), Normal(0.5, mean=-1.0), shares=(0.75, 0.25))


def lab_of(task, wrong=0.0, n_units=8):
    """A lab with Bayes that is wrong by so much."""
    case = predictors.a_little_wrong(task, wrong)
    sizes = {"n_units": n_units, "n_contexts": 2}
    return calibration.Predicting(case.predictor, case.model, task, case.reads(), **sizes)


def test_squares_are_of_these_predictors():
    other = combinations(TASK, 0)
    prompts = other.sample(6, generator(0, "test"), dtype=torch.float64)
    said = torch.randn(6, prompts.n_points, generator=generator(1, "test"), dtype=torch.float64)
    truth = (prompts.xs * prompts.parameters[:, None, 1:]).sum(-1)

    def check(law):
        found = measured.squares(TASK, law, prompts, said)
        best = bayes(other).predict(prompts)[..., 0]
        own = bayes(TASK).predict(prompts)[..., 0]
        torch.testing.assert_close(found[MODEL], (said - truth).square())
        torch.testing.assert_close(found[BEST], (best - truth).square())
        torch.testing.assert_close(found[BAYES], (own - truth).square())
        torch.testing.assert_close(found[distance(MODEL)], (said - own).square())
        # The mean weight is .75 x 2 - .25 x 1.
        mean = 1.25 * prompts.xs.sum(-1)
        torch.testing.assert_close(found[SIZE], (truth - mean).square())

    check(other)
    must_fail(check, combinations(TASK, 1))


def test_numbers_of_examples():
    found = measured.n_examples(TASK, 500, seed=0)
    assert [int(found[name][0]) for name in LENGTHS[:-1]] == [2, 4, 8, 20]
    assert set(found[DRAWN].tolist()) == set(range(1, 21))
    assert not torch.equal(found[DRAWN], measured.n_examples(TASK, 500, seed=1)[DRAWN])
    short = replace(TASK, n_points=7)
    assert [int(measured.n_examples(short, 1, 0)[name]) for name in LENGTHS[:-1]] == [2, 4, 6, 6]


def test_units_and_points_are_those_of_the_lab():
    """The error of Bayes on the mixture, by a loop over the prompts of each unit."""
    lab = lab_of(TASK, wrong=0.3)
    result = lab.measure(measured.distances)
    assert tuple(result.indexes["length"]) == LENGTHS
    said = lab.predict(lab.prompts)[..., 0].numpy()
    values = TASK.targets(lab.prompts.parameters, lab.prompts.xs)[..., 0].numpy()

    def check(result, length, of):
        points = measured.n_examples(TASK, 8, lab.seed)[length]
        expected = []
        for unit in range(8):
            rows = range(4 * unit, 4 * unit + 4)
            k = int(points[unit])
            expected.append(np.mean([(said[row, k] - values[row, k]) ** 2 for row in rows]))
        found = result.sel(functions=INSIDE, length=length, of=of).values
        np.testing.assert_allclose(found, expected, rtol=1e-9)

    check(result, ALL, MODEL)
    check(result, DRAWN, MODEL)
    must_fail(check, result.roll(unit=1), DRAWN, MODEL)
    must_fail(check, result, ALL, BAYES)


def test_combinations_are_new_functions_and_bayes_of_them_errs_least():
    result = lab_of(TASK, n_units=64).measure(measured.distances).mean("unit")
    there = result.sel(functions=OUTSIDE)
    here = result.sel(functions=INSIDE)
    np.testing.assert_allclose(here.sel(of=BEST), here.sel(of=BAYES), rtol=1e-12)
    np.testing.assert_allclose(there.sel(of=distance(MODEL)), 0, atol=1e-20)
    assert distance(BAYES) not in result.indexes["of"]
    for other in (BAYES, "family 1", "family 2", ONE):
        assert bool((there.sel(of=BEST, length=list(LENGTHS[:3])) < there.sel(of=other)).all())


def test_a_model_of_the_last_prediction_alone_has_one_length():
    task = predictors.mixture(Normal(0.25, mean=1.0), Normal(0.25, mean=-1.0))
    model = newton(task.n_points, 14, 0.02, predictors.DIM)
    encoding = tokens.infer_for(task, model.cfg.d_in)
    result = Lab(model, task, encoding, n_units=4, n_contexts=1).measure(measured.distances)
    assert tuple(result.indexes["length"]) == (ALL,)
    assert np.isfinite(result.values).all()


@pytest.mark.parametrize("wrong", [0.1, 0.4])
def test_the_distance_is_half_of_the_square_of_what_is_added(wrong):
    """sin(7 t) of a normal t with variance 4 has mean square 1/2 but for 4e-43."""
    lab = lab_of(TASK, wrong=wrong, n_units=64)
    each = lab.measure(measured.distances).sel(functions=INSIDE, of=distance(MODEL), length=ALL)
    expected = wrong**2 * predictors.DIM / 2
    error = float(each.std()) / 64**0.5
    assert abs(float(each.mean()) - expected) < 4 * error
