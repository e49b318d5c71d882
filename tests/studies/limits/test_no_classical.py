"""The claim about classical algorithms: predictions by hand, choice and score apart, thresholds, other units."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from known import facts
from small_models import make

from icl_interp import tasks
from icl_interp.analyses.criterion import Criterion
from icl_interp.analyses.lab import Lab
from icl_interp.baselines import LeastSquares
from icl_interp.experiments import calibration
from icl_interp.models.tokens import Interleaved
from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.limits.claims import no_classical
from icl_interp.studies.limits.claims.no_classical import (
    CLIPPED,
    ITSELF,
    NEAREST,
    NO_CLASSICAL_ALGORITHM_CLAIM,
    OF_TRUTH,
    ONE,
    PLAIN,
    TANH,
    Comparison,
    bounded,
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
SATURATING = next(c for c in CONSTRUCTIONS if c.name == "least squares up to the largest value trained on")


def bench(task=LINES, n_units=32, predict=None) -> Lab:
    lab = functools.partial(calibration.Predicting, predict) if predict else Lab
    return lab(make("pre"), task, Interleaved(), n_units=n_units, n_contexts=2)


# ---- similarity -----------------------------------------------------------------------------------------------------


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
    must_fail(check_similarity, lambda f, a: 1 - ((f - a) ** 2).mean((1, 2)) / np.maximum((f**2).mean((1, 2)), 1e-9))
    must_fail(check_similarity, lambda f, a: similarity(a, f))


def check_bounded(form_of):
    values, mean = np.array([-9.0, 0.0, 1.5, 9.0]), np.array([1.0, 0.0, 1.0, 1.0])
    assert np.allclose(form_of(values, mean, CLIPPED, 2.0), [-1, 0, 1.5, 3])
    assert np.allclose(form_of(values, mean, TANH, 2.0), mean + 2 * np.tanh((values - mean) / 2))
    assert np.allclose(form_of(values, mean, PLAIN, 2.0), values)


def test_bounds_are_centred_at_the_laws_mean():
    check_bounded(bounded)
    must_fail(check_bounded, lambda values, mean, form, bound: bounded(values, 0 * mean, form, bound))


# ---- made-up answers ------------------------------------------------------------------------------------------------


def made_up(f, said: dict, itself=None, truth=None) -> dict:
    """Results as they would be stored: what a model says, `(arm, unit, prompt)`, and algorithms; no function counts."""
    f = np.asarray(f)
    axes = {"unit": tuple(range(f.shape[1])), "prompt": (0, 1)}
    fresh = np.random.default_rng(5).standard_normal(f.shape)

    def array(**values):
        return make_array(np.stack(list(values.values()), 1), {"arm": ARMS, "who": tuple(values), **axes})

    return {
        "algorithms/own": array(**{MODEL: f}),
        "algorithms/itself": array(**{SELF: f if itself is None else itself}),
        "twin/algorithms/own": array(**{MODEL: fresh}),
        "algorithms/rivals": array(**{TRUTH: f if truth is None else truth, LAW_MEAN: 0 * f, **said}),
    }


def verdict(results, claim=CLAIM) -> str:
    return claim.judge_results(results, facts(n_units=N_UNITS)).verdict


F = np.random.default_rng(3).standard_normal((3, N_UNITS, 2))


def near(to: tuple[float, float, float], seed: int):
    """What somebody says who is this similar to F in the three arms, and no nearer once bounded: E[F | A] = A."""
    r = np.array(to)[:, None, None]
    return r * F + np.sqrt(r * (1 - r)) * np.random.default_rng(seed).standard_normal(F.shape)


def check_decision(claim, expected: str, *to: tuple[float, float, float], **more):
    said = {f"algorithm {i}": near(one, i) for i, one in enumerate(to)}
    assert verdict(made_up(F, said, **more), claim) == expected


def with_regions(one: tuple[float, float], nearest: float):
    """The claim with other thresholds."""
    first, second, third = CLAIM.criterion.conditions
    inf = float("inf")
    changed = (
        replace(first, supports=(-inf, one[0]), contradicts=(one[1], inf)),
        replace(second, supports=(-inf, nearest)),
        third,
    )
    return replace(CLAIM, criterion=Criterion("changed", changed, CLAIM.criterion.preconditions))


@pytest.mark.slow
def test_thresholds():
    check_decision(CLAIM, "supported", (0.7, 0.7, 0.7))
    check_decision(CLAIM, "contradicted", (0.97, 0.98, 0.99))
    check_decision(CLAIM, "inconclusive", (0.86, 0.86, 0.86))
    must_fail(check_decision, with_regions((0.9, 0.95), 0.9), "inconclusive", (0.86, 0.86, 0.86))
    check_decision(CLAIM, "inconclusive", (0.92, 0.92, 0.92))
    must_fail(check_decision, with_regions((0.8, 0.9), 0.8), "inconclusive", (0.92, 0.92, 0.92))


@pytest.mark.slow
def test_all_arms_and_one_rival(monkeypatch):
    """It resembles none only if none is near in any arm, and one only if the same one is near in all."""
    check_decision(CLAIM, "inconclusive", (0.99, 0.7, 0.7))
    check_decision(CLAIM, "inconclusive", (0.99, 0.99, 0.7))
    check_decision(CLAIM, "inconclusive", (0.99, 0.99, 0.3), (0.3, 0.3, 0.99))
    one, _, truth = CLAIM.criterion.conditions
    without = replace(CLAIM, criterion=replace(CLAIM.criterion, conditions=(one, truth)))
    must_fail(check_decision, without, "inconclusive", (0.99, 0.7, 0.7))
    interval = no_classical.interval
    monkeypatch.setattr(no_classical, "interval", lambda f, others, worst: interval(f, others, worst=False))
    must_fail(check_decision, CLAIM, "inconclusive", (0.99, 0.99, 0.3), (0.3, 0.3, 0.99))


@pytest.mark.slow
def test_a_model_must_be_like_itself_in_every_arm():
    itself = near((0.99, 0.9, 0.99), 9)
    for to in ((0.7, 0.7, 0.7), (0.99, 0.99, 0.99)):
        check_decision(CLAIM, "inconclusive", to, itself=itself)
    found = CLAIM.judge_results(made_up(F, {"a": F}, itself=itself), facts(n_units=N_UNITS))
    assert found.reason.startswith("With its examples in another order the model is only 0.89")
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
    assert np.isfinite([constant.estimate.value, constant.estimate.low, constant.estimate.high]).all()


# ---- choosing on one half, scoring on the other ---------------------------------------------------------------------


def check_halves(compare):
    """The bound is the one of the first half, the score that of the second, where another bound would be nearer."""
    wide = 3 * F
    f = wide.copy()
    f[1, : N_UNITS // 2] = wide[1, : N_UNITS // 2].clip(-2, 2)
    f[1, N_UNITS // 2 :] = wide[1, N_UNITS // 2 :].clip(-3.5, 3.5)
    f[[0, 2]] /= 3
    results = made_up(f, {"a": np.stack([f[0], wide[1], f[2]])})
    found = compare(results["algorithms/own"], results["algorithms/rivals"])
    assert found.chosen.one.form == CLIPPED
    bound = found.chosen.one.bound * found.chosen.u
    assert bound == pytest.approx(2, rel=0.15)
    second = slice(N_UNITS // 2, None)
    said = wide[1, second].clip(-bound, bound)
    expected = 1 - ((f[1, second] - said) ** 2).mean() / f[1, second].var()
    assert found.quantities()[ONE].value == pytest.approx(expected, abs=1e-9)
    assert expected < 0.9


@pytest.mark.slow
def test_rivals_are_chosen_on_one_half_and_scored_on_the_other(monkeypatch):
    check_halves(Comparison.of)
    n = N_UNITS // 2
    for halves in ((slice(n, None), slice(n, None)), (slice(0, n), slice(0, n)), (slice(n, None), slice(0, n))):
        monkeypatch.setattr(no_classical, "halves", lambda n_units, halves=halves: halves)
        must_fail(check_halves, Comparison.of)


def test_a_bound_is_the_same_in_all_arms():
    """Clipped at 1 in one arm and at 3 in the other it is near no bounded rival in both; each arm alone has one."""
    wide = 3 * F
    f = np.stack([wide[0].clip(-1, 1), wide[1].clip(-3, 3), wide[2].clip(-3, 3)])
    results = made_up(f, {"a": wide})
    found = Comparison.of(results["algorithms/own"], results["algorithms/rivals"])
    assert found.quantities()[ONE].high < 0.9
    assert all(found.similarities(rival)[a] > 0.99 for a, rival in enumerate(found.chosen.nearest))


# ---- models whose truth is known ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_classical_algorithm_resembles_itself():
    """The instrument's power: every algorithm is recognised, and named; also behind a little noise."""
    twin = bench(MIXED).twin.measure(own)
    others = bench(MIXED).measure(rivals)
    for i, (name, algorithm) in enumerate([*algorithms.algorithms(MIXED).items()][::2]):
        lab = bench(MIXED, predict=unsteady(algorithm, 0.02 * (i % 2)))
        results = {m.name: lab.measure(m) for m in (own, algorithms.itself)}
        results |= {"twin/algorithms/own": twin, "algorithms/rivals": others}
        finding = CLAIM.judge_results(results, facts(task=MIXED))
        assert finding.verdict == "contradicted", name
        worst = {}
        assert finding.details[-1]["its similarity"] > 0.97
        for row in (row for row in finding.details if "similarity" in row):
            worst[row["algorithm"]] = min(worst.get(row["algorithm"], 1), row["similarity"])
        assert worst[name] > 0.97
        n = sum(value >= 0.95 for who, value in worst.items() if who not in (TRUTH, SELF))
        assert n == 1 or f"They resemble {n - 1} of {len(worst) - 3} others" in finding.reason
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
    """The query alone is off, by a share of its size, whatever the order of the examples; up as often as down."""
    prompts = LINES.sample(400, generator(0, "test"), dtype=torch.float64)
    said, other = (as_numbers(make_predictor(LeastSquares(LINES), 0.75)(p)) for p in (prompts, reshuffled(prompts, 0)))
    ys = as_numbers(prompts.ys)
    assert torch.allclose(said[:, 2:-1], ys[:, 2:-1], atol=1e-6)
    off = (said - ys)[:, -1] / ys[:, -1].abs()
    assert torch.allclose(off.abs(), torch.full_like(off, 0.75), atol=1e-5)
    assert off.mean().abs() < 0.15
    assert torch.allclose(said[:, -1], other[:, -1], atol=1e-6)


def test_a_coin_at_the_query_is_no_noise():
    check_tossed(tossed)
    must_fail(check_tossed, unsteady)
    must_fail(check_tossed, lambda algorithm, share: lambda prompts: (1 + share) * algorithm.predict(prompts))


# ---- other units ----------------------------------------------------------------------------------------------------


def quantities(task, said) -> dict[str, float]:
    lab = bench(task, 32, predict=said)
    found = Comparison.of(lab.measure(own), lab.measure(rivals)).quantities()
    return {key: found[key].value for key in (ONE, NEAREST, OF_TRUTH)}


def check_other_units():
    """A model that says scale f + shift where it said f is as similar to every rival."""

    def said(prompts):
        return LeastSquares(UNEVEN).predict(prompts).clamp(0.0, 3.0)

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
        no_classical, "bounded", lambda values, mean, form, bound: bounded(values, 0 * mean, form, bound)
    )
    must_fail(check_other_units)
    monkeypatch.undo()
    unwrap = algorithms.polynomials_in
    monkeypatch.setattr(algorithms, "polynomials_in", lambda task: unwrap(task)._replace(scale=1.0, shift=0.0))
    must_fail(check_other_units)


def test_what_cannot_apply():
    fixed = tasks.Continuous(function="exp", inputs=U, n_points=8)
    for task, reason in ((fixed, "this model's task is Continuous"), (Rescaled.of(fixed, shift=1.0), "is Rescaled")):
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
