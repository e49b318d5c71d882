"""Softmax units whose M is set.

M is at the best window, beside it, of another shape, or blind to directions or not.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.experiments.calibration import NO, OPEN, YES, Case, Construction, between
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.studies.lipschitz.measurements.unit import sigma_of
from icl_interp.studies.lipschitz.measurements.window_losses import best_window
from icl_interp.tasks.ridge import RidgeFunction, random_directions
from icl_interp.tasks.vectors import Ellipsoid, Sphere
from icl_interp.theory import lipschitz as theory

OPTIMAL = "lipschitz.optimal_window"
COVARIANCE = "lipschitz.inverse_covariance"
DIRECTIONS = "lipschitz.irrelevant_directions"
# Labelled examples and coordinates, so that all draws share theory's table.
N = 40
D = 3
NOT_ASKED = "not_applicable"
Matrix = Float[Tensor, "dim dim"]


# ---- tasks ---------------------------------------------------------------------------------------


def isotropic(g: torch.Generator) -> RidgeFunction:
    """F_L^+ on a sphere, with noise of 0.3 to 0.5 L."""
    lipschitz = between(g, 0.5, 3)
    noise = lipschitz * between(g, 0.3, 0.5)
    return RidgeFunction(
        inputs=Sphere(D), link="relu", lipschitz=lipschitz, noise_std=noise, n_points=N + 1
    )


def ellipsoid(g: torch.Generator, **more: Any) -> RidgeFunction:
    """F_L^+ on an ellipsoid whose axes are turned.

    Variances differ by factors of 3 to 6.
    """
    variances = torch.tensor([1.0, between(g, 3, 6), between(g, 10, 30)], dtype=torch.float64)
    turn, _ = torch.linalg.qr(torch.randn(D, D, generator=g, dtype=torch.float64))
    sigma = (turn * variances) @ turn.T
    symmetric = (sigma + sigma.T) / 2
    rows = tuple(map(tuple, symmetric.tolist()))
    noise = between(g, 0.3, 0.5)
    return RidgeFunction(
        inputs=Ellipsoid(rows), link="relu", noise_std=noise, n_points=N + 1, **more
    )


def _even(g: torch.Generator) -> RidgeFunction:
    """(w^T x)^2 on a sphere with little noise: functions that are the same at x and -x."""
    noise = between(g, 0.02, 0.05)
    return RidgeFunction(
        inputs=Sphere(D), link="quadratic", lipschitz=2.0, noise_std=noise, n_points=N + 1
    )


def _few_directions(g: torch.Generator) -> RidgeFunction:
    """a^T B^T x with two directions of six, and noise.

    Prompts have 20 examples, where Theorem 4 needs no cap.
    """
    seed = int(torch.randint(10**6, (), generator=g))
    rows = random_directions(6, 2, seed=seed)
    noise = between(g, 0.1, 0.2)
    return RidgeFunction(
        inputs=Sphere(6), link="linear", directions=rows, noise_std=noise, n_points=21
    )


# ---- models --------------------------------------------------------------------------------------


def unit_with(matrix: Matrix, n_points: int) -> HookedTransformer:
    """The unit of equation (2) with this M, as a transformer of this config.

    It predicts yhat = sum_i y_i softmax_i(x_i^T M x_q).

    Args:
        matrix: M.
        n_points: the longest prompt it reads.
    """
    width = len(matrix) + 1
    cfg = HookedTransformerConfig(
        n_layers=1,
        d_model=width,
        d_head=width,
        d_in=width,
        n_ctx=n_points,
        attn_only=True,
        normalization_type=None,
        positional_embedding_type="none",
        use_attn_scale=False,
        attention_dir="bidirectional",
        keys="labelled",
        unit="M",
        init_std=0.1,
    )
    model = HookedTransformer(cfg).double()
    with torch.no_grad():
        model.blocks[0].attn.W_Q[0, :-1, :-1] = matrix.T  # scores are x_i^T (W_Q^T x_q)
    return model


def unwhitened(matrix: Matrix, task: RidgeFunction) -> Matrix:
    """The M whose whitened form this is: Sigma^(-1/2) . Sigma^(-1/2)."""
    return task.whitening @ matrix @ task.whitening


def case_of(task: RidgeFunction, matrix: Matrix) -> Case:
    """The unit with this M, on prompts of the task."""
    return Case(unit_with(matrix, task.n_points), task)


def window(
    make: Callable[[torch.Generator], RidgeFunction], factor: float, g: torch.Generator
) -> Case:
    """w Sigma^-1 with w a multiple of the best."""
    task = make(g)
    best = float(best_window(task).window)
    inverse = unwhitened(torch.eye(task.dim, dtype=torch.float64), task)
    return case_of(task, factor * best * inverse)


def _identity(g: torch.Generator) -> Case:
    """A multiple of the identity on an ellipsoid.

    Its mean whitened eigenvalue is that of the best window.
    """
    task = ellipsoid(g)
    best = float(best_window(task).window)
    size = best * D / float(sigma_of(task).trace())
    return case_of(task, size * torch.eye(D, dtype=torch.float64))


def _unwhitened_functions(g: torch.Generator) -> Case:
    """w Sigma^-1 on an ellipsoid, for functions that do not read whitened inputs.

    The direction of the functions is isotropic in the coordinates of x.
    """
    task = ellipsoid(g, sigma=(1.0,) * D)
    return case_of(task, torch.eye(D, dtype=torch.float64))


def pair(outside: float, g: torch.Generator) -> Case:
    """c B B^T + outside c (I - B B^T), with the c that is best for outside = 0."""
    task = _few_directions(g)
    basis = task.basis
    functions = theory.function_class("linear")
    contexts = theory.draw_contexts(task.n_points - 1, functions, 2000, d=task.dim, basis=basis)
    within = theory.optimal_pair(contexts, basis, task.noise_std, outside=0.0)
    best = float(within.inside)
    return case_of(task, theory.low_rank_matrix(basis, best, outside * best))


def _other_directions(g: torch.Generator) -> Case:
    """c C C^T with C orthogonal to B: it looks where nothing depends on."""
    case = pair(0.0, g)
    assert isinstance(case.task, RidgeFunction)
    matrix = case.model.blocks[0].attn.W_Q[0, :-1, :-1].detach().T
    c = float(torch.linalg.matrix_norm(matrix, 2))
    return case_of(case.task, theory.low_rank_matrix(case.task.basis, 0.0, c))


CONSTRUCTIONS: tuple[Construction, ...] = (
    Construction(
        "softmax unit at the best window",
        "M = w* I, w* by scalar minimisation of the loss",
        functools.partial(window, isotropic, 1.0),
        {OPTIMAL: YES, COVARIANCE: YES, DIRECTIONS: NOT_ASKED},
    ),
    Construction(
        "softmax unit at five times the best window",
        "much narrower than the best; its shape is right",
        functools.partial(window, isotropic, 5.0),
        {OPTIMAL: NO},
    ),
    Construction(
        "softmax unit at a fifth of the best window",
        "much wider than the best; its shape is right",
        functools.partial(window, isotropic, 0.2),
        {OPTIMAL: NO},
    ),
    Construction(
        "softmax unit at 1.7 times the best window",
        "between near and far",
        functools.partial(window, isotropic, 1.7),
        {OPTIMAL: OPEN},
    ),
    Construction(
        "softmax unit that looks the other way",
        "M = -w* I: examples on the far side of the sphere have the most weight, and f differs "
        "there",
        functools.partial(window, isotropic, -1.0),
        {OPTIMAL: NO, COVARIANCE: NO},
    ),
    Construction(
        "softmax unit at the inverse covariance",
        "M = w* Sigma^-1 on a turned ellipsoid",
        functools.partial(window, ellipsoid, 1.0),
        {OPTIMAL: YES, COVARIANCE: YES},
    ),
    Construction(
        "softmax unit at the identity on an ellipsoid",
        "M is a multiple of the identity where Sigma^-1 is not",
        _identity,
        {COVARIANCE: NO},
    ),
    Construction(
        "softmax unit on even functions, negative",
        "M = -w* I: the loss of even functions is that of w* I",
        functools.partial(window, _even, -1.0),
        {OPTIMAL: YES, COVARIANCE: YES},
    ),
    Construction(
        "softmax unit, functions isotropic before whitening",
        "the law of functions is not invariant under rotations of the whitened inputs, as the "
        "lemma asks",
        _unwhitened_functions,
        {OPTIMAL: NOT_ASKED, COVARIANCE: NOT_ASKED},
    ),
    Construction(
        "softmax unit within the relevant directions",
        "M = c B B^T with the best c",
        functools.partial(pair, 0.0),
        {DIRECTIONS: YES, OPTIMAL: NOT_ASKED, COVARIANCE: NOT_ASKED},
    ),
    Construction(
        "softmax unit of all directions alike",
        "M = c I, where functions depend on two directions of six",
        functools.partial(pair, 1.0),
        {DIRECTIONS: NO},
    ),
    Construction(
        "softmax unit within the irrelevant directions",
        "M = c (I - B B^T): attention depends only on directions that do not matter to the "
        "functions",
        _other_directions,
        {DIRECTIONS: OPEN},
    ),
)

EXCEPTIONS: dict[tuple[str, str], str] = {}
