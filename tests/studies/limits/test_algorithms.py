"""Classical algorithms beside the model: arms, distances by brute force, models that are such an algorithm."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from known import facts
from small_models import make
from xarray import DataArray

from icl_interp import tasks
from icl_interp.analyses import registry
from icl_interp.analyses.criterion import Estimate
from icl_interp.analyses.lab import Lab
from icl_interp.baselines import LeastSquares, MaximumDegree, classical
from icl_interp.checkpoints.companions import Role
from icl_interp.experiments import calibration
from icl_interp.models.tokens import Interleaved
from icl_interp.prompts import as_numbers
from icl_interp.results import make_array
from icl_interp.studies.limits.claims import algorithms as limits_algorithms
from icl_interp.studies.limits.claims.algorithms import (
    ARMS,
    BAYES,
    CAUTIOUS,
    ERROR,
    LARGEST_DEGREE,
    SEED,
    SELF,
    SIZE,
    arms,
    distance,
    nearest,
    ratios,
    reshuffled,
    unknown_degree,
)
from icl_interp.studies.limits.constructions.functions import CONSTRUCTIONS, unsteady
from icl_interp.studies.limits.measurements.classes import polynomials

CLAIM, UNKNOWN = "limits.no_classical_algorithm", "limits.better_than_unknown_degree"
U = tasks.Uniform(-1, 1)
LINES = tasks.Polynomial(degrees=(1,), inputs=U, coefficients=U, n_points=8)
MIXED = tasks.Polynomial(degrees=(1, 3), inputs=U, coefficients=U, n_points=8)
RNG = np.random.default_rng(0)
SATURATING = next(c for c in CONSTRUCTIONS if c.name == "least squares up to the largest value trained on")


def bench(task=LINES, n_units=32) -> Lab:
    return Lab(make("pre"), task, Interleaved(), n_units=n_units, n_contexts=4)


def known(task=LINES, **more):
    return facts(task=task, **more)


def judge(claim, results, facts):
    return registry.REGISTRY[claim].judge_results(results, facts)


# ---- arms -----------------------------------------------------------------------------------------------------------


def check_arms(draw):
    """The same prompts three times: as they are, with functions tripled, with the query at an end of the interval."""
    inside, scaled, edge = draw(MIXED, 0, 5).values()
    assert torch.equal(scaled.xs, inside.xs)
    assert torch.allclose(scaled.ys, 3 * inside.ys, rtol=1e-12, atol=1e-15)
    assert torch.allclose(MIXED.targets(scaled.parameters, scaled.xs), scaled.ys)
    assert torch.equal(edge.xs[:, :-1], inside.xs[:, :-1])
    assert torch.equal(edge.ys[:, :-1], inside.ys[:, :-1])
    assert edge.xs[:, -1, 0].tolist() == [-1.0, 1.0] * 5
    assert torch.equal(edge.ys, MIXED.targets(inside.parameters, edge.xs))


def test_arms():
    check_arms(arms)
    must_fail(check_arms, lambda *args: {**arms(*args), ARMS[1]: arms(*args)[ARMS[0]]})
    must_fail(check_arms, lambda *args: {**arms(*args), ARMS[2]: arms(*args)[ARMS[0]]})


def check_order(shuffle):
    """The same pairs before the same query, and all one to every classical algorithm."""
    prompts = arms(MIXED, 0, 6)[ARMS[0]]
    other = shuffle(prompts, 0)
    assert torch.equal(other.xs[:, -1], prompts.xs[:, -1])
    assert not torch.equal(other.xs, prompts.xs)
    for row in range(len(prompts)):
        pairs = [
            sorted(zip(p.xs[row, :-1, 0].tolist(), p.ys[row, :-1].tolist(), strict=True)) for p in (prompts, other)
        ]
        assert pairs[0] == pairs[1]
    for name, algorithm in classical(MIXED).items():
        said = [algorithm.predict(p)[:, -1] for p in (prompts, other)]
        assert torch.allclose(said[0], said[1], rtol=0, atol=1e-5), name


def test_order_is_all_one_to_an_algorithm():
    check_order(reshuffled)
    must_fail(check_order, lambda prompts, seed: replace(prompts, xs=prompts.xs.flip(1), ys=prompts.ys.flip(1)))
    must_fail(check_order, lambda prompts, seed: replace(prompts, ys=reshuffled(prompts, seed).ys))


# ---- distances ------------------------------------------------------------------------------------------------------


def check_distances(measure):
    lab = bench(n_units=4)
    lab.companions[Role(SEED)] = Constant()
    result = measure(lab)
    assert tuple(result.indexes["arm"]) == ARMS
    assert tuple(result.indexes["to"][:4]) == (SIZE, ERROR, SELF, SEED)
    assert set(result.indexes["to"][4:]) == set(classical(LINES))
    for arm, prompts in arms(LINES, 0, 4).items():
        mine, ys = as_numbers(lab.predict(prompts))[:, -1].double(), as_numbers(prompts.ys)
        said = {
            SIZE: None,
            ERROR: ys[:, -1],
            SELF: as_numbers(lab.predict(reshuffled(prompts, 0)))[:, -1].double(),
            SEED: torch.full((8,), 0.25),
            "least squares": as_numbers(LeastSquares(LINES).predict(prompts))[:, -1],
            "averaging": ys[:, :-1].mean(1),
        }
        for name, other in said.items():
            for function in range(4):
                rows = (2 * function, 2 * function + 1)
                terms = [
                    float(ys[b, -1]) ** 2 if other is None else (float(mine[b]) - float(other[b])) ** 2 for b in rows
                ]
                assert result.sel(arm=arm, to=name).values[function] == pytest.approx(
                    np.mean(terms), rel=1e-5, abs=1e-12
                )


class Constant:
    """Says a quarter, always."""

    def predict(self, prompts):
        return torch.full_like(prompts.ys, 0.25)


def test_distances_by_hand(monkeypatch):
    check_distances(distance)
    monkeypatch.setattr(
        limits_algorithms, "at_query", lambda predictor, prompts: predictor.predict(prompts)[:, -2, 0].double()
    )
    must_fail(check_distances, distance)


def made_up(relative: dict[str, list[float]], size=(1.0, 9.0, 2.0)) -> DataArray:
    """Distances relative to the truth's mean square in the three arms."""
    noise = 1 + 0.1 * RNG.standard_normal((3, 64))
    rows = {SIZE: [1.0, 1.0, 1.0], **relative}
    values = np.array([[rows[to][a] * size[a] * noise[a] for to in rows] for a in range(3)])
    return make_array(values, {"arm": ARMS, "to": tuple(rows), "function": tuple(range(64))})


def check_ratios(compute):
    """The ceiling is the largest of the three, arm by arm, the error always that in distribution."""
    result = made_up(
        {
            ERROR: [0.01, 0.9, 0.9],
            SELF: [0.001, 0.04, 0.001],
            SEED: [0.02, 0.001, 0.001],
            "a": [0.04, 0.04, 0.04],
            "b": [0.0, 0.4, 0.01],
        }
    )
    expected = np.log10([[2, 1e-7], [1, 10], [4, 1]])  # 1e-9 stands for a distance of nothing
    found = compute(result, result.values.mean(-1)[None])[0]
    assert np.allclose(found[1:], expected[1:], atol=1e-6)
    assert found[0, 0] == pytest.approx(math.log10(2), abs=1e-6)
    assert found[0, 1] < -7
    assert nearest(result).value == pytest.approx(math.log10(4), abs=1e-6)  # "a": its worst arm is the last


def test_distances_over_the_ceiling():
    check_ratios(ratios)

    def without_the_error(result, mean):
        others = list(result.indexes["to"])
        mean = mean.copy()
        mean[..., others.index(ERROR)] = 0
        return ratios(result, mean)

    def absolute(result, mean):
        mean = mean.copy()
        mean[..., 0] = 1
        return ratios(result, mean)

    must_fail(check_ratios, without_the_error)
    must_fail(check_ratios, absolute)


# ---- models whose truth is known ------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [LINES, MIXED], ids=["one degree", "mixture"])
def test_a_classical_algorithm_resembles_itself(task):
    """The instrument's power: every algorithm is recognised, and named; also behind a little noise."""
    twin = bench(task=task).twin.measure(distance)
    for i, (name, algorithm) in enumerate(classical(task).items()):
        for noise in (0.0, 0.02) if i % 4 == 0 else (0.02,):
            lab = bench(task=task)
            lab.predict = unsteady(algorithm, noise)
            found = {"algorithms/distance": lab.measure(distance), "twin/algorithms/distance": twin}
            finding = judge(CLAIM, found, known(task))  # also of those that leave more than a tenth unexplained
            assert finding.verdict == "contradicted", (name, noise)
            over = {}
            for row in finding.details:
                if "algorithm" in row and "distance / ceiling" in row:
                    over[row["algorithm"]] = max(over.get(row["algorithm"], 0), row["distance / ceiling"])
            assert over[name] <= 1 + 1e-9
            within = finding.reason.partition("in every arm: ")[2].rstrip(".")
            assert within == ", ".join(other for other in over if over[other] <= 2)
            if noise == 0:
                assert f"nearest over all arms is {min(over, key=over.get)}" in finding.reason


def check_saturating():
    """Least squares up to a largest output: in distribution least squares, but not with functions x 3."""
    (finding,) = calibration.judge(SATURATING.draw(0), (CLAIM,))
    assert finding.verdict == "supported"
    over = {
        row["arm"]: row["distance / ceiling"]
        for row in finding.details
        if row.get("algorithm") == "least squares" and "distance / ceiling" in row
    }
    assert over[ARMS[0]] <= 1 + 1e-9
    assert over[ARMS[1]] > 10


def test_least_squares_that_saturates_is_not_least_squares(monkeypatch):
    check_saturating()
    monkeypatch.setattr(limits_algorithms, "SCALED", 1.0)
    limits_algorithms.answers.cache_clear()
    must_fail(check_saturating)
    limits_algorithms.answers.cache_clear()


def test_who_learned_nothing_resembles_nothing():
    lab = bench(n_units=128)
    found = {"algorithms/distance": lab.measure(distance), "twin/algorithms/distance": lab.twin.measure(distance)}
    finding = judge(CLAIM, found, known(r2=0.1))
    assert finding.verdict == "inconclusive"
    assert "has not learned" in finding.reason


# ---- without knowing the degree -------------------------------------------------------------------------------------


def check_unknown(measure):
    lab = bench(task=MIXED, n_units=4)
    result = measure(lab)
    assert tuple(result.indexes["predictor"]) == (LARGEST_DEGREE, CAUTIOUS, BAYES)
    assert tuple(result.indexes["class"]) == ("degree 1", "degree 3")
    prompts = polynomials(lab, 1)
    xs, ys = prompts.xs[..., 0].numpy(), as_numbers(prompts.ys).numpy()
    for who, degree in ((LARGEST_DEGREE, 3), (CAUTIOUS, 6)):
        for function in range(4):
            terms = []
            for b in (2 * function, 2 * function + 1):
                for k in range(2, 8):
                    fit = np.linalg.lstsq(np.vander(xs[b, :k], degree + 1), ys[b, :k], rcond=None)[0]
                    terms.append((np.polyval(fit, xs[b, k]) - ys[b, k]) ** 2)
            cell = result.sel({"predictor": who, "class": "degree 1"}).values[function]
            assert cell == pytest.approx(np.mean(terms), rel=1e-4, abs=1e-12)
    assert (result.sel({"predictor": LARGEST_DEGREE, "class": "degree 3"}).values < 1e-9).all()  # exact once it can be


def test_algorithms_that_are_not_told_the_degree(monkeypatch):
    check_unknown(unknown_degree)
    monkeypatch.setattr(limits_algorithms, "MaximumDegree", lambda degree: MaximumDegree(degree + 1))
    must_fail(check_unknown, unknown_degree)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(-0.2, -0.1, "supported"), (0.1, 0.2, "contradicted"), (-0.1, 0.1, "inconclusive"), (0.0, 0.0, "inconclusive")],
)
def test_as_good_as_is_not_better(low, high, expected):
    (condition,) = registry.REGISTRY[UNKNOWN].criterion.conditions
    assert condition.outcome(Estimate("ratio", low, low, high)) == expected


def test_what_cannot_apply():
    fixed = tasks.Continuous(function="exp", inputs=U, n_points=8)
    for claim, task, reason in (
        (CLAIM, fixed, "the model's task is Continuous"),
        (UNKNOWN, fixed, "the model's task is Continuous"),
        (UNKNOWN, LINES, "it has been told the degree"),
    ):
        finding = judge(claim, {}, known(task))
        assert finding.verdict == "not_applicable"
        assert reason in finding.reason


def test_a_whole_report_of_an_untrained_model(judged):
    findings = judged(make("pre"), CLAIM, UNKNOWN, task=MIXED)
    assert {f.verdict for f in findings.values()} == {"inconclusive"}
    assert all(np.isfinite([f.estimate.value, f.estimate.low, f.estimate.high]).all() for f in findings.values())
