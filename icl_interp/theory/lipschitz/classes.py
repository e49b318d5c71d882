"""Classes of functions on the sphere: what their members are, and how much of them lies in each harmonic degree.

This is one part of the study `lipschitz`, which re-exports it. A class is a profile of z = q^T x
with a direction q that is uniform on the unit sphere. Constants drop out of every loss, because
attention weights sum to 1.
"""

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.lipschitz.window import check_dimension
from icl_interp.theory.softmax import as_float64

__all__ = ["FunctionClass", "function_class", "harmonic_energies"]

LINKS = ("relu", "affine", "linear", "quadratic", "cosine", "phased_cosine")
COSINES = ("cosine", "phased_cosine")


@dataclass(frozen=True)
class FunctionClass:
    """A class of functions of z = q^T x with the Lipschitz constant L; made by `function_class`.

    Attributes:
        link: one of "relu", "affine", "linear", "quadratic", "cosine", "phased_cosine".
        lipschitz: L, in units of label per unit length.
        frequency: omega, of cosines; None is L.
    """

    link: str
    lipschitz: float
    frequency: float | None = None

    @property
    def omega(self) -> float:
        """The frequency of a cosine."""
        return self.lipschitz if self.frequency is None else self.frequency

    @property
    def scales(self) -> bool:
        """Whether L only multiplies the functions, so that the bias at L is L^2 times that at 1."""
        return self.link not in COSINES or self.frequency is not None

    @property
    def even(self) -> bool:
        """Whether f(x) = f(-x) for all members: then the loss at -M is that at M."""
        return self.link in ("quadratic", "cosine")

    def with_lipschitz(self, lipschitz: float) -> Self:
        """The same class at another L."""
        return replace(self, lipschitz=check_lipschitz(lipschitz))

    def features(
        self,
        points: Float[Tensor, "*batch point dim"],
        directions: Float[Tensor, "*batch direction dim"],
    ) -> Float[Tensor, "*batch point feature"]:
        """phi with E_f (sum_i c_i f(x_i))^2 = E_q sum_s (sum_i c_i phi_s(x_i))^2 for all c that sum to 0.

        What of the law of f can be averaged in closed form is: slopes, phases, and directions where
        f is linear.

        Args:
            points: x, any length; of the unit sphere or of a subspace (B^T x).
            directions: q, unit vectors, over which the mean is taken.
        """
        points, size = as_float64(points), self.lipschitz
        straight = points / math.sqrt(points.shape[-1])
        if self.link in ("affine", "linear"):
            return math.sqrt(_slope_square(self)) * straight
        z = points @ as_float64(directions).mT
        mean = math.sqrt(z.shape[-1])
        if (
            self.link == "relu"
        ):  # (z)_+ = z / 2 + |z| / 2, and the two halves do not correlate over q -> -q
            return size * math.sqrt(2 / 3) / 2 * torch.cat([straight, z.abs() / mean], -1)
        if self.link == "quadratic":
            return size / 2 * z.square() / mean
        waves, amplitude = self.omega * z, size / self.omega / mean
        if self.link == "cosine":
            return amplitude * waves.cos()
        return amplitude / math.sqrt(2) * torch.cat([waves.cos(), waves.sin()], -1)


def function_class(
    link: str, lipschitz: float = 1.0, frequency: float | None = None
) -> FunctionClass:
    """A class of functions of z = q^T x by the name of its link. l1, l2, l and b are uniform on [-L, L].

    * relu: F_L^+, l1 (z)_+ + l2 (-z)_+ + b;
    * affine: l z + b; linear: L z;
    * quadratic: (L/2) z^2;
    * cosine: (L / omega) cos(omega z); phased_cosine: (L / omega) cos(omega z + phase), the phase
      uniform.

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    "Intuition Summary" (F_L^+), "Empirical Generalization" (affine and cosine), and the last one
    (quadratic).

    Args:
        link: its name.
        lipschitz: L.
        frequency: omega, for the cosines only; None is L, which gives cos(L z). With omega far
            above L the functions have the Lipschitz constant of others and change direction much
            more often.

    Raises:
        ValueError: an unknown name, L or omega not positive, or an omega for another link.

    Example:
        >>> function_class("relu", 2.).scales, function_class("cosine", 2.).scales
        (True, False)
    """
    if link not in LINKS:
        raise ValueError(
            f"the link of a class of functions is one of {', '.join(LINKS)}, got {link!r}"
        )
    if frequency is not None and (link not in COSINES or not 0 < frequency < math.inf):
        raise ValueError(
            f"frequency is positive and for {' and '.join(COSINES)}, got {frequency} for {link!r}"
        )
    return FunctionClass(
        link, check_lipschitz(lipschitz), None if frequency is None else float(frequency)
    )


def harmonic_energies(functions: FunctionClass, d: int, degrees: int) -> Float[Tensor, " degree"]:
    """E f_k^2, k = 0 to `degrees`: how much of a class lies in each degree of spherical harmonics, constants b aside.

    They sum to E f^2. Odd parts: degree 1 alone for F_L^+ (the linear half) and for affine
    functions. Even parts: those of |z|, a_k = 2 Gamma(d/2) (k-2)! / (sqrt(pi) 2^k (k/2-1)!
    Gamma((k+d+1)/2)) up to its sign, times the number of harmonics. Waves: the plane-wave
    expansion, Gamma(d/2)^2 (2/omega)^(d-2) J_(k+d/2-1)(omega)^2 times that number.

    Source: Rodrigues' formula and the Funk-Hecke theorem.

    Args:
        functions: the class, with its L.
        d: coordinates of x, at least 2.
        degrees: the highest degree.

    Raises:
        ValueError: d below 2.

    Example:
        >>> energies = harmonic_energies(function_class("phased_cosine", 3.), d=3, degrees=30)
        >>> round(float(energies.sum()), 12)
        0.5
    """
    check_dimension(d)
    k, size = np.arange(degrees + 1), functions.lipschitz
    if functions.link == "relu":
        energies = 2 * size**2 / 3 * (_absolute_value(k, d) + (k == 1) / d) / 4
    elif functions.link in ("affine", "linear"):
        energies = _slope_square(functions) / d * (k == 1)
    elif functions.link == "quadratic":
        energies = (size / 2) ** 2 * ((k == 0) / d**2 + (k == 2) * 2 * (d - 1) / (d**2 * (d + 2)))
    else:
        kept = (k % 2 == 0) if functions.link == "cosine" else 0.5
        energies = (size / functions.omega) ** 2 * _wave(k, d, functions.omega) * kept
    return torch.from_numpy(np.asarray(energies, dtype=np.float64))


def total_energy(functions: FunctionClass, d: int) -> float:
    """E f^2, without the constant b: the sum of `harmonic_energies` over all degrees."""
    if functions.link == "relu":
        return functions.lipschitz**2 / (3 * d)
    # The others are polynomials or entire: their energies fall faster than exponentially.
    return float(harmonic_energies(functions, d, highest_degree(functions)).sum())


def highest_degree(functions: FunctionClass) -> int:
    """A degree above which a class of polynomials or waves has nothing."""
    return math.ceil(2 * functions.omega if functions.link in COSINES else 0) + 40


def check_lipschitz(lipschitz: float) -> float:
    """The Lipschitz constant as a float; ValueError unless it is positive."""
    if not 0 < lipschitz < math.inf:
        raise ValueError(f"a Lipschitz constant L must be positive and finite, got {lipschitz}")
    return float(lipschitz)


def _slope_square(functions: FunctionClass) -> float:
    """E l^2 of linear functions."""
    return functions.lipschitz**2 / (3 if functions.link == "affine" else 1)


def _harmonics(k: np.ndarray, d: int) -> np.ndarray:
    """How many independent spherical harmonics of degree k there are in R^d."""
    from scipy.special import gammaln

    counts = (2 * k + d - 2) * np.exp(
        gammaln(np.maximum(k, 1) + d - 2) - gammaln(k + 1) - gammaln(d - 1)
    )
    return np.where(k == 0, 1.0, counts)


def _absolute_value(k: np.ndarray, d: int) -> np.ndarray:
    from scipy.special import gammaln

    j = np.maximum(k, 2)
    higher = (
        math.log(2) - j * math.log(2) + gammaln(j - 1) - gammaln(j / 2) - gammaln((j + d + 1) / 2)
    )
    coefficient = (
        np.where(k == 0, -gammaln((d + 1) / 2), higher) + gammaln(d / 2) - math.log(math.pi) / 2
    )
    return np.where(k % 2 == 0, _harmonics(k, d) * np.exp(2 * coefficient), 0.0)


def _wave(k: np.ndarray, d: int, frequency: float) -> np.ndarray:
    """Energies of e^(i omega z), which sum to 1."""
    from scipy.special import gammaln, jv

    order = d / 2 - 1
    size = np.exp(gammaln(d / 2) + order * math.log(2 / frequency))
    return _harmonics(k, d) * (size * jv(k + order, frequency)) ** 2
