"""Hat rows: against closed forms, finite differences, and models that are set by hand."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import small_models
import torch
from helpers import must_fail
from own_hooks import of
from small_models import MODELS, PROMPTS, encoding_of, make
from torch.testing import assert_close

import icl_interp
from icl_interp import baselines, tasks
from icl_interp.errors import InputError
from icl_interp.figures import influence as figure_of
from icl_interp.figures.influence import drawn
from icl_interp.interventions.attention import SwapPattern
from icl_interp.interventions.base import intervene
from icl_interp.models.blank import blank
from icl_interp.models.single_layers import LinearSelfAttention
from icl_interp.models.tokens import Interleaved, Stacked, States
from icl_interp.probes import ExampleInfluence, hat_rows
from icl_interp.probes import influence as module
from icl_interp.probes.influence import _by_differences, asked
from icl_interp.provenance import generator
from icl_interp.studies.linear_attention.hand_built import descent

DIM, N = 3, 9
TASK = tasks.LinearRegression(n_dims=DIM, n_points=N + 1)
LINEAR = TASK.sample(24, generator(0, "test/influence"), dtype=torch.float64)
PENALTY, RATE, BETA = 0.7, 0.4, 1.5


def examples(prompts):
    return prompts.xs[:, :-1], prompts.xs[:, -1]


def ridge_rows(prompts, penalty):
    """x_q' (X'X + penalty)^-1 X'."""
    xs, query = examples(prompts)
    gram = xs.mT @ xs + penalty * torch.eye(DIM, dtype=xs.dtype)
    return torch.linalg.solve(gram, query[..., None]).mT.squeeze(1)[:, None] @ xs.mT


def descent_rows(prompts, steps):
    """x_q' sum_{k < steps} (1 - r G)^k r X', r = 1 / the largest eigenvalue of G = X'X."""
    xs, query = examples(prompts)
    gram = xs.mT @ xs
    rate = 1 / torch.linalg.eigvalsh(gram)[:, -1, None, None]
    step = torch.eye(DIM, dtype=xs.dtype) - rate * gram
    total = sum(torch.linalg.matrix_power(step, k) for k in range(steps))
    return query[:, None] @ (rate * total) @ xs.mT


def kernel_rows(prompts, beta):
    xs, query = examples(prompts)
    away = (xs - query[:, None]).square().sum(-1)
    return (-beta * away).softmax(-1)


CLOSED = {
    "least squares": (baselines.LeastSquares(TASK), lambda p: ridge_rows(p, 0.0)),
    "ridge": (baselines.Ridge(TASK, PENALTY), lambda p: ridge_rows(p, PENALTY)),
    "one step": (baselines.GradientDescent(TASK, 1), lambda p: descent_rows(p, 1)),
    "four steps": (baselines.GradientDescent(TASK, 4), lambda p: descent_rows(p, 4)),
    "kernel": (baselines.NadarayaWatson(BETA), lambda p: kernel_rows(p, BETA)),
    "average": (baselines.Averaging(), lambda p: torch.full((len(p), N), 1 / N).double()),
}


def check_rows(rows, expected, tolerance=1e-9):
    assert_close(rows, expected.reshape(rows.shape), rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", CLOSED)
def test_rows_of_classical_algorithms_have_their_closed_forms(name):
    predictor, closed = CLOSED[name]
    rows = hat_rows(predictor, LINEAR)
    check_rows(rows, closed(LINEAR))
    must_fail(check_rows, rows, closed(LINEAR).roll(1, -1) + 0.01)


# ---- models that are set by hand -----------------------------------------------------------------


def one_step():
    """Its row is rate x_i' x_q / n."""
    xs, query = examples(LINEAR)
    rows = RATE * (xs @ query[..., None])[..., 0] / N
    return descent(DIM, 1, RATE, N + 1), rows


def population_ridge():
    """Ridge that knows the covariance S of inputs: x_q' (S + penalty)^-1 x_i / n."""
    product = torch.diag(1 / (torch.tensor([1.0, 2.0, 0.5]).double() + PENALTY))
    xs, query = examples(LINEAR)
    rows = (query[:, None] @ product @ xs.mT)[:, 0] / N
    return LinearSelfAttention.from_product(product, 1.0).to_transformer(N + 1), rows


def softmax_average():
    """Weights softmax(beta x_i' x_q) of a head that sees labelled tokens only."""
    model = blank(
        DIM + 1,
        d_head=DIM + 1,
        d_in=DIM + 1,
        n_ctx=N + 1,
        attention_dir="bidirectional",
        keys="labelled",
    )
    eye = torch.eye(DIM + 1, dtype=torch.float64)
    with torch.no_grad():
        model.embed.W_E.copy_(eye)
        model.blocks[0].attn.W_Q[0] = BETA * eye
        model.blocks[0].attn.W_K[0] = eye
        model.blocks[0].attn.W_K[0, -1] = 0
        model.blocks[0].attn.W_V[0, -1, 0] = 1
        # Beside the label of the query, which is 0.
        model.blocks[0].attn.W_O[0, 0, -1] = 1
        model.unembed.W_U[-1] = 1
    xs, query = examples(LINEAR)
    return model.eval(), (BETA * (xs @ query[..., None])[..., 0]).softmax(-1)


@pytest.mark.parametrize("build", [one_step, population_ridge, softmax_average])
def test_rows_of_models_that_are_set_by_hand(build):
    model, expected = build()
    found = ExampleInfluence.measure(model, LINEAR, encoding=Stacked())
    rows = torch.from_numpy(found.weights.values)
    check_rows(rows, expected, 1e-12)
    must_fail(check_rows, rows, 1.01 * expected, 1e-12)
    # What is linear in the labels, is: second differences, and the row times the labels.
    assert float(found.nonlinearity().max()) < 1e-9
    table = found.summary().set_index("name")["value"]
    assert table["row times labels"] == pytest.approx(1, abs=1e-12)
    assert table["swaps"] == pytest.approx(1, abs=1e-12)


def test_the_nearest_classical_row_is_that_of_the_algorithm():
    model, _ = softmax_average()
    on_circle = LINEAR.xs / LINEAR.xs.norm(dim=-1, keepdim=True)
    prompts = replace(LINEAR, xs=on_circle)  # there x_i' x_q and |x_i - x_q|^2 say the same
    found = ExampleInfluence.measure(model, prompts, encoding=Stacked())
    rivals = {
        "kernel": baselines.NadarayaWatson(BETA / 2),
        "other kernel": baselines.NadarayaWatson(BETA),
        "least squares": baselines.LeastSquares(TASK),
    }
    table = found.beside(rivals)
    assert table["predictor"].tolist()[0] == "kernel"
    assert table["distance"][0] < 1e-15 < 1e-3 < table["distance"][1]
    assert (table["low"] <= table["distance"]).all()
    kernel = found.kernel(4)
    assert (kernel["weight"].diff()[1:] < 0).all()
    assert float(found.total.mean()) == pytest.approx(1)


# ---- automatic differentiation against differences -----------------------------------------------


def check_slopes(model, found):
    ask, _ = asked(model, found.prompts, encoding_of(model))
    weights, slopes = _by_differences(ask, found.prompts, inputs=True)
    assert_close(torch.from_numpy(found.weights.values), weights, rtol=1e-5, atol=1e-6)
    assert_close(torch.from_numpy(found.slopes.values), slopes, rtol=1e-5, atol=1e-6)
    assert weights.abs().max() > 1e-3 or model.cfg.mlp_only


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_differences(name, monkeypatch):
    monkeypatch.setattr(module, "STEP", 1e-5)
    model = make(name)
    if model.cfg.normalization_type is None:
        with torch.no_grad():
            model.unembed.W_U /= 10
    found = ExampleInfluence.measure(model, PROMPTS[:6], encoding=encoding_of(model))
    check_slopes(model, found)
    if not model.cfg.mlp_only:
        turned = found.weights.roll(example=1, roll_coords=False)
        must_fail(check_slopes, model, replace(found, weights=turned))


def test_hardmax_is_not_asked_for_its_gradient():
    model = make("hardmax")
    found = ExampleInfluence.measure(model, PROMPTS[:6], encoding=encoding_of(model))
    assert "differences" in found.weights.attrs["note"]


def test_leaving_out_and_swapping_are_runs_of_other_prompts():
    model, rows = one_step()
    found = ExampleInfluence.measure(model, LINEAR, encoding=Stacked())
    ys = LINEAR.ys[:, :-1, 0]
    # Without example i the others weigh 1 / (n - 1) in place of 1 / n.
    parts = rows * ys
    expected = (parts.sum(1, keepdim=True) - parts) * N / (N - 1) - parts.sum(1, keepdim=True)
    without = torch.from_numpy(found.leave_one_out().values)
    check_rows(without, expected, 1e-12)
    must_fail(check_rows, without, -parts, 1e-12)
    exact, first = found.swapped().values
    np.testing.assert_allclose(exact, (rows * (ys.roll(-1, 1) - ys)).numpy(), atol=1e-12)
    np.testing.assert_allclose(first, exact, atol=1e-12)


def test_what_is_not_linear_in_the_labels_shows_it():
    model = make("pre")
    found = ExampleInfluence.measure(model, PROMPTS, encoding=encoding_of(model))
    table = found.summary().set_index("name")
    assert table["value"]["nonlinearity"] > 0.01
    assert (table["low"] <= table["high"]).all()


def test_effective_examples_count_equal_weights():
    found = ExampleInfluence.measure(baselines.KNearest(3), LINEAR)
    np.testing.assert_allclose(found.effective_examples.values, 3, rtol=1e-9)
    must_fail(np.testing.assert_allclose, found.effective_examples.values, 4, rtol=0.1)


def test_rows_under_an_intervention_are_those_of_the_edited_model():
    model, _ = softmax_average()
    with intervene(model, SwapPattern("uniform")):
        inside = ExampleInfluence.measure(model, LINEAR, encoding=Stacked())
    after = ExampleInfluence.measure(model, LINEAR, encoding=Stacked())
    np.testing.assert_allclose(inside.weights.values, 1 / N, rtol=1e-12)
    assert abs(after.weights.values - 1 / N).max() > 0.01


@pytest.mark.slow
def test_a_checkpoint_brings_its_prompts_its_rivals_and_a_figure():
    checkpoint = icl_interp.load("affine")
    before = checkpoint.model.unembed.W_U.dtype
    found = ExampleInfluence.measure(checkpoint, inputs=False)
    assert checkpoint.model.unembed.W_U.dtype == before
    assert checkpoint.model.unembed.W_U.requires_grad
    table = found.beside().set_index("predictor")
    assert {"least squares", "gradient descent, 1 step", "3 nearest"} <= set(table.index)
    panel = drawn(found, 3).panels[0]
    points = panel.marks[1]
    weights = found.weights.values[3]
    order = np.argsort(abs(weights))
    assert (np.diff(np.asarray(points.size)[order]) >= 0).all()
    colours = np.asarray(points.colour)
    # Orange has more red than blue.
    reds = np.array([int(c[1:3], 16) > int(c[5:], 16) for c in colours])
    strong = abs(weights) > 0.3 * abs(weights).max()
    assert (reds[strong] == (weights[strong] > 0)).all()
    assert len(figure_of(found, 3).data) >= 3


# ---- refusals ------------------------------------------------------------------------------------


def test_refusals():
    model = make("pre")
    with pytest.raises(InputError, match="vectors of 2 coordinates"):
        ExampleInfluence.measure(model, replace(PROMPTS, ys=PROMPTS.ys.repeat(1, 1, 2)))
    with pytest.raises(InputError, match="shows paths"):
        ExampleInfluence.measure(model, PROMPTS, encoding=States())
    ys = PROMPTS.ys.clone()
    ys[:, 0] = torch.nan
    with pytest.raises(InputError, match="labels must be finite, but 24 of"):
        ExampleInfluence.measure(model, replace(PROMPTS, ys=ys))
    with pytest.raises(InputError, match="no example"):
        ExampleInfluence.measure(model, PROMPTS.first(1))
    with pytest.raises(InputError, match="pass prompts"):
        ExampleInfluence.measure(model)
    with pytest.raises(InputError, match="but got 'affine'"):
        ExampleInfluence.measure("affine", PROMPTS)
    one = ExampleInfluence.measure(model, PROMPTS[:1])
    with pytest.raises(InputError, match="over functions needs at least 2"):
        one.summary()
    with pytest.raises(InputError, match="needs predictors by name"):
        one.beside()
    with pytest.raises(InputError, match="prompt must be a whole number from 0 to 0"):
        figure_of(one, 1)
    with pytest.raises(InputError, match="at least two examples"):
        ExampleInfluence.measure(model, PROMPTS.first(2)).leave_one_out()


class Running(torch.nn.Module):
    """A layer without a gradient of ours: each token adds a squashed sum of those before it."""

    def forward(self, stream):
        return stream + torch.tanh(stream.cumsum(1))


def are_gradients(found, module, prompts):
    """Weights are derivatives of the module in the labels, by automatic differentiation."""
    tokens = Interleaved().encode(prompts.double()).requires_grad_()
    out = module(tokens)[:, -1, 0].sum()
    (slopes,) = torch.autograd.grad(out, tokens)
    labels = slopes[:, 1::2, 0].numpy()
    np.testing.assert_allclose(found.weights.values, labels, rtol=0, atol=1e-7)


def test_an_adapted_module_is_asked_in_float64():
    torch.manual_seed(0)
    made = torch.nn.Sequential(torch.nn.Linear(1, 8), Running(), torch.nn.Linear(8, 1)).eval()
    adapted = icl_interp.adapt(made, encoding="interleaved", residual=["0", "1"])
    prompts = icl_interp.load("affine").task.sample(4, generator(0, "adapted"))
    found = ExampleInfluence.measure(adapted, prompts)
    assert next(made.parameters()).dtype == torch.float32  # a copy is asked
    coarse = ExampleInfluence.measure(SimpleNamespace(predict=adapted.predict, name="m"), prompts)
    double = copy.deepcopy(made).double()
    are_gradients(found, double, prompts)
    must_fail(are_gradients, coarse, double, prompts)


@pytest.mark.slow
def test_influence_in_an_adapted_module_is_that_in_the_model():
    """Differences on one side, gradients on the other; held by another object or by itself."""
    model = make("pre")
    held = SimpleNamespace(model=model, encoding=Interleaved(), task=small_models.TASK)
    module = of(held)
    expected = ExampleInfluence.measure(held, PROMPTS)

    def same(source, by=1.0):
        found = ExampleInfluence.measure(source, PROMPTS)
        assert_close(found.weights.values, by * expected.weights.values, rtol=1e-5, atol=1e-7)
        return found

    found = same(module)
    must_fail(same, module, 1.001)
    same(SimpleNamespace(model=module, encoding=Interleaved()))
    assert list(found.beside().columns) == list(expected.beside().columns)


def test_paths_in_an_adapted_module_are_refused():
    read_in, read_out = torch.nn.Linear(1, 4), torch.nn.Linear(4, 1)
    module = icl_interp.adapt(torch.nn.Sequential(read_in, read_out), encoding=States())
    with pytest.raises(InputError, match="shows paths"):
        ExampleInfluence.measure(module, PROMPTS)
