"""Classes of functions on the sphere: their members, and their share in each harmonic degree.

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
        """phi with E_f (sum_i c_i f(x_i))^2 = E_q sum_s (sum_i c_i phi_s(x_i))^2.

        The equation holds for all c that sum to 0.

        Means over slopes, phases, and directions where f is linear are in closed form.

        Args:
            points: x, any length; of the unit sphere or of a subspace (B^T x).
            directions: q, unit vectors, over which the mean is taken.
        """
        size = self.lipschitz
        points = as_float64(points)
        dim = points.shape[-1]
        straight = points / math.sqrt(dim)
        if self.link in ("affine", "linear"):
            slope = math.sqrt(_slope_square(self))
            return slope * straight

        # The squares of features are summed over directions: each is divided by the root of how
        # many there are.
        directions = as_float64(directions)
        z = points @ directions.mT
        root = math.sqrt(z.shape[-1])
        if self.link == "relu":
            # (z)_+ = z / 2 + |z| / 2, and the two halves do not correlate over q -> -q
            halves = torch.cat([straight, z.abs() / root], -1)
            return size * math.sqrt(2 / 3) / 2 * halves
        if self.link == "quadratic":
            return size / 2 * z.square() / root
        waves = self.omega * z
        amplitude = size / self.omega / root
        if self.link == "cosine":
            return amplitude * waves.cos()
        # Over phases a cosine and a sine have a half each.
        both = torch.cat([waves.cos(), waves.sin()], -1)
        return amplitude / math.sqrt(2) * both


def function_class(
    link: str, lipschitz: float = 1.0, frequency: float | None = None
) -> FunctionClass:
    """A class of functions of z = q^T x by the name of its link.

    l1, l2, l and b are uniform on [-L, L].

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
    lipschitz = check_lipschitz(lipschitz)
    if frequency is not None:
        frequency = float(frequency)
    return FunctionClass(link, lipschitz, frequency)


def harmonic_energies(functions: FunctionClass, d: int, degrees: int) -> Float[Tensor, " degree"]:
    """E f_k^2, k = 0 to `degrees`: the part of a class in each degree of spherical harmonics.

    Constants b are left out.

    The parts sum to E f^2. Odd parts: degree 1 alone for F_L^+ (the linear half) and for affine
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
    k = np.arange(degrees + 1)
    size = functions.lipschitz
    if functions.link == "relu":
        halves = _absolute_value(k, d) + (k == 1) / d
        energies = 2 * size**2 / 3 * halves / 4
    elif functions.link in ("affine", "linear"):
        slope_square = _slope_square(functions)
        energies = slope_square / d * (k == 1)
    elif functions.link == "quadratic":
        # z^2 is its mean 1 / d and a harmonic of degree 2.
        mean = (k == 0) / d**2
        rest = (k == 2) * 2 * (d - 1) / (d**2 * (d + 2))
        energies = (size / 2) ** 2 * (mean + rest)
    else:
        omega = functions.omega
        amplitude = size / omega
        kept = (k % 2 == 0) if functions.link == "cosine" else 0.5
        energies = amplitude**2 * _wave(k, d, omega) * kept
    return torch.from_numpy(np.asarray(energies, dtype=np.float64))


def total_energy(functions: FunctionClass, d: int) -> float:
    """E f^2, without the constant b: the sum of `harmonic_energies` over all degrees."""
    if functions.link == "relu":
        return functions.lipschitz**2 / (3 * d)
    # The others are polynomials or entire: their energies fall faster than exponentially.
    highest = highest_degree(functions)
    energies = harmonic_energies(functions, d, highest)
    return float(energies.sum())


def highest_degree(functions: FunctionClass) -> int:
    """A degree above which a class of polynomials or waves has nothing."""
    if functions.link not in COSINES:
        return 40
    return math.ceil(2 * functions.omega) + 40


def check_lipschitz(lipschitz: float) -> float:
    """The Lipschitz constant as a float; ValueError unless it is positive."""
    if not 0 < lipschitz < math.inf:
        raise ValueError(f"a Lipschitz constant L must be positive and finite, got {lipschitz}")
    return float(lipschitz)


def _slope_square(functions: FunctionClass) -> float:
    """E l^2 of linear functions."""
    square = functions.lipschitz**2
    return square / 3 if functions.link == "affine" else square


def _harmonics(k: np.ndarray, d: int) -> np.ndarray:
    """How many independent spherical harmonics of degree k there are in R^d."""
    from scipy.special import gammaln

    # Degree 0 has one, where the formula may not be defined.
    above_0 = np.maximum(k, 1)
    logarithms = gammaln(above_0 + d - 2) - gammaln(k + 1) - gammaln(d - 1)
    counts = (2 * k + d - 2) * np.exp(logarithms)
    return np.where(k == 0, 1.0, counts)


def _absolute_value(k: np.ndarray, d: int) -> np.ndarray:
    """Energies of |z|: a_k^2 times the number of harmonics for even k, 0 for odd ones."""
    from scipy.special import gammaln

    # log |a_k| without the factors that do not depend on k. Its formula is for k of 2 or more.
    log_2 = math.log(2)
    j = np.maximum(k, 2)
    higher = log_2 - j * log_2 + gammaln(j - 1)
    higher = higher - gammaln(j / 2) - gammaln((j + d + 1) / 2)
    lowest = -gammaln((d + 1) / 2)
    by_degree = np.where(k == 0, lowest, higher)
    log_size = by_degree + gammaln(d / 2) - math.log(math.pi) / 2
    energies = _harmonics(k, d) * np.exp(2 * log_size)
    return np.where(k % 2 == 0, energies, 0.0)


def _wave(k: np.ndarray, d: int, frequency: float) -> np.ndarray:
    """Energies of e^(i omega z), which sum to 1."""
    from scipy.special import gammaln, jv

    order = d / 2 - 1
    size = np.exp(gammaln(d / 2) + order * math.log(2 / frequency))
    coefficients = size * jv(k + order, frequency)
    return _harmonics(k, d) * coefficients**2
