"""Which algorithm: weight vectors against the baselines and each other's optima.

Known models are judged, too.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from lsa_models import BEST, N_CTX, RANDOM, TASK, WHERE, N, bench, judge, layer, value

import icl_interp
from icl_interp import predictors
from icl_interp.analyses.outside import OutsideLab
from icl_interp.baselines.regression import LeastSquares, Ridge
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.provenance import generator
from icl_interp.studies.linear_attention.claims.algorithm import ALGORITHM_CLAIM
from icl_interp.studies.linear_attention.claims.order_free import ORDER_FREE_CLAIM
from icl_interp.studies.linear_attention.constructions.layers import by_place
from icl_interp.studies.linear_attention.hand_built import descent
from icl_interp.studies.linear_attention.measurements import algorithms as lsa_algorithms
from icl_interp.studies.linear_attention.measurements import setting
from icl_interp.studies.linear_attention.measurements.algorithms import (
    LEAST_SQUARES,
    ONE,
    PRECONDITIONED,
    descend,
    weights,
)
from icl_interp.testing.null_models import blind

LEARNED = float(-2 * WHERE.minimum / WHERE.label_moment)
PLAIN = float(WHERE.slope.sum() / WHERE.curvature.diagonal().sum())


def prompts(m: int, task=TASK, n: int = 50) -> Prompts:
    return task.sample(n, generator(0, "test"), n_points=m + 1, dtype=torch.float64)


def known(made: Prompts, task=TASK, n: int = N):
    return weights(task, (made.xs[:, :-1], made.ys[:, :-1, 0]), n, 0)


def said(w: torch.Tensor, made: Prompts) -> torch.Tensor:
    return (w * made.xs[:, -1]).sum(-1)


# ---- the algorithms ------------------------------------------------------------------------------


def check_is_baseline(w, made, baseline):
    assert torch.allclose(said(w, made), as_numbers(baseline.predict(made))[:, -1], atol=1e-8)


@pytest.mark.parametrize("m", [1, 2, 3, 12])
def test_weights_are_those_of_the_baselines(m):
    task = replace(TASK, noise_std=0.3)
    made = prompts(m, task)
    found = known(made, task)
    check_is_baseline(found[LEAST_SQUARES], made, LeastSquares(task))
    for penalty in (0.1, 1.0, task.noise_std**2):
        check_is_baseline(found[f"ridge, penalty {penalty:g}"], made, Ridge(task, penalty))
    must_fail(check_is_baseline, found["ridge, penalty 0.1"], made, Ridge(task, 0.2))


@pytest.mark.parametrize("task", [TASK, RANDOM], ids=["fixed", "random"])
def test_steps_are_layers_of_linear_attention(task):
    """One preconditioned step is the best layer, and one step the best multiple of the identity."""
    where, made = setting.trained_landscape(task), prompts(N, task)
    found = known(made, task)
    for name, product in ((PRECONDITIONED, where.product), (ONE, None)):
        rate = float(found[ONE][0, 0] * N / (made.xs[0, :-1, 0] @ made.ys[0, :-1, 0]))
        product = rate * torch.eye(2).double() if product is None else product
        model = layer(product)
        out = model(torch.cat([made.xs, torch.cat([made.ys[:, :-1], 0 * made.ys[:, -1:]], 1)], -1))
        assert torch.allclose(out[:, -1, 0], said(found[name], made), atol=1e-12)
    losses = [float(where.loss(f * rate * torch.eye(2), 1.0)) for f in (0.95, 1.0, 1.05)]
    assert losses[1] < min(losses[0], losses[2])


def test_steps_of_gradient_descent():
    made = prompts(5)
    xs, ys = made.xs[:, :-1], made.ys[:, :-1, 0]
    once = descend(xs, ys, 1, 0.1)
    assert torch.allclose(once, 0.1 * (xs.transpose(1, 2) @ ys[..., None])[..., 0] / 5)
    w = once.clone().requires_grad_()
    loss = ((xs @ w[..., None])[..., 0] - ys).square().sum() / (2 * 5)
    assert torch.allclose(descend(xs, ys, 2, 0.1), once - 0.1 * torch.autograd.grad(loss, w)[0])
    assert torch.allclose(descend(xs, ys, 4000, 0.1), known(made)[LEAST_SQUARES], atol=1e-4)


def test_more_steps_are_better_and_rates_are_chosen_on_other_prompts():
    made = prompts(N, n=2000)
    truth, found = made.ys[:, -1, 0], known(made)
    names = (ONE, *(f"{k} steps of gradient descent" for k in (2, 4, 8)), LEAST_SQUARES)
    errors = [float((said(found[name], made) - truth).square().mean()) for name in names]
    assert errors == sorted(errors, reverse=True)
    assert float((said(found[PRECONDITIONED], made) - truth).square().mean()) < errors[0]
    assert lsa_algorithms.best_rate(TASK, N, 1, 0) == pytest.approx(PLAIN, rel=0.35)


# ---- what a model is -----------------------------------------------------------------------------


def check_gradients(model, task, gradients):
    """Against differences of predictions as one coordinate of the query moves."""
    lab, _ = bench(model, task)
    made = setting.grouped_prompts(lab, 4, 2, "test").prompts
    _, found = gradients(lab, made)
    for i in range(2):
        ends = []
        for sign in (1, -1):
            xs = made.xs.clone()
            xs[:, -1, i] += sign * 1e-5
            with torch.no_grad():
                ends.append(
                    lab.model(lab.tokens(Prompts(xs, made.ys, made.parameters, made.function)))[
                        :, -1, 0
                    ]
                )
        assert torch.allclose((ends[0] - ends[1]) / 2e-5, found[-1, :, i], rtol=1e-4, atol=1e-6)


SOFTMAX = HookedTransformer(
    HookedTransformerConfig(
        n_layers=2, d_model=16, n_heads=2, n_ctx=2 * N + 2, d_in=2, init_std=0.3
    )
)


@pytest.mark.parametrize("model", [layer(BEST), SOFTMAX], ids=["layer", "softmax"])
def test_input_gradients(model):
    check_gradients(model, TASK, lsa_algorithms.read_depths)
    must_fail(
        check_gradients, model, TASK, lambda *a: [1.01 * t for t in lsa_algorithms.read_depths(*a)]
    )


def test_the_last_depth_is_the_model():
    lab, _ = bench(SOFTMAX)
    made = setting.grouped_prompts(lab, N, 2, "test").prompts
    found, _ = lsa_algorithms.read_depths(lab, made)
    assert len(found) == 2
    with torch.no_grad():
        assert torch.allclose(found[-1], lab.model(lab.tokens(made))[:, -1, 0])


@pytest.mark.slow
def test_layers_are_told_apart():
    step = judge("algorithm", layer(BEST), learned=LEARNED)
    assert (step.verdict, value(step) < -3) == ("supported", True)
    assert step.reason.startswith(ALGORITHM_CLAIM.statement)
    assert "similarity to one preconditioned step is 1.000" in step.reason
    plain = judge("algorithm", layer(PLAIN * torch.eye(2).double()), learned=LEARNED)
    assert plain.verdict == "contradicted"
    assert plain.reason.startswith(ALGORITHM_CLAIM.denied)
    assert "similarity to one step of gradient descent is 1.000" in plain.reason
    row = next(r for r in plain.details if (r["M"], r["algorithm"]) == (N, ONE))
    assert row["cosine of gradients"] == pytest.approx(1)
    assert row["low"] <= row["similarity"] <= row["high"]


@pytest.mark.slow
def test_what_is_the_same_is_not_told_apart():
    equal = replace(TASK, covariance=None)
    best = setting.trained_landscape(equal)
    found = judge(
        "algorithm",
        layer(best.product),
        equal,
        learned=float(-2 * best.minimum / best.label_moment),
    )
    assert found.verdict == "supported"
    assert f"On this task {ONE} is the same as one preconditioned step" in found.reason


@pytest.mark.slow
def test_depth_counts_steps():
    """Layers that are steps: the prediction after k of them is nearest to k steps."""
    task = replace(TASK, n_points=33)
    lab, _ = bench(layer(BEST), task)
    rate = lsa_algorithms.best_rate(task, 32, 4, lab.seed)
    found = judge("algorithm", descent(2, 4, rate, N_CTX), task, learned=1.0)
    assert found.verdict == "contradicted"
    assert "similarity to 4 steps of gradient descent is" in found.reason
    one = descent(2, 1, PLAIN, N_CTX)
    assert torch.allclose(
        lsa_algorithms.read_depths(bench(one)[0], prompts(N))[0][-1],
        lsa_algorithms.read_depths(bench(layer(PLAIN * torch.eye(2).double()))[0], prompts(N))[0][
            -1
        ],
    )


@pytest.mark.slow
def test_a_model_that_is_like_none_is_called_so():
    found = judge("algorithm", layer(-BEST), learned=LEARNED)
    assert found.verdict in ("contradicted", "inconclusive")
    assert "resembles none of them" in f"{found.reason} {found.scope}"


# ---- order ---------------------------------------------------------------------------------------


def test_order_is_not_asked_of_a_model_that_reads_no_examples():
    found = judge("order_free", blind(layer(BEST)))
    assert found.verdict == "inconclusive"
    assert "hardly reads its examples" in found.reason


def test_other_examples_are_those_of_another_function():
    """One step of gradient descent by hand, on the next function's examples and the own query."""
    lab, _ = bench(layer(BEST), n_units=4)
    result = lab.measure(lsa_algorithms.order).sel(over="contexts").values
    made = setting.grouped_prompts(lab, N, 2, "order").prompts
    xs, ys, queries = made.xs[:, :-1], made.ys[:, :-1], made.xs[:, -1]
    said = lambda of: torch.einsum("bd,de,be->b", queries, BEST, (of(ys) * of(xs)).mean(1))  # noqa: E731

    def check(shift):
        change = (said(lambda v: v.roll(shift, 0)) - said(lambda v: v)).square() / 2
        np.testing.assert_allclose(result, change.view(4, 2).mean(1), rtol=1e-9)

    check(2)
    must_fail(check, 1)


@pytest.mark.slow
def test_order():
    found = judge("order_free", layer(BEST))
    assert (found.verdict, value(found) < 1e-12) == ("supported", True)
    assert found.reason.startswith("By algebra, ")
    assert "nothing in the model's design can tell orders apart" in found.reason
    found = judge("order_free", SOFTMAX)
    assert found.verdict == "contradicted"
    assert found.reason.startswith(ORDER_FREE_CLAIM.denied)
    assert "learned positions and causal attention" in found.reason


def test_order_is_the_spread_that_it_is_called():
    """A model that answers with its first example's label has the spread of labels.

    Its spread over orders is that of the labels within a prompt.
    """
    first = torch.zeros(N)
    first[0] = N
    lab, _ = bench(by_place(first, 2), n_units=64)
    result = lab.measure(lsa_algorithms.order)
    made = setting.grouped_prompts(lab, N, 2, "order").prompts
    within = as_numbers(made.ys)[:, :-1].var(1, correction=0).view(64, 2).mean(1).numpy()
    gap = result.sel(over="orders").values - within
    assert abs(gap.mean()) < 4 * gap.std() / 8


# ---- predictors that are seen from outside -------------------------------------------------------


def ridge_of(penalty: float, dtype: np.dtype):
    """Ridge regression in numpy: (xs, ys, x_query) -> y_query."""

    def predict(xs, ys, x_query):
        gram = np.einsum("bmi,bmj->bij", xs, xs) + penalty * np.eye(xs.shape[-1])
        h = np.einsum("bmi,bm->bi", xs, ys)
        w = np.linalg.solve(gram, h[..., None])[..., 0]
        return (w * x_query).sum(-1).astype(dtype)

    return predict


def check_is_ridge(penalty: float, dtype: np.dtype) -> None:
    """Its distance from ridge with penalty 1 is rounding, and so is the angle of its gradient."""
    seen = predictors.recognised(ridge_of(penalty, dtype))
    result = lsa_algorithms.algorithms(OutsideLab(seen, TASK, n_units=8, n_contexts=1))
    alike = result.sel(algorithm="ridge, penalty 1").mean("unit")
    # Eight bits are left to the solver; central differences magnify rounding by 1 / HALF_WIDTH.
    rounding = float(np.finfo(dtype).eps)
    assert alike.sel(statistic="distance").max() < (256 * rounding) ** 2
    assert 1 - alike.sel(statistic="cosine").min() < (256 * rounding) / 1e-2
    assert result.sizes["depth"] == 1


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_predictor_from_outside_is_compared_by_outputs_alone(dtype):
    check_is_ridge(1.0, dtype)
    must_fail(check_is_ridge, 0.5, dtype)


def test_gradients_from_outside_are_those_of_the_weights():
    """Of a nonlinear predictor, whose gradient is no constant."""

    def predict(xs, ys, x_query):
        return np.sin(x_query).prod(-1) * ys.mean(1)

    made = prompts(N)
    lab = OutsideLab(predictors.recognised(predict), TASK, n_units=8, n_contexts=1)
    (values,), (slopes,) = lsa_algorithms.read_outputs(lab, made)
    query = made.xs[:, -1].clone().requires_grad_()
    truth = query.sin().prod(-1) * as_numbers(made.ys)[:, :-1].mean(1)
    (exact,) = torch.autograd.grad(truth.sum(), query)
    assert torch.allclose(values, truth.detach(), atol=1e-12)
    # The error of central differences is width^2 / 6 of third derivatives, which are at most |y|.
    width = lsa_algorithms.HALF_WIDTH * float(made.xs.std())
    bound = width**2 / 6 * as_numbers(made.ys)[:, :-1].mean(1).abs()
    assert bool(((slopes - exact).abs() <= bound[:, None] + 1e-9).all())
    assert float((slopes - exact).abs().max()) > 1e-9  # or it would not show the width


@pytest.mark.slow
def test_a_preconditioned_step_from_outside_is_told_from_ridge():
    # So many examples that one step explains nine tenths of what least squares does.
    task = replace(TASK, n_points=61)
    step = setting.trained_landscape(task).product.numpy()

    def preconditioned(xs, ys, x_query):
        h = np.einsum("bmi,bm->bi", xs, ys) / xs.shape[1]
        return ((h @ step) * x_query).sum(-1)

    def judged(predict):
        report = icl_interp.analyze(
            predict,
            task,
            claims=[ALGORITHM_CLAIM.id],
            control=lambda xs, ys, x_query: 0 * ys[:, 0],
            n_prompts=256,
            progress=False,
        )
        return report[ALGORITHM_CLAIM.id].verdict

    assert judged(preconditioned) == "supported"
    assert judged(ridge_of(1.0, np.float64)) == "contradicted"
