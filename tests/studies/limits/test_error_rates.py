"""Error rates by degree, seen and unseen: prompts, brute force, verdicts on made-up results."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from made_up_facts import facts, said
from measured_claims import answered
from small_models import make
from tiny_runs import checkpoint
from xarray import DataArray

from icl_interp import tasks
from icl_interp.analyses import registry
from icl_interp.analyses.criterion import INF
from icl_interp.analyses.lab import Lab
from icl_interp.baselines import MaximumDegree
from icl_interp.checkpoints.companions import Role
from icl_interp.experiments import calibration
from icl_interp.models.tokens import Interleaved, Stacked
from icl_interp.prompts import as_numbers
from icl_interp.results import make_array
from icl_interp.studies.limits.claims import error_rates, unseen_classes
from icl_interp.studies.limits.constructions.functions import informed
from icl_interp.studies.limits.measurements import classes
from icl_interp.studies.limits.measurements.classes import (
    DRAWN,
    OUTSIDE,
    drawn_powers,
    errors,
    polynomials,
    sinusoids,
)

ALIKE, UNSEEN = "limits.degrees_alike", "limits.unseen_classes"
U = tasks.Uniform(-1, 1)
GAPS = tasks.Polynomial(degrees=(1, 3), inputs=U, coefficients=U, n_points=8)
RNG = np.random.default_rng(0)


def bench(task=GAPS, **settings) -> Lab:
    return Lab(make("pre"), task, Interleaved(), n_units=16, n_contexts=1, **settings)


def trained_on(degree):
    """A companion; an untrained one, with weights of its own."""
    return checkpoint(task={"degrees": [degree], "n_points": 8}, model={"n_ctx": 16})


def known(task=GAPS, roles=(), **more):
    return facts(*(Role("degrees", degrees=(d,)) for d in roles), task=task, **more)


def judge(claim, results, facts):
    return registry.REGISTRY[claim].judge_results(results, facts)


def moved(patch, claim, quantity, end):
    """The claim with a condition whose regions meet elsewhere."""
    found = registry.REGISTRY[claim]
    conditions = tuple(
        replace(c, supports=(-INF, end), contradicts=c.contradicts and (end, INF))
        if c.quantity == quantity
        else c
        for c in found.criterion.conditions
    )
    assert conditions != found.criterion.conditions
    patch.setitem(
        registry.REGISTRY,
        claim,
        replace(found, criterion=replace(found.criterion, conditions=conditions)),
    )


# ---- measurement ---------------------------------------------------------------------------------


def check_errors(measure):
    """Every cell by explicit loops over prompts and points."""
    lab = bench(companions={Role("degrees", degrees=(2,)): trained_on(2)})
    result = measure(lab)
    assert tuple(result.indexes["predictor"]) == ("model", "degrees 2", "least squares", "zero")
    assert tuple(result.indexes["class"]) == (
        "degree 1",
        "degree 2",
        "degree 3",
        "degree 4",
        DRAWN,
        OUTSIDE,
    )
    special = {DRAWN: drawn_powers(lab), OUTSIDE: sinusoids(lab)}
    for name, first in (
        ("degree 1", 2),
        ("degree 2", 3),
        ("degree 4", 5),
        (DRAWN, 4),
        (OUTSIDE, 4),
    ):
        prompts = special[name] if name in special else polynomials(lab, int(name[-1]))
        out = {"model": lab.predict(prompts), "zero": torch.zeros_like(prompts.ys)}
        if name == "degree 2":
            out["degrees 2"] = lab.companions[Role("degrees", degrees=(2,))].predict(prompts)
        for points, start in (("own", first), ("late", 5)):
            for unit in (0, 9):
                for who, given in out.items():
                    terms = [
                        (float(given[b, k]) - float(prompts.ys[b, k])) ** 2
                        for b in range(32)
                        if prompts.function[b] // 2 == unit
                        for k in range(start, 8)
                    ]
                    cell = result.sel({"predictor": who, "class": name, "points": points}).values
                    assert cell[unit] == pytest.approx(np.mean(terms), rel=1e-9)
    assert np.isnan(result.sel({"predictor": "degrees 2", "class": "degree 1"}).values).all()
    # Least squares on cubics, on quartics it cannot follow: each prefix by numpy.
    prompts = polynomials(lab, 4)
    xs, ys = prompts.xs[..., 0].numpy(), as_numbers(prompts.ys).numpy()
    for unit in (0, 9):
        rows = (2 * unit, 2 * unit + 1)
        fits = [
            [np.polyval(np.polyfit(xs[b, :k], ys[b, :k], 3), xs[b, k]) for k in range(5, 8)]
            for b in rows
        ]
        expected = np.mean((np.array(fits) - ys[2 * unit : 2 * unit + 2, 5:]) ** 2)
        cell = result.sel(
            {"predictor": "least squares", "class": "degree 4", "points": "own"}
        ).values
        assert cell[unit] == pytest.approx(expected, rel=1e-6)


def test_errors_of_every_class(monkeypatch):
    check_errors(errors)

    def averaged_otherwise(values, n_units):
        return values.nanmean(-1).view(-1, n_units).mean(0).numpy()

    monkeypatch.setattr(classes, "per_unit", averaged_otherwise)
    must_fail(check_errors, errors)


def test_a_model_that_looks_both_ways_is_scored_at_the_query():
    lab = Lab(make("bidirectional"), GAPS, Stacked(), n_units=4, n_contexts=1)
    result = errors(lab)
    prompts = polynomials(lab, 3)
    said, truth = (
        as_numbers(values)[:, -1] for values in (lab.predict(prompts).double(), prompts.ys)
    )
    at = {"class": "degree 3", "points": "own"}
    squares = [value.square().view(4, 2).mean(1) for value in (said - truth, truth)]
    assert np.allclose(result.sel(predictor="model", **at).values, squares[0])
    assert np.allclose(result.sel(predictor="zero", **at).values, squares[1])


def test_roles_of_companions():
    two = Role("degrees", degrees=(2,))
    assert classes.singles([Role("degrees", degrees=(1, 3)), Role("no norm"), two]) == {2: two}


# ---- verdicts on made-up results -----------------------------------------------------------------


def made_up(rates, drawn=None) -> DataArray:
    """Results with these error rates, the same for all points; noise paired over classes.

    On drawn powers it is that of degree 2, where none is told.
    """
    names = [*(f"degree {d}" for d in sorted(rates)), DRAWN, OUTSIDE]
    values = np.full((3, len(names), 2, 64), np.nan)
    noise, zero = np.exp(0.3 * RNG.standard_normal((2, 64)))
    drawn = rates.get(2, 0.01) if drawn is None else drawn
    values[0] = np.array([*(rates[d] for d in sorted(rates)), drawn, 0.9])[:, None, None] * noise
    values[1], values[2] = 0.5 * noise, zero
    axes = {
        "predictor": ("model", "least squares", "zero"),
        "class": names,
        "points": ("own", "late"),
    }
    return make_array(values, {**axes, "function": range(64)})


def with_singles(result: DataArray, rates) -> DataArray:
    """The same with companions trained on one degree each."""
    values = np.full((len(rates), *result.values.shape[1:]), np.nan)
    for row, (d, rate) in enumerate(rates.items()):
        values[row, result.indexes["class"].get_loc(f"degree {d}")] = rate
    predictors = ["model", *(f"degrees {d}" for d in rates), *result.indexes["predictor"][1:]]
    joined = np.concatenate([result.values[:1], values, result.values[1:]])
    return make_array(joined, {**result.indexes, "predictor": predictors})


def results(rates, control=None, singles=None, drawn=None):
    untrained = made_up(control or dict.fromkeys(rates, 1.0))
    found = made_up(rates, drawn)
    return {
        "classes/errors": with_singles(found, singles) if singles else found,
        "twin/classes/errors": untrained,
    }


def check_alike():
    for rates, expected, decided in (
        ({1: 0.010, 2: 0.03, 3: 0.02, 4: 0.02}, "supported", "extent"),
        ({1: 0.010, 2: 0.03, 3: 0.04, 4: 0.02}, "inconclusive", "extent"),
        ({1: 0.010, 2: 0.03, 3: 0.06, 4: 0.02}, "contradicted", "extent"),
        ({1: 0.10, 2: 0.03, 3: 0.6, 4: 0.02}, "contradicted", "extent"),
        ({1: 0.20, 2: 0.03, 3: 0.3, 4: 0.02}, "inconclusive", "highest"),
        ({1: 0.0, 2: 1.0, 3: 1e-8, 4: 1}, "supported", "extent"),
    ):
        finding = judge(ALIKE, results(rates), known())
        assert (finding.verdict, finding.decided_by.quantity) == (expected, decided), rates
        assert finding.test == finding.evidence[decided]
        assert [row["class"] for row in finding.details] == ["degree 1", "degree 3"]
        assert ("a degree counts as learned only up to 0.1" in finding.reason) == (rates[3] > 0.1)
        assert answered(finding)


@pytest.mark.slow
def test_degrees_alike(monkeypatch):
    check_alike()
    for quantity, end in (("highest", 1.0), ("extent", 2.0)):
        with monkeypatch.context() as patch:
            moved(patch, ALIKE, quantity, end)
            must_fail(check_alike)
    with monkeypatch.context() as patch:
        patch.setattr(error_rates, "RESOLUTION", 1e-30)
        must_fail(check_alike)


def test_an_untrained_control_that_passes_leaves_it_open():
    rates = {1: 0.01, 3: 0.02, 4: 1}
    assert judge(ALIKE, results(rates), known()).verdict == "supported"
    finding = judge(ALIKE, results(rates, control=rates), known())
    assert finding.verdict == "inconclusive"
    assert "randomly initialised control passes as well" in finding.reason
    assert judge(ALIKE, results(rates), known(r2=0.5)).verdict == "inconclusive"
    # Rates of a control that are alike because it learned no degree are no pass.
    assert (
        judge(ALIKE, results(rates, control=dict.fromkeys(rates, 1.0)), known()).verdict
        == "supported"
    )


def test_two_degrees_are_needed():
    high = tasks.Polynomial(
        degrees=(1, 5), inputs=U, coefficients=U, n_points=4
    )  # no point of degree 5 is scored
    finding = judge(ALIKE, results({1: 0.01, 2: 0.01}), known(high))
    assert finding.verdict == "inconclusive"
    assert finding.reason.startswith("Prompts are too short to score two degrees.")
    assert finding.evidence["degrees"].value == 1


def test_one_degree_is_compared_with_companions():
    one = tasks.Polynomial(degrees=(1,), inputs=U, coefficients=U, n_points=8)
    alone = known(one)
    assert judge(ALIKE, {}, alone).verdict == "not_applicable"
    several = {Role("degrees", degrees=(1, 2)): "a", Role("no norm"): "b"}
    assert judge(ALIKE, {}, replace(alone, companions=several)).verdict == "not_applicable"
    beside = replace(alone, companions={Role("degrees", degrees=(3,)): "c"})
    for rate, expected in ((0.02, "supported"), (0.08, "contradicted"), (0.001, "contradicted")):
        finding = judge(ALIKE, results({1: 0.01, 3: 0.9}, singles={3: rate}), beside)
        assert finding.verdict == expected, rate
        assert finding.control.name == finding.test.name == finding.decided_by.name
        assert finding.control.value > math.log10(
            error_rates.ALIKE
        )  # an untrained model is not like its companion


def check_unseen():
    for rates, singles, expected in (
        ({1: 0.01, 2: 0.015, 3: 0.01, 4: 0.5}, None, "supported"),
        ({1: 0.01, 2: 0.04, 3: 0.01, 4: 0.01}, None, "inconclusive"),
        ({1: 0.01, 2: 0.06, 3: 0.01, 4: 0.01}, None, "contradicted"),
        ({1: 0.01, 2: 0.5, 3: 0.01, 4: 0.01}, None, "contradicted"),
        (
            {1: 0.001, 2: 0.02, 3: 0.1, 4: 0.5},
            None,
            "supported",
        ),  # between its neighbours, geometrically
        ({1: 0.001, 2: 0.01, 3: 0.1, 4: 0.5}, {2: 0.001}, "contradicted"),
        ({1: 0.001, 2: 0.01, 3: 0.1, 4: 0.5}, {2: 0.008}, "supported"),
        ({1: 0.2, 2: 0.2, 3: 0.2, 4: 0.2}, None, "inconclusive"),
    ):
        finding = judge(UNSEEN, results(rates, singles=singles), known(roles=singles or ()))
        assert finding.verdict == expected, (rates, singles)
        assert finding.decided_by.quantity == ("highest" if rates[1] == 0.2 else "ratio")
        said = f"{finding.reason} {finding.scope}"
        assert ("a degree counts as learned only up to 0.1" in said) == (rates[2] > 0.1)
        outside = {(row["class"], row["predictor"]) for row in finding.details[-4:]}
        assert outside == {
            (name, who) for name in ("degree 4", OUTSIDE) for who in ("model", "least squares")
        }
        assert ("a matched model trained on it" in said) == (singles is not None)
        assert answered(finding)


def check_drawn():
    """A model that knows every degree, and no polynomial of drawn powers."""
    rates = {1: 0.01, 2: 0.01, 3: 0.01, 4: 0.5}
    for rate, expected in ((0.02, "supported"), (0.04, "inconclusive"), (0.9, "contradicted")):
        finding = judge(UNSEEN, results(rates, drawn=rate), known())
        assert finding.verdict == expected
        assert finding.evidence["drawn"].value == pytest.approx(math.log10(rate / 0.01), abs=1e-9)
        assert answered(finding)
        assert (("On polynomials of randomly drawn powers") in finding.reason) == (
            expected == "contradicted"
        )


def test_classes_that_are_drawn_decide_too(monkeypatch):
    check_drawn()
    found = registry.REGISTRY[UNSEEN]
    conditions = tuple(c for c in found.criterion.conditions if c.quantity == "ratio")
    monkeypatch.setitem(
        registry.REGISTRY,
        UNSEEN,
        replace(found, criterion=replace(found.criterion, conditions=conditions)),
    )
    must_fail(check_drawn)


@pytest.mark.slow
def test_unseen_classes(monkeypatch):
    check_unseen()
    for quantity, end in (("highest", 1.0), ("ratio", 2.0)):
        with monkeypatch.context() as patch:
            moved(patch, UNSEEN, quantity, end)
            must_fail(check_unseen)
    with monkeypatch.context() as patch:
        patch.setattr(unseen_classes, "_reference", lambda facts, result, degree: [("model", 1)])
        must_fail(check_unseen)


def test_an_untrained_control_as_good_on_unseen_degrees_leaves_it_open():
    rates = {1: 0.01, 2: 0.01, 3: 0.01, 4: 0.5}
    assert judge(UNSEEN, results(rates), known()).verdict == "supported"
    finding = judge(UNSEEN, results(rates, control=rates), known())
    assert finding.verdict == "inconclusive"
    assert "randomly initialised control passes as well" in finding.reason


def test_an_unseen_degree_is_needed():
    task = tasks.Polynomial(degrees=(1, 2), inputs=U, coefficients=U, n_points=4)
    finding = judge(UNSEEN, results({1: 0.01, 2: 0.01}), known(task))
    assert finding.verdict == "inconclusive"
    assert finding.reason.startswith(
        "Prompts are too short to score a degree that was not trained on."
    )
    assert finding.evidence["unseen"].value == 0


@pytest.mark.parametrize(
    ("degrees", "said"), [((0,), "constants only"), ((3,), "degree 3 only"), ((0, 1), "degree 1")]
)
def test_models_of_one_degree_are_not_asked_about_others(degrees, said):
    task = tasks.Polynomial(degrees=degrees, inputs=U, coefficients=U, n_points=8)
    finding = judge(UNSEEN, {}, known(task))
    assert finding.verdict == "not_applicable"
    assert f"this model was trained on {said}" in finding.reason
    assert "models trained on several degrees" in finding.reason


def test_without_a_gap_the_next_degree_decides():
    one = tasks.Polynomial(degrees=(1, 2), inputs=U, coefficients=U, n_points=8)
    for rate, expected in ((0.02, "supported"), (0.04, "inconclusive"), (0.06, "contradicted")):
        finding = judge(UNSEEN, results({1: 0.01, 2: 0.01, 3: rate}), known(one))
        assert finding.verdict == expected
        assert "the next one above" in said(finding)
        assert "a degree above the largest trained on" in finding.scope


def test_what_cannot_apply():
    fixed = tasks.Continuous(function="exp", inputs=U, n_points=8)
    for claim in (ALIKE, UNSEEN):
        finding = judge(claim, {}, known(fixed))
        assert finding.verdict == "not_applicable"
        assert "this model's task is Continuous" in finding.reason


# ---- models whose truth is known -----------------------------------------------------------------


def check_rates_outside(predictor):
    """Cubics at most: on quartics and sinusoids it is least squares of its largest degree."""
    (finding,) = calibration.judge(calibration.Case(make("pre"), GAPS, predictor), (UNSEEN,))
    assert finding.verdict == "supported"
    mine, best = (
        [
            r["error rate"]
            for r in finding.details
            if r["class"] in (OUTSIDE, "degree 4") and r["predictor"] == who
        ]
        for who in ("model", "least squares")
    )
    assert mine == pytest.approx(best, rel=1e-9)
    assert len(mine) == 2


@pytest.mark.slow
def test_rates_outside_the_family_stand_beside_those_of_least_squares():
    check_rates_outside(informed(GAPS, {}))
    must_fail(check_rates_outside, MaximumDegree(1).predict)  # lines, whatever it was trained on


@pytest.mark.slow
def test_an_untrained_model_is_judged_without_a_hitch(judged):
    findings = judged(make("pre"), ALIKE, UNSEEN, task=GAPS)
    assert {f.verdict for f in findings.values()} == {"inconclusive"}
    short = replace(GAPS, n_points=5)
    assert "too short" not in judged(make("pre"), ALIKE, task=short)[ALIKE].reason
    assert (
        judged(make("pre"), ALIKE, task=replace(GAPS, n_points=3))[ALIKE].verdict == "inconclusive"
    )
    short = replace(GAPS, degrees=(1, 2), n_points=4)  # no point of a cubic is scored
    assert judged(make("pre"), UNSEEN, task=short)[UNSEEN].reason.startswith(
        "Prompts are too short"
    )
