"""Lipschitz constants of single functions, over all of space or one direction.

This is one part of the study `lipschitz`, which re-exports it. A function of a task of ridge
functions is f(x) = g(<v, x>) + c: its constants are those of the profile g on an interval, times
the length of v, or of v along one direction.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.lipschitz.classes import LINKS
from icl_interp.theory.softmax import as_float64

__all__ = ["direction_lipschitz", "profile_slope", "ridge_lipschitz", "subspace_lipschitz"]


def profile_slope(
    link: str,
    lipschitz: float,
    coefficients: Float[Tensor, "function coefficient"],
    frequency: float | None = None,
    reach: Float[Tensor, " function"] | float = math.inf,
) -> Float[Tensor, " function"]:
    """sup |g'(z)| over |z| <= reach, exactly: Lip(g) there.

    max(|l1|, |l2|) for "relu", |l| for "affine", L for "linear", L reach for "quadratic", and
    L sup |sin(omega z + phi)| for cosines, which is L from omega reach = pi/2 on.

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    "Definition (Lipschitzness)": Lip(f) = max(|l1|, |l2|) on F_L^+; the other links by calculus.

    Args:
        link: of the profile, see `function_class`.
        lipschitz: L.
        coefficients: of each function: (l1, l2, b), (l, b), (cos phi, sin phi), or none.
        frequency: omega of cosines; None is L.
        reach: the largest |z|, at least 0; inf is all numbers, as the slides define it.

    Raises:
        ValueError: an unknown link, or a negative reach.

    Example:
        >>> import torch
        >>> slopes = torch.tensor([[.5, -2., 1.]])
        >>> float(profile_slope("relu", 3., slopes)), float(profile_slope("quadratic", 2., slopes))
        (2.0, inf)
        >>> float(profile_slope("cosine", 4., slopes, reach=math.pi / 8))
        4.0
    """
    if link not in LINKS:
        raise ValueError(f"link must be one of {', '.join(LINKS)}, got {link!r}")
    coefficients = as_float64(coefficients)
    reach = as_float64(reach).expand(len(coefficients))
    if not (reach >= 0).all():
        raise ValueError(f"reach is the largest |z| and must be at least 0, got {reach.tolist()}")
    match link:
        case "relu":
            slopes = coefficients[:, :2].abs()
            return slopes.amax(-1)
        case "affine":
            return coefficients[:, 0].abs()
        case "linear":
            return torch.full_like(reach, lipschitz)
        case "quadratic":
            return lipschitz * reach
        case _:
            phase = torch.zeros_like(reach)
            if link == "phased_cosine":
                phase = torch.atan2(coefficients[:, 1], coefficients[:, 0])
            # |sin| is the cosine of the distance to the nearest pi/2 + k pi, which z may come to.
            folded = phase.remainder(math.pi)
            apart = (folded - math.pi / 2).abs()
            omega = lipschitz if frequency is None else frequency
            covered = omega * reach
            left = apart - covered
            nearest = left.clamp(min=0)
            return lipschitz * nearest.cos()


def ridge_lipschitz(
    vectors: Float[Tensor, "function dim"], slopes: Float[Tensor, " function"]
) -> Float[Tensor, " function"]:
    """Lip(f) = |v| Lip(g) of f(x) = g(<v, x>) + c.

    Two points that differ along v alone reach it.

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    "Definition (Lipschitzness)".

    Args:
        vectors: v of each function.
        slopes: Lip(g) of each, from `profile_slope`.

    Example:
        >>> import torch
        >>> v = torch.tensor([[3., 4.]])
        >>> float(ridge_lipschitz(v, torch.tensor([2.])))
        10.0
    """
    lengths = torch.linalg.vector_norm(as_float64(vectors), dim=-1)
    return lengths * as_float64(slopes)


def direction_lipschitz(
    vectors: Float[Tensor, "function dim"],
    direction: Float[Tensor, " dim"],
    link: str,
    lipschitz: float,
    coefficients: Float[Tensor, "function coefficient"],
    frequency: float | None = None,
    length: float = math.inf,
) -> Float[Tensor, " function"]:
    """Lip_s(f), the Lipschitz constant of t -> f(t s) for |t| <= length, for f(x) = g(<v, x>) + c.

    It is |<v, s>| Lip(g) on |z| <= |<v, s>| length: 0 where s is at right angles to v, and at most
    Lip(f).

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    "Definition (Direction-wise Lipschitzness - Informal)".

    Args:
        vectors: v of each function.
        direction: s, which is scaled to length 1.
        link: of the profile, see `function_class`.
        lipschitz: L.
        coefficients: as for `profile_slope`.
        frequency: omega of cosines; None is L.
        length: the largest |t|; inf is the slides' definition.

    Raises:
        ValueError: s is 0, or as `profile_slope`.

    Example:
        >>> import torch
        >>> v, none = torch.tensor([[1., 0.]]), torch.zeros(1, 0)
        >>> [float(direction_lipschitz(v, torch.tensor(s), "quadratic", 2., none, length=1.))
        ...  for s in ([1., 0.], [0., 1.])]
        [2.0, 0.0]
    """
    unit = _unit(direction)
    products = as_float64(vectors) @ unit
    along = products.abs()
    # At right angles z is 0 for every t, also for an endless line.
    reach = torch.where(along > 0, along * length, 0.0)
    slopes = profile_slope(link, lipschitz, coefficients, frequency, reach)
    return torch.where(along > 0, along * slopes, 0.0)


def subspace_lipschitz(
    basis: Float[Tensor, "dim rank"], direction: Float[Tensor, " dim"]
) -> Float[Tensor, ""]:
    """max over f in F_B^lin of Lip_s(f): |B^T s|, the cosine between s and col(B).

    It is 1 for s in col(B) and 0 for s at right angles to it, as the slides say.

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    "Results Part II", the class a^T B^T x with |a| = 1; the maximum is at a = B^T s / |B^T s|.

    Args:
        basis: B, orthonormal columns.
        direction: s, which is scaled to length 1.

    Raises:
        ValueError: s is 0.

    Example:
        >>> import torch
        >>> b = torch.eye(3)[:, :2]
        >>> [float(subspace_lipschitz(b, torch.tensor(s))) for s in ([3., 4., 0.], [0., 0., 1.])]
        [1.0, 0.0]
    """
    unit = _unit(direction)
    projected = as_float64(basis).mT @ unit
    return torch.linalg.vector_norm(projected)


def _unit(direction: Float[Tensor, " dim"]) -> Float[Tensor, " dim"]:
    direction = as_float64(direction)
    length = torch.linalg.vector_norm(direction)
    if not length > 0:
        raise ValueError("a direction must not be 0")
    return direction / length
