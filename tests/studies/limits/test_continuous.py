"""Continuous functions: closed forms of what polynomials leave, the measurement, verdicts."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from made_up_facts import facts
from measured_claims import answered
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
from icl_interp.studies.limits.claims.continuous import variance_and_floor
from icl_interp.studies.limits.measurements import continuous as measured_continuous
from icl_interp.studies.limits.measurements import drawn_functions
from icl_interp.studies.limits.measurements.continuous import DOMAINS, continuous, within

CLAIM = "limits.continuous_functions"
U = tasks.Uniform(-1, 1)
CUBICS = tasks.Polynomial(degrees=(3,), inputs=U, coefficients=U, n_points=9)
NAMES = ("exp", "sin", "log1p", "abs", "smooth", "kinked")
FUNCTIONS = {"exp": np.exp, "sin": np.sin, "log1p": np.log1p, "abs": np.abs}


def known(task=CUBICS, **more):
    return facts(task=task, **more)


def judge(results, facts):
    return registry.REGISTRY[CLAIM].judge_results(results, facts)


# ---- closed forms --------------------------------------------------------------------------------


def check_closed_forms(both):
    e = math.e
    for name, expected in (
        ("exp", (e**2 - 1) / 2 - (e - 1) ** 2),
        ("sin", 0.5 - math.sin(2) / 4 - (1 - math.cos(1)) ** 2),
        ("log1p", 2 * math.log(2) ** 2 - 4 * math.log(2) + 2 - (2 * math.log(2) - 1) ** 2),
        ("abs", 1 / 12),
    ):
        assert both(name, 2)[0] == pytest.approx(expected, rel=1e-12), name
    # |x| = 3/16 + 15/16 x^2 + what is left: of a variance of 1/12 the parabola explains 15/16
    # cov(|x|, x^2) = 5/64.
    assert both("abs", 2)[1] == pytest.approx(1 - 12 * 5 / 64, rel=1e-12)
    assert both("abs", 3)[1] == pytest.approx(both("abs", 2)[1], rel=1e-9)  # |x| is even
    slope = 12 * (
        (0 + 1) - (e - 1) / 2
    )  # cov(exp, x) / var(x), with the integral of x exp(x) over [0, 1] = 1
    assert both("exp", 1)[1] == pytest.approx(1 - slope**2 / 12 / both("exp", 1)[0], rel=1e-9)
    # A grid by brute force, to its own accuracy.
    for name, (low, high) in DOMAINS.items():
        xs = low + (high - low) * (np.arange(20_000) + 0.5) / 20_000
        left = FUNCTIONS[name](xs) - np.polyval(np.polyfit(xs, FUNCTIONS[name](xs), 2), xs)
        assert both(name, 2)[1] == pytest.approx(
            left.var() / FUNCTIONS[name](xs).var(), rel=1e-6
        ), name


def test_variance_and_what_the_best_polynomial_leaves():
    check_closed_forms(variance_and_floor)
    must_fail(check_closed_forms, lambda name, degree: variance_and_floor(name, degree + 1))
    must_fail(
        check_closed_forms,
        lambda name, degree: tuple(1.01 * v for v in variance_and_floor(name, degree)),
    )


def test_functions_within_the_inputs():
    assert within((-1, 1)) == ("exp", "sin", "log1p", "abs", "smooth", "kinked")
    assert within((0, 2)) == ("exp", "sin", "log1p", "smooth")
    assert within((-1, 0.9)) == ()


# ---- measurement ---------------------------------------------------------------------------------


def check_measured(measure):
    """By explicit loops: points n + 2 .. on prompts of one fixed function."""
    lab = Lab(make("pre", n_ctx=20), CUBICS, Interleaved(), n_units=6, n_contexts=8)
    result = measure(lab)
    assert tuple(result.indexes["function"]) == NAMES
    for name in ("exp", "abs"):
        law = tasks.Continuous(function=name, inputs=tasks.Uniform(*DOMAINS[name]), n_points=9)
        prompts = law.sample(6, generator(0, f"classes/{name}"), n_contexts=2, dtype=torch.float64)
        xs = prompts.xs[..., 0].numpy()
        assert np.allclose(as_numbers(prompts.ys), FUNCTIONS[name](xs), rtol=0, atol=1e-14)
        assert xs.min() >= DOMAINS[name][0]
        out = as_numbers(lab.predict(prompts)).double().numpy()
        for group in (0, 5):
            rows = [2 * group, 2 * group + 1]
            terms = [
                (out[b, k] - FUNCTIONS[name](xs[b, k])) ** 2 for b in rows for k in range(4, 9)
            ]
            assert result.sel(predictor="model", function=name).values[group] == pytest.approx(
                np.mean(terms), rel=1e-6
            )
            terms = [
                (
                    np.polyval(np.polyfit(xs[b, :k], FUNCTIONS[name](xs[b, :k]), 3), xs[b, k])
                    - FUNCTIONS[name](xs[b, k])
                )
                ** 2
                for b in rows
                for k in range(4, 9)
            ]
            best = result.sel(predictor="least squares", function=name).values[group]
            assert best == pytest.approx(np.mean(terms), rel=1e-4)


def test_measured_by_hand(monkeypatch):
    check_measured(continuous)
    monkeypatch.setattr(
        measured_continuous,
        "per_unit",
        lambda values, n: values.sum(-1).view(n, -1).mean(-1).numpy(),
    )
    must_fail(check_measured, continuous)


# ---- families that are drawn ---------------------------------------------------------------------


def check_moments(family, moments):
    """Mean variance, and what the best polynomial leaves, of many functions on a fine grid."""
    low, high = family.domain
    n_functions, grid = 3000, (torch.arange(400).double() + 0.5) / 400
    values = family.draw(
        (low + (high - low) * grid).expand(n_functions, -1), generator(0, "test")
    ).numpy()
    variance = values.var(1)
    for degree in (1, 2):
        left = (
            values
            - values @ (basis := np.linalg.qr(np.vander(grid.numpy(), degree + 1))[0]) @ basis.T
        )
        expected = moments(degree)
        error = variance.std() / math.sqrt(n_functions)
        assert variance.mean() == pytest.approx(expected[0], abs=4 * error)
        shares = (left**2).mean(1) / variance.mean()
        assert shares.mean() == pytest.approx(
            expected[1], abs=4 * shares.std() / math.sqrt(n_functions)
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "family", drawn_functions.FAMILIES.values(), ids=list(drawn_functions.FAMILIES)
)
def test_moments_of_a_family(family):
    check_moments(family, family.moments)
    must_fail(check_moments, family, lambda degree: family.moments(degree + 1))
    must_fail(
        check_moments,
        family,
        lambda degree: (1.2 * family.moments(degree)[0], family.moments(degree)[1]),
    )


def check_drawn(draw):
    """Every unit has its own function, another seed has others, and inputs stay in the domain."""
    assert list(drawn_functions.FAMILIES)[-1] == "kinked"
    lab, other = (
        Lab(make("pre", n_ctx=20), CUBICS, Interleaved(), n_units=6, n_contexts=8, seed=s)
        for s in (0, 1)
    )
    for name, family in drawn_functions.FAMILIES.items():
        prompts = draw(lab, name)
        assert prompts.xs.min() >= family.domain[0]
        assert prompts.function.tolist() == [i // 2 for i in range(12)]
        assert not torch.equal(prompts.ys, draw(other, name).ys)
    # A unit's contexts together lie on one kinked function: but for one, all slopes between
    # neighbours are 1 or -1.
    xs, ys = prompts.xs.view(6, -1), prompts.ys.view(6, -1)
    order = xs.argsort(1)
    slopes = ys.gather(1, order).diff() / xs.gather(1, order).diff()
    assert ((slopes.abs() - 1).abs() > 1e-9).sum(1).max() <= 1


def test_every_unit_is_shown_a_function_of_its_own():
    check_drawn(measured_continuous.prompts_of)
    fixed = Lab(make("pre", n_ctx=20), CUBICS, Interleaved(), n_units=6, n_contexts=8)
    must_fail(check_drawn, lambda lab, name: measured_continuous.prompts_of(fixed, name))


def by_heart(prompts):
    """The four named functions, known by heart, and 0 for all others."""
    xs, ys = prompts.xs[..., 0].double(), prompts.ys[..., 0].double()
    said = torch.zeros_like(ys)
    for f in (torch.exp, torch.sin, torch.abs, lambda x: torch.log1p(x.clamp(min=-0.99))):
        misses = (f(xs) - ys).abs()
        # From the points before: the running largest miss, one step behind.
        known = torch.cat([torch.ones_like(ys[:, :1]), misses.cummax(1).values[:, :-1]], 1) < 1e-6
        said = torch.where(known, f(xs), said)
    return said[..., None]


def polynomials_and_by_heart(prompts):
    """The same, but polynomials up to degree 3 are answered by least squares: it has learned."""
    fit = LeastSquares(CUBICS).predict(prompts)
    is_polynomial = prompts.parameters.shape[1] > 1
    return fit if is_polynomial else by_heart(prompts)


def check_by_heart(predictor):
    task = tasks.Polynomial(degrees=(3,), inputs=U, coefficients=U, n_points=16)
    lab = calibration.Predicting(
        predictor, make("pre", n_ctx=32), task, Interleaved(), n_units=32, n_contexts=1
    )
    finding = judge({"classes/continuous": continuous(lab), **UNTRAINED}, known(task))
    assert finding.verdict == "contradicted"
    assert finding.decided_by.quantity == "drawn"
    assert finding.evidence["worst"].high < 1e-6


def test_functions_known_by_heart_support_nothing(monkeypatch):
    """Without families such a predictor was supported, and firmly."""
    check_by_heart(polynomials_and_by_heart)
    must_fail(check_by_heart, LeastSquares(CUBICS).predict)
    old = registry.REGISTRY[CLAIM]
    named = replace(old.criterion, conditions=old.criterion.conditions[:1])
    monkeypatch.setitem(registry.REGISTRY, CLAIM, replace(old, criterion=named))
    must_fail(check_by_heart, polynomials_and_by_heart)


# ---- verdicts ------------------------------------------------------------------------------------


def made_up(shares, names=NAMES) -> DataArray:
    """A model that leaves these shares of the variances, with a little noise.

    Least squares leaves a hundredth.
    """
    noise = 1 + 0.05 * np.random.default_rng(1).standard_normal(64)
    variance = np.array([variance_and_floor(name, 3)[0] for name in names])
    model = (np.array(shares) * variance)[:, None] * noise
    axes = {"predictor": ("model", "least squares"), "function": names, "group": range(64)}
    return make_array([model, 0.01 * model], axes)


UNTRAINED = {"twin/classes/continuous": made_up([5.0] * 6)}


def check_judge(facts):
    for shares, expected in (
        ([0.01, 0.02, 0.03, 0.08, 0.05, 0.09], "supported"),
        ([0.01, 0.02, 0.03, 0.3, 0.05, 0.05], "contradicted"),
        ([0.01, 0.3, 0.03, 0.01, 0.05, 0.05], "contradicted"),
        ([0.01, 0.02, 0.03, 0.15, 0.05, 0.05], "inconclusive"),
        ([0.01, 0.02, 0.03, 0.04, 0.3, 0.05], "contradicted"),
        ([0.01, 0.02, 0.03, 0.04, 0.05, 0.3], "contradicted"),
        ([0.01, 0.02, 0.03, 0.04, 0.05, 0.15], "inconclusive"),
    ):
        finding = judge({"classes/continuous": made_up(shares), **UNTRAINED}, facts)
        assert finding.verdict == expected, shares
        assert finding.estimate.value == pytest.approx(max(shares[:4]), rel=0.02)
        assert finding.evidence["drawn"].value == pytest.approx(max(shares[4:]), rel=0.02)
        assert [row["judged"] for row in finding.details] == [True] * 6
        assert answered(finding)


def test_judge():
    check_judge(known())
    lines = tasks.Polynomial(degrees=(1,), inputs=U, coefficients=U, n_points=9)
    must_fail(check_judge, known(lines))


def test_what_polynomials_cannot_do_is_not_asked_for():
    """A kink is not judged of a model trained on lines, nor anything where inputs do not reach."""
    lines = tasks.Polynomial(degrees=(1,), inputs=U, coefficients=U, n_points=9)
    finding = judge(
        {"classes/continuous": made_up([0.01, 0.02, 0.03, 0.9, 0.05, 0.9]), **UNTRAINED},
        known(lines),
    )
    assert finding.verdict == "supported"
    assert "Not judged: |x| and kinked functions, drawn," in finding.reason
    for task, reason in (
        (
            tasks.Polynomial(degrees=(0,), inputs=U, coefficients=U, n_points=9),
            "approximate none of the functions",
        ),
        (
            tasks.Polynomial(degrees=(3,), inputs=tasks.Uniform(-1, 0), coefficients=U, n_points=9),
            "do not cover",
        ),
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
    only = {
        name: made_up([0.01], ("abs",))
        for name in ("classes/continuous", "twin/classes/continuous")
    }
    finding = judge(only, known(lines))
    assert finding.verdict == "inconclusive"
    assert finding.reason.startswith(
        "No function is approximated by polynomials of the model's degree."
    )
    assert finding.evidence["functions"].value == 0


def test_what_training_did_not_make_is_not_supported():
    good = made_up([0.01] * 6)
    finding = judge({"classes/continuous": good, "twin/classes/continuous": good}, known())
    assert finding.verdict == "inconclusive"
    assert "randomly initialised control" in finding.reason


def check_known_truth(predictor):
    task = tasks.Polynomial(degrees=(3,), inputs=U, coefficients=U, n_points=30)
    (finding,) = calibration.judge(
        calibration.Case(make("pre", n_ctx=64), task, predictor), (CLAIM,)
    )
    worst = {row["class"]: row["unexplained"] for row in finding.details}
    assert max(worst["exp"], worst["sin"], worst["ln(1+x)"]) < 1e-3
    # Fitted to few points of |x| cubics swing: what the best one leaves is not what least squares
    # reaches.
    assert worst["|x|"] > finding.details[3]["best polynomial of its degree"]
    assert all(
        row["unexplained"] == pytest.approx(row["least squares of its degree"])
        for row in finding.details
    )


@pytest.mark.slow
def test_least_squares_follows_and_the_mean_does_not():
    check_known_truth(LeastSquares(CUBICS).predict)
    must_fail(check_known_truth, Averaging().predict)
