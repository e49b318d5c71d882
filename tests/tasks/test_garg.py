"""Sparse linear functions, ReLU networks and decision trees: values by hand and by loops, laws by Monte Carlo."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from torch.testing import assert_close

from icl_interp.baselines import LeastSquares
from icl_interp.errors import InputError
from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.tasks import (
    DecisionTree,
    LinearRegression,
    Normal,
    ReLUNetwork,
    SparseLinearRegression,
    Uniform,
    skewed_covariance,
)
from icl_interp.tasks.base import Scalable

SPARSE = SparseLinearRegression(n_dims=6, sparsity=2, n_points=10)
RELU = ReLUNetwork(n_dims=6, hidden=5, n_points=10)
TREE = DecisionTree(n_dims=6, depth=3, n_points=10)
TASKS = [SPARSE, RELU, TREE]
N = 10_000  # functions of every Monte Carlo check


def draw(task, n=N, **more):
    return task.sample(n, generator(0, "garg"), dtype=torch.float64, **more)


def within(estimates, expected):
    """The mean over the first axis, functions, is within four standard errors, everywhere."""
    estimates = np.asarray(estimates, dtype=float)
    error = estimates.std(0, ddof=1) / math.sqrt(len(estimates))
    assert (np.abs(estimates.mean(0) - expected) < 4 * error).all()


# Values -------------------------------------------------------------------------------------------


def network(parameters, xs, task):
    """One unit of the hidden layer after the other."""
    weights, readout = (
        parameters[: task.hidden * task.n_dims].reshape(task.hidden, task.n_dims),
        parameters,
    )
    units = [
        readout[task.hidden * task.n_dims + i] * np.maximum(xs @ weights[i], 0)
        for i in range(task.hidden)
    ]
    return sum(units) * math.sqrt(2) / math.sqrt(task.hidden)


def tree(parameters, xs, task):
    """Down from the root, for one input after the other: the left half of the nodes below, or the right half."""

    def leaf(x):
        node, low, high = 0, 0, task.n_leaves
        for _ in range(task.depth):
            right = x[int(parameters[node])] > 0
            low, high = ((low + high) // 2, high) if right else (low, (low + high) // 2)
            node = 2 * node + (2 if right else 1)
        return parameters[task.n_leaves - 1 + low]

    return np.array([leaf(x) for x in xs])


def check_values(task, route, prompts):
    labels = as_numbers(prompts.ys).numpy()
    for parameters, xs, ys in zip(
        prompts.parameters.numpy(), prompts.xs.numpy(), labels, strict=True
    ):
        np.testing.assert_allclose(ys, route(parameters, xs, task), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("task", "route", "wrong"),
    [
        (
            SPARSE,
            lambda p, xs, task: sum(xs[:, j] * p[j] for j in range(6)),
            lambda p, xs, task: xs[:, :-1] @ p[:-1],
        ),
        (RELU, network, lambda p, xs, task: network(p, np.abs(xs), task)),
        (TREE, tree, lambda p, xs, task: tree(p, -xs, task)),
        (DecisionTree(n_dims=1, depth=1, n_points=4), tree, lambda p, xs, task: tree(p, -xs, task)),
        (
            ReLUNetwork(n_dims=1, hidden=1, n_points=4),
            network,
            lambda p, xs, task: network(p, -xs, task),
        ),
    ],
    ids=["sparse", "network", "tree", "tree of depth 1", "one unit"],
)
def test_values_are_those_of_a_loop(task, route, wrong):
    prompts = draw(task, 20)
    check_values(task, route, prompts)
    must_fail(check_values, task, wrong, prompts)


def test_a_network_of_one_unit_by_hand():
    task, xs = (
        ReLUNetwork(n_dims=2, hidden=1, n_points=3),
        torch.tensor([[[1.0, 1.0], [2.0, -1.0], [-3.0, 1.0]]]),
    )
    found = task.value(
        torch.tensor([[2.0, 1.0, -5.0]]), xs
    )  # w = (2, 1), a = -5; <w, x> = 3, 3, -5
    assert_close(found, torch.tensor([[-15.0, -15.0, 0.0]]) * math.sqrt(2))


def test_trees_of_depth_one_and_two_by_hand():
    xs = torch.tensor([[[1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, 1.0], [0.0, 0.0]]])
    one = DecisionTree(n_dims=2, depth=1, n_points=5).value(torch.tensor([[1.0, 7.0, 8.0]]), xs)
    assert one.tolist() == [[7.0, 8.0, 7.0, 8.0, 7.0]]
    # The root asks for the first coordinate, its left child for the second, its right child for the
    # first again.
    parameters = torch.tensor([[0.0, 1.0, 0.0, 10.0, 20.0, 30.0, 40.0]])
    two = DecisionTree(n_dims=2, depth=2, n_points=5).value(parameters, xs)
    assert two.tolist() == [[40.0, 20.0, 10.0, 40.0, 10.0]]  # 30 is out of reach


FAR = {SPARSE: 2.0**20, RELU: 2.0**20, TREE: 1.0}  # what a label is multiplied by when x is by 2^20


def check_far(task, factor):
    prompts = draw(task, 20)
    far = task.value(prompts.parameters, 2.0**20 * prompts.xs)
    assert_close(far, factor * as_numbers(prompts.ys), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_values_far_outside_the_training_range(task):
    check_far(task, FAR[task])
    must_fail(check_far, task, 2.0**19)


# Laws ---------------------------------------------------------------------------------------------


def check_moments(task, variance):
    """Mean 0 and this variance: averages over the points of a prompt, which share a function."""
    prompts = draw(task)
    within(prompts.ys.mean(1).numpy(), 0)
    within(prompts.ys.square().mean(1).numpy(), variance)


@pytest.mark.parametrize(
    ("task", "variance"),
    [
        (SPARSE, 2),
        (replace(SPARSE, sparsity=6), 6),
        (replace(SPARSE, weights=Normal(3.0), inputs=Normal(0.5)), 2 * 9 / 4),
        (RELU, 6),
        (replace(RELU, hidden=1), 6),
        (
            replace(RELU, n_dims=2, hidden=40, weights=Normal(3.0), readout=Uniform(-1, 1)),
            2 * 9 / 3,
        ),
        (TREE, 1),
        (replace(TREE, depth=1, leaves=Uniform(-3, 3), inputs=Uniform(-1, 2)), 3),
    ],
    ids=str,
)
def test_labels_have_the_stated_variance(task, variance):
    check_moments(task, variance)
    must_fail(check_moments, task, 1.15 * variance)


def check_supports(task, size):
    """Every set of `size` coordinates is equally likely: so are every coordinate and every pair."""
    active = (draw(task).parameters != 0).double()
    assert (active.sum(1) == size).all()
    pairs = (active[:, :, None] * active[:, None]).numpy()
    first, second = np.triu_indices(task.n_dims, 1)
    within(active.numpy(), size / task.n_dims)
    within(pairs[:, first, second], size * (size - 1) / (task.n_dims * (task.n_dims - 1)))


def test_every_set_of_coordinates_is_equally_likely():
    check_supports(replace(SPARSE, sparsity=3), 3)
    must_fail(check_supports, SPARSE, 3)


class FirstCoordinates(SparseLinearRegression):
    """A mutant: the set is not random."""

    def sample_parameters(self, n_functions, generator, dtype):
        weights = self.weights.sample((n_functions, self.n_dims), generator, dtype)
        return weights * (torch.arange(self.n_dims) < self.sparsity)


def test_a_fixed_set_of_coordinates_would_be_noticed():
    must_fail(check_supports, FirstCoordinates(n_dims=6, sparsity=3, n_points=10), 3)


def check_tests(task, n_dims):
    """Every node tests every coordinate equally often, whatever its parent tests."""
    tests = draw(task).parameters[:, : task.n_leaves - 1]
    chosen = (tests[..., None] == torch.arange(n_dims)).double().numpy()
    within(chosen, 1 / n_dims)
    within(chosen[:, 0] * chosen[:, 1], 1 / n_dims**2)


def test_every_node_tests_a_coordinate_of_its_own():
    check_tests(TREE, 6)
    must_fail(check_tests, replace(TREE, n_dims=5), 6)


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_contexts_of_a_function_share_its_parameters_only(task):
    prompts = draw(task, 5, n_contexts=3)
    by_function = prompts.parameters.unflatten(0, (5, 3))
    assert (by_function == by_function[:, :1]).all()
    assert len(prompts.parameters.unique(dim=0)) == 5
    assert len(prompts.xs.flatten(1).unique(dim=0)) == 15
    assert prompts.function.tolist() == [f for f in range(5) for _ in range(3)]
    assert draw(task, 2, n_points=4).xs.shape == (2, 4, 6)
    assert task.sample(2, generator(0, "garg")).ys.dtype == torch.float32


# What the rest of the package asks of a task ------------------------------------------------------


def fitting(xs, ys, sparsity):
    """Sets of `sparsity` coordinates on which some w explains the labels exactly."""
    sets = list(itertools.combinations(range(xs.shape[1]), sparsity))
    residuals = [ys - xs[:, s] @ np.linalg.lstsq(xs[:, s], ys, rcond=None)[0] for s in sets]
    return sum(np.abs(residual).max() < 1e-9 for residual in residuals)


def check_determined(n_points):
    prompts = draw(SPARSE, 20)
    for xs, ys in zip(
        prompts.xs[:, :n_points].numpy(), as_numbers(prompts.ys)[:, :n_points].numpy(), strict=True
    ):
        assert fitting(xs, ys, SPARSE.sparsity) == 1


def test_the_first_points_determine_a_sparse_function():
    assert SPARSE.n_determining == 3
    check_determined(3)
    must_fail(check_determined, 2)


def test_how_many_points_are_not_scored():
    assert replace(SPARSE, sparsity=6).n_determining == 6
    assert (RELU.n_determining, TREE.n_determining) == (6, 8)
    assert [task.with_points(2).n_determining for task in TASKS] == [1, 1, 1]


def check_least_squares(task):
    prompts = draw(task, 20)
    error = as_numbers(LeastSquares(task).predict(prompts) - prompts.ys).abs().amax(0)
    assert (error[task.n_dims :] < 1e-9).all()
    assert error[task.n_dims - 1] > 0.1


class WithoutALast(SparseLinearRegression):
    """A mutant: one coordinate is not among the features."""

    def features(self, xs):
        return xs[..., :-1]


def test_sparse_functions_alone_are_linear_in_their_features():
    check_least_squares(SPARSE)
    must_fail(check_least_squares, WithoutALast(n_dims=6, sparsity=2, n_points=10))
    assert [task.has_features for task in TASKS] == [True, False, False]


def check_scaled(task, functions, inputs, labels):
    plain, scaled = draw(task, 20), draw(task.scaled(functions, inputs), 20)
    assert_close(scaled.xs, inputs * plain.xs)
    assert_close(scaled.ys, labels * plain.ys)


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_functions_and_inputs_are_scaled_each_by_its_own_factor(task):
    assert isinstance(task, Scalable)
    check_scaled(task, 3.0, 2.0, 3.0 if task is TREE else 6.0)
    must_fail(check_scaled, task, 3.0, 2.0, 2.0)


# Skewed inputs ------------------------------------------------------------------------------------


def check_spectrum(rows, d, power):
    expected = np.arange(1.0, d + 1) ** -power
    found = np.linalg.eigvalsh(np.array(rows))[::-1]
    np.testing.assert_allclose(found, d * expected / expected.sum(), rtol=1e-8)


@pytest.mark.parametrize(("d", "power"), [(1, 2.0), (5, 2.0), (20, 2.0), (20, 1.0), (3, 0.0)])
def test_a_skewed_covariance_has_its_spectrum(d, power):
    rows = skewed_covariance(d, power)
    check_spectrum(rows, d, power)
    check_spectrum(np.diag(skewed_covariance(d, power, seed=None)), d, power)
    if d > 1:
        must_fail(check_spectrum, skewed_covariance(d, power + 0.1), d, power)
    assert LinearRegression(
        n_dims=d, covariance=rows, n_points=d + 2
    ).covariance_matrix.trace() == pytest.approx(d)


def test_its_basis_is_random_and_repeatable():
    assert skewed_covariance(4) == skewed_covariance(4, seed=0) != skewed_covariance(4, seed=1)
    # A uniform basis: every diagonal entry has the mean of the spectrum, every other entry 0. One
    # matrix a seed.
    matrices = np.array([skewed_covariance(3, seed=seed) for seed in range(400)])
    within(matrices, np.eye(3))
    must_fail(within, matrices, 1.1 * np.eye(3))


# Refusals -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: replace(SPARSE, n_dims=0), "n_dims must be a whole number from 1 up, but got 0"),
        (
            lambda: replace(RELU, n_dims=True),
            "n_dims must be a whole number from 1 up, but got True",
        ),
        (
            lambda: replace(SPARSE, sparsity=0),
            "sparsity must be a whole number from 1 up, but got 0",
        ),
        (
            lambda: replace(SPARSE, sparsity=2.0),
            "sparsity must be a whole number from 1 up, but got 2.0",
        ),
        (
            lambda: replace(SPARSE, sparsity=7),
            "sparsity must be at most n_dims.* but got sparsity=7 and n_dims=6",
        ),
        (lambda: replace(SPARSE, weights=1.0), "weights must be a law, for example .* but got 1.0"),
        (lambda: replace(SPARSE, inputs=None), "inputs must be a law"),
        (lambda: replace(SPARSE, n_points=1), "at least 2, but got 1"),
        (lambda: replace(RELU, hidden=0), "hidden must be a whole number from 1 up, but got 0"),
        (lambda: replace(RELU, weights=Normal), "weights must be a law"),
        (
            lambda: replace(RELU, readout=(1.0, 2.0)),
            r"readout must be a law.* but got \(1.0, 2.0\)",
        ),
        (lambda: replace(TREE, depth=0), "depth must be a whole number from 1 to 12, but got 0"),
        (lambda: replace(TREE, depth=13), "depth must be a whole number from 1 to 12, but got 13"),
        (lambda: replace(TREE, leaves="normal"), "leaves must be a law.* but got 'normal'"),
        (lambda: skewed_covariance(0), "n_dims must be a whole number from 1 up, but got 0"),
        (lambda: skewed_covariance(3, -1.0), "power must be a number from 0 up, but got -1.0"),
        (lambda: skewed_covariance(3, math.inf), "power must be a number from 0 up, but got inf"),
        (
            lambda: skewed_covariance(3, seed=-1),
            "seed must be a whole number from 0 up, but got -1",
        ),
        (
            lambda: LeastSquares(RELU).predict(draw(RELU, 2)),
            "functions of a ReLUNetwork are linear in no fixed feat",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make, match):
    with pytest.raises(InputError, match=match) as refused:
        make()
    assert "\n" not in str(refused.value)
