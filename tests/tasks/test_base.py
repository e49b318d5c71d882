"""Tasks: the laws they draw from, the functions they compute, and how prompts are cut."""

import math

import numpy as np
import pytest
import torch
from helpers import must_fail
from hypothesis import given
from hypothesis import strategies as st

from icl_interp.errors import InputError
from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.tasks import Continuous, Normal, Polynomial, Uniform

N = 20_000  # draws of every Monte Carlo check
AFFINE = Polynomial(degrees=(1,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=6)
MIXTURE = Polynomial(degrees=(1, 3, 5), inputs=Uniform(-2, 3), coefficients=Normal(0.5), n_points=9)


def draws(law, n=N):
    return law.sample((n,), generator(0, "test/law"), torch.float64).numpy()


def moments(law):
    """Mean, variance and fourth central moment in closed form."""
    if isinstance(law, Uniform):
        width = law.high - law.low
        return (law.low + law.high) / 2, width**2 / 12, width**4 / 80
    return law.mean, law.std**2, 3 * law.std**4


def cdf(law, x):
    if isinstance(law, Uniform):
        return np.clip((x - law.low) / (law.high - law.low), 0, 1)
    return np.array([0.5 * (1 + math.erf((v - law.mean) / (law.std * math.sqrt(2)))) for v in x])


def check_moments(x, law):
    mean, variance, fourth = moments(law)
    assert abs(x.mean() - mean) < 4 * math.sqrt(variance / len(x))
    assert abs(((x - mean) ** 2).mean() - variance) < 4 * math.sqrt((fourth - variance**2) / len(x))


def check_law(x, law):
    """Kolmogorov-Smirnov: the largest gap between distribution functions is under 2 / sqrt(n).

    A larger one has p < 0.001.
    """
    x = np.sort(x)
    assert np.abs(cdf(law, x) - (np.arange(len(x)) + 0.5) / len(x)).max() < 2 / math.sqrt(len(x))


LAWS = [
    Uniform(-1, 1),
    Uniform(0.5, 4),
    Uniform(-3, -2.5),
    Normal(1),
    Normal(0.2, mean=-3),
    Uniform(-1, 1).scaled(7),
]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_draws_follow_their_law(law):
    check_moments(draws(law), law)
    check_law(draws(law), law)


@pytest.mark.parametrize(
    ("drawn", "claimed"),
    [
        (Uniform(0, 2), Uniform(-1, 1)),
        (Uniform(-1.1, 1.1), Uniform(-1, 1)),
        (Normal(2), Normal(math.sqrt(2))),
    ],
    ids=str,
)
def test_another_law_is_noticed(drawn, claimed):
    must_fail(check_moments, draws(drawn), claimed)
    must_fail(check_law, draws(drawn), claimed)


def test_another_shape_with_the_same_moments_is_noticed():
    check_moments(draws(Normal(1 / math.sqrt(3)))[:2000], Uniform(-1, 1))
    must_fail(check_law, draws(Normal(1 / math.sqrt(3))), Uniform(-1, 1))


def check_scaled(law, scaled, factor):
    np.testing.assert_allclose(draws(scaled), factor * draws(law), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("law", [Uniform(-1, 3), Normal(2, mean=1)], ids=str)
def test_a_scaled_law_is_the_law_of_scaled_draws(law):
    check_scaled(law, law.scaled(2.5), 2.5)
    must_fail(check_scaled, law, law.scaled(2.4), 2.5)


@pytest.mark.parametrize("law", [Uniform(-1, 3), Normal(2, mean=1)], ids=str)
def test_the_band_in_distribution_holds_what_it_says(law):
    low, high = law.interval
    share = 1.0 if isinstance(law, Uniform) else math.erf(math.sqrt(2))
    inside = np.mean((draws(law) >= low) & (draws(law) <= high))
    assert abs(inside - share) <= 4 * math.sqrt(share * (1 - share) / N)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Uniform(1, -1), r"lower first, but got \(1, -1\)"),
        (lambda: Uniform(1, 1), "two finite numbers"),
        (lambda: Uniform(0, math.inf), "two finite numbers"),
        (lambda: Uniform(math.nan, 1), "two finite numbers"),
        (lambda: Uniform(-1, 1).scaled(-1), "lower first"),
        (lambda: Normal(0), "positive, finite std, but got std=0"),
        (lambda: Normal(-1), "positive, finite std"),
        (lambda: Normal(math.nan), "positive, finite std"),
        (lambda: Normal(1, mean=math.inf), "mean=inf"),
        (
            lambda: Polynomial(
                degrees=(), inputs=Uniform(-1, 1), coefficients=Normal(1), n_points=4
            ),
            "at least one",
        ),
        (
            lambda: MIXTURE.with_degrees((-1,)),
            r"whole numbers from 0 up, at least one, but got \(-1,\)",
        ),
        (lambda: MIXTURE.with_degrees((1.5,)), "whole numbers from 0 up"),
        (lambda: MIXTURE.with_degrees("13"), "a list of whole numbers"),
        (
            lambda: MIXTURE.with_degrees(1),
            r"a list of whole numbers, for example \(1,\), but got 1",
        ),
        (lambda: MIXTURE.with_points(1), "at least 2, but got 1"),
        (
            lambda: Polynomial(degrees=(1,), inputs=1, coefficients=Normal(1), n_points=4),
            "inputs must be a law.*got 1",
        ),
        (
            lambda: Polynomial(degrees=(1,), inputs=Normal(1), coefficients={"low": 0}, n_points=4),
            "coefficients must be a law",
        ),
        (
            lambda: Continuous(function="sine", inputs=Normal(1), n_points=4),
            "unknown function 'sine': did you mean 'sin'",
        ),
        (
            lambda: Continuous(function="sin", inputs=Normal(1), amplitude=2, n_points=4),
            "amplitude must be a law",
        ),
        (
            lambda: Continuous(function="log1p", inputs=Uniform(-1, 1), n_points=4),
            "log1p needs inputs above -1",
        ),
        (
            lambda: Continuous(function="log1p", inputs=Normal(0.01), n_points=4),
            "log1p needs inputs above -1",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make, match):
    with pytest.raises(InputError, match=match) as refused:
        make()
    assert "\n" not in str(refused.value)


def check_values(task, parameters, xs, degree_up):
    """Against numpy's polynomials, relative to the size of the terms (they may cancel)."""
    found = task.value(torch.from_numpy(parameters), torch.from_numpy(xs)[..., None]).numpy()
    for row, x, y in zip(parameters, xs, found, strict=True):
        coefficients = row if degree_up else row[::-1]
        scale = np.polynomial.polynomial.polyval(np.abs(x), np.abs(coefficients))
        error = np.abs(y - np.polynomial.polynomial.polyval(x, coefficients))
        assert (error <= 1e-13 * scale + 1e-300).all()


@pytest.mark.slow
@given(
    degree=st.integers(0, 6), reach=st.sampled_from([1.0, 30.0, 1e6]), seed=st.integers(0, 10**6)
)
def test_values_are_those_of_numpy(degree, reach, seed):
    rng = np.random.default_rng(seed)
    check_values(
        MIXTURE.with_degrees((degree,)),
        rng.normal(size=(3, degree + 1)),
        reach * rng.uniform(-1, 1, (3, 5)),
        True,
    )


def test_coefficients_in_the_wrong_order_are_noticed():
    rng = np.random.default_rng(0)
    must_fail(check_values, MIXTURE, rng.normal(size=(3, 6)), rng.uniform(-1, 1, (3, 5)), False)


def test_every_function_is_linear_in_the_features():
    for task in (
        AFFINE,
        MIXTURE,
        Continuous(function="exp", inputs=Normal(1), amplitude=Normal(1), n_points=5),
    ):
        prompts = task.sample(50, generator(0, "test"), dtype=torch.float64)
        linear = (task.features(prompts.xs) * prompts.parameters[:, None]).sum(-1)
        torch.testing.assert_close(linear, as_numbers(prompts.ys), rtol=1e-12, atol=1e-12)
        assert task.features(prompts.xs).shape[-1] == prompts.parameters.shape[1]


def degrees_of(parameters):
    """The highest power with a coefficient (a coefficient drawn from a density is never 0)."""
    return [max(np.flatnonzero(row)) for row in parameters.numpy()]


def check_mixture(task, degrees, n=6000):
    parameters = task.sample_parameters(n, generator(0, "test/mixture"), torch.float64)
    counts = np.bincount(degrees_of(parameters), minlength=7) / n
    expected = np.array([degrees.count(d) / len(degrees) for d in range(7)])
    assert (np.abs(counts - expected) <= 4 * np.sqrt(expected * (1 - expected) / n)).all()
    kept = parameters.numpy()[
        np.arange(6)[None, : parameters.shape[1]] <= np.array(degrees_of(parameters))[:, None]
    ]
    check_moments(kept, task.coefficients)


def test_degrees_come_equally_often_and_nothing_lies_above_them():
    check_mixture(MIXTURE, (1, 3, 5))
    check_mixture(MIXTURE.with_degrees((0, 2)), (0, 2))
    check_mixture(AFFINE, (1,))


@pytest.mark.parametrize("degrees", [(1, 3), (1, 3, 5, 5), (1, 2, 3, 4, 5)])
def test_another_mixture_is_noticed(degrees):
    must_fail(check_mixture, MIXTURE.with_degrees(degrees), (1, 3, 5))


def check_functions_with_contexts(prompts, n_functions, n_contexts, task):
    assert len(prompts) == n_functions * n_contexts
    assert prompts.function.tolist() == [f for f in range(n_functions) for _ in range(n_contexts)]
    by_function = prompts.parameters.view(n_functions, n_contexts, -1)
    assert (by_function == by_function[:, :1]).all()
    assert len(by_function[:, 0].unique(dim=0)) == n_functions
    assert len(prompts.xs.flatten(1).unique(dim=0)) == n_functions * n_contexts
    assert torch.equal(as_numbers(prompts.ys), task.value(prompts.parameters, prompts.xs))


def test_contexts_of_a_function_share_the_function_only():
    prompts = MIXTURE.sample(5, generator(0, "test"), n_contexts=3)
    check_functions_with_contexts(prompts, 5, 3, MIXTURE)
    shuffled = prompts[torch.arange(15).view(3, 5).T.flatten()]
    must_fail(check_functions_with_contexts, shuffled, 5, 3, MIXTURE)
    must_fail(
        check_functions_with_contexts, MIXTURE.sample(15, generator(0, "test")), 5, 3, MIXTURE
    )


def same(a, b):
    return all(
        torch.equal(getattr(a, name), getattr(b, name))
        for name in ("xs", "ys", "parameters", "function")
    )


def test_prompts_are_a_function_of_the_stream():
    def draw(*stream):
        return MIXTURE.sample(4, generator(*stream))

    assert same(draw(0, "a", 1), draw(0, "a", 1))
    for other in [(1, "a", 1), (0, "b", 1), (0, "a", 2)]:
        assert not same(draw(0, "a", 1), draw(*other))


def test_lengths_and_dtypes_are_those_asked_for():
    assert MIXTURE.sample(2, generator(0, "t")).xs.shape == (2, 9, 1)
    assert MIXTURE.sample(2, generator(0, "t"), n_points=4).ys.shape == (2, 4, 1)
    assert MIXTURE.with_points(12).sample(2, generator(0, "t")).ys.shape == (2, 12, 1)
    assert MIXTURE.sample(2, generator(0, "t")).ys.dtype == torch.float32
    assert MIXTURE.sample(2, generator(0, "t"), dtype=torch.float64).ys.dtype == torch.float64


def test_variants_change_what_they_name_only():
    assert AFFINE.scaled(3).coefficients == Uniform(-3, 3)
    assert AFFINE.scaled(3).inputs == AFFINE.inputs
    assert MIXTURE.with_degrees((2,)).degrees == (2,)
    assert (AFFINE.n_determining, MIXTURE.n_determining, MIXTURE.max_degree) == (2, 6, 5)


FUNCTIONS = {"exp": np.exp, "sin": np.sin, "log1p": np.log1p, "abs": np.abs}


def check_continuous(name, reference, amplitude=None):
    task = Continuous(function=name, inputs=Uniform(-0.9, 2), amplitude=amplitude, n_points=40)
    prompts = task.sample(5, generator(0, "test"), dtype=torch.float64)
    factor = prompts.parameters.numpy()[:, :1]
    found, expected = as_numbers(prompts.ys).numpy(), factor * reference(prompts.xs[..., 0].numpy())
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    return factor


@pytest.mark.parametrize("name", FUNCTIONS)
def test_continuous_functions_are_those_of_numpy(name):
    assert (check_continuous(name, FUNCTIONS[name]) == 1).all()
    assert len(np.unique(check_continuous(name, FUNCTIONS[name], Uniform(1, 2)))) == 5
    for other in set(FUNCTIONS) - {name}:
        must_fail(check_continuous, name, FUNCTIONS[other])


def test_the_amplitude_follows_its_law():
    task = Continuous(function="sin", inputs=Normal(1), amplitude=Normal(3), n_points=2)
    amplitudes = task.sample_parameters(N, generator(0, "test"), torch.float64).numpy()
    check_moments(amplitudes[:, 0], Normal(3))
    must_fail(check_moments, amplitudes[:, 0], Normal(1))


def test_log1p_is_undefined_below_its_pole():
    task = Continuous(function="log1p", inputs=Uniform(0, 1), n_points=3)
    ys = task.value(torch.ones(1, 1), torch.tensor([[[-2.0], [0.0], [1.0]]]))
    assert ys[0, 0].isnan()
    torch.testing.assert_close(ys[0, 1:], torch.tensor([0.0, math.log(2)]))


def test_prompts_are_cut_by_rows_and_by_points():
    prompts = MIXTURE.sample(4, generator(0, "test"), n_contexts=2)
    for rows in (slice(2, 5), torch.tensor([5, 0]), prompts.function == 1):
        part = prompts[rows]
        for name in ("xs", "ys", "parameters", "function"):
            assert torch.equal(getattr(part, name), getattr(prompts, name)[rows])
    short = prompts.first(3)
    assert (short.n_points, len(short), prompts.n_points) == (3, 8, 9)
    assert torch.equal(short.xs, prompts.xs[:, :3])
    assert torch.equal(short.ys, prompts.ys[:, :3])
    assert torch.equal(short.parameters, prompts.parameters)
    wide = prompts.double()
    assert (wide.xs.dtype, wide.ys.dtype, wide.parameters.dtype) == (torch.float64,) * 3
    assert torch.equal(wide.xs.float(), prompts.xs)
