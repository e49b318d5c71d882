"""The claims of Newton: growth and its thresholds, layers that count, who is asked, verdicts."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import must_fail

import icl_interp
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.measurement import Results
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.results import make_array
from icl_interp.studies.newton.claims import iterations
from icl_interp.studies.newton.claims.iterations import LINEAR_CLAIM, THREE_CLAIM
from icl_interp.studies.newton.measurements.iterates import (
    DESCENT,
    EXPONENTS,
    NAMES,
    NEWTON,
    TRUTH,
    iterates,
)
from icl_interp.tasks import LinearRegression, Normal

TASK = LinearRegression(n_dims=3, n_points=9)
LINE = (0.0, 3.0, 6.0, 9.0)
STEPS = tuple(np.log2([1.0, 2.0, 3.0, 4.0]))


def facts(task=TASK, n_layers=4):
    """About a model of such a task, by whatever weights."""
    cfg = HookedTransformerConfig(n_layers=n_layers, d_model=8, n_heads=2)
    return Facts.of(
        HookedTransformer(cfg, seed=0), task, "stacked", {"error": 0.0, "r2": 1.0}, n_units=128
    )


def stored(newton, descent, errors, near=0.01, noise=1e-4):
    """Distances whose best exponents are these, by layer, and errors after each."""
    draw = np.random.default_rng(0)
    names = [TRUTH]
    columns = [np.array([1.0, *errors])]
    for family, k in ((NEWTON, newton), (DESCENT, descent)):
        best = np.array([0.0, *k])
        names += NAMES[family]
        for exponent in EXPONENTS:
            columns.append(near + 0.02 * (exponent - best) ** 2)
    values = np.stack(columns, 1)[..., None] * (1 + noise * draw.normal(size=64))
    axes = {"depth": tuple(range(len(errors) + 1)), "comparison": tuple(names)}
    return make_array(values, {**axes, "unit": tuple(range(64))}, note="as it was set")


FALLING = (0.8, 0.5, 0.3, 0.1)


def verdict(claim, *shown, **more):
    found = claim.evidence(Results({iterates.name: stored(*shown, **more)}), facts())
    decision = claim.criterion.decide(claim.criterion.named(found))
    return decision.verdict, decision.failed or ""


def test_a_line_in_k_deviates_by_0_and_a_line_in_its_power_by_1():
    def check(k, line, bend):
        found = iterations.shape(np.array([k]))
        assert found[0] == pytest.approx(line, abs=1e-12)
        assert found[1] == pytest.approx(bend, abs=1e-12)

    check(LINE, 0.0, 0.0)
    check(STEPS, 1.0, 1.0)
    check((2.0, 2.0, 2.0), 1.0, 1.0)  # which does not grow
    check((3.0, 2.0, 1.0), 1.0, 1.0)
    must_fail(check, STEPS, 0.0, 0.0)
    # Faster than exponential growth bends the other way; a jump is no line, and does not bend.
    line, bend = iterations.shape(np.array([[0.0, 0.0, 0.0, 6.0]]))
    assert line > 1
    assert bend < -1
    line, bend = iterations.shape(np.array([[0.0, 0.0, 6.0, 6.0]]))
    assert line > iterations.BENT
    assert abs(bend) < line


def test_what_hardly_grows_does_not_grow():
    """The lines of three layers are log2((1 + r) / 2) - log2(r) / 2 apart for a ratio of r."""

    def check(ratio, expected):
        growth = np.log2(ratio)
        line, bend = iterations.shape(np.array([[5.0, 5 + growth / 2, 5 + growth]]))
        assert line == pytest.approx(expected, abs=1e-9)
        assert bend == pytest.approx(expected, abs=1e-9)

    # That is 0.05 at a ratio of 1.70.
    assert np.log2((1 + 1.7) / 2) - np.log2(1.7) / 2 == pytest.approx(iterations.ROOM, abs=1e-3)
    check(1.75, 0.0)
    check(1.65, 1.0)
    must_fail(check, 1.65, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("newton", "descent", "linear", "three"),
    [
        (LINE, (0.0, 2.0, 4.0, 6.0), "supported", "supported"),
        ((0.0, 1.0, 2.0, 3.0), (0.0, 0.5, 1.5, 2.5), "supported", "contradicted"),
        (STEPS, STEPS, "contradicted", "contradicted"),
        (LINE, STEPS, "contradicted", "supported"),
        ((0.0, 0.0, 9.0, 9.0), (0.0, 2.0, 4.0, 6.0), "contradicted", "inconclusive"),
        # Three on average: one layer moves on by too few, one by too many.
        ((0.0, 1.8, 5.4, 9.0), (0.0, 2.0, 4.0, 6.0), "supported", "inconclusive"),
        ((0.0, 2.2, 6.5, 8.7), (0.0, 2.0, 4.0, 6.0), "supported", "inconclusive"),
        ((0.0, 1.75, 3.5, 5.25), (0.0, 2.0, 4.0, 6.0), "supported", "inconclusive"),
    ],
)
def test_growth_decides_the_first_claim_and_its_rate_the_second(newton, descent, linear, three):
    def check(first, second):
        assert verdict(LINEAR_CLAIM, newton, descent, FALLING)[0] == first
        assert verdict(THREE_CLAIM, newton, descent, FALLING)[0] == second

    check(linear, three)
    must_fail(check, "not_applicable", three)


@pytest.mark.slow
def test_what_is_near_no_iterate_of_newton_is_none():
    def check(near, expected):
        assert verdict(LINEAR_CLAIM, LINE, LINE, FALLING, near=near)[0] == expected
        assert verdict(THREE_CLAIM, LINE, LINE, FALLING, near=near)[0] == expected

    check(0.01, "supported")
    check(0.06, "inconclusive")
    check(0.5, "contradicted")
    must_fail(check, 0.5, "supported")


def test_the_largest_iterate_that_is_asked_tells_no_number():
    """A layer that is nearest to it may do more, so it says nothing of growth."""
    more = {"errors": (0.8, 0.5, 0.3, 0.1, 0.05)}
    beyond = EXPONENTS[-1] + 0.5
    growing = (0.0, 3.0, 6.0, beyond, beyond)
    steps = (0.0, 1.0, 2.0, 3.0, 4.0)

    def check(newton, first, second):
        assert verdict(LINEAR_CLAIM, newton, steps, **more)[0] == first
        assert verdict(THREE_CLAIM, newton, steps, **more)[0] == second

    check(growing, "supported", "supported")
    # Too few are left.
    check((0.0, 3.0, beyond, beyond, beyond), "inconclusive", "inconclusive")
    check((0.0, 3.0, beyond, 6.0, 9.0), "inconclusive", "inconclusive")
    # One step of the grid below the largest, k counts again.
    near = EXPONENTS[-1] - 1
    must_fail(check, (0.0, 3.0, 6.0, near, near), "supported", "supported")
    # Whoever is far from all iterates is so wherever the nearest one lies.
    assert verdict(LINEAR_CLAIM, growing, steps, near=0.5, **more)[0] == "contradicted"


def test_layers_count_from_the_first_that_says_something_to_the_first_that_is_settled():
    def check(errors, expected):
        assert iterations.middle(stored(LINE, LINE, errors)) == expected

    check(FALLING, [1, 2, 3, 4])
    check((0.95, 0.5, 0.3, 0.1), [2, 3, 4])
    must_fail(check, (0.95, 0.5, 0.3, 0.1), [1, 2, 3, 4])
    check((0.8, 0.3, 0.1, 0.1), [1, 2, 3])
    must_fail(check, (0.8, 0.3, 0.1, 0.1), [1, 2, 3, 4])
    check((1.0, 1.0, 1.0, 0.1), [4])
    check((1.0, 1.0, 1.0, 1.0), [])
    # Two layers have no trend.
    found = verdict(LINEAR_CLAIM, LINE, LINE, (0.95, 0.95, 0.3, 0.1))
    assert found[0] == "inconclusive"
    assert "(2, 3 needed)" in found[1]


def test_who_is_not_asked():
    assert LINEAR_CLAIM.exclusion(facts()) is None
    assert "fewer than 3" in (LINEAR_CLAIM.exclusion(facts(n_layers=2)) or "")
    other = facts(replace(TASK, query=Normal(3)))
    assert "like the examples" in (THREE_CLAIM.exclusion(other) or "")


def test_the_table_has_the_best_iterate_of_each_layer_and_its_distance():
    table = iterations.by_layer(stored(LINE, STEPS, FALLING)).set_index(["family", "layer"])

    def check(family, k):
        mine = table.loc[family]
        np.testing.assert_allclose(mine["k"], k, atol=1e-2)
        assert (mine["low"] <= mine["k"]).all()
        assert (mine["k"] <= mine["high"]).all()
        np.testing.assert_allclose(mine["error"], FALLING, atol=1e-3)
        assert mine["D"].between(0.0099, 0.0115).all()  # 0.01, and up to 0.02 / 16 of the grid

    check(NEWTON, LINE)
    check(DESCENT, STEPS)
    must_fail(check, NEWTON, STEPS)


@pytest.mark.slow
def test_three_trained_layers_are_too_few():
    """The first of `softmax_fixed_20` says nothing of f(x), so that two are left."""
    names = [LINEAR_CLAIM.id, THREE_CLAIM.id]
    report = icl_interp.analyze("softmax_fixed_20", claims=names, progress=False)
    for name in names:
        assert report[name].verdict == "inconclusive"
        assert report[name].evidence[iterations.LAYERS].value == 2
    assert list(report.figures) == ["claims", "newton_iterates"]
