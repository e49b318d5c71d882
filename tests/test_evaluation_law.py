"""R^2 is relative to the mean of the law of functions, so adding a constant changes nothing."""

import math
from dataclasses import replace

import numpy as np
import pytest
import tiny_runs
from helpers import must_fail
from tables import row_of

from icl_interp import evaluation
from icl_interp.baselines import KNearest, LawMean, LeastSquares, MeanValue, Zero
from icl_interp.errors import InputError
from icl_interp.evaluation import error_table, evaluate, function_errors, shifted
from icl_interp.tasks import Continuous, Normal, Polynomial, Uniform

AFFINE = Polynomial(degrees=(1,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=6)
AROUND_2 = replace(AFFINE, coefficients=Normal(0.5, mean=2.0))
EXP = Continuous(function="exp", inputs=Uniform(-1, 1), n_points=4)
SMALL = {"n_functions": 30, "n_contexts": 4}


class Plus(Polynomial):
    """Polynomials plus 7."""

    def value(self, parameters, xs):
        return super().value(parameters, xs) + 7


class Exponential(Continuous):
    """The one function, plus 7."""

    def value(self, parameters, xs):
        return super().value(parameters, xs) + 7


def plus(task):
    return (Plus if isinstance(task, Polynomial) else Exponential)(**vars(task))


class Own:
    """A share of what least squares of a task says, plus a constant."""

    def __init__(self, task, share=0.7, shift=0.0):
        self.fit = LeastSquares(task)
        self.share = share
        self.shift = shift

    def predict(self, prompts):
        lower = replace(prompts, ys=prompts.ys - self.shift)
        return self.share * self.fit.predict(lower) + self.shift


def check_shift(task, r2=lambda table: row_of(table, predictor="model")["r2"]):
    """R^2 and the error are the same 7 further up; the zero predictor's error is not."""
    one = evaluate(Own(task), task, **SMALL)
    other = evaluate(Own(task, shift=7.0), plus(task), **SMALL)
    at, up = (row_of(table, predictor="model") for table in (one, other))
    assert up["error"] == pytest.approx(at["error"], rel=1e-9)
    assert row_of(other, predictor="zero")["error"] > 9 * row_of(one, predictor="zero")["error"]
    assert r2(other) == pytest.approx(
        r2(one), rel=1e-3
    )  # 1e-3: E[f(x)] of one function is estimated


def relative_to_zero(table):
    model, zero = (row_of(table, predictor=name)["error"] for name in ("model", "zero"))
    return 1 - model / zero


@pytest.mark.parametrize("task", [AFFINE, EXP], ids=["affine", "one function"])
def test_a_constant_that_is_added_changes_nothing(task):
    check_shift(task)
    must_fail(check_shift, task, relative_to_zero)


def check_r2(task, variance):
    """R^2 of predictors whose error is a known share of the variance about E[f(x)]."""
    table = evaluate(Own(task, share=1.0), task, **SMALL)
    assert row_of(table, predictor="model")["r2"] == pytest.approx(1)
    errors = function_errors({"mean": LawMean(task)}, task, n_functions=4000, n_contexts=2, seed=0)[
        "mean"
    ]
    assert abs(errors.mean() - variance) < 4 * errors.std(ddof=1) / math.sqrt(len(errors))


def test_the_law_mean_leaves_the_variance():
    """Var f(x) = Var a (1 + E x^2) for independent coefficients; E f^2 adds the mean's square."""
    check_r2(AROUND_2, 0.25 * (1 + 1 / 3))
    check_r2(AFFINE, (1 + 1 / 3) / 3)
    must_fail(check_r2, AROUND_2, (0.25 + 4) * (1 + 1 / 3))


def test_tables_show_what_r2_is_relative_to():
    centred, around = (evaluate(KNearest(1), task, **SMALL) for task in (AFFINE, AROUND_2))
    assert centred["predictor"].tolist() == ["model", "least squares", "zero"]
    assert around["predictor"].tolist() == ["model", "least squares", "zero", "law mean"]
    assert "R2 compares with always predicting 0, the mean over functions" in centred.attrs["note"]
    assert around.attrs["note"].endswith(
        "R2 compares with always predicting the mean over functions"
    )
    for table, uninformed in ((centred, "zero"), (around, "law mean")):
        assert row_of(table, predictor=uninformed)["r2"] == pytest.approx(0, abs=1e-12)
        model, reference = (
            row_of(table, predictor=name)["error"] for name in ("model", uninformed)
        )
        assert row_of(table, predictor="model")["r2"] == pytest.approx(1 - model / reference)
    assert row_of(around, predictor="zero")["r2"] < -10
    fixed = evaluate(KNearest(1), EXP, **SMALL)
    assert fixed["predictor"].tolist() == ["model", "least squares", "zero", "mean value"]
    assert fixed.attrs["note"].endswith(
        "R2 compares with always predicting the mean value of the one function"
    )


def test_what_stands_in_provenance_names_the_law_mean():
    checkpoint = tiny_runs.checkpoint()
    found = evaluation.in_distribution(
        checkpoint, replace(checkpoint.task, coefficients=Uniform(0, 2)), n_contexts=1
    )
    assert found["r2"] == pytest.approx(1 - found["error"] / found["law mean"])
    assert found["law mean"] < found["zero"]


def test_a_shift_has_one_reference_at_every_sigma():
    result = shifted({"own": Own(AROUND_2)}, AROUND_2, [1, 3], arm="both", **SMALL)
    assert tuple(result.indexes["predictor"]) == ("own", "least squares", "zero", "law mean")
    table = error_table(result)
    for sigma, task in ((1, AROUND_2), (3, AROUND_2.scaled(3, 3))):
        mean = function_errors({"it": LawMean(task)}, task, **SMALL, seed=0)["it"]
        np.testing.assert_allclose(
            result.sel(predictor="law mean", sigma=sigma).values, mean, rtol=1e-9
        )
        row = row_of(table, predictor="own", sigma=float(sigma))
        assert row["r2"] == pytest.approx(1 - row["error"] / mean.mean())
    assert "always predicting the mean over functions" in table.attrs["note"]


def test_references_may_be_named():
    found = function_errors({"own": Own(AROUND_2)}, AROUND_2, **SMALL, seed=0, references=("zero",))
    assert list(found) == ["own", "zero"]
    expected = function_errors({"it": Zero()}, AROUND_2, **SMALL, seed=0)["it"]
    np.testing.assert_allclose(found["zero"], expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["law mean", "mean value"])
def test_names_of_references_are_taken(name):
    for predictor in (LawMean(AROUND_2), MeanValue(AROUND_2)):
        if predictor.name == name:
            shifted({name: predictor}, AROUND_2, [1], **SMALL)
    with pytest.raises(InputError, match=f"'{name}' is the name of a reference"):
        shifted({name: LeastSquares(AROUND_2)}, AROUND_2, [1], **SMALL)
