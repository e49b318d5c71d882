"""Lip(f) and direction-wise Lipschitzness of the functions of a task.

Exact where there is a closed form (ridge functions, functions that are linear in x); else the
largest gradient at inputs of the task, which Lip(f) is not below.
"""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, shown, whole
from icl_interp.provenance import generator
from icl_interp.tasks.base import Task
from icl_interp.tasks.garg import SparseLinearRegression
from icl_interp.tasks.regression import LinearRegression
from icl_interp.tasks.ridge import RidgeFunction
from icl_interp.theory import lipschitz as theory

LINEAR = (LinearRegression, SparseLinearRegression)
N_INPUTS = 4096  # that a gradient is taken at, of each function


class LipschitzConstants(NamedTuple):
    """Constants of functions, and what they are.

    Attributes:
        value: of each function, in units of y per unit of x.
        kind: "exact", or "lower bound": the largest gradient that was measured.
    """

    value: Float[Tensor, " function"]
    kind: Literal["exact", "lower bound"]


def lipschitz_constants(
    task: Task,
    parameters: Float[Tensor, "function parameter"],
    direction: Float[Tensor, " dim"] | None = None,
    *,
    n_inputs: int = N_INPUTS,
    seed: int = 0,
) -> LipschitzConstants:
    """Lip(f) of each function where inputs lie, or Lip_s(f) along one direction.

    Of a `RidgeFunction` the domain is |u| <= 1, the convex hull of its inputs; of a linear function
    all of space. Of other tasks it is the law of inputs, and the largest gradient at `n_inputs` of
    them is taken: by automatic differentiation, so that it is exact at each of them.

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    "Definition (Lipschitzness)" and "Definition (Direction-wise Lipschitzness)", on that domain.

    Args:
        task: of numbers (one target).
        parameters: of the functions, as in `Prompts.parameters` or `task.pool`.
        direction: s; None is Lip(f).
        n_inputs: of a lower bound.
        seed: of these inputs.

    Raises:
        InputError: a direction of another size or 0, values of several coordinates, or paths.

    >>> from icl_interp.tasks import RidgeFunction, Sphere
    >>> task = RidgeFunction(inputs=Sphere(2), link="relu", lipschitz=3.0, n_points=4)
    >>> f = torch.tensor([[0.0, 1.0, -2.0, 1.0, 0.5]])  # q, l1, l2, b
    >>> lipschitz_constants(task, f)
    LipschitzConstants(value=tensor([2.], dtype=torch.float64), kind='exact')
    >>> [lipschitz_constants(task, f, s).value.item() for s in torch.eye(2)]
    [0.0, 2.0]
    """
    if task.n_targets != 1 or task.autoregressive:
        raise InputError(
            f"Lip(f) is of functions of x with one number as value, but a {type(task).__name__} "
            "has paths or vectors"
        )
    whole(n_inputs, "n_inputs", 1)
    parameters = parameters.double()
    if direction is not None:
        direction = _checked(direction, task.dim)
    if type(task) is RidgeFunction:
        own = _of_ridge(task, parameters, direction)
        return LipschitzConstants(own, "exact")
    if type(task) in LINEAR:
        along = parameters if direction is None else (parameters @ direction)[:, None]
        lengths = torch.linalg.vector_norm(along, dim=-1)
        return LipschitzConstants(lengths, "exact")
    largest = _measured(task, parameters, direction, n_inputs, seed)
    return LipschitzConstants(largest, "lower bound")


def _checked(direction: Tensor, dim: int) -> Tensor:
    """The direction with length 1, in float64."""
    direction = direction.double()
    if direction.shape != (dim,) or not direction.isfinite().all() or not direction.any():
        raise InputError(
            f"a direction has {dim} numbers here, not all of them 0, but got "
            f"{shown(direction.tolist())}"
        )
    return direction / torch.linalg.vector_norm(direction)


def _of_ridge(task: RidgeFunction, parameters: Tensor, direction: Tensor | None) -> Tensor:
    q = parameters[:, : task.dim]
    vectors = q @ task.whitening
    own = parameters[:, task.dim :]
    link = task.link
    size = task.lipschitz
    omega = task.omega
    if direction is None:
        slopes = theory.profile_slope(link, size, own, omega, reach=1.0)
        return theory.ridge_lipschitz(vectors, slopes)
    # t s has |u| = 1 where |t| is this.
    whitened = task.whitening @ direction
    length = 1 / float(torch.linalg.vector_norm(whitened))
    return theory.direction_lipschitz(vectors, direction, link, size, own, omega, length)


def _measured(
    task: Task, parameters: Tensor, direction: Tensor | None, n_inputs: int, seed: int
) -> Tensor:
    """The largest gradient at inputs of the task; along a direction at their projections on it."""
    numbers = generator(seed, "lipschitz/constants")
    shape = (1, n_inputs, task.dim)
    xs = task.inputs.sample(shape, numbers, torch.float64)
    if direction is not None:
        xs = (xs @ direction)[..., None] * direction
    largest = []
    for function in parameters.split(1):
        points = xs.clone().requires_grad_()
        total = task.targets(function, points).sum()
        if total.requires_grad:
            slopes = torch.autograd.grad(total, points)[0][0]
        else:  # constant between jumps
            slopes = torch.zeros_like(points[0])
        slopes = slopes if direction is None else (slopes @ direction)[:, None]
        lengths = torch.linalg.vector_norm(slopes, dim=-1)
        largest.append(lengths.max())
    return torch.stack(largest) if largest else torch.empty(0, dtype=torch.float64)
