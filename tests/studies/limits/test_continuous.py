"""Continuous functions: closed forms of what polynomials leave of them, the measurement, verdicts."""

import math

import numpy as np
import pytest
import torch
from helpers import must_fail
from known import facts
from small_models import make
from xarray import DataArray

from icl_interp import tasks
from icl_interp.analyses import registry
from icl_interp.analyses.lab import Lab
from icl_interp.baselines import Averaging, LeastSquares
from icl_interp.experiments import calibration
from icl_interp.models.tokens import Interleaved
from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.limits.claims import continuous as limits_continuous
from icl_interp.studies.limits.claims.continuous import DOMAINS, continuous, variance_and_floor, within

CLAIM = "limits.continuous_functions"
U = tasks.Uniform(-1, 1)
CUBICS = tasks.Polynomial(degrees=(3,), inputs=U, coefficients=U, n_points=9)
FUNCTIONS = {"exp": np.exp, "sin": np.sin, "log1p": np.log1p, "abs": np.abs}


def known(task=CUBICS, **more):
    return facts(task=task, **more)


def judge(results, facts):
    return registry.REGISTRY[CLAIM].judge_results(results, facts)


# ---- closed forms ---------------------------------------------------------------------------------------------------


def check_closed_forms(both):
    e = math.e
    for name, expected in (
        ("exp", (e**2 - 1) / 2 - (e - 1) ** 2),
        ("sin", 0.5 - math.sin(2) / 4 - (1 - math.cos(1)) ** 2),
        ("log1p", 2 * math.log(2) ** 2 - 4 * math.log(2) + 2 - (2 * math.log(2) - 1) ** 2),
        ("abs", 1 / 12),
    ):
        assert both(name, 2)[0] == pytest.approx(expected, rel=1e-12), name
    # |x| = 3/16 + 15/16 x^2 + what is left: of a variance of 1/12 the parabola explains 15/16 cov(|x|, x^2) = 5/64.
    assert both("abs", 2)[1] == pytest.approx(1 - 12 * 5 / 64, rel=1e-12)
    assert both("abs", 3)[1] == pytest.approx(both("abs", 2)[1], rel=1e-9)  # |x| is even
    slope = 12 * ((0 + 1) - (e - 1) / 2)  # cov(exp, x) / var(x), with the integral of x exp(x) over [0, 1] = 1
    assert both("exp", 1)[1] == pytest.approx(1 - slope**2 / 12 / both("exp", 1)[0], rel=1e-9)
    # A grid by brute force, to its own accuracy.
    for name, (low, high) in DOMAINS.items():
        xs = low + (high - low) * (np.arange(20_000) + 0.5) / 20_000
        left = FUNCTIONS[name](xs) - np.polyval(np.polyfit(xs, FUNCTIONS[name](xs), 2), xs)
        assert both(name, 2)[1] == pytest.approx(left.var() / FUNCTIONS[name](xs).var(), rel=1e-6), name


def test_variance_and_what_the_best_polynomial_leaves():
    check_closed_forms(variance_and_floor)
    must_fail(check_closed_forms, lambda name, degree: variance_and_floor(name, degree + 1))
    must_fail(check_closed_forms, lambda name, degree: tuple(1.01 * v for v in variance_and_floor(name, degree)))


def test_functions_within_the_inputs():
    assert within((-1, 1)) == ("exp", "sin", "log1p", "abs")
    assert within((0, 2)) == ("exp", "sin", "log1p")
    assert within((-1, 0.9)) == ()


# ---- measurement ----------------------------------------------------------------------------------------------------


def check_measured(measure):
    """By explicit loops: points n + 2 .. on prompts of one fixed function."""
    lab = Lab(make("pre", n_ctx=20), CUBICS, Interleaved(), n_units=6, n_contexts=8)
    result = measure(lab)
    assert tuple(result.indexes["function"]) == ("exp", "sin", "log1p", "abs")
    for name in ("exp", "abs"):
        law = tasks.Continuous(function=name, inputs=tasks.Uniform(*DOMAINS[name]), n_points=9)
        prompts = law.sample(6, generator(0, f"classes/{name}"), n_contexts=2, dtype=torch.float64)
        xs = prompts.xs[..., 0].numpy()
        assert np.allclose(as_numbers(prompts.ys), FUNCTIONS[name](xs), rtol=0, atol=1e-14)
        assert xs.min() >= DOMAINS[name][0]
        out = as_numbers(lab.predict(prompts)).double().numpy()
        for group in (0, 5):
            rows = [2 * group, 2 * group + 1]
            terms = [(out[b, k] - FUNCTIONS[name](xs[b, k])) ** 2 for b in rows for k in range(4, 9)]
            assert result.sel(predictor="model", function=name).values[group] == pytest.approx(np.mean(terms), rel=1e-6)
            terms = [
                (np.polyval(np.polyfit(xs[b, :k], FUNCTIONS[name](xs[b, :k]), 3), xs[b, k]) - FUNCTIONS[name](xs[b, k]))
                ** 2
                for b in rows
                for k in range(4, 9)
            ]
            best = result.sel(predictor="least squares", function=name).values[group]
            assert best == pytest.approx(np.mean(terms), rel=1e-4)


def test_measured_by_hand(monkeypatch):
    check_measured(continuous)
    monkeypatch.setattr(limits_continuous, "per_unit", lambda values, n: values.sum(-1).view(n, -1).mean(-1).numpy())
    must_fail(check_measured, continuous)


# ---- verdicts -------------------------------------------------------------------------------------------------------


def made_up(shares, names=("exp", "sin", "log1p", "abs")) -> DataArray:
    """A model that leaves these shares of the variances, with a little noise; least squares leaves a hundredth."""
    noise = 1 + 0.05 * np.random.default_rng(1).standard_normal(64)
    variance = np.array([variance_and_floor(name, 3)[0] for name in names])
    model = (np.array(shares) * variance)[:, None] * noise
    axes = {"predictor": ("model", "least squares"), "function": names, "group": range(64)}
    return make_array([model, 0.01 * model], axes)


UNTRAINED = {"twin/classes/continuous": made_up([5.0, 5, 5, 5])}


def check_judge(facts):
    for shares, expected in (
        ([0.01, 0.02, 0.03, 0.08], "supported"),
        ([0.01, 0.02, 0.03, 0.3], "contradicted"),
        ([0.01, 0.3, 0.03, 0.01], "contradicted"),
        ([0.01, 0.02, 0.03, 0.15], "inconclusive"),
    ):
        finding = judge({"classes/continuous": made_up(shares), **UNTRAINED}, facts)
        assert finding.verdict == expected, shares
        assert finding.estimate.value == pytest.approx(max(shares), rel=0.02)
        assert [row["judged"] for row in finding.details] == [True] * 4
        assert ("does not follow all" in finding.reason) == (expected == "contradicted")


def test_judge():
    check_judge(known())
    lines = tasks.Polynomial(degrees=(1,), inputs=U, coefficients=U, n_points=9)
    must_fail(check_judge, known(lines))


def test_what_polynomials_cannot_do_is_not_asked_for():
    """|x| is not judged of a model trained on lines, and nothing is where inputs do not reach."""
    lines = tasks.Polynomial(degrees=(1,), inputs=U, coefficients=U, n_points=9)
    finding = judge({"classes/continuous": made_up([0.01, 0.02, 0.03, 0.9]), **UNTRAINED}, known(lines))
    assert finding.verdict == "supported"
    assert "Not judged: |x|," in finding.reason
    for task, reason in (
        (tasks.Polynomial(degrees=(0,), inputs=U, coefficients=U, n_points=9), "approximate none of the functions"),
        (tasks.Polynomial(degrees=(3,), inputs=tasks.Uniform(-1, 0), coefficients=U, n_points=9), "do not cover"),
        (tasks.Continuous(function="sin", inputs=U, n_points=9), "this model's task is Continuous"),
    ):
        finding = judge({}, known(task))
        assert finding.verdict == "not_applicable"
        assert reason in finding.reason
    normal = tasks.Polynomial(degrees=(3,), inputs=tasks.Normal(1), coefficients=U, n_points=9)
    assert registry.REGISTRY[CLAIM].excluded(known(normal)) is None


def test_a_function_within_reach_is_needed():
    """Results of |x| alone, of which a line explains nothing."""
    lines = tasks.Polynomial(degrees=(1,), inputs=U, coefficients=U, n_points=9)
    only = {name: made_up([0.01], ("abs",)) for name in ("classes/continuous", "twin/classes/continuous")}
    finding = judge(only, known(lines))
    assert finding.verdict == "inconclusive"
    assert finding.reason == "No function is approximated by polynomials of the model's degree."
    assert finding.evidence["functions"].value == 0


def test_what_training_did_not_make_is_not_supported():
    good = made_up([0.01] * 4)
    finding = judge({"classes/continuous": good, "twin/classes/continuous": good}, known())
    assert finding.verdict == "inconclusive"
    assert "randomly initialised control" in finding.reason


def check_known_truth(predictor):
    task = tasks.Polynomial(degrees=(3,), inputs=U, coefficients=U, n_points=30)
    (finding,) = calibration.judge(calibration.Case(make("pre", n_ctx=64), task, predictor), (CLAIM,))
    worst = {row["class"]: row["unexplained"] for row in finding.details}
    assert max(worst["exp"], worst["sin"], worst["ln(1+x)"]) < 1e-3
    # Fitted to few points of |x| cubics swing: what the best one leaves is not what least squares reaches.
    assert worst["|x|"] > finding.details[3]["best polynomial of its degree"]
    assert all(row["unexplained"] == pytest.approx(row["least squares of its degree"]) for row in finding.details)


@pytest.mark.slow
def test_least_squares_follows_and_the_mean_does_not():
    check_known_truth(LeastSquares(CUBICS).predict)
    must_fail(check_known_truth, Averaging().predict)
