"""The task of a run of Garg et al. (2022) or a fork, from config.yaml, or a refusal."""

import pytest
import torch
from foreign_files import config
from helpers import must_fail

from icl_interp.checkpoints.formats.garg_tasks import reached, task_of
from icl_interp.errors import InputError
from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.structured import Stored
from icl_interp.tasks import (
    DecisionTree,
    LinearRegression,
    Normal,
    Polynomial,
    ReLUNetwork,
    SparseLinearRegression,
    Uniform,
)

DEGREE = {"polynomial_degree": {"start": 1, "end": 3, "inc": 1, "interval": 5000}}
SIZES = {"n_dims": 3, "n_points": 5}


def of(step=None, **changes):
    return task_of(Stored(config(**changes), "config.yaml: "), step)


KNOWN = [
    ({}, LinearRegression(**SIZES)),
    ({"task_kwargs": {"scale": 2}}, LinearRegression(**SIZES, weights=Normal(2.0))),
    ({"data": "uniform"}, LinearRegression(**SIZES, inputs=Uniform(0, 1))),
    (
        {
            "task": "noisy_linear_regression",
            "task_kwargs": {"noise_std": 0.5, "renormalize_ys": False},
        },
        LinearRegression(**SIZES, noise_std=0.5),
    ),
    ({"task": "noisy_linear_regression"}, LinearRegression(**SIZES)),
    ({"task": "sparse_linear_regression"}, SparseLinearRegression(**SIZES, sparsity=3)),
    (
        {"task": "sparse_linear_regression", "task_kwargs": {"sparsity": 2}},
        SparseLinearRegression(**SIZES, sparsity=2),
    ),
    (
        {"task": "sparse_linear_regression", "task_kwargs": {"sparsity": 2, "valid_coords": 3}},
        SparseLinearRegression(**SIZES, sparsity=2),
    ),
    (
        {"task": "affine_regression", "n_dims": 1},
        Polynomial(degrees=(1,), inputs=Normal(1.0), coefficients=Normal(1.0), n_points=5),
    ),
    (
        {"batch_size": 64, "keep_every_steps": -1, "resume_id": "x", "loss": None},
        LinearRegression(**SIZES),
    ),
    ({"task": "relu_2nn_regression"}, ReLUNetwork(**SIZES, hidden=100)),
    (
        {"task": "relu_2nn_regression", "task_kwargs": {"hidden_layer_size": 7}},
        ReLUNetwork(**SIZES, hidden=7),
    ),
    ({"task": "decision_tree"}, DecisionTree(**SIZES, depth=4)),
    ({"task": "decision_tree", "task_kwargs": {"depth": 2}}, DecisionTree(**SIZES, depth=2)),
    (
        {"task": "polynomial_regression", "n_dims": 1, "curriculum": DEGREE},
        Polynomial(degrees=(3,), inputs=Normal(1.0), coefficients=Normal(1.0), n_points=5),
    ),
]


@pytest.mark.parametrize(("changes", "task"), KNOWN)
def test_each_of_their_tasks_is_one_of_ours(changes, task):
    assert of(**changes) == task


def same_labels(task, theirs):
    """Their law and ours have the same moments of labels over many functions.

    The mean is 0; variance and correlation along a prompt are compared.
    """
    prompts = task.sample(20000, generator(0, "test"), n_points=3, dtype=torch.float64)
    xs = task.inputs.sample((20000, 3, task.dim), generator(1, "test"), torch.float64)
    labels = as_numbers(prompts.ys), theirs(xs, generator(2, "test"))
    ours, wanted = (torch.cat([ys.T, ys.T.abs()]).cov() for ys in labels)
    torch.testing.assert_close(ours, wanted, rtol=0.15, atol=0.12)


def their_network(hidden=7, factor=2.0):
    def labels(xs, rng):
        w1 = torch.randn(len(xs), xs.shape[-1], hidden, generator=rng, dtype=xs.dtype)
        w2 = torch.randn(len(xs), hidden, 1, generator=rng, dtype=xs.dtype)
        return ((xs @ w1).relu() @ w2)[..., 0] * (factor / hidden) ** 0.5

    return labels


def their_polynomial(xs, rng, degree=3):
    """The coefficient of the highest degree first."""
    coefficients = torch.randn(len(xs), degree + 1, generator=rng, dtype=xs.dtype)
    return sum(coefficients[:, [i]] * xs[..., 0] ** (degree - i) for i in range(degree + 1))


def test_their_labels_have_our_law():
    network = of(task="relu_2nn_regression", task_kwargs={"hidden_layer_size": 7})
    same_labels(network, their_network())
    must_fail(same_labels, network, their_network(factor=1.0))
    polynomial = of(task="polynomial_regression", n_dims=1, curriculum=DEGREE, data="uniform")
    same_labels(polynomial, their_polynomial)
    must_fail(same_labels, polynomial, lambda xs, rng: their_polynomial(xs, rng, degree=1))


def test_a_schedule_is_where_their_loop_had_it():
    """Their loop counts updates and adds inc at each multiple of interval, up to end."""
    schedule = {"start": 5, "end": 12, "inc": 3, "interval": 4}
    value = schedule["start"]
    for step in range(40):
        assert reached(Stored(schedule, "points"), step) == value
        if (step + 1) % schedule["interval"] == 0:
            value = min(value + schedule["inc"], schedule["end"])
    assert reached(Stored(schedule, "points"), None) == 12
    # A length that only the last step had was not trained on.
    assert of(step=2000, n_dims=1).n_points == 3
    assert of(step=2001, n_dims=1).n_points == 5
    assert of(step=1999, n_dims=1).n_points == 3
    assert of(5000, task="polynomial_regression", n_dims=1, curriculum=DEGREE).degrees == (2,)


BAD = [
    (
        {"task": "quadratic_regression"},
        "training.task must be one of .*, but got 'quadratic_regression'",
    ),
    ({"data": "skewed"}, "training.data must be one of gaussian, uniform, but got 'skewed'"),
    ({"num_tasks": 10}, "training.num_tasks is 10: a pool of fixed functions"),
    ({"num_training_examples": 9}, "training.num_training_examples is 9: a pool"),
    ({"task_kwargs": {"w": 1}}, "training.task_kwargs.w is 1, and no task here says that"),
    (
        {"task_kwargs": {"normalise": False}},
        "training.task_kwargs.normalise is False, and no task here says that",
    ),
    (
        {"data_kwargs": {"scale": 3}},
        r"training\.data_kwargs is \{'scale': 3\}, a setting of a fork that is not known",
    ),
    (
        {"prompting_strategy": "random_quadrants"},
        "training.prompting_strategy is 'random_quadrants', a setting of a",
    ),
    (
        {"noise_std": 0.5},
        r"training\.noise_std is 0\.5, a setting of a fork that is not known here",
    ),
    ({"loss": False}, "training.loss is False, a setting of a fork that is not known here"),
    (
        {"curriculum": {"noise": {"start": 1}}},
        "training.curriculum.noise is .*, a setting of a fork",
    ),
    (
        {"task": "affine_regression"},
        r"affine_regression: affine functions of n_dims=3 inputs are what no task here",
    ),
    (
        {"task": "affine_regression", "n_dims": 1, "task_kwargs": {"scale": 2}},
        "its scale multiplies the slope",
    ),
    (
        {"task_kwargs": {"scale": 0}},
        (
            r"config\.yaml: training\.task is linear_regression: Normal needs a finite mean and a "
            r"positive"
        ),
    ),
    (
        {"task": "sparse_linear_regression", "task_kwargs": {"valid_coords": 2}},
        "valid_coords is 2, and no task here",
    ),
    (
        {"task": "noisy_linear_regression", "task_kwargs": {"renormalize_ys": True}},
        "renormalize_ys is True",
    ),
    ({"task_kwargs": {"scale": "big"}}, "task_kwargs.scale must be a number, but got 'big'"),
    (
        {"task": "decision_tree", "task_kwargs": {"depth": 99}},
        "depth must be a whole number from 1 to 12, but got 99",
    ),
    (
        {"task": "sparse_linear_regression", "task_kwargs": {"sparsity": 4}},
        "sparsity must be at most n_dims",
    ),
    (
        {"task": "polynomial_regression", "curriculum": DEGREE},
        "polynomials of n_dims=3 inputs are a sum",
    ),
    (
        {"task": "polynomial_regression", "n_dims": 1},
        "training.curriculum lacks the key 'polynomial_degree'",
    ),
    ({"curriculum": {"points": {"start": 1}}}, "training.curriculum.points lacks the key 'end'"),
    (
        {"curriculum": {"dims": {"start": 2, "end": 2, "inc": 1, "interval": 9}}},
        "reached 2 of the n_dims=3 coordinates",
    ),
    ({"step": 100}, "reached 1 of the n_dims=3 coordinates"),
]


@pytest.mark.parametrize(("changes", "match"), BAD)
def test_what_no_task_stands_for_is_refused_by_name(changes, match):
    with pytest.raises(InputError, match=match) as refused:
        of(**changes)
    assert "\n" not in str(refused.value)
