"""The claim on directions that functions do not depend on, on units whose M is known."""

from dataclasses import replace

import pytest
import torch
from helpers import must_fail
from ridge_units import FEW, bench, judge, square, unit, value

from icl_interp.studies.lipschitz.claims.directions import lost
from icl_interp.studies.lipschitz.constructions.units import unwhitened
from icl_interp.studies.lipschitz.measurements.relevant_directions import (
    INTACT,
    NO_IRRELEVANT,
    NO_RELEVANT,
    UNIFORM,
    completed,
    directions,
    projected,
)
from icl_interp.studies.lipschitz.measurements.unit import functions_of
from icl_interp.tasks import Ellipsoid, RidgeFunction, Sphere, random_directions
from icl_interp.theory import lipschitz as theory

PROJECTION = FEW.basis @ FEW.basis.T
OTHERS = torch.eye(6, dtype=torch.float64) - PROJECTION
LONG = RidgeFunction(
    link="linear",
    inputs=Sphere(4),
    directions=random_directions(4, 2, seed=3),
    noise_std=0.0,
    n_points=201,
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("inside", "outside", "verdict"),
    [
        (6.0, 0.0, "supported"),
        (6.0, 0.5, "supported"),
        (6.0, 6.0, "contradicted"),
        (6.0, -5.0, "contradicted"),
    ],
)
def test_pairs(inside, outside, verdict):
    finding = judge(
        "irrelevant_directions", unit(theory.low_rank_matrix(FEW.basis, inside, outside), FEW), FEW
    )
    assert finding.verdict == verdict
    energy = 4 * outside**2 / (2 * inside**2 + 4 * outside**2)
    assert value(finding) == pytest.approx(energy, abs=1e-9)
    assert finding.causal is not None
    assert finding.control is not None


@pytest.mark.slow
def test_the_best_of_all_matrices_ignores_them_where_prompts_are_short():
    contexts = theory.draw_contexts(20, functions_of(FEW), 6000, d=6, basis=FEW.basis, seed=5)
    best = theory.optimal_matrix(contexts, FEW.noise_std).matrix
    assert judge("irrelevant_directions", unit(best, FEW), FEW).verdict == "supported"


@pytest.mark.slow
def test_the_best_of_long_prompts_without_noise_does_not():
    """Theorem 4 without its cap is false for long prompts without noise.

    Windows that look at irrelevant directions too have less loss.
    """
    contexts = theory.draw_contexts(200, functions_of(LONG), 500, d=4, basis=LONG.basis, seed=5)
    best = theory.optimal_pair(contexts, LONG.basis, 0.0)
    assert abs(float(best.outside)) > 3
    finding = judge(
        "irrelevant_directions",
        unit(theory.low_rank_matrix(LONG.basis, best.inside, best.outside), LONG),
        LONG,
    )
    assert finding.verdict == "contradicted"


@pytest.mark.slow
def test_a_window_on_irrelevant_directions_alone_is_worth_nothing():
    finding = judge("irrelevant_directions", unit(6 * OTHERS, FEW), FEW)
    assert finding.verdict == "inconclusive"
    assert "nothing to lose" in finding.reason


# ---- hidden directions ---------------------------------------------------------------------------


def errors_of(task, m, hidden):
    """Errors of equation (2), of whose M the directions of u are taken out on both sides."""
    lab = bench(unit(m, task), task)
    left = torch.eye(task.dim).double() - hidden
    white = task.whitening @ left @ torch.linalg.inv(task.whitening)
    xs, ys = lab.prompts.xs, lab.prompts.ys[..., 0]
    out = theory.prediction(xs[:, :-1], ys[:, :-1], xs[:, -1], white @ m @ white.T)
    return lab, lab.by_unit((out - ys[:, -1]).square())


@pytest.mark.slow
@pytest.mark.parametrize(
    "task", [FEW, replace(FEW, inputs=Ellipsoid((4.0, 2.0, 1.0, 1.0, 0.5, 0.25)))]
)
def test_hidden_directions_are_projected_out_of_m(task):
    m = unwhitened(3 * square(6, 6), task)
    arms = {
        INTACT: 0 * OTHERS,
        NO_IRRELEVANT: OTHERS,
        NO_RELEVANT: PROJECTION,
        UNIFORM: torch.eye(6).double(),
    }
    for arm, hidden in arms.items():
        lab, expected = errors_of(task, m, hidden)
        found = lab.measure(projected).sel(arm=arm).values

        def check(values, found=found):
            assert found == pytest.approx(values, rel=1e-7)

        check(expected)
        other = PROJECTION if arm == INTACT else 0 * OTHERS
        must_fail(check, errors_of(task, m, other)[1])


def test_what_is_lost_lies_between_nothing_and_all():
    arms = bench(unit(6 * PROJECTION, FEW), FEW, n_units=64).measure(projected)
    assert lost(arms, INTACT).value == pytest.approx(0, abs=1e-12)
    assert lost(arms, UNIFORM).value == pytest.approx(1, abs=1e-12)
    assert lost(arms, NO_IRRELEVANT).value == pytest.approx(0, abs=1e-6)
    assert lost(arms, NO_RELEVANT).value == pytest.approx(1, abs=1e-6)


# ---- direction by direction ----------------------------------------------------------------------


def test_shares_sum_to_one_and_are_those_of_the_basis():
    basis = completed(FEW.basis)
    assert torch.allclose(basis.T @ basis, torch.eye(6).double())
    assert torch.equal(basis[:, :2], FEW.basis)
    sizes = torch.tensor([5.0, 3.0, 1.0, 0.0, 0.0, 2.0]).double()
    table = bench(unit((basis * sizes) @ basis.T, FEW), FEW).measure(directions)
    assert sum(table["share"]) == pytest.approx(1)
    assert list(table["kind"]) == ["relevant"] * 2 + ["irrelevant"] * 4
    assert table["share"].to_list() == pytest.approx((sizes**2 / 39).tolist(), abs=1e-9)
