"""Antithetic pairs: a partner is reflected about the law's centre, shares inputs, and follows the same law."""

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from helpers import must_fail
from own_tasks import RELU, Plus5, Squares
from vector_tasks import MAPS, PATHS, Rotations

from icl_interp.errors import InputError
from icl_interp.provenance import generator
from icl_interp.tasks import (
    Continuous,
    DecisionTree,
    Exponential,
    LinearRegression,
    Normal,
    Polynomial,
    ReLUNetwork,
    SparseLinearRegression,
    Sphere,
    Uniform,
)
from icl_interp.tasks import pairs as trial

N = 4000  # pairs of every check of a law
SMALL = {"n_points": 6}
UNIT = Uniform(-1, 1)
AROUND_2 = Normal(0.5, mean=2.0)
AFFINE = Polynomial(degrees=(1,), inputs=UNIT, coefficients=UNIT, **SMALL)
MIXED = Polynomial(degrees=(3, 1), inputs=UNIT, coefficients=AROUND_2, **SMALL)
NOISY = LinearRegression(n_dims=3, weights=AROUND_2, noise_std=0.7, **SMALL)
NETWORK = ReLUNetwork(n_dims=2, hidden=3, readout=AROUND_2, **SMALL)


def powers(p, xs):
    return torch.where(p != 0, 2.0, 0.0)[:, None] * xs ** torch.arange(p.shape[1])


def hidden(p, xs):
    return (xs @ p[:, :6].unflatten(-1, (3, 2)).mT).relu()


# Each task with the function in the middle of a pair, by hand: of the parameters of either partner,
# and of x.
MIDDLES = {
    "affine": (AFFINE, lambda p, xs: 0 * xs),
    "scaled mixture": (AFFINE.with_degrees((0, 1)).scaled(3), lambda p, xs: 0 * xs),
    "mixture, mean 2": (MIXED, lambda p, xs: powers(p, xs).sum(-1, keepdim=True)),
    "amplitude": (
        Continuous(function="exp", inputs=UNIT, amplitude=Uniform(1, 3), **SMALL),
        lambda p, xs: 2 * xs.exp(),
    ),
    "noisy": (NOISY, lambda p, xs: 2 * xs.sum(-1, keepdim=True)),
    "drawn covariance": (
        LinearRegression(
            n_dims=2, covariance=Exponential(1), single_orthant=True, query=Normal(3), **SMALL
        ),
        lambda p, xs: 0 * xs[..., :1],
    ),
    "weights on a sphere": (
        LinearRegression(n_dims=3, weights=Sphere(3), **SMALL),
        lambda p, xs: 0 * xs[..., :1],
    ),
    "sparse": (
        SparseLinearRegression(n_dims=5, sparsity=2, weights=AROUND_2, **SMALL),
        lambda p, xs: 2 * (xs * (p != 0)[:, None]).sum(-1, keepdim=True),
    ),
    "network": (NETWORK, lambda p, xs: 2 * math.sqrt(2 / 3) * hidden(p, xs).sum(-1, keepdim=True)),
    "tree": (
        DecisionTree(n_dims=3, depth=2, leaves=Uniform(0, 4), **SMALL),
        lambda p, xs: 2 + 0 * xs[..., :1],
    ),
}
every_task = pytest.mark.parametrize("name", MIDDLES)


def partners(prompts, n_contexts=1):
    """(A's prompts, B's prompts) of every pair."""
    rows = torch.arange(len(prompts)).view(-1, 2, n_contexts)
    return prompts[rows[:, 0].flatten()], prompts[rows[:, 1].flatten()]


def pairs(task, n_pairs=50, n_contexts=1, **settings):
    return task.sample_pairs(
        n_pairs, generator(0, "test/pairs"), n_contexts=n_contexts, dtype=torch.float64, **settings
    )


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def check_reflected(a, b, middle):
    """Same inputs; values mean the middle function; what is no value, the noise, is negated."""
    assert torch.equal(a.xs, b.xs)
    close(a.ys + b.ys, 2 * middle(a.parameters, a.xs))


@every_task
def test_a_partner_is_reflected_about_the_centre(name):
    task, middle = MIDDLES[name]
    assert task.paired
    a, b = partners(pairs(task, n_contexts=3), 3)
    check_reflected(a, b, middle)
    check_reflected(b, a, middle)  # and the partner's partner is the function itself
    must_fail(check_reflected, a, b, lambda p, xs: middle(p, xs) + 0.01)
    must_fail(check_reflected, a, b[torch.arange(len(b)).roll(3)], middle)
    noise = getattr(task, "noise_std", 0)
    for one in (a, b):
        error = one.ys - task.targets(one.parameters, one.xs)
        assert (
            abs(error.square().mean() - noise**2)
            <= 4 * noise**2 * math.sqrt(2 / error.numel()) + 1e-20
        )


def check_negated(task, a, b):
    noise, other = (one.ys - task.targets(one.parameters, one.xs) for one in (a, b))
    assert noise.std() > 0.5
    close(other, -noise)


def test_noise_is_negated():
    a, b = partners(pairs(NOISY))
    check_negated(NOISY, a, b)
    kept = b.ys + 2 * (a.ys - NOISY.targets(a.parameters, a.xs))
    must_fail(check_negated, NOISY, a, type(b)(b.xs, kept, b.parameters, b.function))


def powers_of(values):
    return torch.cat([values.flatten(1) ** k for k in (1, 2, 3)], 1)


def check_law(task, prompts):
    """Moments of partners, of each parameter and of values, are those of single functions, within 4 errors."""
    fresh = task.sample(N, generator(1, "test/law"), dtype=torch.float64)
    for found, expected in ((prompts.parameters, fresh.parameters), (prompts.ys, fresh.ys)):
        one, other = powers_of(found), powers_of(expected)
        error = ((one.var(0) + other.var(0)) / N).sqrt()
        assert ((one.mean(0) - other.mean(0)).abs() <= 4 * error + 1e-12).all()


@every_task
def test_partners_follow_the_law(name):
    task, _ = MIDDLES[name]
    for one in partners(pairs(task, N)):
        check_law(task, one)


class AboutZero(Polynomial):
    def mean_parameters(self, parameters):
        return 0 * parameters


class Filled(Polynomial):
    def mean_parameters(self, parameters):
        return torch.full_like(parameters, self.coefficients.mean)


def check_partners_law(task):
    check_law(task, partners(pairs(task, N))[1])


@pytest.fixture
def taken_at_their_word(monkeypatch):
    """The mutant: what a class says of its laws is not tried."""
    monkeypatch.setattr(trial, "tried", lambda task: None)


def test_another_centre_is_noticed():
    like = {"inputs": UNIT, "coefficients": AROUND_2, **SMALL}
    check_partners_law(Polynomial(degrees=(1,), **like))
    check_partners_law(Filled(degrees=(1,), **like))
    for wrong in (AboutZero(degrees=(1,), **like), Filled(degrees=(1, 3), **like)):
        with pytest.raises(InputError, match="their law is not symmetric about mean_parameters"):
            pairs(wrong)


def test_another_centre_would_be_another_law(taken_at_their_word):
    like = {"inputs": UNIT, "coefficients": AROUND_2, **SMALL}
    must_fail(check_partners_law, AboutZero(degrees=(1,), **like))
    must_fail(check_partners_law, Filled(degrees=(1, 3), **like))


def check_padding(task):
    for one in partners(pairs(task)):
        degree = (one.parameters != 0).sum(-1) - 1
        assert {*degree.tolist()} == {*task.degrees}
    a, b = partners(pairs(task))
    assert torch.equal(a.parameters != 0, b.parameters != 0)


def test_what_lies_above_a_functions_degree_stays_zero(taken_at_their_word):
    check_padding(MIXED)
    filled = Filled(degrees=(1, 3), inputs=UNIT, coefficients=AROUND_2, **SMALL)
    must_fail(check_padding, filled)


@every_task
def test_what_is_linear_in_the_function_has_no_variance(name):
    """The pair's mean of values is the middle function's, where that of two functions spreads."""
    task, middle = MIDDLES[name]

    def spread(prompts):
        odd = (prompts.ys - middle(prompts.parameters, prompts.xs)).mean((1, 2))
        return odd.view(-1, 2).mean(1).std()

    apart = task.sample(100, generator(0, "test/apart"), dtype=torch.float64)
    assert spread(pairs(task)) < 1e-9 < 1e-2 < spread(apart)


def test_rows_are_pair_major():
    prompts = pairs(MIXED, 4, 3)
    assert prompts.function.tolist() == [f for f in range(8) for _ in range(3)]
    by_function = prompts.parameters.view(8, 3, -1)
    assert torch.equal(by_function, by_function[:, :1].expand(-1, 3, -1))
    assert len(by_function[:, 0].unique(dim=0)) == 8
    assert (
        len(prompts.xs.flatten(1).unique(dim=0)) == 12
    )  # contexts of a function differ; partners share theirs


def test_the_first_partners_are_the_functions_of_sample():
    a, _ = partners(pairs(NOISY, 5, 2), 2)
    drawn = NOISY.sample(5, generator(0, "test/pairs"), n_contexts=2, dtype=torch.float64)
    for name in ("xs", "ys", "parameters"):
        close(getattr(a, name), getattr(drawn, name))
    other = NOISY.sample(5, generator(1, "test/pairs"), n_contexts=2, dtype=torch.float64)
    must_fail(close, a.parameters, other.parameters)


def test_lengths_and_dtypes_are_those_asked_for():
    assert AFFINE.sample_pairs(2, generator(0, "t")).ys.dtype == torch.float32
    assert pairs(AFFINE, 2, n_points=4).ys.shape == (4, 4, 1)
    assert pairs(AFFINE, 2).ys.shape == (4, 6, 1)


# ---- who has pairs -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Skewed:
    """Minus the log of a uniform number, less 1: mean 0, but not symmetric."""

    mean: ClassVar[float] = 0.0
    std: ClassVar[float] = 1.0
    interval: ClassVar[tuple] = (-1.0, 3.0)

    def sample(self, shape, generator, dtype):
        return -torch.rand(shape, generator=generator, dtype=dtype).log() - 1

    def scaled(self, factor):
        """Every law has this; no test here scales one."""
        raise AssertionError("nothing is scaled here")


@dataclass(frozen=True)
class Signs(Skewed):
    """-1 or 1, and says that this is symmetric."""

    symmetric: ClassVar[bool] = True

    def sample(self, shape, generator, dtype):
        return torch.randint(0, 2, shape, generator=generator).to(dtype) * 2 - 1


class Squared(Uniform):
    """Draws in its own way, and says nothing about symmetry."""

    def sample(self, shape, generator, dtype):
        return super().sample(shape, generator, dtype).square()


class Exp(Polynomial):
    def value(self, parameters, xs):
        return super().value(parameters, xs).exp()


class Sorted(Polynomial):
    def sample_points(self, parameters, n_points, generator, dtype):
        xs, _ = super().sample_points(parameters, n_points, generator, dtype)
        xs = xs.sort(1).values
        return xs, self.targets(parameters, xs)


class SortedPairs(Sorted):
    def mean_parameters(self, parameters):
        return super().mean_parameters(parameters)


class Paths(Rotations):
    def mean_parameters(self, parameters):
        return 0 * parameters


LIKE = {"degrees": (1, 2), "inputs": UNIT, "coefficients": UNIT, **SMALL}
WITHOUT = {
    "own law": Polynomial(**{**LIKE, "coefficients": Skewed()}),
    "own sample": Polynomial(**{**LIKE, "coefficients": Squared(-1, 1)}),
    "own sparse": SparseLinearRegression(n_dims=5, sparsity=2, weights=Skewed(), **SMALL),
    "own leaves": DecisionTree(n_dims=3, depth=2, leaves=Skewed(), **SMALL),
    "own readout": ReLUNetwork(n_dims=2, hidden=3, readout=Skewed(), **SMALL),
    "own amplitude": Continuous(function="sin", inputs=UNIT, amplitude=Skewed(), **SMALL),
    "own weights": LinearRegression(n_dims=2, weights=Skewed(), **SMALL),
    "one w": LinearRegression(n_dims=2, weights=(1.0, 2.0), **SMALL),
    "one function": Continuous(function="sin", inputs=UNIT, **SMALL),
    "not affine": Exp(**LIKE),
    "own parameters": Squares(**LIKE),
    "own points": Sorted(**LIKE),
    "paths": Paths(angles=Normal(1), inputs=Sphere(2), n_points=10),
    "says nothing": MAPS,
    "says nothing either": RELU,
    "paths that say nothing": PATHS,
}


@pytest.mark.parametrize("name", WITHOUT)
def test_what_has_no_pairs(name):
    task = WITHOUT[name]
    assert not task.paired
    with pytest.raises(
        InputError, match=f"{type(task).__name__} come in no antithetic pairs.*use sample"
    ) as refused:
        pairs(task)
    assert "\n" not in str(refused.value)


def test_what_says_so_has_pairs():
    """A law that says it is symmetric, values that are shifted, and a centre that is given anew."""
    check_partners_law(Polynomial(**{**LIKE, "coefficients": Signs()}))
    check_reflected(*partners(pairs(Plus5(**LIKE))), lambda p, xs: 5 + 0 * xs)
    check_reflected(*partners(pairs(SortedPairs(**LIKE))), lambda p, xs: 0 * xs)
