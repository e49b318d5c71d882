"""Covariances as they stand in a config: the numbers of a diagonal, or the rows of a matrix."""

import sys
from typing import TypeGuard

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, counted, shown

# Rows of a whole matrix: as text in a config that is five megabytes, and a second to check.
MAX_ROWS = 512
Vector = tuple[float, ...]
Rows = tuple[tuple[float, ...], ...]


def are_numbers(value: object) -> TypeGuard[Vector]:
    """Whether it is a list of finite numbers."""
    if not isinstance(value, (tuple, list)) or not value:
        return False
    for number in value:
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            return False
        # A comparison, because math.isfinite() fails on a whole number beyond the range of a float.
        if not abs(number) <= sys.float_info.max:
            return False
    return True


def checked(name: str, value: object, dim: int, or_else: str = "") -> Vector | Rows:
    """The covariance as tuples.

    Args:
        name: of the setting, for messages.
        value: `dim` positive numbers, its diagonal, or `dim` rows of a symmetric positive definite
            matrix.
        dim: its size.
        or_else: what else the setting may be, for messages.

    Raises:
        InputError: anything else.
    """
    if are_numbers(value) and len(value) == dim and min(value) > 0:
        return tuple(value)
    if isinstance(value, (tuple, list)) and len(value) > MAX_ROWS:
        first = value[0]
        if isinstance(first, (tuple, list)):
            raise InputError(too_many_rows(len(value), name))
    if _are_rows(value, dim) and len(value) == dim:
        matrix = torch.tensor(value, dtype=torch.float64)
        if _is_covariance(matrix):
            return tuple(map(tuple, value))
    numbers = counted(dim, "positive number")
    rows = counted(dim, "row")
    joint = "," if or_else else " or"
    raise InputError(
        f"{name} must be {numbers}{joint} {rows} of a symmetric positive definite matrix{or_else}, "
        f"but got {shown(value, 100)}{_why(value, dim)}"
    )


def root(
    value: Vector | Rows, dtype: torch.dtype, scale: float = 1.0
) -> Float[Tensor, " dim"] | Float[Tensor, "dim dim"]:
    """The symmetric root of `scale` times a covariance: its diagonal where that is all."""
    matrix = torch.tensor(value, dtype=torch.float64) * scale
    if matrix.ndim == 1:
        return matrix.sqrt().to(dtype)
    variances, basis = torch.linalg.eigh(matrix)
    # Where the smallest variance is lost in rounding, it may come out below 0.
    deviations = variances.clamp(min=0).sqrt()
    symmetric = basis * deviations @ basis.T
    return symmetric.to(dtype)


def rounded(matrix: Float[Tensor, "dim columns"]) -> Rows:
    """The rows of a matrix as they stand in a config, to 12 decimals."""
    rows = []
    for row in matrix.tolist():
        rows.append(tuple(round(value, 12) for value in row))
    return tuple(rows)


def too_many_rows(n: int, name: str = "covariance") -> str:
    """What is said of a covariance whose rows are too many to stand in a config."""
    return (
        f"{name} has {n} rows, but at most {MAX_ROWS} can stand in a config, which holds every "
        "number as text: give its diagonal only, or a law of it"
    )


def _are_rows(value: object, width: int) -> TypeGuard[Rows]:
    """Whether it is a list of lists of that many finite numbers."""
    if not isinstance(value, (tuple, list)):
        return False
    return all(are_numbers(row) and len(row) == width for row in value)


def _why(value: object, dim: int) -> str:
    """What makes a list of numbers or rows no covariance; empty for a value that is no list."""
    if are_numbers(value):
        if len(value) != dim:
            return f": these are {len(value)}"
        return ": not all of them are positive"
    if not isinstance(value, (tuple, list)):
        return ""
    if not any(isinstance(row, (tuple, list)) for row in value):
        return ""
    if not _are_rows(value, dim) or len(value) != dim:
        return f": it needs {counted(dim, 'row')} of {counted(dim, 'finite number')} each"
    matrix = torch.tensor(value, dtype=torch.float64)
    if not torch.equal(matrix, matrix.T):
        return ": it is not symmetric"
    smallest = float(torch.linalg.eigvalsh(matrix)[0])
    return f": it is not positive definite, its smallest eigenvalue is {smallest:.3g}"


def _is_covariance(matrix: Tensor) -> bool:
    if not torch.equal(matrix, matrix.T):
        return False
    # A Cholesky factor exists where all eigenvalues are positive, and costs a tenth of them.
    factored = torch.linalg.cholesky_ex(matrix)
    return not factored.info.item()
