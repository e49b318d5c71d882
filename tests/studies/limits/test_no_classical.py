"""The claim on classical algorithms: predictions by hand, choices, thresholds, other units.

The choice is made in every draw.
"""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from made_up_facts import facts
from small_models import make

from icl_interp import tasks
from icl_interp.analyses.criterion import Criterion
from icl_interp.analyses.lab import Lab
from icl_interp.baselines import LeastSquares, Ridge
from icl_interp.experiments import calibration
from icl_interp.models.tokens import Interleaved
from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.limits.claims import no_classical
from icl_interp.studies.limits.claims.no_classical import (
    ANY,
    CLIPPED,
    ITSELF,
    NO_CLASSICAL_ALGORITHM_CLAIM,
    OF_TRUTH,
    ONE,
    PLAIN,
    TANH,
    Comparison,
    bounded,
    by_unit,
    interval,
    reshaped,
    similarity,
)
from icl_interp.studies.limits.constructions.functions import CONSTRUCTIONS, tossed, unsteady
from icl_interp.studies.limits.measurements import algorithms
from icl_interp.studies.limits.measurements.algorithms import (
    ARMS,
    LAW_MEAN,
    MODEL,
    SELF,
    TRUTH,
    own,
    polynomials_in,
    reshuffled,
    rivals,
)
from icl_interp.tasks.rescaled import Rescaled

CLAIM = NO_CLASSICAL_ALGORITHM_CLAIM
U = tasks.Uniform(-1, 1)
LINES = tasks.Polynomial(degrees=(1,), inputs=U, coefficients=U, n_points=8)
MIXED = tasks.Polynomial(degrees=(1, 3), inputs=U, coefficients=U, n_points=8)
UNEVEN = replace(MIXED, coefficients=tasks.Uniform(0.5, 1.5))  # its law's mean is not 0
BAYES = "Bayes over degrees, uniform prior"
N_UNITS = 1500  # of made-up numbers
SATURATING = next(
    c for c in CONSTRUCTIONS if c.name == "least squares up to the largest value trained on"
)


def bench(task=LINES, n_units=32, predict=None) -> Lab:
    lab = functools.partial(calibration.Predicting, predict) if predict else Lab
    return lab(make("pre"), task, Interleaved(), n_units=n_units, n_contexts=2)


# ---- similarity ----------------------------------------------------------------------------------


def check_similarity(compute):
    g = np.random.default_rng(1)
    f, a = 3 + g.standard_normal((2, 3, 50, 2)) * np.array([1.0, 2.0, 3.0])[:, None, None]
    expected = [1 - np.mean((f[i] - a[i]) ** 2) / np.var(f[i]) for i in range(3)]
    assert np.allclose(compute(f, a), expected)
    assert np.allclose(compute(7 - 5 * f, 7 - 5 * a), expected)  # in other units
    assert np.allclose(compute(f, f), 1)
    assert np.allclose(compute(np.full_like(f, 2.0), a), 0)


def test_similarity_is_in_units_of_the_outputs_variance():
    check_similarity(similarity)
    must_fail(
        check_similarity,
        lambda f, a: 1 - ((f - a) ** 2).mean((1, 2)) / np.maximum((f**2).mean((1, 2)), 1e-9),
    )
    must_fail(check_similarity, lambda f, a: similarity(a, f))


def check_bounded(form_of):
    values, mean = np.array([-9.0, 0.0, 1.5, 9.0]), np.array([1.0, 0.0, 1.0, 1.0])
    assert np.allclose(form_of(values, mean, CLIPPED, 2.0), [-1, 0, 1.5, 3])
    assert np.allclose(form_of(values, mean, TANH, 2.0), mean + 2 * np.tanh((values - mean) / 2))
    assert np.allclose(form_of(values, mean, PLAIN, 2.0), values)


def test_bounds_are_centred_at_the_laws_mean():
    check_bounded(bounded)
    must_fail(
        check_bounded, lambda values, mean, form, bound: bounded(values, 0 * mean, form, bound)
    )


# ---- made-up answers -----------------------------------------------------------------------------


def made_up(f, said: dict, itself=None, truth=None) -> dict:
    """Results as they would be stored: what a model says, `(arm, unit, prompt)`, and algorithms.

    No function counts.
    """
    f = np.asarray(f)
    axes = {"unit": tuple(range(f.shape[1])), "prompt": (0, 1)}
    fresh = np.random.default_rng(5).standard_normal(f.shape)

    def array(**values):
        return make_array(
            np.stack(list(values.values()), 1), {"arm": ARMS, "who": tuple(values), **axes}
        )

    return {
        "algorithms/own": array(**{MODEL: f}),
        "algorithms/itself": array(**{SELF: f if itself is None else itself}),
        "twin/algorithms/own": array(**{MODEL: fresh}),
        "algorithms/rivals": array(
            **{TRUTH: f if truth is None else truth, LAW_MEAN: 0 * f, **said}
        ),
    }


def verdict(results, claim=CLAIM) -> str:
    return claim.judge_results(results, facts(n_units=N_UNITS)).verdict


F = np.random.default_rng(3).standard_normal((4, N_UNITS, 2))


def near(to: tuple[float, float, float], seed: int):
    """What somebody says who is this similar to F in the first three arms.

    In the last arm they are as near as in the first. It is no nearer once bounded: E[F | A] = A.
    """
    r = np.array([*to, to[0]])[:, None, None]
    return r * F + np.sqrt(r * (1 - r)) * np.random.default_rng(seed).standard_normal(F.shape)


def check_decision(claim, expected: str, *to: tuple[float, float, float], **more):
    said = {f"algorithm {i}": near(one, i) for i, one in enumerate(to)}
    assert verdict(made_up(F, said, **more), claim) == expected


def with_regions(one: tuple[float, float], any_: float):
    """The claim with other thresholds."""
    first, second, third = CLAIM.criterion.conditions
    inf = float("inf")
    changed = (
        replace(first, supports=(-inf, one[0]), contradicts=(one[1], inf)),
        replace(second, supports=(-inf, any_)),
        third,
    )
    return replace(
        CLAIM, criterion=Criterion(changed, CLAIM.criterion.preconditions, terms="changed")
    )


@pytest.mark.slow
def test_thresholds():
    check_decision(CLAIM, "supported", (0.7, 0.7, 0.7))
    check_decision(CLAIM, "contradicted", (0.97, 0.98, 0.99))
    check_decision(CLAIM, "inconclusive", (0.86, 0.86, 0.86))
    must_fail(check_decision, with_regions((0.9, 0.95), 0.9), "inconclusive", (0.86, 0.86, 0.86))
    check_decision(CLAIM, "inconclusive", (0.92, 0.92, 0.92))
    must_fail(check_decision, with_regions((0.8, 0.9), 0.8), "inconclusive", (0.92, 0.92, 0.92))


@pytest.mark.slow
def test_one_rival_in_all_arms(monkeypatch):
    """It resembles one only if one is near in all arms: one near in distribution alone is none."""
    check_decision(CLAIM, "supported", (0.99, 0.7, 0.99))
    check_decision(CLAIM, "inconclusive", (0.99, 0.99, 0.87))
    check_decision(CLAIM, "supported", (0.99, 0.99, 0.3), (0.3, 0.3, 0.99))
    check_decision(CLAIM, "contradicted", (0.99, 0.97, 0.98), (0.3, 0.3, 0.99))

    def of_each_arm(square, value, squared):
        """The mutant: in each arm the nearest of that arm counts."""
        return interval(square.min(1, keepdims=True), value, squared)

    monkeypatch.setattr(no_classical, "interval", of_each_arm)
    must_fail(check_decision, CLAIM, "supported", (0.99, 0.99, 0.3), (0.3, 0.3, 0.99))


def check_any(claim, expected):
    """What the model says is a function of an algorithm that no rival is: its size."""
    wide = F * np.array([1.0, 3.0, 3.0, 3.0])[:, None, None]
    f = np.abs(wide)
    assert verdict(made_up(f, {"algorithm": wide}), claim) == expected


@pytest.mark.slow
def test_a_function_of_an_algorithm_is_not_none(monkeypatch):
    """That nothing resembles it is said only where no function of what an algorithm says does."""
    check_any(CLAIM, "inconclusive")
    one, _, truth = CLAIM.criterion.conditions
    without = replace(CLAIM, criterion=replace(CLAIM.criterion, conditions=(one, truth)))
    check_any(without, "supported")
    must_fail(check_any, without, "inconclusive")


def check_reshaped(reshape):
    """Of |A| the bins find the shape; of noise nothing, since each half predicts the other."""
    wide, noise = 3 * F, np.random.default_rng(11).standard_normal(F.shape)
    answers = no_classical.Answers(np.abs(wide), 0 * F, {"a": wide, "noise": noise})
    shape, nothing = reshape(answers)
    assert similarity(answers.f, shape).min() > 0.97
    assert abs(similarity(answers.f, nothing)).max() < 0.02
    few = no_classical.Answers(
        *(x[:, :20] for x in (np.abs(wide), 0 * F)), {"noise": noise[:, :20]}
    )
    assert (
        similarity(few.f, reshape(few)[0]).max() < 0.1
    )  # with few units bins that saw them would explain much


def test_functions_of_an_algorithm_are_found_on_the_other_half():
    check_reshaped(reshaped)

    def on_all(answers):
        double = {name: np.concatenate([v, v], 1) for name, v in answers.said.items()}
        twice = (np.concatenate([x, x], 1) for x in (answers.f, answers.mean))
        return reshaped(no_classical.Answers(*twice, double))[:, :, : answers.f.shape[1]]

    must_fail(check_reshaped, on_all)


@pytest.mark.slow
def test_a_model_must_be_like_itself_in_every_arm():
    itself = near((0.99, 0.9, 0.99), 9)
    for to in ((0.7, 0.7, 0.7), (0.99, 0.99, 0.99)):
        check_decision(CLAIM, "inconclusive", to, itself=itself)
    found = CLAIM.judge_results(made_up(F, {"a": F}, itself=itself), facts(n_units=N_UNITS))
    assert found.reason.startswith(
        "With its examples in another order the model's similarity to itself is only 0.89"
    )
    without = replace(CLAIM, criterion=replace(CLAIM.criterion, preconditions=()))
    must_fail(check_decision, without, "inconclusive", (0.99, 0.99, 0.99), itself=itself)


@pytest.mark.slow
def test_whoever_has_learned_nothing_supports_nothing():
    far = np.random.default_rng(8).standard_normal(F.shape)
    check_decision(CLAIM, "inconclusive", (0.5, 0.5, 0.5), truth=far)
    lab = bench(n_units=32)
    found = CLAIM.judge_results(calibration.measure(lab, facts(), [CLAIM]), facts())
    assert found.verdict == "inconclusive"
    assert Comparison.of(lab.measure(own), lab.measure(rivals)).quantities()[OF_TRUTH].high < 0.5
    constant = CLAIM.judge_results(made_up(0 * F + 2, {"a": F}), facts(n_units=N_UNITS))
    assert constant.verdict == "inconclusive"
    assert constant.reason.startswith("With its examples in another order")
    assert np.isfinite(
        [constant.estimate.value, constant.estimate.low, constant.estimate.high]
    ).all()


# ---- the choice in every draw --------------------------------------------------------------------


def two_rivals(n_units):
    """Two rivals, each far in rare contexts of its own: which one is nearer depends on the draw."""
    g = np.random.default_rng(7)
    f = g.standard_normal((4, n_units, 2))
    rare = g.random((2, 1, n_units, 1)) < 0.1
    return f, f + 1.5 * rare * g.choice([-1, 1], (2, 4, n_units, 2))


def check_draws(find):
    """The interval's standard error is that of brute force, which chooses anew each time."""
    f, others = two_rivals(200)
    found = find(*by_unit(f, others))
    g, values = np.random.default_rng(0), []
    for _ in range(2000):
        rows = g.integers(200, size=200)
        each = np.array([similarity(f[:, rows], other[:, rows]) for other in others])
        values.append(each.min(1).max())
    assert found.value == pytest.approx(
        max(similarity(f, other).min() for other in others), rel=1e-9
    )
    low, high = np.quantile(values, [0.025, 0.975])
    assert found.high - found.low == pytest.approx(high - low, rel=0.4)


@pytest.mark.slow
def test_the_nearest_is_chosen_in_every_draw():
    check_draws(interval)

    def chosen_once(square, value, squared):
        """The mutant: the best of the sample alone, and what it is like where it is best."""
        worst = no_classical.unlikeness(square.mean(0), value.mean(0), squared.mean(0)).max(-1)
        return interval(square[:, [worst.argmax()]], value, squared)

    must_fail(check_draws, chosen_once)


def test_rivals_that_are_never_nearest_change_nothing():
    f, others = two_rivals(200)
    far = np.concatenate([others, others + 5])
    assert interval(*by_unit(f, far)) == interval(*by_unit(f, others))


@pytest.mark.slow
def test_a_bound_is_the_same_in_all_arms():
    """Clipped at 1 in one arm and at 3 in the other it is near no bounded rival in both.

    Each arm alone has one.
    """
    wide = 3 * F
    f = np.stack([wide[0].clip(-1, 1), *(one.clip(-3, 3) for one in wide[1:])])
    results = made_up(f, {"a": wide})
    found = Comparison.of(results["algorithms/own"], results["algorithms/rivals"])
    assert found.quantities()[ONE].high < 0.9
    assert all(found.similarities(rival)[a] > 0.99 for a, rival in enumerate(found.chosen.nearest))


# ---- models whose truth is known -----------------------------------------------------------------


@pytest.mark.slow
def test_a_classical_algorithm_resembles_itself():
    """The instrument's power: every algorithm is recognised, and named, also behind some noise."""
    control = bench(MIXED).control.measure(own)
    others = bench(MIXED).measure(rivals)
    for i, (name, algorithm) in enumerate([*algorithms.algorithms(MIXED).items()][::2]):
        lab = bench(MIXED, predict=unsteady(algorithm, 0.02 * (i % 2)))
        results = {m.name: lab.measure(m) for m in (own, algorithms.itself)}
        results |= {"twin/algorithms/own": control, "algorithms/rivals": others}
        finding = CLAIM.judge_results(results, facts(task=MIXED))
        assert finding.verdict == "contradicted", name
        worst = {}
        assert finding.details[-1]["its similarity"] > 0.97
        for row in (row for row in finding.details if "similarity" in row):
            worst[row["algorithm"]] = min(worst.get(row["algorithm"], 1), row["similarity"])
        assert worst[name] > 0.97
        n = sum(value >= 0.95 for who, value in worst.items() if who not in (TRUTH, SELF))
        assert n == 1 or f"{n - 1} of {len(worst) - 3} others are as near" in finding.reason
        assert ("do not tell which" in finding.reason) == (n > 1)


def check_saturating():
    """Least squares up to a largest output is least squares, clipped."""
    (finding,) = calibration.judge(SATURATING.draw(0), (CLAIM.id,))
    assert finding.verdict == "contradicted"
    assert "least squares, clipped at" in finding.reason


@pytest.mark.slow
def test_bounded_rivals_count(monkeypatch):
    check_saturating()
    forms = no_classical.FORMS
    for left in ((PLAIN,), (PLAIN, TANH)):
        monkeypatch.setattr(no_classical, "FORMS", {form: forms[form] for form in left})
        must_fail(check_saturating)


def check_tossed(make_predictor):
    """The query alone is off, by a share of its size, whatever the order of the examples.

    It goes up as often as down.
    """
    prompts = LINES.sample(400, generator(0, "test"), dtype=torch.float64)
    said, other = (
        as_numbers(make_predictor(LeastSquares(LINES), 0.75)(p))
        for p in (prompts, reshuffled(prompts, 0))
    )
    ys = as_numbers(prompts.ys)
    assert torch.allclose(said[:, 2:-1], ys[:, 2:-1], atol=1e-6)
    off = (said - ys)[:, -1] / ys[:, -1].abs()
    assert torch.allclose(off.abs(), torch.full_like(off, 0.75), atol=1e-5)
    assert off.mean().abs() < 0.15
    assert torch.allclose(said[:, -1], other[:, -1], atol=1e-6)


def test_a_coin_at_the_query_is_no_noise():
    check_tossed(tossed)
    must_fail(check_tossed, unsteady)
    must_fail(
        check_tossed,
        lambda algorithm, share: lambda prompts: (1 + share) * algorithm.predict(prompts),
    )


# ---- other units ---------------------------------------------------------------------------------


def quantities(task, said) -> dict[str, float]:
    lab = bench(task, 32, predict=said)
    found = Comparison.of(lab.measure(own), lab.measure(rivals)).quantities()
    return {key: found[key].value for key in (ONE, ANY, OF_TRUTH)}


def check_other_units():
    """A model that says scale f + shift where it said f is as similar to every rival."""

    def said(prompts):
        return Ridge(UNEVEN, 1.0).predict(prompts).clamp(0.0, 3.0)  # which knows where 0 is

    before = quantities(UNEVEN, said)
    for scale, shift in ((3.0, 0.0), (2.5, 7.0)):
        outer = Rescaled.of(Rescaled.of(UNEVEN, scale=0.5), scale=2 * scale, shift=shift)
        assert polynomials_in(outer) == (UNEVEN, pytest.approx(scale), shift)

        def in_units(prompts, scale=scale, shift=shift):
            return scale * said(replace(prompts, ys=(prompts.ys - shift) / scale)) + shift

        after = quantities(outer, in_units)
        assert after == {key: pytest.approx(value, abs=1e-5) for key, value in before.items()}


@pytest.mark.slow
def test_units_of_values_are_no_matter(monkeypatch):
    check_other_units()
    monkeypatch.setattr(
        no_classical,
        "bounded",
        lambda values, mean, form, bound: bounded(values, 0 * mean, form, bound),
    )
    must_fail(check_other_units)
    monkeypatch.undo()
    unwrap = algorithms.polynomials_in
    monkeypatch.setattr(
        algorithms, "polynomials_in", lambda task: unwrap(task)._replace(scale=1.0, shift=0.0)
    )
    must_fail(check_other_units)


def test_what_cannot_apply():
    fixed = tasks.Continuous(function="exp", inputs=U, n_points=8)
    for task, reason in (
        (fixed, "this model's task is Continuous"),
        (Rescaled.of(fixed, shift=1.0), "is Rescaled"),
    ):
        finding = CLAIM.judge_results({}, facts(task=task))
        assert finding.verdict == "not_applicable"
        assert reason in finding.reason
    assert CLAIM.exclusion(facts(task=Rescaled.of(LINES, shift=1.0))) is None
    assert ITSELF in {p.quantity for p in CLAIM.criterion.preconditions}


@pytest.mark.slow
def test_a_whole_report_of_an_untrained_model(judged):
    (finding,) = judged(make("pre"), CLAIM.id, task=MIXED).values()
    assert finding.verdict == "inconclusive"
    assert np.isfinite([finding.estimate.value, finding.estimate.low, finding.estimate.high]).all()
