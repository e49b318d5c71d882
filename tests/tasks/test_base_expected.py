"""E[f(x)] over the law of functions, against means of fresh functions; and what predicts it."""

import math
from typing import ClassVar

import pytest
import torch
from helpers import must_fail
from own_tasks import RELU, Plus5, Square
from vector_tasks import PATHS, LinearMap

from icl_interp.baselines import LawMean, MeanValue, Zero
from icl_interp.baselines.law import uninformed, without_examples
from icl_interp.provenance import generator
from icl_interp.tasks import (
    Continuous,
    DecisionTree,
    LinearRegression,
    Normal,
    Polynomial,
    ReLUNetwork,
    SparseLinearRegression,
    Sphere,
    Task,
    Uniform,
    base,
)

N = 40_000  # fresh functions that a mean is compared with
SMALL = {"n_points": 6}
UNIT = Uniform(-1, 1)
AROUND_2 = Normal(0.5, mean=2.0)
MIXTURE = {"degrees": (0, 1, 3, 3), "inputs": UNIT, "coefficients": Uniform(0, 4), **SMALL}


class SquareInsists(Square):
    """Gives its parent's closed form as its own."""

    def closed_mean(self, xs):
        return super().closed_mean(xs)


class ForgetsTheMixture(Polynomial):
    def closed_mean(self, xs):
        return self.targets(
            torch.full((len(xs), self.max_degree + 1), self.coefficients.mean, dtype=xs.dtype), xs
        )


class TwiceTheLaw(Polynomial):
    def sample_parameters(self, n_functions, generator, dtype):
        return 2 * super().sample_parameters(n_functions, generator, dtype)


TASKS = {
    "mixture": Polynomial(**MIXTURE),
    "one degree": Polynomial(**{**MIXTURE, "degrees": (2,)}),
    "centred": Polynomial(**{**MIXTURE, "coefficients": UNIT}),
    "shifted": Plus5(**MIXTURE),
    "squared": Square(**MIXTURE),
    "twice": TwiceTheLaw(**MIXTURE),
    "amplitude": Continuous(function="exp", inputs=UNIT, amplitude=Uniform(1, 3), **SMALL),
    "linear": LinearRegression(n_dims=3, weights=AROUND_2, noise_std=0.5, **SMALL),
    "on a sphere": LinearRegression(n_dims=3, weights=Sphere(3), **SMALL),
    "sparse": SparseLinearRegression(n_dims=5, sparsity=2, weights=AROUND_2, **SMALL),
    "network": ReLUNetwork(n_dims=2, hidden=3, readout=AROUND_2, **SMALL),
    "centred network": ReLUNetwork(n_dims=2, hidden=3, **SMALL),
    "tree": DecisionTree(n_dims=3, depth=2, leaves=Uniform(0, 4), **SMALL),
    "vectors": LinearMap(n_dims=2, outputs=3, weights=AROUND_2, inputs=Normal(1), **SMALL),
    "paths": PATHS,
    "own": RELU,
}
IN_CLOSED_FORM = {
    "mixture",
    "one degree",
    "centred",
    "amplitude",
    "linear",
    "on a sphere",
    "sparse",
    "tree",
} | {"centred network"}


def inputs(task, n=5):
    return task.inputs.sample((1, n, task.dim), generator(0, "test/inputs"), torch.float64)


def check_mean(task, closed):
    """Within 4 standard errors of both means; that of the task is 0 in closed form."""
    xs = inputs(task)
    parameters = task.sample_parameters(N, generator(0, "test/expected"), torch.float64)
    values = task.targets(parameters, xs.expand(N, -1, -1))
    error = values.std(0) / math.sqrt(N)
    if not closed:
        error = (error.square() + values.var(0) / base.MANY).sqrt()
    assert ((task.expected(xs)[0] - values.mean(0)).abs() <= 4 * error + 1e-12).all()


@pytest.mark.parametrize("name", TASKS)
def test_it_is_the_mean_of_functions(name):
    check_mean(TASKS[name], name in IN_CLOSED_FORM)


def test_another_mean_is_noticed():
    must_fail(check_mean, ForgetsTheMixture(**MIXTURE), False)
    check_mean(ForgetsTheMixture(**{**MIXTURE, "degrees": (3,)}), True)
    must_fail(check_mean, SquareInsists(**MIXTURE), False)


def check_values(task, xs, expected):
    torch.testing.assert_close(task.expected(xs), expected, rtol=1e-12, atol=1e-12)


def test_the_closed_form_of_a_mixture():
    """Of degrees 0, 1, 3, 3 three quarters reach x, and half of them x^2 and x^3."""
    xs = torch.tensor([[[0.5], [-2.0]], [[10.0], [0.0]]], dtype=torch.float64)
    check_values(Polynomial(**MIXTURE), xs, 2 * (1 + 0.75 * xs + 0.5 * xs**2 + 0.5 * xs**3))
    every_term = 2 * (1 + xs + xs**2 + xs**3)
    must_fail(check_values, Polynomial(**MIXTURE), xs, every_term)
    check_values(Polynomial(**{**MIXTURE, "degrees": (3,)}), xs, every_term)


def test_centres_alone_are_computed_where_they_have_the_mean():
    """A task of pairs has the values of its centres, so that a shift of every function is exact."""
    one_degree = {**MIXTURE, "degrees": (2,)}
    xs = inputs(TASKS["one degree"])
    check_values(Plus5(**one_degree), xs, TASKS["one degree"].expected(xs) + 5)
    must_fail(check_values, Square(**one_degree), xs, TASKS["one degree"].expected(xs).square())


@pytest.mark.parametrize("name", TASKS)
def test_shapes_and_dtypes_are_those_of_the_inputs(name):
    task = TASKS[name]
    found = task.expected(inputs(task, 6).view(2, 3, -1).float())
    assert (found.shape, found.dtype) == ((2, 3, task.n_targets), torch.float32)


class Watching(Square):
    """Remembers how many values it was asked for at once."""

    asked: ClassVar[list] = []

    def value(self, parameters, xs):
        self.asked.append(xs.shape[0] * xs.shape[1])
        return super().value(parameters, xs)


def most_held(task, xs):
    task.asked.clear()
    task.expected(xs)
    return max(task.asked)


def test_memory_stays_flat_however_many_points(monkeypatch):
    task = Watching(**MIXTURE)
    xs = inputs(task, 10)
    whole = task.expected(xs)
    monkeypatch.setattr(base, "HELD", 2**22)
    assert most_held(task, xs) == 10 * base.MANY
    for held in (2**13, 2**9):
        monkeypatch.setattr(base, "HELD", held)
        assert most_held(task, xs) <= max(held, base.TRIED * 64)  # the trial of pairs
        torch.testing.assert_close(task.expected(xs), whole, rtol=1e-12, atol=1e-12)


CENTRED = {"centred", "on a sphere", "centred network", "own"}


def test_which_laws_are_centred():
    assert {name for name, task in TASKS.items() if task.centred} == CENTRED


class Same(Task):
    """f(x) = x + 3 without any parameter."""

    @property
    def n_determining(self):
        return 1

    def sample_parameters(self, n_functions, generator, dtype):
        return torch.zeros(n_functions, 0, dtype=dtype)

    def value(self, parameters, xs):
        return xs + 3


FIXED = {
    "no parameter": Same(inputs=UNIT, **SMALL),
    "function": Continuous(function="exp", inputs=UNIT, **SMALL),
    "weights": LinearRegression(n_dims=2, weights=(1.0, 2.0), noise_std=0.5, **SMALL),
}


def test_which_laws_hold_one_function():
    assert all(task.single_function for task in FIXED.values())
    assert not any(task.single_function for task in TASKS.values())
    for task in FIXED.values():
        xs = inputs(task)
        check_values(
            task, xs, task.targets(task.sample_parameters(1, generator(0, "t"), torch.float64), xs)
        )


# ---- predictors ----------------------------------------------------------------------------------


def test_the_law_mean_predicts_it():
    task = TASKS["mixture"]
    prompts = task.sample(4, generator(0, "t"))
    torch.testing.assert_close(LawMean(task).predict(prompts), task.expected(prompts.xs.double()))
    assert LawMean(task).predict(prompts).dtype == torch.float64


def check_mean_value(task, expected):
    found = MeanValue(task).predict(task.sample(3, generator(0, "t")))
    assert found.shape == (3, 6, 1)
    assert (found - expected).abs().max() <= 4 * math.sinh(1) / math.sqrt(base.MANY)


def test_the_mean_value_is_one_number():
    """E e^x = sinh 1 for x of U(-1, 1), and e^x spreads less than that."""
    check_mean_value(FIXED["function"], math.sinh(1))
    must_fail(check_mean_value, FIXED["function"], 1.0)


def test_what_r2_is_relative_to():
    for name, task in TASKS.items():
        assert isinstance(without_examples(task), Zero if name in CENTRED else LawMean)
    assert isinstance(without_examples(FIXED["function"]), MeanValue)
    assert isinstance(without_examples(FIXED["weights"]), Zero)  # <w, x> has mean 0 over x
    assert uninformed(["model", "zero"]) == "zero"
    assert uninformed(["model", "zero", "law mean"]) == "law mean"
    assert uninformed(["zero", "mean value", "model"]) == "mean value"
