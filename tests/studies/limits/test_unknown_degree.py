"""The model beside algorithms that are not told the degree: errors by brute force, and verdicts."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from made_up_facts import facts
from measured_claims import answered
from small_models import make

from icl_interp import tasks
from icl_interp.analyses import registry
from icl_interp.analyses.lab import Lab
from icl_interp.baselines import MaximumDegree
from icl_interp.models.tokens import Interleaved
from icl_interp.prompts import as_numbers
from icl_interp.results import make_array
from icl_interp.studies.limits.measurements import unknown_degree as measured_degree
from icl_interp.studies.limits.measurements.unknown_degree import (
    BAYES,
    CAUTIOUS,
    LARGEST_DEGREE,
    MODEL,
    of_degree,
    unknown_degree,
)

UNKNOWN = "limits.better_than_unknown_degree"
U = tasks.Uniform(-1, 1)
LINES = tasks.Polynomial(degrees=(1,), inputs=U, coefficients=U, n_points=8)
MIXED = tasks.Polynomial(degrees=(1, 3), inputs=U, coefficients=U, n_points=8)


def bench(task=LINES, n_units=32) -> Lab:
    return Lab(make("pre"), task, Interleaved(), n_units=n_units, n_contexts=4)


def known(task=LINES, **more):
    return facts(task=task, **more)


def judge(claim, results, facts):
    return registry.REGISTRY[claim].judge_results(results, facts)


# ---- without knowing the degree ------------------------------------------------------------------


def check_unknown(measure):
    lab = bench(task=MIXED, n_units=4)
    result = measure(lab)
    assert tuple(result.indexes["predictor"]) == (MODEL, LARGEST_DEGREE, CAUTIOUS, BAYES)
    assert tuple(result.indexes["class"]) == ("degree 1", "degree 3")
    prompts = of_degree(lab, 1)
    xs, ys = prompts.xs[..., 0].numpy(), as_numbers(prompts.ys).numpy()
    own = as_numbers(lab.predict(prompts)).double().numpy()
    for unit in range(4):
        rows = range(8 * unit, 8 * unit + 8)  # four contexts of each function of a pair
        for who, degree in ((LARGEST_DEGREE, 3), (CAUTIOUS, 6), (MODEL, None)):
            terms = []
            for b in rows:
                for k in range(2, 8):
                    fit = np.linalg.lstsq(
                        np.vander(xs[b, :k], (degree or 0) + 1), ys[b, :k], rcond=None
                    )[0]
                    said = own[b, k] if degree is None else np.polyval(fit, xs[b, k])
                    terms.append((said - ys[b, k]) ** 2)
            cell = result.sel({"predictor": who, "class": "degree 1"}).values[unit]
            assert cell == pytest.approx(np.mean(terms), rel=1e-4, abs=1e-12)
    assert (
        result.sel({"predictor": LARGEST_DEGREE, "class": "degree 3"}).values < 1e-9
    ).all()  # exact once it can be


def test_algorithms_that_are_not_told_the_degree(monkeypatch):
    check_unknown(unknown_degree)
    monkeypatch.setattr(measured_degree, "MaximumDegree", lambda degree: MaximumDegree(degree + 1))
    must_fail(check_unknown, unknown_degree)


def check_units(draw):
    """The lab's units, each of one degree: a pair of functions at the same inputs.

    Each function has four contexts.
    """
    lab = bench(task=MIXED, n_units=4)
    for degree in MIXED.degrees:
        prompts = draw(lab, degree)
        a, b = (prompts.parameters.view(4, 2, 4, -1)[:, i] for i in (0, 1))
        assert prompts.parameters.shape == (32, degree + 1)
        assert torch.equal(a, -b)
        assert (prompts.parameters[:, -1] != 0).all()


def test_every_degree_is_asked_in_the_lab_s_units():
    check_units(of_degree)
    must_fail(check_units, lambda lab, degree: lab.prompts)
    must_fail(check_units, lambda lab, degree: of_degree(lab, degree)[torch.randperm(32)])


def unknown_results(times, control=20.0, noise=0.1):
    """Errors of the model that are so many times those of least squares with the largest degree."""
    g = np.random.default_rng(0)

    def made(times):
        base = 0.1 * np.exp(g.standard_normal((2, 64)))
        rows = [
            times * base * np.exp(noise * g.standard_normal((2, 64))),
            base,
            3 * base,
            0.01 * base,
        ]
        axes = {"class": ("degree 1", "degree 3"), "unit": tuple(range(64))}
        return make_array(rows, {"predictor": (MODEL, LARGEST_DEGREE, CAUTIOUS, BAYES), **axes})

    return {
        "algorithms/unknown degree": made(times),
        "twin/algorithms/unknown degree": made(control),
    }


def check_better(times, verdict):
    finding = judge(UNKNOWN, unknown_results(times), known(MIXED))
    assert finding.verdict == verdict
    assert finding.estimate.value == pytest.approx(times, rel=0.05)
    assert finding.estimate.unit == "times"
    assert answered(finding)
    assert finding.reason.count(". ") == 2


@pytest.mark.parametrize(
    ("times", "verdict"),
    [
        (0.1, "supported"),
        (0.74, "supported"),
        (0.86, "inconclusive"),
        (1.0, "inconclusive"),  # as good as is not better
        (1.16, "inconclusive"),
        (1.35, "contradicted"),
        (9.0, "contradicted"),
    ],
)
def test_better_by_a_factor(times, verdict):
    check_better(times, verdict)


@pytest.mark.parametrize(
    ("better", "worse", "times", "verdict"),
    [
        (0.7, 1.25, 0.74, "supported"),
        (0.9, 1.25, 0.86, "inconclusive"),
        (0.8, 1.12, 1.16, "inconclusive"),
        (0.8, 1.4, 1.35, "contradicted"),
    ],
)
def test_other_factors_are_noticed(better, worse, times, verdict, monkeypatch):
    claim = registry.REGISTRY[UNKNOWN]
    (condition,) = claim.criterion.conditions
    other = replace(condition, supports=(0.0, better), contradicts=(worse, math.inf))
    changed = replace(claim, criterion=replace(claim.criterion, conditions=(other,)))
    monkeypatch.setitem(registry.REGISTRY, UNKNOWN, changed)
    must_fail(check_better, times, verdict)


def test_untrained_models_that_are_better_too_decide_nothing():
    finding = judge(UNKNOWN, unknown_results(0.5, control=0.5), known(MIXED))
    assert (finding.verdict, "randomly initialised control" in finding.reason) == (
        "inconclusive",
        True,
    )


def test_what_cannot_apply():
    fixed = tasks.Continuous(function="exp", inputs=U, n_points=8)
    for claim, task, reason in (
        (UNKNOWN, fixed, "this model's task is Continuous"),
        (UNKNOWN, LINES, "this model was trained on degree 1 only"),
    ):
        finding = judge(claim, {}, known(task))
        assert finding.verdict == "not_applicable"
        assert reason in finding.reason


def test_a_whole_report_of_an_untrained_model(judged):
    findings = judged(make("pre"), UNKNOWN, task=MIXED)
    assert {f.verdict for f in findings.values()} == {"inconclusive"}
    assert all(
        np.isfinite([f.estimate.value, f.estimate.low, f.estimate.high]).all()
        for f in findings.values()
    )
