"""Lipschitz constants against the largest difference quotient of the functions themselves."""

import math

import pytest
import torch
from helpers import must_fail

from icl_interp.errors import InputError
from icl_interp.provenance import generator
from icl_interp.studies.lipschitz.measurements.constants import lipschitz_constants
from icl_interp.tasks import (
    AutoregressiveProcess,
    Ellipsoid,
    LinearRegression,
    Normal,
    Polynomial,
    ReLUNetwork,
    RidgeFunction,
    SparseLinearRegression,
    Sphere,
    Uniform,
)
from icl_interp.theory import lipschitz as theory

LINKS = ("relu", "affine", "linear", "cosine", "phased_cosine", "quadratic")
INPUTS = {"sphere": Sphere(3), "ellipsoid": Ellipsoid((4.0, 1.0, 0.25))}
N_PLACES = 4001


def ridge(link, inputs="sphere", lipschitz=1.3, frequency=None):
    return RidgeFunction(
        link=link, inputs=INPUTS[inputs], lipschitz=lipschitz, frequency=frequency, n_points=4
    )


def drawn(task, n=5):
    return task.sample_parameters(n, generator(0, "test/constants"), torch.float64)


def quotients(task, parameters, lines):
    """The largest |f(x) - f(x')| / |x - x'| of neighbours on a line of each function."""
    shares = torch.linspace(-1, 1, N_PLACES, dtype=torch.float64)[None, :, None]
    xs = shares * lines[:, None, :]
    values = task.targets(parameters, xs)[..., 0]
    steps = torch.linalg.vector_norm(xs.diff(dim=1), dim=-1)
    return (values.diff(dim=1).abs() / steps).amax(1)


def check(task, found, parameters, lines):
    """No quotient is above the constant, and one of them reaches it."""
    reached = quotients(task, parameters, lines)
    assert (reached <= found * (1 + 1e-9) + 1e-12).all()
    assert (reached >= found * (1 - 1e-3)).all()


def along_gradient(task, parameters):
    """Ends of the domain |u| <= 1 in the direction in which the function changes.

    f is a function of <v, x> = <q, u>, so |z| is largest at u = q: x = Sigma^(1/2) q. For steps
    along v itself the domain is shorter, so that on an ellipsoid only links without a range count.
    """
    q = parameters[:, : task.dim]
    v = q @ task.whitening
    unit = v / torch.linalg.vector_norm(v, dim=-1, keepdim=True)
    return unit / torch.linalg.vector_norm(unit @ task.whitening, dim=-1, keepdim=True)


@pytest.mark.parametrize(
    ("link", "frequency"),
    [*((link, None) for link in LINKS), ("cosine", 0.7), ("phased_cosine", 0.7)],
)
def test_lip_is_the_largest_difference_quotient(link, frequency):
    task = ridge(link, frequency=frequency)
    parameters = drawn(task)
    found = lipschitz_constants(task, parameters)
    assert found.kind == "exact"
    check(task, found.value, parameters, along_gradient(task, parameters))
    for factor in (0.98, 1.02):
        must_fail(check, task, factor * found.value, parameters, along_gradient(task, parameters))


@pytest.mark.parametrize("link", ["relu", "affine", "linear"])
def test_lip_on_an_ellipsoid_counts_the_original_coordinates(link):
    task = ridge(link, "ellipsoid")
    parameters = drawn(task)
    lines = along_gradient(task, parameters)
    check(task, lipschitz_constants(task, parameters).value, parameters, lines)
    whitened = ridge(link)  # mutant: the constant in u, not in x
    must_fail(check, task, lipschitz_constants(whitened, parameters).value, parameters, lines)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("inputs", INPUTS)
def test_lip_along_a_direction(link, inputs):
    task = ridge(link, inputs)
    parameters = drawn(task)
    s = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    s = s / s.norm()
    found = lipschitz_constants(task, parameters, 3 * s)
    lines = (s / (task.whitening @ s).norm()).expand(len(parameters), -1)
    check(task, found.value, parameters, lines)
    assert (found.value <= lipschitz_constants(task, parameters).value * (1 + 1e-12)).all()
    must_fail(check, task, lipschitz_constants(task, parameters).value, parameters, lines)


def test_f_l_plus_has_the_slides_constant_and_functions_stay_below_l():
    task = ridge("relu", lipschitz=2.0)
    parameters = drawn(task, 2000)
    found = lipschitz_constants(task, parameters).value
    torch.testing.assert_close(found, parameters[:, 3:5].abs().amax(-1))
    # max of two uniform numbers on [0, L] has the mean 2 L / 3.
    assert abs(found.mean() - 4 / 3) < 4 * found.std() / len(found) ** 0.5
    assert found.max() <= 2


def test_direction_wise_lipschitzness_of_a_class_is_reached_by_one_of_its_functions():
    def check_class(basis, found):
        s = torch.tensor([0.2, -0.5, 1.0, 0.3], dtype=torch.float64)
        angles = torch.linspace(0, math.pi, 2001, dtype=torch.float64)
        a = torch.stack([angles.cos(), angles.sin()], -1)
        each = theory.direction_lipschitz(
            a @ basis.T, s, "linear", 1.0, torch.zeros(len(a), 0, dtype=torch.float64)
        )
        assert abs(each.max() - found(basis, s)) < 1e-5

    basis = torch.linalg.qr(torch.arange(8.0, dtype=torch.float64).sin().view(4, 2)).Q
    check_class(basis, theory.subspace_lipschitz)
    must_fail(check_class, basis, lambda b, s: theory.subspace_lipschitz(b[:, :1], s))


def test_over_all_of_space_a_cosine_has_l_and_a_square_none():
    none = torch.zeros(1, 0)
    assert theory.profile_slope("cosine", 3.0, none).item() == 3.0
    assert theory.profile_slope("quadratic", 3.0, none).item() == math.inf
    s = torch.tensor([1.0, 0.0])
    across = torch.tensor([[0.0, 1.0]])
    assert theory.direction_lipschitz(across, s, "quadratic", 3.0, none).item() == 0


@pytest.mark.parametrize(
    "task", [LinearRegression(n_dims=3, n_points=5), SparseLinearRegression(n_dims=4, n_points=5)]
)
def test_linear_functions_have_the_length_of_w(task):
    parameters = drawn(task)
    found = lipschitz_constants(task, parameters).value
    check(task, found, parameters, parameters)
    must_fail(check, task, parameters.abs().amax(-1) * 0.9, parameters, parameters)


def test_of_other_functions_it_is_a_gradient_that_no_quotient_beats():
    task = ReLUNetwork(n_dims=2, hidden=4, n_points=5)
    parameters = drawn(task)
    found = lipschitz_constants(task, parameters)
    assert found.kind == "lower bound"
    line = torch.tensor([[3.0, 0.0]], dtype=torch.float64).expand(len(parameters), -1)
    assert (quotients(task, parameters, line) <= found.value * (1 + 1e-9)).all()
    cubic = Polynomial(degrees=(3,), inputs=Uniform(-1, 1), coefficients=Normal(1.0), n_points=5)
    own = torch.tensor([[1.0, 0.0, 0.0, 2.0]], dtype=torch.float64)
    value = lipschitz_constants(cubic, own).value  # sup |6 x^2| on [-1, 1] is 6
    assert 5.9 < value.item() <= 6


@pytest.mark.parametrize("direction", [[1.0, 0.0], [0.0, 0.0, 0.0], [math.nan, 1.0, 0.0]])
def test_what_is_no_direction_is_refused(direction):
    task = ridge("relu")
    with pytest.raises(InputError, match="a direction has 3 numbers") as refused:
        lipschitz_constants(task, drawn(task), torch.tensor(direction))
    assert "\n" not in str(refused.value)


def test_paths_have_no_constant():
    task = AutoregressiveProcess(n_dims=3, n_points=5)
    with pytest.raises(InputError, match="paths or vectors"):
        lipschitz_constants(task, drawn(task))
