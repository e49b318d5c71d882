"""Laws of whole vectors: their surfaces and covariances, their way through configs, and hostile settings."""

import json
import math
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
import tiny_runs
import torch
from helpers import must_fail
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icl_interp.checkpoints.config import check_round_trip, parse, parse_task
from icl_interp.errors import InputError
from icl_interp.provenance import encode, generator
from icl_interp.tasks import Ellipsoid, LinearRegression, Normal, Polynomial, Sphere, Task, Uniform
from icl_interp.tasks.covariance import MAX_ROWS
from icl_interp.tasks.vectors import VectorLaw, inner

N = 20_000  # draws of every Monte Carlo check
ROWS = ((2.0, 0.5, 0.0), (0.5, 1.0, -0.3), (0.0, -0.3, 0.5))
BALL, DIAGONAL, FULL = Sphere(3, radius=2.0), Ellipsoid((4.0, 1.0, 0.25)), Ellipsoid(ROWS)
SIGMAS = {BALL: 4 * np.eye(3), DIAGONAL: np.diag([4.0, 1.0, 0.25]), FULL: np.array(ROWS)}
LAWS = pytest.mark.parametrize("law", SIGMAS, ids=str)


def draws(law, n=N):
    return law.sample((n, law.dim), generator(0, "test/vectors"), torch.float64).numpy()


def within(estimates, expected):
    """The mean over the first axis is within four standard errors, everywhere."""
    error = estimates.std(0, ddof=1) / math.sqrt(len(estimates))
    assert (np.abs(estimates.mean(0) - expected) <= 4 * error + 1e-12).all()


# ---- mutants -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Box(Sphere):
    """Uniform in a box."""

    def sample(self, shape, generator, dtype):
        return self.radius * (2 * torch.rand(shape, generator=generator, dtype=dtype) - 1)


@dataclass(frozen=True)
class BoxOnSphere(Box):
    """Directions of points in a box: on the sphere, with its covariance, but more often along the diagonals."""

    def sample(self, shape, generator, dtype):
        return self.radius * torch.nn.functional.normalize(
            super().sample(shape, generator, dtype), dim=-1
        )


@dataclass(frozen=True)
class WithoutRoot(Ellipsoid):
    """Sigma u in place of Sigma^(1/2) u."""

    def sample(self, shape, generator, dtype):
        directions = Sphere(self.dim).sample(shape, generator, dtype)
        matrix = self._matrix.to(dtype)
        return directions @ (matrix if matrix.ndim == 2 else torch.diag(matrix))


# ---- draws ---------------------------------------------------------------------------------------


def check_surface(x, sigma):
    """x^T Sigma^-1 x = 1."""
    np.testing.assert_allclose((x * np.linalg.solve(sigma, x.T).T).sum(-1), 1, rtol=1e-12)


def check_covariance(x, sigma):
    """Mean 0 and covariance Sigma / d."""
    within(x, 0)
    within(x[:, :, None] * x[:, None], sigma / x.shape[1])


def check_uniform(x, sigma):
    """E[u_i^2 u_j^2] = 1 / d (d + 2), three times that where i = j, of u = Sigma^(-1/2) x."""
    variances, basis = np.linalg.eigh(sigma)
    squares, d = (x @ (basis / np.sqrt(variances)) @ basis.T) ** 2, x.shape[1]
    within(squares[:, :, None] * squares[:, None], (1 + 2 * np.eye(d)) / (d * (d + 2)))


@LAWS
def test_draws_are_uniform_on_their_surface(law):
    x, sigma = draws(law), SIGMAS[law]
    for check in (check_surface, check_covariance, check_uniform):
        check(x, sigma)
        must_fail(check, 1.05 * x, sigma)


def test_another_law_is_noticed():
    sigma = 4 * np.eye(2)  # in three dimensions a box has the sphere's covariance
    for check in (check_surface, check_covariance, check_uniform):
        check(draws(Sphere(2, 2.0)), sigma)
        must_fail(check, draws(Box(2, 2.0)), sigma)
    directions = draws(BoxOnSphere(2, 2.0))
    check_surface(directions, sigma)
    check_covariance(directions, sigma)
    must_fail(check_uniform, directions, sigma)
    for law in (DIAGONAL, FULL):
        for check in (check_surface, check_covariance, check_uniform):
            must_fail(check, draws(WithoutRoot(law.sigma)), SIGMAS[law])


def test_in_one_dimension_there_are_two_points():
    for law in (Sphere(1, 2.0), Ellipsoid((4.0,)), Ellipsoid(((4.0,),))):
        x = draws(law, 50)
        np.testing.assert_allclose(np.abs(x), 2.0, rtol=1e-12)
        assert set(np.sign(x[:, 0])) == {-1.0, 1.0}


def test_a_sphere_is_an_ellipsoid():
    np.testing.assert_allclose(draws(Ellipsoid((4.0, 4.0, 4.0))), draws(BALL), rtol=1e-14)
    np.testing.assert_allclose(
        draws(Ellipsoid(tuple(map(tuple, SIGMAS[DIAGONAL])))), draws(DIAGONAL), rtol=1e-12
    )


@LAWS
def test_shapes_and_dtypes_are_those_asked_for(law):
    for dtype in (torch.float32, torch.float64):
        x = law.sample((2, 5, 3), generator(0, "test"), dtype)
        assert (x.shape, x.dtype) == ((2, 5, 3), dtype)
    for shape in ((5,), (3, 5), ()):
        with pytest.raises(
            InputError, match="a law of vectors of 3 coordinates gives shapes that end with 3, but"
        ):
            law.sample(shape, generator(0, "test"), torch.float64)


# ---- what is said of a law -----------------------------------------------------------------------


@LAWS
def test_it_is_a_law_of_vectors(law):
    assert isinstance(law, VectorLaw)
    assert law.dim == 3
    assert not isinstance(Uniform(-1, 1), VectorLaw)


def check_scaled(law, scaled, factor):
    np.testing.assert_allclose(draws(scaled, 100), factor * draws(law, 100), rtol=1e-12)


@LAWS
def test_a_scaled_law_is_the_law_of_scaled_draws(law):
    check_scaled(law, law.scaled(2.5), 2.5)
    must_fail(check_scaled, law, law.scaled(2.4), 2.5)
    with pytest.raises(InputError, match="positive"):
        law.scaled(0.0)


def check_std(x, std):
    """The mean variance of a coordinate, whose mean is 0."""
    within((x**2).mean(-1), std**2)


@LAWS
def test_moments_of_a_coordinate(law):
    assert law.mean == 0
    check_std(draws(law), law.std)
    must_fail(check_std, draws(law), 1.02 * law.std)


def check_interval(x, low, high):
    """All coordinates lie within, and nearly reach the ends.

    Of 20,000 draws some are within 1 % of each.
    """
    assert low <= x.min() < 0.99 * low
    assert 0.99 * high < x.max() <= high


@LAWS
def test_the_interval_holds_every_coordinate(law):
    low, high = law.interval
    check_interval(draws(law), low, high)
    must_fail(check_interval, draws(law), 0.95 * low, 0.95 * high)
    must_fail(check_interval, draws(law), 1.05 * low, 1.05 * high)


def check_on_first_axis(t, sigma):
    assert t > 0
    check_surface(np.array([[t, 0, 0]]), sigma)


@LAWS
def test_a_point_of_the_first_axis_lies_on_the_surface(law):
    check_on_first_axis(law.on_first_axis, SIGMAS[law])
    assert inner(law) == (-law.on_first_axis, law.on_first_axis)
    must_fail(check_on_first_axis, 1.01 * law.on_first_axis, SIGMAS[law])
    if law == FULL:  # the end of the coordinate's interval is no point of the axis
        must_fail(check_on_first_axis, math.sqrt(ROWS[0][0]), SIGMAS[law])


def test_inner_points_of_a_law_of_numbers_lie_a_quarter_from_its_ends():
    assert inner(Uniform(-1, 3)) == (0, 2)
    assert inner(Normal(2, mean=1)) == (-1, 3)


def test_a_matrix_that_is_nearly_singular_gives_numbers():
    """Where Cholesky's factorisation goes through, the smallest eigenvalue may still come out below 0."""
    n = 3
    nearly = Ellipsoid(tuple(tuple(1 + 2.0**-52 * (i == j) for j in range(n)) for i in range(n)))
    x = draws(nearly, 100)
    assert np.isfinite(x).all()
    np.testing.assert_allclose(x, x[:, :1].repeat(n, 1), atol=1e-7)  # almost a line
    assert 0 < nearly.on_first_axis < 1e-7
    # The first entry of the inverse of Hilbert's matrix is n^2.
    hilbert = Ellipsoid(tuple(tuple(1 / (i + j + 1) for j in range(8)) for i in range(8)))
    assert hilbert.on_first_axis == pytest.approx(1 / 8, rel=1e-6)


# ---- in tasks and configs ------------------------------------------------------------------------


def data(task):
    return {**tiny_runs.data(model={"d_in": 3}), "task": task}


def check_comes_back(task, expected):
    run = parse(json.loads(json.dumps(data(encode(task)))))
    assert run.task == expected
    check_round_trip(run)
    assert parse(json.loads(json.dumps(encode(run)))) == run
    found, wanted = (one.sample(4, generator(0, "test")) for one in (run.task, expected))
    assert torch.equal(found.xs, wanted.xs)


@LAWS
def test_a_config_gives_it_back(law):
    task = LinearRegression(n_dims=3, inputs=law, n_points=5)
    check_comes_back(task, task)
    must_fail(check_comes_back, replace(task, inputs=law.scaled(2.0)), task)


@pytest.mark.usefixtures("as_users_run_it")
def test_lists_become_tuples():
    listed = Ellipsoid([list(row) for row in ROWS])
    assert (listed, hash(listed)) == (FULL, hash(FULL))
    assert Ellipsoid([1.0, 2.0]).sigma == (1.0, 2.0)


@LAWS
def test_inputs_of_a_task_lie_on_the_surface(law):
    task = LinearRegression(n_dims=3, inputs=law, n_points=5)
    check_surface(
        task.sample(50, generator(0, "test"), dtype=torch.float64).xs.flatten(0, 1).numpy(),
        SIGMAS[law],
    )
    shifted = task.scaled(inputs=2.0).sample(50, generator(0, "test"), dtype=torch.float64)
    must_fail(check_surface, shifted.xs.flatten(0, 1).numpy(), SIGMAS[law])


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("make", "match"),
    [
        (
            lambda: LinearRegression(n_dims=3, inputs=Sphere(2), n_points=5),
            (
                r"inputs of a LinearRegression have 3 coordinates here, but Sphere\(dim=2, .*\) is "
                r"a law of vectors of 2"
            ),
        ),
        (
            lambda: parse_task(
                {
                    "kind": "LinearRegression",
                    "n_dims": 3,
                    "inputs": {"kind": "Ellipsoid", "sigma": [1]},
                    "n_points": 5,
                },
                "task",
            ),
            (
                r"have 3 coordinates here, but Ellipsoid.* of 1: use one of 3, for example "
                r"Sphere\(3\)$"
            ),
        ),
        (
            lambda: Polynomial(degrees=(1,), inputs=Sphere(2), coefficients=Normal(1), n_points=4),
            "inputs of a Polynomial have 1 coordinate here",
        ),
        (
            lambda: LinearRegression(n_dims=3, weights=Sphere(2), n_points=5),
            "weights of a LinearRegression have 3 coordinates here",
        ),
        (
            lambda: LinearRegression(n_dims=3, inputs=Sphere(3), n_points=5).covariance_matrix,
            r"inputs of a centred normal law, but this task has Sphere\(dim=3",
        ),
        (lambda: Sphere(0), "dim must be a whole number from 1 up, but got 0"),
        (lambda: Sphere(2.0), "dim must be a whole number from 1 up, but got 2.0"),
        (lambda: Sphere(2, 0.0), "radius must be a positive number, but got 0.0"),
        (lambda: Sphere(2, True), "radius must be a positive number, but got True"),
        (lambda: Sphere(2, math.inf), "radius must be a positive number, but got inf"),
        (
            lambda: Sphere(2, 10**400),
            "radius must be a positive number, but got <a whole number of about 400 digits>",
        ),
        (lambda: Ellipsoid(()), r"sigma must be positive numbers, or rows .* but got \(\)"),
        (lambda: Ellipsoid("ab"), "sigma must be positive numbers, or rows .* but got 'ab'"),
        (lambda: Ellipsoid(2.0), "but got 2.0"),
        (lambda: Ellipsoid(np.eye(3)), r"but got array\(\[\[1., 0., 0.\], \[0."),
        (
            lambda: Ellipsoid((1.0, -1.0)),
            (
                r"sigma must be 2 positive numbers or 2 rows .* but got \(1.0, -1.0\): not all of "
                r"them are positive"
            ),
        ),
        (lambda: Ellipsoid((1.0, math.nan)), "2 positive numbers or 2 rows"),
        (lambda: Ellipsoid((1.0, "2")), "2 positive numbers or 2 rows"),
        (lambda: Ellipsoid((1, 10**400)), "but got .*<a whole number of about 400 digits>"),
        (lambda: Ellipsoid((1.0, (2.0,))), "2 positive numbers or 2 rows"),
        (
            lambda: Ellipsoid(((1.0,), (2.0,))),
            "2 rows .*: it needs 2 rows of 2 finite numbers each",
        ),
        (
            lambda: Ellipsoid(((1.0, 0.5), (0.4, 1.0))),
            "symmetric positive definite .*: it is not symmetric",
        ),
        (
            lambda: Ellipsoid(((1.0, 2.0), (2.0, 1.0))),
            "not positive definite, its smallest eigenvalue is -1",
        ),
        (lambda: Ellipsoid((1.0, 2.0)).scaled(-1.0), "scaled by a positive number, but got -1.0"),
        (
            lambda: Ellipsoid(((0.0,),)),
            "1 positive number or 1 row of .*: it is not positive definite",
        ),
        (
            lambda: Ellipsoid(((0.0,) * (MAX_ROWS + 1),) * (MAX_ROWS + 1)),
            "sigma has 513 rows, but at most 512",
        ),
        (lambda: Ellipsoid((1.0, 2.0)).scaled(1e200), r"but got \(inf, inf\)"),
    ],
)
def test_what_makes_no_sense_is_refused(make, match):
    with pytest.raises(InputError, match=match) as refused:
        make()
    assert "\n" not in str(refused.value)


# ---- hostile settings ----------------------------------------------------------------------------

WILD = st.one_of(
    st.floats(),
    st.integers(-3, 3),
    st.builds(lambda: 10**5000),  # Python refuses to write it out
    st.sampled_from(
        [10**30, 10**400, -(10**400), 5e-324, sys.float_info.max, True, None, "", "1\n2", {}]
    ),
)
NESTED = st.recursive(WILD, lambda inside: st.lists(inside, max_size=4), max_leaves=12)
MATRIX = st.integers(1, 3).flatmap(
    lambda n: st.lists(st.lists(WILD, min_size=n, max_size=n), min_size=n, max_size=n)
)
DIAGONALS = st.lists(st.one_of(WILD, st.floats(0, exclude_min=True)), min_size=1, max_size=4)


def sum_of_squares(size, entries):
    """B B^T: positive definite, or nearly so, or what is left of it in rounding."""
    root = np.array(entries[: size * size]).reshape(size, size)
    return (root @ root.T).tolist()


GRAMS = st.builds(
    sum_of_squares, st.integers(1, 3), st.lists(st.floats(-1e3, 1e3), min_size=9, max_size=9)
)


def use(made):
    """Ask a law, or that of a task, for all it offers."""
    law = made.inputs if isinstance(made, Task) else made
    assert law.std >= 0
    assert law.on_first_axis >= 0
    assert law.interval[0] <= 0 <= law.interval[1]
    for dtype in (torch.float32, torch.float64):
        assert law.sample((2, law.dim), generator(0, "test"), dtype).shape == (2, law.dim)
    law.scaled(3.0)


def refusal(make):
    """What is said against it, or nothing. Any other error passes for more than a line."""
    try:
        use(make())
    except InputError as refused:
        return str(refused)
    except Exception as error:
        return f"{type(error).__name__} in place of a line:\n{error}"
    return ""


def check_survives(make):
    """A law that gives numbers, or one clear line.

    `make` gives a law of up to four coordinates, or a task with one.
    """
    line = refusal(make)
    assert "\n" not in line
    assert len(line) < 700


def in_a_config(sigma):
    n = len(sigma) if isinstance(sigma, list) and sigma else 1
    law = {"kind": "Ellipsoid", "sigma": sigma}
    return parse_task(
        {"kind": "LinearRegression", "n_dims": n, "inputs": law, "n_points": 5}, "task"
    )


@pytest.mark.usefixtures("as_users_run_it")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sigma=st.one_of(NESTED, MATRIX, DIAGONALS, GRAMS))
def test_whatever_sigma_is_there_is_a_law_or_one_clear_line(sigma):
    check_survives(lambda: Ellipsoid(sigma))
    check_survives(lambda: in_a_config(sigma))


@pytest.mark.usefixtures("as_users_run_it")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(dim=st.one_of(NESTED, st.integers(-1, 4)), radius=st.one_of(NESTED, st.floats(0)))
def test_whatever_a_radius_is_there_is_a_law_or_one_clear_line(dim, radius):
    check_survives(lambda: Sphere(dim, radius))


def test_another_error_or_more_lines_are_noticed():
    def refuse(message):
        raise InputError(message)

    for make in (lambda: math.isfinite(10**400), lambda: refuse("long " * 200)):
        must_fail(check_survives, make)
