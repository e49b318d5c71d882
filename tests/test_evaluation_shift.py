"""Evaluation under shift: the same draws for all, scaled; closed forms; intervals by the book; what is refused."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import tiny_runs
import torch
from helpers import must_fail, one_in

from icl_interp import evaluation, resampling
from icl_interp.baselines import Averaging, LeastSquares, Zero
from icl_interp.errors import InputError
from icl_interp.evaluation import (
    Sample,
    error_table,
    function_errors,
    heatmap,
    paired_ratio,
    shifted,
)
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.tasks import Continuous, LinearRegression, Normal, Polynomial, Uniform

AFFINE = Polynomial(degrees=(1,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=6)
NORMAL = replace(AFFINE, inputs=Normal(1), coefficients=Normal(1))
MIXED = Polynomial(degrees=(1, 3), inputs=Uniform(-1, 1), coefficients=Normal(1), n_points=8)
LINEAR = LinearRegression(n_dims=2, inputs=Normal(1), weights=Normal(1), n_points=6)
SMALL = {"n_functions": 12, "n_contexts": 3}


class Own:
    """A predictor made of a function of the prompts, which keeps what it was asked."""

    def __init__(self, predict=lambda prompts: 0.5 * prompts.ys):
        self.function, self.asked = predict, []

    def predict(self, prompts):
        self.asked.append(prompts)
        return self.function(prompts)


def asked(task, sigma, **settings):
    """All prompts of one sigma, as a predictor gets them: (xs, ys)."""
    own = Own()
    shifted({"own": own}, task, [sigma], **{**SMALL, **settings})
    return tuple(torch.cat([getattr(p, name) for p in own.asked]).numpy() for name in ("xs", "ys"))


# ---- common random numbers -----------------------------------------------------------------------


def check_common(task, arm, sigma=3.0):
    """A shifted sample is the sample at sigma 1 with x, f or both scaled."""
    (xs, ys), (far_xs, far_ys) = asked(task, 1.0, arm=arm), asked(task, sigma, arm=arm)
    np.testing.assert_allclose(
        far_xs, xs * (1 if arm == "functions" else sigma), rtol=1e-12, atol=1e-12
    )
    if arm == "functions":
        np.testing.assert_allclose(far_ys, sigma * ys, rtol=1e-12, atol=1e-12)
    else:  # f(x) = sigma_f f_1(x): on its own features each prompt still determines f
        factor = sigma if arm == "both" else 1.0
        for row in range(len(xs)):
            X, far_X = (
                task.features(torch.tensor(x[row : row + 1]))[0].numpy() for x in (xs, far_xs)
            )
            w = np.linalg.lstsq(X, ys[row], rcond=None)[0]
            np.testing.assert_allclose(far_ys[row], factor * far_X @ w, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("arm", ["functions", "inputs", "both"])
@pytest.mark.parametrize(
    "task", [AFFINE, NORMAL, MIXED, LINEAR], ids=["uniform", "normal", "mixed", "linear"]
)
def test_draws_are_scaled_and_not_drawn_anew(task, arm):
    check_common(task, arm)


@pytest.mark.parametrize("arm", ["functions", "inputs", "both"])
def test_draws_of_their_own_at_every_sigma_are_noticed(monkeypatch, arm):
    calls = []

    def own_stream(seed, stream, start):
        calls.append(start)
        return generator(seed, stream, start, len(calls))

    monkeypatch.setattr(evaluation, "generator", own_stream)
    must_fail(check_common, AFFINE, arm)


def check_paired(first, second):
    """Errors are those of the same functions: for a predictor that is half the truth, to the last bit."""
    for sigma in (1.0, 4.0):
        np.testing.assert_array_equal(
            first.sel(predictor="half", sigma=sigma).values,
            second.sel(predictor="half", sigma=sigma).values,
        )


def test_models_evaluated_apart_are_paired():
    half, other = Own(), Own(lambda prompts: prompts.xs[..., 0])
    apart = shifted({"half": half}, AFFINE, [1, 4], **SMALL)
    together = shifted({"other": other, "half": half}, AFFINE, [4, 2, 1], **SMALL)
    check_paired(apart, together)
    must_fail(check_paired, apart, shifted({"half": half}, AFFINE, [1, 4], **SMALL, seed=1))
    for reference in ("least squares", "zero"):
        at = {"predictor": reference, "sigma": 4.0}
        np.testing.assert_array_equal(apart.sel(at).values, together.sel(at).values)


# ---- values --------------------------------------------------------------------------------------


def test_axes_and_errors_by_hand():
    result = shifted({"half": Own()}, AFFINE, [1, 2.5], **SMALL)
    assert {name: tuple(index) for name, index in result.indexes.items()} == {
        "predictor": ("half", "least squares", "zero"),
        "sigma": (1.0, 2.5),
        "function": tuple(range(12)),
    }
    _, ys = asked(AFFINE, 2.5)
    square = (ys[:, 2:] ** 2).reshape(12, 3, 4)
    np.testing.assert_allclose(
        result.sel(predictor="zero", sigma=2.5).values, square.mean((1, 2)), rtol=1e-12
    )
    np.testing.assert_allclose(
        result.sel(predictor="half", sigma=2.5).values, square.mean((1, 2)) / 4, rtol=1e-12
    )
    assert result.sel(predictor="least squares").values.max() < 1e-20
    assert (
        "points 3..6 of 12 functions x 3 contexts, seed 0; sigma scales functions"
        in result.attrs["note"]
    )


def check_second_moment(task, arm, sigma, expected):
    errors = (
        shifted({}, task, [sigma], arm=arm, n_functions=3000, n_contexts=2)
        .sel(predictor="zero", sigma=sigma)
        .values
    )
    assert abs(errors.mean() - expected) < 4 * errors.std(ddof=1) / math.sqrt(len(errors))


# E f^2 = sigma_f^2 E a^2 (1 + sigma_x^2 E x^2) for affine f.
MOMENTS = [
    (AFFINE, "functions", 3.0, 9 * (1 + 1 / 3) / 3),
    (AFFINE, "inputs", 3.0, (1 + 9 / 3) / 3),
    (AFFINE, "both", 3.0, 9 * (1 + 9 / 3) / 3),
    (NORMAL, "functions", 2.0, 4 * 2),
    (NORMAL, "inputs", 2.0, 1 + 4),
    (NORMAL, "both", 0.5, 0.25 * 1.25),
    (LINEAR, "inputs", 2.0, 2 * 4),
]


@pytest.mark.parametrize(("task", "arm", "sigma", "expected"), one_in(3, MOMENTS))
def test_the_zero_reference_is_the_second_moment_of_the_shifted_law(task, arm, sigma, expected):
    check_second_moment(task, arm, sigma, expected)
    must_fail(check_second_moment, task, arm, sigma, 1.2 * expected)
    other = {"functions": "inputs", "inputs": "both", "both": "functions"}[arm]
    must_fail(check_second_moment, task, other, sigma, expected)


def check_equivariance(predictor):
    """What is linear in the labels has sigma^2 times its error on functions times sigma."""
    result = shifted({"own": predictor}, AFFINE, [1, 7], **SMALL)
    np.testing.assert_allclose(
        result.sel(predictor="own", sigma=7).values,
        49 * result.sel(predictor="own", sigma=1).values,
    )


def test_errors_of_a_linear_predictor_grow_with_the_square_of_sigma():
    check_equivariance(Averaging())
    must_fail(check_equivariance, Own(lambda prompts: prompts.ys.clamp(-1, 1)))


def check_heatmap(arm, at):
    """A line of the heat map is an arm of the shift."""
    half = Own(lambda prompts: prompts.ys + 0.1 * prompts.xs)
    cells = heatmap(half, MIXED, [1, 2, 5], **SMALL)
    line = shifted({"half": half}, MIXED, [1, 2, 5], arm=arm, **SMALL)
    for sigma in (1, 2, 5):
        np.testing.assert_array_equal(
            cells.sel(at(sigma)).values, line.sel(predictor="half", sigma=sigma).values
        )


def test_the_lines_of_a_heat_map():
    check_heatmap("functions", lambda sigma: {"inputs": 1, "functions": sigma})
    check_heatmap("inputs", lambda sigma: {"inputs": sigma, "functions": 1})
    check_heatmap("both", lambda sigma: {"inputs": sigma, "functions": sigma})
    must_fail(check_heatmap, "inputs", lambda sigma: {"inputs": 1, "functions": sigma})


# ---- tables and intervals ------------------------------------------------------------------------


def made_up(seed=0):
    """Errors of 30 functions at two sigmas, of no model."""
    rng = np.random.default_rng(seed)
    values = np.stack(
        [rng.gamma(2, 1, (2, 30)), rng.gamma(1, 0.01, (2, 30)), rng.gamma(2, 2, (2, 30))]
    )
    axes = {
        "predictor": ("model", "least squares", "zero"),
        "sigma": (1.0, 2.0),
        "function": range(30),
    }
    return make_array(values, axes, note="made up")


def by_bootstrap(statistic, *arrays, positive=False):
    """The interval of a statistic of means over functions."""
    found = resampling.bootstrap(statistic, *arrays, positive=positive)
    return found.value, found.low, found.high


def check_error_table(table, errors):
    assert len(table) == 6
    for row in table.to_dict("records"):
        own, best, zero = (
            errors.sel(predictor=name, sigma=row["sigma"]).values
            for name in (row["predictor"], "least squares", "zero")
        )
        expected = (
            *by_bootstrap(lambda e: e, own, positive=True),
            *by_bootstrap(lambda e, b, z: e / abs(b - z), own, best, zero, positive=True),
            1 - own.mean() / zero.mean(),
        )
        names = ("error", "low", "high", "error_rate", "rate_low", "rate_high", "r2")
        np.testing.assert_allclose([row[name] for name in names], expected, rtol=1e-6, atol=1e-12)


def test_the_error_table_follows_its_definitions():
    check_error_table(error_table(made_up()), made_up())
    must_fail(check_error_table, error_table(made_up(1)), made_up())
    assert error_table(made_up()).attrs["note"].startswith("made up; 95 %")
    must_fail(check_error_table, error_table(made_up()[:, :, ::2]), made_up())


def check_ratio(interval, errors, a="model", b="zero", sigma=2.0):
    first, second = (
        errors.sel(predictor=a, sigma=sigma).values,
        errors.sel(predictor=b, sigma=sigma).values,
    )
    expected = by_bootstrap(lambda x, y: np.log10(x) - np.log10(y), first, second)
    np.testing.assert_allclose([interval.value, interval.low, interval.high], expected, rtol=1e-6)


def test_a_ratio_is_paired_by_function():
    check_ratio(paired_ratio(made_up(), "model", "zero", 2), made_up())
    must_fail(check_ratio, paired_ratio(made_up(), "zero", "model", 2), made_up())
    must_fail(check_ratio, paired_ratio(made_up(), "model", "zero", 1), made_up())
    # Of errors that are proportional function by function the ratio is known without any doubt.
    result = shifted(
        {"a": Own(), "b": Own(lambda prompts: 0.75 * prompts.ys)}, AFFINE, [1], **SMALL
    )
    found = paired_ratio(result, "a", "b", 1)
    np.testing.assert_allclose([found.value, found.low, found.high], math.log10(4), rtol=1e-12)


def test_a_predictor_without_error_has_a_ratio():
    exact = shifted({"exact": Own(lambda prompts: prompts.ys)}, AFFINE, [1], **SMALL)
    assert paired_ratio(exact, "exact", "zero", 1).value < -300


# ---- references ----------------------------------------------------------------------------------


def count_fits(monkeypatch):
    fits = []
    fit = LeastSquares.predict
    monkeypatch.setattr(
        LeastSquares, "predict", lambda self, prompts: fits.append(self) or fit(self, prompts)
    )
    return fits


def test_references_are_computed_once_for_all_models(monkeypatch):
    fits, settings = count_fits(monkeypatch), {**SMALL, "seed": 77}
    first = shifted({"a": Own()}, MIXED, [1, 2], **settings)
    assert len(fits) == 2
    second = shifted({"b": Own(lambda prompts: prompts.ys)}, MIXED, [2, 1], **settings)
    assert len(fits) == 2
    for sigma in (1, 2):
        fresh = function_errors({"x": LeastSquares(MIXED)}, MIXED.scaled(sigma), **settings)["x"]
        for result in (first, second):
            np.testing.assert_array_equal(
                result.sel(predictor="least squares", sigma=sigma).values, fresh
            )


@pytest.mark.parametrize(
    "change", [{"seed": 78}, {"n_functions": 11}, {"n_contexts": 4}, {"arm": "inputs"}]
)
def test_another_sample_has_references_of_its_own(monkeypatch, change):
    settings = {**SMALL, "seed": 79}
    shifted({}, MIXED, [2], **settings)
    fits = count_fits(monkeypatch)
    shifted({}, MIXED, [2], **settings)
    assert not fits
    shifted({}, MIXED, [2], **{**settings, **change})
    assert fits


@dataclass(frozen=True, kw_only=True)
class Listed(Polynomial):
    """A task that can't be hashed."""

    more: Sequence[int] = field(default_factory=list)


def test_a_task_that_can_not_be_kept_is_evaluated_all_the_same():
    task = Listed(degrees=(1,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=6)
    with pytest.raises(TypeError, match="unhashable"):
        hash(task)
    found, expected = (shifted({}, which, [1], **SMALL) for which in (task, AFFINE))
    np.testing.assert_array_equal(
        found.sel(predictor="zero").values, expected.sel(predictor="zero").values
    )


def test_all_are_scored_where_the_least_talkative_predicts():
    def query_only(prompts):
        return torch.where(torch.arange(6) == 5, 0.0, torch.nan).expand(prompts.ys.shape[:2])

    result = shifted({"silent": Own(query_only), "half": Own()}, AFFINE, [1], **SMALL)
    _, ys = asked(AFFINE, 1.0)
    query = (ys[:, -1] ** 2).reshape(12, 3).mean(1)
    np.testing.assert_allclose(result.sel(predictor="silent", sigma=1).values, query, rtol=1e-12)
    np.testing.assert_allclose(result.sel(predictor="half", sigma=1).values, query / 4, rtol=1e-12)
    np.testing.assert_allclose(result.sel(predictor="zero", sigma=1).values, query, rtol=1e-12)
    alone = shifted({"half": Own()}, AFFINE, [1], **SMALL)
    assert not np.allclose(alone.sel(predictor="zero").values, result.sel(predictor="zero").values)


def test_a_sample_is_drawn_anew_and_the_same_each_time():
    sample = Sample(AFFINE, 5, 3, 0, chunk=6)
    first, second = list(sample), list(sample)
    assert [len(p) for p in first] == [6, 6, 3]
    assert all(torch.equal(a.ys, b.ys) for a, b in zip(first, second, strict=True))


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda: shifted({}, Continuous(function="abs", inputs=Uniform(-1, 1), n_points=4), [1]),
            "a Continuous task",
        ),
        (lambda: shifted({}, AFFINE, []), r"positive numbers, at least one, but got \[\]"),
        (lambda: shifted({}, AFFINE, [1, 0]), r"positive numbers.*\[1, 0\]"),
        (lambda: heatmap(Zero(), AFFINE, [math.inf]), "positive numbers"),
        (lambda: shifted({"zero": Own()}, AFFINE, [1]), "'zero' is the name of a reference"),
        (lambda: paired_ratio(made_up(), "modell", "zero", 1), "did you mean 'model'"),
        (lambda: paired_ratio(made_up(), "model", "zero", 3), "unknown sigma 3.0"),
    ],
)
def test_what_can_not_be_shifted_is_refused(call, match):
    with pytest.raises(InputError, match=match):
        call()


def test_a_model_is_not_asked_past_its_trained_length():
    checkpoint = tiny_runs.checkpoint()
    task = checkpoint.task
    shifted({"model": checkpoint}, task, [1], n_functions=2, n_contexts=1)
    longer = task.with_points(task.n_points + 1)
    for call in (
        lambda: shifted({"m": checkpoint}, longer, [1]),
        lambda: heatmap(checkpoint, longer, [1]),
    ):
        with pytest.raises(
            InputError, match=f"trained on prompts of {task.n_points} points, but the task has"
        ):
            call()
    # A baseline brings a task for its features only.
    shifted({"own": LeastSquares(task)}, longer, [1], n_functions=2, n_contexts=1)
