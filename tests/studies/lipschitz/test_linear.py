"""Weights of examples as derivatives, and the best linear function.

Instruments that are wrong must break the verdict.
"""

import dataclasses
import math

import pytest
import torch
from helpers import must_fail

from icl_interp.analyses.lab import Lab
from icl_interp.checkpoints import store
from icl_interp.experiments import calibration
from icl_interp.models.softmax_unit import SoftmaxAttention
from icl_interp.models.tokens import Stacked
from icl_interp.provenance import generator
from icl_interp.studies.lipschitz.claims import linear
from icl_interp.studies.lipschitz.claims.linear import LINEAR_CLAIM
from icl_interp.studies.lipschitz.constructions import heads as made
from icl_interp.studies.lipschitz.measurements import example_weights
from icl_interp.tasks import RidgeFunction, Sphere
from icl_interp.theory import lipschitz as theory

ID = "lipschitz.linear_attention_does_not_adapt"
CASES = {one.name: one for one in made.HEADS if ID in one.expected}
N = 40_000  # functions of the Monte Carlo check


def ridge(case):
    assert isinstance(case.task, RidgeFunction)
    return case.task


def judged(case):
    lab, facts = calibration.lab_for(case)
    return LINEAR_CLAIM.judge_results(calibration.measure(lab, facts, [LINEAR_CLAIM]), facts)


def test_weights_of_a_softmax_unit_are_its_attention():
    task = RidgeFunction(inputs=Sphere(3), link="relu", noise_std=0.5, n_points=13)
    matrix = torch.randn(3, 3, generator=generator(0, "test"), dtype=torch.float64)
    lab = Lab(SoftmaxAttention.from_product(matrix).to_transformer(13), task, Stacked(), n_units=8)
    weights, _ = example_weights.label_weights(lab, lab.prompts)
    xs = lab.prompts.xs
    torch.testing.assert_close(weights, theory.attention_weights(xs[:, :-1], xs[:, -1], matrix))
    must_fail(
        torch.testing.assert_close,
        weights,
        theory.attention_weights(xs[:, :-1], xs[:, -1], 1.1 * matrix),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("link", "dim"), [("relu", 2), ("relu", 3), ("relu", 5), ("phased_cosine", 3)]
)
def test_the_best_linear_function_leaves_what_theory_says(link, dim):
    """The mean square of what is left is the energy outside harmonic degree 1, and that of b."""
    task = RidgeFunction(inputs=Sphere(dim), link=link, lipschitz=2.0, n_points=3)
    prompts = task.sample(N, generator(0, "test/linear"), dtype=torch.float64)
    energies = theory.harmonic_energies(theory.function_class(link, 2.0), dim, 400)
    expected = float(energies.sum() - energies[1]) + (4 / 3 if link == "relu" else 0.0)
    found = example_weights.nonlinear_part(task, prompts).square()

    def holds(squares):
        assert (
            abs(float(squares.mean()) - expected)
            < 4 * float(squares.std()) / math.sqrt(N) + 1e-3 * expected
        )

    holds(found)
    must_fail(holds, 1.05 * found)


@pytest.mark.slow
def test_it_is_orthogonal_to_every_linear_function():
    task = RidgeFunction(inputs=Sphere(3), link="relu", n_points=2)
    prompts = task.sample(N, generator(1, "test/linear"), dtype=torch.float64)
    z = (prompts.xs[:, -1] * prompts.parameters[:, :3]).sum(-1)
    slopes = (prompts.parameters[:, 3] - prompts.parameters[:, 4]) / 2  # of l1 (z)_+ + l2 (-z)_+
    torch.testing.assert_close(
        prompts.ys[:, -1, 0] - example_weights.nonlinear_part(task, prompts),
        slopes * z,
        rtol=1e-4,
        atol=1e-6,
    )


def test_opposite_queries_keep_the_examples():
    task = RidgeFunction(inputs=Sphere(3), link="relu", noise_std=1.0, n_points=5)
    prompts = task.sample(6, generator(0, "test"), dtype=torch.float64)
    other = example_weights.opposite(task, prompts)
    assert torch.equal(other.xs[:, :-1], prompts.xs[:, :-1])
    assert torch.equal(other.ys[:, :-1], prompts.ys[:, :-1])
    assert torch.equal(other.xs[:, -1], -prompts.xs[:, -1])
    torch.testing.assert_close(
        other.ys[:, -1], task.targets(prompts.parameters, other.xs[:, -1:])[:, 0]
    )


def test_half_weight_cosine_is_theorys():
    w = torch.tensor(7.0, dtype=torch.float64)
    assert math.isclose(
        example_weights.half_weight_cosine(7.0),
        math.cos(float(theory.half_weight_angle(w))),
        rel_tol=1e-9,
    )
    assert example_weights.half_weight_cosine(0.1) == -1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_constructions(name):
    finding = judged(CASES[name].draw(1))
    assert finding.verdict == CASES[name].expected[ID], finding.reason


@pytest.mark.slow
def test_plain_kernel_in_the_place_of_the_model_breaks_the_cell(monkeypatch):
    def check():
        found = judged(CASES["linear attention on local features"].draw(1))
        assert found.evidence["concentration"].low > 0.5

    check()
    weights = example_weights.label_weights

    def plain(lab, prompts, *interventions):
        products = torch.einsum("bid,bd->bi", prompts.xs[:, :-1], prompts.xs[:, -1])
        return products * (not interventions), weights(lab, prompts)[1]

    monkeypatch.setattr(example_weights, "label_weights", plain)
    must_fail(check)


def second_differences(model, task):
    """How far f is from a line along the query, over its size: f(q + 2 v) - 2 f(q + v) + f(q)."""
    lab = Lab(model, task, Stacked(), n_units=8)
    tokens, step = lab.tokens(lab.prompts), torch.zeros(lab.prompts.xs.shape[-1] + 1).double()
    step[0] = 0.7
    found = []
    for k in range(3):
        moved = tokens.clone()
        moved[:, -1] += k * step
        with torch.no_grad():
            found.append(lab.model(moved)[:, -1, 0])
    return float((found[2] - 2 * found[1] + found[0]).abs().max() / found[0].abs().max())


def check_by_algebra(model, task, begins):
    """What is said to be linear by algebra is, and the reason begins with these words."""
    [finding] = calibration.judge(calibration.Case(model, task, n_units=32), (ID,))
    assert finding.verdict == "supported"
    assert finding.reason.startswith(begins)
    if "algebra" in begins:
        assert second_differences(model, task) < 1e-9


@pytest.mark.slow
def test_one_layer_is_a_linear_fit_by_algebra():
    """Its keys are the examples alone; where the query is a key too, weights decide."""
    bundled, other = store.load("lipschitz_relu_linear"), CASES["linear attention with M = c I"]
    model = bundled.model.double()
    check_by_algebra(model, bundled.task, "By algebra, examples near the query get no more weight")
    must_fail(check_by_algebra, model, bundled.task, "Examples near the query")
    case = other.draw(1)
    check_by_algebra(case.model, case.task, "Examples near the query get no more weight")


def test_where_the_query_is_a_key_a_layer_need_not_be_linear():
    case = CASES["linear attention with M = c I"].draw(1)
    assert not linear.is_linear(case.model.cfg)
    with torch.no_grad():
        for name, weight in case.model.named_parameters():
            if ".W_" in name:
                draw = generator(0, f"test/{name}")
                weight.copy_(torch.randn(weight.shape, generator=draw, dtype=torch.float64))
    assert second_differences(case.model, ridge(case)) > 1e-6  # rounding makes 1e-15


@pytest.mark.slow
def test_a_silent_model_supports_nothing():
    case = CASES["linear attention with M = c I"].draw(1)
    with torch.no_grad():
        case.model.unembed.W_U.mul_(1e-6)
    finding = judged(case)
    assert finding.verdict == "inconclusive"
    assert "next to nothing" in finding.reason


def test_whom_it_is_not_about():
    case = CASES["linear attention with M = c I"].draw(1)
    _, facts = calibration.lab_for(case)
    assert LINEAR_CLAIM.exclusion(facts) is None
    straight = dataclasses.replace(ridge(case), link="affine")
    assert "neither linear nor even" in (
        LINEAR_CLAIM.exclusion(dataclasses.replace(facts, task=straight)) or ""
    )
    softmax = dataclasses.replace(facts.config, score_fn="softmax", score_norm=None)
    assert "linear attention" in (
        LINEAR_CLAIM.exclusion(dataclasses.replace(facts, config=softmax)) or ""
    )
