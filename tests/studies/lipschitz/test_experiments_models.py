"""Models of the experiments: recipes at each scale, units as predictors, errors.

Variants are told apart.
"""

import numpy as np
import pytest
import torch
from helpers import must_fail, one_in
from lipschitz_experiments import ELLIPSOID, known, setup, task, window

from icl_interp.errors import InputError
from icl_interp.experiments import obtain, presets
from icl_interp.provenance import generator
from icl_interp.studies.lipschitz.experiments import bias_noise, models, norm_growth
from icl_interp.studies.lipschitz.experiments import window as window_experiment
from icl_interp.studies.lipschitz.measurements.unit import sigma_of
from icl_interp.theory import lipschitz as theory
from icl_interp.training import recipes

MINE = (
    window_experiment.WINDOW_EXPERIMENT,
    bias_noise.BIAS_NOISE_EXPERIMENT,
    norm_growth.NORM_GROWTH_EXPERIMENT,
)
NEEDED = {
    (model.name, scale): (model, scale)
    for one in MINE
    for model in one.models
    for scale in model.scales
}
M = torch.tensor([[3.0, 1.0, 0.0], [-1.0, 2.0, 0.5], [0.0, 0.0, 4.0]], dtype=torch.float64)


@pytest.mark.parametrize("key", one_in(4, NEEDED, single=True), ids=str)
def test_every_model_exists_at_its_scales(key):
    model, scale = NEEDED[key]
    small, run = recipes.resolve(model.recipe), obtain.config_of(model, scale)
    assert run.model == small.model
    assert run.task.n_points == (models.SMOKE_N + 1 if scale == "smoke" else small.task.n_points)
    assert run.training.curriculum.first_points == run.task.n_points
    steps = obtain.config_of(model, "small").training.steps
    assert run.training.steps == {"smoke": 20, "small": steps, "paper": 10 * steps}[scale]
    assert f"L = {run.task.lipschitz:g}" in model.name


def test_no_two_models_share_a_folder():
    found = {model for one in MINE for model in one.models}
    assert (
        len({model.folder for model in found}) == len({model.name for model in found}) == len(found)
    )


def test_a_variant_differs_in_what_was_asked_for_alone():
    plain = obtain.config_of(models.varied("lipschitz_relu", lipschitz=1.0), "small")
    assert plain == recipes.resolve("lipschitz_relu")
    other = obtain.config_of(
        models.varied("lipschitz_relu", "wide", 3, lipschitz=0.5, training={"steps": 7}), "small"
    )
    assert (other.task.lipschitz, other.training.steps, other.training.seed) == (0.5, 7, 3)
    assert models.varied("lipschitz_relu", "wide", 3).folder == "lipschitz_relu_wide_seed_3"
    with pytest.raises(InputError, match="RidgeFunction"):
        models.at_preset(recipes.resolve("affine"), "smoke")
    with pytest.raises(InputError, match="scale"):
        models.at_preset(recipes.resolve("lipschitz_relu"), "tiny")


def test_windows_are_read_off_whitened():
    of = task(inputs=ELLIPSOID)
    sigma = sigma_of(of)
    torch.testing.assert_close(
        sigma, torch.diag(torch.tensor(ELLIPSOID.sigma, dtype=torch.float64))
    )

    def check(factor):
        found = models.window_of(known(5.0 * factor, of).model, of)
        assert float(found.window) == pytest.approx(5.0)
        assert float(found.deviation) < 1e-9

    check(torch.linalg.inv(sigma))
    must_fail(check, torch.eye(3))


def test_a_unit_predicts_as_theory_does_at_any_length():
    def check(matrix):
        for n in (4, 33):
            prompts = task().sample(9, generator(0, "test"), n_points=n + 1, dtype=torch.float64)
            keys, labels, query = prompts.xs[:, :-1], prompts.ys[:, :-1, 0], prompts.xs[:, -1]
            found = models.KernelUnit(M).predict(prompts)[:, -1, 0]
            torch.testing.assert_close(
                found, theory.prediction(keys, labels, query, matrix), rtol=0, atol=1e-12
            )

    check(M)
    must_fail(check, M.T)


def test_errors_are_those_of_the_same_prompts_for_everyone():
    of = task()
    here = setup(a=window(2.0, of), b=known(M, of))
    own = models.query_errors(here, "b", of)
    unit = models.query_errors(here, "unit", of, models.KernelUnit(M))
    np.testing.assert_allclose(own.values, unit.values, rtol=1e-9)
    assert len(own.values) == here.preset.n_functions
    must_fail(
        np.testing.assert_allclose, own.values, models.query_errors(here, "a", of).values, rtol=1e-9
    )


def test_errors_are_the_loss_of_theory():
    """Monte Carlo of 1,000 prompts against the table of theory.

    The table averages over functions and noise in closed form.
    """
    of = task(n=30)
    table = theory.loss_table(30, 3, contexts=2000)
    found = models.query_errors(setup(), "unit", of, models.KernelUnit(3.0 * torch.eye(3))).values
    mean, se = found.mean(), found.std(ddof=1) / len(found) ** 0.5

    def check(w):
        expected = theory.window_loss(table, w, 1.0, 1.0)
        assert abs(mean - float(expected.value)) < 4 * np.hypot(se, float(expected.error))

    check(3.0)
    must_fail(check, 12.0)


def test_lengths_are_those_of_training():
    assert models.trained_length(window(1.0)) == presets.PRESETS["small"].n_points
