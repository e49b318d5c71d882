"""Constructions whose truth is a formula: their errors are those that the formulas say."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp import tasks
from icl_interp.analyses.lab import Lab
from icl_interp.baselines.regression import MaximumDegree
from icl_interp.models.tokens import Interleaved
from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.studies.limits.constructions import trainings
from icl_interp.studies.limits.constructions.functions import informed
from icl_interp.studies.limits.constructions.trainings import Wrong, averaging, constants
from icl_interp.studies.limits.measurements.boundary import settles

U = tasks.Uniform(-1, 1)
GAPS = tasks.Polynomial(degrees=(1, 3), inputs=U, coefficients=U, n_points=9)
CONSTANTS = constants(1.5, 8)


# ---- predictors ----------------------------------------------------------------------------------


def check_informed(predictor):
    """Once the points determine the function: 1 - shrink times the truth, by degree."""
    for degree, shrink in ((1, 0.0), (2, 0.25), (3, 0.1)):
        prompts = GAPS.with_degrees((degree,)).sample(20, generator(0, "test"), dtype=torch.float64)
        said = predictor(prompts)[:, degree + 1 :]
        assert torch.allclose(said, (1 - shrink) * prompts.ys[:, degree + 1 :], rtol=0, atol=1e-6)


def test_who_is_told_the_degree_is_exact_but_for_what_is_taken_off():
    check_informed(informed(GAPS, {2: 0.25, 3: 0.1}))
    must_fail(check_informed, informed(GAPS, {2: 0.25}))
    must_fail(check_informed, informed(GAPS.with_degrees((2,)), {2: 0.25, 3: 0.1}))


@pytest.mark.parametrize("width", [0, 1])
def test_functions_that_are_no_polynomials_get_the_largest_degree(width):
    prompts = GAPS.sample(4, generator(0, "test"), dtype=torch.float64)
    drawn = replace(prompts, parameters=prompts.parameters[:, :width])
    said = informed(GAPS, {3: 0.1})(drawn)
    assert torch.equal(said, 0.9 * MaximumDegree(3).predict(prompts))


# ---- hand-set heads ------------------------------------------------------------------------------


def check_formula(norm, d_model=4, size=1.0):
    """(1 - shrink) c + tilt x + offset at every point but the first, for functions of value c."""
    wrong = Wrong(shrink=0.2, tilt=-0.3, offset=0.1)
    model = averaging(generator(0, "test"), CONSTANTS, wrong, size=size, norm=norm, d_model=d_model)
    prompts = CONSTANTS.sample(20, generator(1, "test"), dtype=torch.float64)
    with torch.no_grad():
        f = model(Interleaved().encode(prompts))[:, 2::2, 0]
    expected = 0.8 * as_numbers(prompts.ys) - 0.3 * prompts.xs[..., 0] + 0.1
    assert torch.allclose(f, expected[:, 1:], rtol=0, atol=5e-3)


@pytest.mark.parametrize("norm", [None, "LN"])
def test_a_hand_set_head_is_wrong_by_what_it_is_told(norm, monkeypatch):
    for d_model in (4, 8):
        check_formula(norm, d_model, size=0.5)
    monkeypatch.setattr(trainings, "APART", 1.0)
    must_fail(check_formula, norm)


def test_a_small_number_under_the_root_would_make_the_norm_felt(monkeypatch):
    check_formula("LN")
    monkeypatch.setattr(trainings, "EPS", 10.0)
    check_formula(None)
    must_fail(check_formula, "LN")


def onset(size):
    """Where f comes within a hundredth of its end, on a fine grid."""
    model = averaging(generator(0, "test"), CONSTANTS, Wrong(tilt=0.1 * size), size=size, norm="LN")
    lab = Lab(model, CONSTANTS, Interleaved(), n_units=4, n_contexts=2)
    xs = 10.0 ** np.arange(0, 7.01, 0.05)
    f = as_numbers(lab.sweep(xs)).numpy()
    return float(settles(xs, np.abs(f - f[:, -1:]).mean(0) / np.abs(f[:, -1]).mean(), 0.01))


def check_onsets(onset):
    """As 1 / size."""
    assert onset(0.2) / onset(1.0) == pytest.approx(5, rel=0.02)


def test_onsets_are_as_one_over_the_size_of_what_is_read():
    check_onsets(onset)
    must_fail(check_onsets, lambda size: onset(size**0.5))
