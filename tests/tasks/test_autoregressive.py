"""Paths s_{t+1} = W s_t: the laws of W, starts and noise, copies, their way through configs, and what is refused."""

import json
import math
from dataclasses import dataclass, replace

import pytest
import tiny_runs
import torch
from helpers import must_fail
from torch.testing import assert_close

from icl_interp.checkpoints.config import check_round_trip, parse
from icl_interp.errors import InputError
from icl_interp.provenance import encode, generator
from icl_interp.tasks import AutoregressiveProcess, Normal, Sphere, complex_states
from icl_interp.theory import autoregression as theory

KINDS = ("unitary", "conjugate_pairs", "rotations", "orthogonal")
EVERY = pytest.mark.parametrize("matrices", KINDS)
ANGLES = pytest.mark.parametrize("matrices", KINDS[:3])
N = 4096


def process(matrices="unitary", **changes):
    return AutoregressiveProcess(**{"n_dims": 4, "matrices": matrices, "n_points": 6, **changes})


def paths(task, n=N, seed=0, dtype=torch.float64):
    """s_0 to s_n of n functions, and the functions' parameters."""
    prompts = task.sample(n, generator(seed, "test/autoregressive"), dtype=dtype)
    return torch.cat([prompts.xs, prompts.ys[:, -1:]], 1), prompts.parameters


def within(estimates, expected):
    """The mean over the first axis is within four standard errors, everywhere."""
    error = estimates.std(0) / math.sqrt(len(estimates))
    assert ((estimates.mean(0) - expected).abs() <= 4 * error + 1e-12).all()


def eigenvalues(task, seed=0):
    """e^(i theta) of each function, from its parameters."""
    parameters = task.sample_parameters(N, generator(seed, "test/eigenvalues"), torch.float64)
    return torch.complex(*parameters.chunk(2, 1))


# ---- mutants -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class HalfCircle(AutoregressiveProcess):
    """Angles on half of what they should be."""

    def sample_parameters(self, n_functions, generator, dtype):
        theta = (
            math.pi
            / self.mu
            * torch.rand((n_functions, self.n_angles), generator=generator, dtype=dtype)
        )
        return torch.cat([theta.cos(), theta.sin()], 1)


@dataclass(frozen=True, kw_only=True)
class SignsOfQR(AutoregressiveProcess):
    """The orthogonal factor as LAPACK leaves it, which is not Haar's law."""

    def sample_parameters(self, n_functions, generator, dtype):
        shape = (n_functions, self.n_dims, self.n_dims)
        return torch.linalg.qr(torch.randn(shape, generator=generator, dtype=dtype)).Q.flatten(1)


# ---- paths ---------------------------------------------------------------------------------------


def check_paths(task, states, parameters):
    """W, orthogonal, takes each state to the next."""
    W = task.matrix(parameters)
    one = states[..., : task.state_dim]
    assert_close(one[:, 1:], one[:, :-1] @ W.mT, rtol=1e-12, atol=1e-12)
    assert_close(W @ W.mT, torch.eye(task.state_dim).double().expand_as(W), rtol=1e-12, atol=1e-12)


@EVERY
@pytest.mark.parametrize("start", [None, Normal(1.0)])
def test_an_orthogonal_matrix_takes_each_state_to_the_next(matrices, start):
    task = process(matrices, start=start)
    states, parameters = paths(task, 50)
    assert states.shape == (50, 7, task.state_dim)
    check_paths(task, states, parameters)
    must_fail(check_paths, task, states.flip(1), parameters)
    must_fail(check_paths, task, states, parameters.flip(0))
    assert_close(task.value(parameters, states[:, :-1]), states[:, 1:], rtol=1e-12, atol=1e-12)


def test_states_of_commuting_laws_are_powers_of_eigenvalues():
    def check(task, law):
        states, parameters = paths(task, 20)
        lam = law(torch.complex(*parameters.chunk(2, 1)))
        assert_close(
            complex_states(states), lam[:, None] ** torch.arange(7)[:, None], rtol=1e-11, atol=1e-11
        )

    def pairs(lam):
        return torch.stack([lam, lam.conj()], -1).flatten(1)

    check(process("unitary"), lambda lam: lam)
    check(process("conjugate_pairs"), pairs)
    check(process("rotations"), lambda lam: lam)
    must_fail(check, process("conjugate_pairs"), lambda lam: lam.repeat_interleave(2, 1))
    must_fail(check, process("unitary"), lambda lam: lam.conj())
    # The same real process under two names.
    one, other = paths(process("rotations", n_dims=6), 9), paths(process("unitary", n_dims=3), 9)
    assert_close(one[0], other[0], rtol=0, atol=0)


def test_haar_matrices_do_not_commute_and_the_others_do():
    def commute(matrices):
        task = process(matrices)
        first, second = task.matrix(task.sample_parameters(2, generator(0, "test"), torch.float64))
        assert_close(first @ second, second @ first, rtol=1e-12, atol=1e-12)

    for matrices in KINDS[:3]:
        commute(matrices)
    must_fail(commute, "orthogonal")


# ---- laws ----------------------------------------------------------------------------------------


def check_angles(task):
    """E e^(i k theta) = e^(i pi k / mu) sin(pi k / mu) / (pi k / mu) for k = 1, 2, 3.

    Angles are independent.
    """
    lam = eigenvalues(task)
    for k in (1, 2, 3):
        x = torch.tensor(math.pi * k / task.mu, dtype=torch.float64)
        size = x.sin() / x
        within(
            torch.view_as_real(lam**k),
            torch.stack([size * x.cos(), size * x.sin()]).expand(task.n_angles, 2),
        )
    mean = (
        torch.polar(torch.ones(()), torch.tensor(math.pi / task.mu)) * math.sin(math.pi / task.mu)
    ).to(lam)
    mean = mean * task.mu / math.pi
    within(
        torch.view_as_real((lam[:, 0] - mean) * (lam[:, 1] - mean).conj()), torch.zeros(2).double()
    )


@ANGLES
@pytest.mark.parametrize("mu", [1.0, 3.0, 50.0])
def test_the_law_of_angles(matrices, mu):
    task = process(matrices, mu=mu)
    check_angles(task)
    must_fail(check_angles, HalfCircle(n_dims=4, matrices=matrices, n_points=6, mu=mu))
    theta = eigenvalues(task).angle() % (2 * math.pi)
    assert theta.max() <= 2 * math.pi / mu
    assert task.with_mu(2 * mu).mu == 2 * mu


def check_haar(task):
    """E W = 0, E (tr W)^2 = 1, E tr W^2 = 1, and both signs of the determinant."""
    W = task.matrix(task.sample_parameters(N, generator(0, "test/haar"), torch.float64))
    trace = W.diagonal(dim1=1, dim2=2).sum(1)
    within(W.flatten(1), torch.zeros(16).double())
    within(trace[:, None] ** 2, torch.ones(1).double())
    within((W @ W).diagonal(dim1=1, dim2=2).sum(1)[:, None], torch.ones(1).double())
    within(torch.linalg.det(W)[:, None], torch.zeros(1).double())


def test_the_law_of_orthogonal_matrices_is_haar_measure():
    check_haar(process("orthogonal"))
    must_fail(check_haar, SignsOfQR(n_dims=4, matrices="orthogonal", n_points=6))


def check_mean(task, mean):
    xs = torch.randn(
        1, 5, task.dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    parameters = task.sample_parameters(N, generator(2, "test"), torch.float64)
    within(task.value(parameters, xs.expand(N, -1, -1)).flatten(1), mean(xs).flatten())


@EVERY
def test_the_mean_over_functions(matrices):
    task = process(matrices, tiles=2)
    check_mean(task, task.closed_mean)
    assert task.centred
    if matrices != "orthogonal":
        narrow = task.with_mu(5.0)
        check_mean(narrow, narrow.closed_mean)
        must_fail(check_mean, narrow, task.closed_mean)
        must_fail(check_mean, task, narrow.closed_mean)
        assert not narrow.centred


# ---- antithetic partners -------------------------------------------------------------------------


@EVERY
def test_the_path_of_minus_w_alternates(matrices):
    task = process(matrices)
    states, parameters = paths(task, 30)
    signs = (-1.0) ** torch.arange(7).double()[:, None]

    def check(partner, other):
        found = [states[:, :1]]
        for _ in range(6):
            found.append(task.value(partner, found[-1]))
        assert_close(torch.cat(found, 1), other, rtol=1e-12, atol=1e-12)

    centre = task.mean_parameters(parameters)
    assert not centre.any()
    check(2 * centre - parameters, signs * states)
    must_fail(check, 2 * centre - parameters, states)
    assert not task.paired  # partners of `sample_pairs` would need the same inputs
    with pytest.raises(InputError, match="come in no antithetic pairs"):
        task.sample_pairs(4, generator(0, "test"))


@ANGLES
@pytest.mark.parametrize("mu", [1.0, 7.0])
def test_angles_are_symmetric_about_the_middle_of_their_range(matrices, mu):
    """theta -> 2 pi / mu - theta keeps the law for every mu; W -> -W for mu = 1 only, theta -> -theta too."""
    task = process(matrices, mu=mu)
    lam = eigenvalues(task)
    turn = torch.polar(torch.ones(()).double(), torch.tensor(2 * math.pi / mu).double())

    def same_law(other):
        gaps = torch.view_as_real((lam - other).resolve_conj())
        within(gaps, torch.zeros(task.n_angles, 2).double())

    same_law(turn * lam.conj())
    for other in (-lam, lam.conj()):
        if mu == 1:
            same_law(other)
        else:
            must_fail(same_law, other)
    assert (task.mean_parameters(torch.ones(3, 8)) is None) == (mu != 1)


# ---- starts, noise, copies -----------------------------------------------------------------------


def test_starts():
    ones = {
        "unitary": [1, 0] * 4,
        "conjugate_pairs": [1, 0] * 4,
        "rotations": [1, 0] * 2,
        "orthogonal": [1] * 4,
    }
    for matrices, one in ones.items():
        states, _ = paths(process(matrices), 3)
        assert states[:, 0].tolist() == [one] * 3
        drawn, _ = paths(process(matrices, start=Normal(2.0)))
        within(drawn[:, 0] ** 2, torch.full((drawn.shape[-1],), 4.0).double())
        must_fail(within, drawn[:, 0] ** 2, torch.full((drawn.shape[-1],), 4.4).double())
    sphere, _ = paths(process("orthogonal", start=Sphere(4, 3.0)), 50)
    assert_close(sphere.norm(dim=-1), torch.full((50, 7), 3.0).double(), rtol=1e-12, atol=0)
    pairs = complex_states(
        paths(process("conjugate_pairs", start=Normal(1.0), noise_std=0.3), 20)[0]
    )
    assert_close(pairs[..., 0::2].conj(), pairs[..., 1::2], rtol=0, atol=1e-12)


@EVERY
def test_noise_enters_the_path_at_every_step(matrices):
    task = process(matrices, noise_std=0.3)
    prompts = task.sample(N, generator(0, "test"), dtype=torch.float64)
    assert torch.equal(prompts.ys[:, :-1], prompts.xs[:, 1:])
    noise = prompts.ys - task.targets(prompts.parameters, prompts.xs)

    def check(noise, size):
        within(noise.flatten(1), torch.zeros(noise[0].numel()).double())
        within(noise.flatten(1) ** 2, torch.full((noise[0].numel(),), size**2).double())

    check(noise, 0.3)
    must_fail(check, noise, 0.32)
    within((noise[:, 0, 0] * noise[:, 1, 0])[:, None], torch.zeros(1).double())
    # The matrices are those of the same stream without noise.
    quiet = replace(task, noise_std=0.0)
    assert torch.equal(*(one.sample(5, generator(0, "t")).parameters for one in (quiet, task)))


@EVERY
def test_copies_stand_beside_one_another(matrices):
    task, tiled = (
        process(matrices, start=Normal(1.0), noise_std=0.1, tiles=tiles) for tiles in (1, 3)
    )
    (one, _), (three, _) = paths(task, 20), paths(tiled, 20)
    assert tiled.dim == tiled.n_targets == 3 * task.dim

    def check(wanted):
        assert_close(three, wanted, rtol=1e-12, atol=1e-12)

    check(one.repeat(1, 1, 3))
    must_fail(check, one.repeat_interleave(3, -1))
    assert tiled.features(three).shape[-1] == task.state_dim
    parameters = tiled.sample_parameters(5, generator(0, "t"), torch.float64)
    assert torch.equal(tiled.matrix(parameters), task.matrix(parameters))


def test_least_squares_on_its_features_finds_the_matrix():
    task = process("orthogonal", n_points=8, start=Normal(1.0))
    prompts = task.sample(10, generator(0, "test"), dtype=torch.float64)
    for xs, ys, parameters in zip(prompts.xs, prompts.ys, prompts.parameters, strict=True):
        found = torch.linalg.lstsq(task.features(xs[None])[0, :4], ys[:4]).solution
        assert_close(found.T, task.matrix(parameters[None])[0], rtol=1e-6, atol=1e-6)
    assert process("unitary").n_determining == 1
    assert process("orthogonal", n_points=3).n_determining == 2


# ---- against theory ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("matrices", "loss"), [("unitary", "unitary_loss"), ("conjugate_pairs", "orthogonal_loss")]
)
def test_losses_of_theory_are_means_over_prompts(matrices, loss):
    draw = torch.Generator().manual_seed(0)
    A, B = torch.randn(2, 3, 4, generator=draw, dtype=torch.float64)
    p = torch.tensor(
        [0.1, -0.2, 0.3, 0.1, 0.8, 0.5]
    ).double()  # much at the query, where the published code errs
    states, _ = paths(process(matrices))
    states = complex_states(states)
    errors = (
        (theory.prediction(states[:, :-1], A, B, p) - states[:, -1])
        .abs()
        .square()
        .sum(1, keepdim=True)
    )

    def check(closed):
        within(errors, closed[None])

    check(getattr(theory, loss)(theory.head_product(A, B), p))
    other = {"unitary_loss": theory.unitary_loss_as_coded, "orthogonal_loss": theory.unitary_loss}[
        loss
    ]
    must_fail(check, other(theory.head_product(A, B), p))


# ---- configs and refusals ------------------------------------------------------------------------

SETTINGS = [
    process("unitary", mu=50.0),
    process("conjugate_pairs", start=Normal(1.0), noise_std=0.1),
    process("rotations", tiles=2),
    process("orthogonal", start=Sphere(4, 2.0)),
]


@pytest.mark.parametrize("task", SETTINGS, ids=lambda task: task.matrices)
def test_a_config_gives_it_back(task):
    def check(expected):
        data = tiny_runs.data(model={"d_in": task.dim, "d_out": task.dim})
        data |= {"task": encode(task), "encoding": "states"}
        run = parse(json.loads(json.dumps(data)))
        assert run.task == expected
        check_round_trip(run)
        assert torch.equal(
            run.task.sample(4, generator(0, "t")).xs, expected.sample(4, generator(0, "t")).xs
        )

    check(task)
    must_fail(check, replace(task, noise_std=0.7))
    assert task.default_encoding == "states"
    assert (
        replace(task, tiles=3).dim == 3 * task.state_dim
    )  # the law of inputs does not stand in the way


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: process(n_dims=0), "n_dims must be a whole number from 1 up, but got 0"),
        (lambda: process(tiles=1.5), "tiles must be a whole number from 1 up, but got 1.5"),
        (
            lambda: process("rotation"),
            "unknown law of matrices 'rotation': did you mean 'rotations'",
        ),
        (lambda: process("rotations", n_dims=3), "n_dims must be even for rotations, .* but got 3"),
        (
            lambda: process("conjugate_pairs", n_dims=5),
            "n_dims must be even for conjugate_pairs, .* but got 5",
        ),
        (
            lambda: process(mu=0.5),
            "mu, what angles are divided by, must be a number from 1 up, but got 0.5",
        ),
        (lambda: process(mu=math.inf), "from 1 up, but got inf"),
        (lambda: process(mu=10**400), "from 1 up, but got <a whole number of about 400 digits>"),
        (
            lambda: process("orthogonal", mu=2.0),
            "mu must be 1 for orthogonal matrices, .* but got 2.0",
        ),
        (lambda: process(noise_std=-1.0), "noise_std must be a number from 0 up, but got -1.0"),
        (lambda: process(start=1.0), "start must be a law, for example"),
        (
            lambda: process(start=Sphere(4)),
            "start of a AutoregressiveProcess have 8 coordinates here, but Sphere",
        ),
        (
            lambda: process("conjugate_pairs", start=Sphere(8)),
            "have 4 coordinates here, but Sphere",
        ),
        (
            lambda: process(inputs=Sphere(3)),
            "inputs of a AutoregressiveProcess have 8 coordinates here",
        ),
        (lambda: process(n_points=1), "must be at least 2, but got 1"),
        (
            lambda: complex_states(torch.zeros(2, 3)),
            "pairs of numbers, but states have 3 coordinates",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make, match):
    with pytest.raises(InputError, match=match) as refused:
        make()
    assert "\n" not in str(refused.value)
