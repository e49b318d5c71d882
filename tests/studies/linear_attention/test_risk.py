"""Claims on errors: measured risks against closed forms, and shifts.

Shifts are on layers, on least squares and on a predictor that saturates.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from lsa_models import BEST, RANDOM, TASK, WHERE, N, bench, judge, layer, value
from xarray import DataArray

from icl_interp.analyses.criterion import Estimate
from icl_interp.baselines.regression import LeastSquares
from icl_interp.experiments import calibration
from icl_interp.experiments.calibration import Case
from icl_interp.models.single_layers import LinearSelfAttention
from icl_interp.models.transformer import HookedTransformer
from icl_interp.results import make_curve
from icl_interp.studies.linear_attention.claims import risk as claims
from icl_interp.studies.linear_attention.constructions.layers import by_place
from icl_interp.studies.linear_attention.measurements import setting
from icl_interp.studies.linear_attention.measurements import shifts as lsa_shifts
from icl_interp.theory import linear_attention as theory

LEARNED = float(-2 * WHERE.minimum / WHERE.label_moment)
NOISY = replace(TASK, noise_std=0.5)


# ---- the bench -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "task", [replace(TASK, covariance=((2.0, 0.7), (0.7, 1.0)), noise_std=0.3), RANDOM]
)
def test_groups_have_the_moments_that_they_are_said_to_have(task):
    lab, _ = bench(layer(BEST), task, n_units=4)
    n_contexts = 4000
    made = setting.grouped_prompts(lab, 5, n_contexts, "test")
    xs = made.prompts.xs.view(4, -1, 2)
    found = xs.transpose(1, 2) @ xs / xs.shape[1]
    diagonal = made.covariances.diagonal(dim1=1, dim2=2)
    # Var of a mean of x_i x_j: (lambda_ii lambda_jj + lambda_ij^2) / n.
    se = ((diagonal[:, :, None] * diagonal[:, None] + made.covariances**2) / xs.shape[1]).sqrt()
    assert ((found - made.covariances).abs() < 4 * se).all()
    assert torch.equal(made.prompts.parameters.view(4, n_contexts, 2)[:, 0], made.weights)
    noise = made.prompts.ys - task.targets(made.prompts.parameters, made.prompts.xs)
    assert float(noise.std()) == pytest.approx(task.noise_std, rel=0.02, abs=1e-12)
    if task is RANDOM:
        assert not torch.equal(made.covariances[0], made.covariances[1])
    else:
        assert torch.equal(made.covariances[0], task.covariance_matrix)


def test_room_is_what_was_trained_where_there_are_positions():
    assert setting.room(bench(layer(BEST))[0]) == 4 * N
    cfg = replace(layer(BEST).cfg, positional_embedding_type="standard")
    model = HookedTransformer(cfg).double()
    with torch.no_grad():
        model.pos_embed.W_pos.fill_(1.0)
    assert setting.room(bench(model)[0]) == 4 * N  # one vector at all positions is none
    with torch.no_grad():
        model.pos_embed.W_pos[0] = 0.0
    assert setting.room(bench(model)[0]) == N


# ---- Theorem 4.2 ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured():
    """Risk of the layer at the optimum, with noise."""
    lab, _ = bench(
        layer(theory.landscape(TASK.covariance_matrix, N, 0.25).product), NOISY, n_units=64
    )
    return lab.measure(lsa_shifts.risk)


def check_risk(result: DataArray, who: str):
    """At each M within 4 standard errors of the exact risk, group by group, N fixed beforehand."""
    assert {2, 8, 32} < set(result.indexes["M"])
    assert len(result.indexes["M"]) == 4  # one more is drawn
    for m in result.indexes["M"]:
        gap = result.sel(who="model", M=m).values - result.sel(who=who, M=m).values
        assert abs(gap.mean()) < 4 * gap.std() / len(gap) ** 0.5


@pytest.mark.slow
def test_measured_risks_are_the_exact_ones(measured):
    check_risk(measured, lsa_shifts.BEST)
    check_risk(measured, lsa_shifts.OWN)
    must_fail(check_risk, measured, lsa_shifts.PRINTED)
    must_fail(check_risk, measured, lsa_shifts.ZERO)


def test_exact_risks_average_to_the_theorem_s(measured):
    """Over w ~ N(0, I) the groups' risks are Theorem 4.2 with E[w w^T] = I."""
    for m in measured.indexes["M"]:
        groups = measured.sel(who=lsa_shifts.BEST, M=m).values
        whole = theory.risk(TASK.covariance_matrix, N, m, torch.eye(2), 0.25, 0.25)
        assert abs(groups.mean() - float(whole)) < 4 * groups.std() / len(groups) ** 0.5
    zero = measured.sel(who=lsa_shifts.ZERO, M=N).values
    assert abs(zero.mean() - 4.25) < 4 * zero.std() / len(zero) ** 0.5


@pytest.mark.slow
def test_a_model_that_has_not_learned_is_not_judged():
    finding = judge("risk", layer(0.3 * BEST), learned=0.3)
    assert finding.verdict == "inconclusive"
    assert "has not learned its task" in finding.reason


def made(ratio: np.ndarray) -> DataArray:
    """Results in which the model's risk is `ratio` times the optimum's, by M."""
    noise = np.random.default_rng(0).normal(1, 0.01, (64, len(ratio)))
    rows = [ratio * noise, np.ones_like(noise), 3 * np.ones_like(noise), 2 * np.ones_like(noise)]
    who = (lsa_shifts.MODEL, lsa_shifts.BEST, lsa_shifts.ZERO, lsa_shifts.PRINTED)
    return make_curve(rows, {"who": who, "function": tuple(range(64)), "M": (2, 8)})


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        ((1, 1), "supported"),
        ((1, 1.1), "inconclusive"),
        ((0.7, 1), "contradicted"),
        ((1, 1.3), "contradicted"),
    ],
)
def test_judging_made_up_risks(ratio, expected):
    result = made(np.array(ratio))
    ratio = Estimate.of("ratio", claims.worst_ratio(result, "model", lsa_shifts.BEST))
    assert claims.CRITERION.decide({"ratio": ratio}).verdict == expected


# ---- random covariances --------------------------------------------------------------------------


@pytest.mark.slow
def test_the_error_with_random_covariances_is_told_against_the_limit(monkeypatch):
    monkeypatch.setattr(lsa_shifts, "N_CONTEXTS", 32)
    best = theory.random_landscape(RANDOM.spectrum_moments(), N)
    finding = judge("random_covariance", layer(best.product), RANDOM, n_units=64)
    assert "0.333 times the right value" in finding.reason
    assert finding.details[-1]["error / zero predictor's"] > 0.2


# ---- shifts --------------------------------------------------------------------------------------


def check_scales_with_the_query(model):
    finding = judge("query_shift", model, n_units=64)
    share = {
        row["test condition"]: row["error / mean square of the label"] for row in finding.details
    }
    assert share[lsa_shifts.FARTHER] == pytest.approx(share[lsa_shifts.INSIDE], rel=1e-5)


def test_what_is_linear_in_the_query_errs_by_the_same_share_farther_out():
    check_scales_with_the_query(layer(BEST))
    must_fail(check_scales_with_the_query, by_place(torch.ones(N), 2))


def check_isotropic(query_covariance):
    """The isotropic arm against `product_risk` with the query's own second moment."""
    lab, _ = bench(layer(BEST), n_units=64)
    result = lab.measure(lsa_shifts.query_shift)
    weights = setting.grouped_prompts(lab, N, lsa_shifts.N_SHIFTED, "shift").weights
    exact = np.array(
        [
            float(
                theory.product_risk(BEST, N, TASK.covariance_matrix, w, 0.0, query_covariance).total
            )
            for w in weights
        ]
    )
    gap = result.sel(arm=lsa_shifts.ISOTROPIC, moment="error").values - exact
    assert abs(gap.mean()) < 4 * gap.std() / len(gap) ** 0.5


def test_errors_at_shifted_queries_are_the_exact_ones():
    check_isotropic(9 * 2 * torch.eye(2))  # three times as far, with the mean variance 2
    must_fail(check_isotropic, 9 * TASK.covariance_matrix / 2)


# ---- places that are drawn -----------------------------------------------------------------------


def drawn_at(seed: int):
    lab, _ = bench(layer(BEST))
    lab.seed = seed
    queries = lsa_shifts.drawn_queries(torch.zeros(20_000, 2), torch.tensor(2.0).double(), lab)
    return lsa_shifts.lengths(lab), lsa_shifts.drawn_factors(lab), queries


def test_places_are_drawn_by_the_seed():
    (lengths, factors, queries), again, other = drawn_at(0), drawn_at(0), drawn_at(1)
    assert (lengths, factors) == again[:2]
    assert torch.equal(queries, again[2])
    assert factors != other[1]
    assert len({drawn_at(seed)[0] for seed in range(8)}) > 1
    for seed in range(8):
        low, high = lsa_shifts.DRAWN_FACTORS
        assert all(low <= c <= high for c in drawn_at(seed)[1])
    # Their mean variance is that of the usual queries, times the square of the larger factor.
    variance = float(queries.square().mean())
    assert variance == pytest.approx((2 * factors[-1]) ** 2, rel=0.05)
    covariance = queries.T @ queries / len(queries)
    assert float(covariance[0, 1].abs()) > 0.1 * variance  # not those of the task's own axes


def check_shifts(predict):
    """A predictor that is the best layer's at known shifts, and clipped elsewhere.

    Only drawn shifts can tell it from the best layer.
    """
    assert judge_with(predict, "covariate_shift").verdict == "supported"


def judge_with(predict, claim: str):
    case = Case(layer(BEST), TASK, predictor=predict, n_units=64)
    (finding,) = calibration.judge(case, (f"linear_attention.{claim}",))
    return finding


def by_heart(prompts):
    """c^2 too large where inputs are 1, 2 or 3 times as usual, as least squares elsewhere.

    The predictor tells the factor by the inputs' size.
    """
    unit = LinearSelfAttention.from_product(BEST)
    size = (prompts.xs.square().mean((1, 2)) / 2).sqrt()
    near = (size[:, None] / torch.tensor(lsa_shifts.INPUT_FACTORS)).log().abs().min(1).values
    known = near < 0.1
    return torch.where(
        known[:, None, None], unit.predict(prompts), LeastSquares(TASK).predict(prompts)
    )


@pytest.mark.slow
def test_known_shifts_alone_support_nothing():
    check_shifts(LinearSelfAttention.from_product(BEST).predict)
    must_fail(check_shifts, by_heart)


@pytest.mark.slow
def test_covariates_scaled_by_c_come_back_squared():
    finding = judge("covariate_shift", layer(BEST), n_units=64, learned=LEARNED)
    assert (finding.verdict, value(finding)) == ("supported", pytest.approx(2, abs=1e-4))
    assert finding.control is not None
    assert (
        finding.control.value < 1.8
    )  # fresh weights read the query past attention, which is linear in it
    expected = float(theory.prediction_slope(BEST, TASK.covariance_matrix))
    assert f"({expected:.3g} c² for the optimal layer" in f"{finding.reason} {finding.scope}"


def test_slopes_are_the_exact_ones():
    lab, _ = bench(layer(BEST), n_units=64)
    result = lab.measure(lsa_shifts.covariate_shift)
    for c in result.indexes["c"]:
        crossed, size = (
            result.sel(c=c, moment=name).values for name in ("prediction x truth", "truth^2")
        )
        slope = float(theory.prediction_slope(BEST, c**2 * TASK.covariance_matrix))
        gap = crossed - slope * size
        assert abs(gap.mean()) < 4 * gap.std() / len(gap) ** 0.5
