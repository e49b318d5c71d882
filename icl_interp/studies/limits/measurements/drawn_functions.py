"""Families of continuous functions that are drawn anew for every unit, beside those that the paper names.

A model could know a few named functions by heart. Nobody knows those of a family beforehand, and
their second moments are closed forms: how much they vary, and how much of that no polynomial of
some degree explains.

* "smooth": like exp, sin and ln(1 + x) on [0, 1]. m + g(x) - g(1/2), with m from U(-1, 1) and g a
  draw of the Gaussian process of correlation exp(-d^2 / 2 l^2). Its length l is drawn for each
  function, from one to two times the domain, log-uniformly. A line leaves 3.0 % of their variance
  and a parabola 0.07 % (of exp 1.6 % and 0.01 %).
* "kinked": like |x| on [-1, 1]. m + s |x - t|, with m and t from U(-1/2, 1/2) and s = 1 or -1.

g is a sum of cosines of random frequency and phase: Rahimi and Recht (2007), Random features for
large-scale kernel machines. Its second moments are those of the process, whatever the number of
cosines.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

LENGTHS = (1.0, 2.0)  # of correlation, in units of the domain's width, which is 1
SIZE = 1 / 16  # mean variance of a smooth function over its domain: that of sin is 0.061
N_COSINES = 16
SHIFT = 0.5  # of kinks and of constants
NODES = 64  # of a quadrature
Draw = Callable[[Float[Tensor, "function point"], torch.Generator], Float[Tensor, "function point"]]


@dataclass(frozen=True)
class Family:
    """Functions that are drawn.

    Attributes:
        name: in words.
        domain: where they are asked for.
        draw: values of one function a row, at its inputs.
        moments: mean variance over the domain, and the share of it that the best polynomials of a
            degree leave.
    """

    name: str
    domain: tuple[float, float]
    draw: Draw
    moments: Callable[[int], tuple[float, float]]


def _uniform(n: int, low: float, high: float, g: torch.Generator) -> Float[Tensor, "function 1"]:
    return low + (high - low) * torch.rand(n, 1, generator=g, dtype=torch.float64)


# ---- smooth functions ----------------------------------------------------------------------------


def smooth(
    xs: Float[Tensor, "function point"], g: torch.Generator
) -> Float[Tensor, "function point"]:
    """Smooth functions at some inputs."""
    shape, low, high = (len(xs), N_COSINES, 1), *map(math.log, LENGTHS)
    length = _uniform(len(xs), low, high, g).exp()
    frequency = torch.randn(shape, generator=g, dtype=torch.float64) / length[:, None]
    phase = 2 * math.pi * torch.rand(shape, generator=g, dtype=torch.float64)
    amplitude = torch.randn(shape, generator=g, dtype=torch.float64) * math.sqrt(2 / N_COSINES)
    middle = torch.full_like(xs[:, :1], 0.5)
    waves = (amplitude * torch.cos(frequency * torch.cat([xs, middle], 1)[:, None] + phase)).sum(1)
    size = math.sqrt(SIZE / _unit_variance())
    return _uniform(len(xs), -1, 1, g) + size * (waves[:, :-1] - waves[:, -1:])


@functools.cache
def _correlations() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes of a quadrature on [-1, 1] with weights that add up to 1, and the process's correlations between them.

    A mean over lengths: second moments of functions of several lengths are means, too.
    """
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    distance = (nodes[:, None] - nodes) / 2
    low, high = np.log(LENGTHS)
    lengths = np.exp((low + high) / 2 + (high - low) / 2 * nodes)
    each = np.exp(-(distance[..., None] ** 2) / (2 * lengths**2))
    return nodes, weights / 2, each @ weights / 2


@functools.cache
def _unit_variance() -> float:
    """Mean variance over the domain of functions whose prior variance is 1."""
    _, weights, correlation = _correlations()
    return float(1 - weights @ correlation @ weights)


@functools.cache
def smooth_moments(degree: int) -> tuple[float, float]:
    """Mean variance of smooth functions over [0, 1], and the share of it that polynomials of a degree leave."""
    nodes, weights, correlation = _correlations()
    basis = weights[:, None] * _orthonormal(nodes, degree)
    explained = np.einsum("xk,xy,yk->k", basis, correlation, basis)
    return SIZE, float(1 - explained[1:].sum() / _unit_variance())


def _orthonormal(u: np.ndarray, degree: int) -> np.ndarray:
    """Legendre polynomials 0 .. degree on [-1, 1], of mean square 1: (point, polynomial)."""
    return np.polynomial.legendre.legvander(u, degree) * np.sqrt(2 * np.arange(degree + 1) + 1)


# ---- kinked functions ----------------------------------------------------------------------------


def kinked(
    xs: Float[Tensor, "function point"], g: torch.Generator
) -> Float[Tensor, "function point"]:
    """Kinked functions at some inputs."""
    constant, place = (_uniform(len(xs), -SHIFT, SHIFT, g) for _ in range(2))
    sign = torch.randint(0, 2, (len(xs), 1), generator=g).mul(2).sub(1)
    return constant + sign * (xs - place).abs()


@functools.cache
def kinked_moments(degree: int) -> tuple[float, float]:
    """Mean variance of kinked functions over [-1, 1], and the share of it that polynomials of a degree leave.

    Either side of a kink by itself, so that the quadrature is exact; so is the one over kinks,
    since what a kinked function has in common with a polynomial is a polynomial of the kink.
    """
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    variance = left = 0.0
    for kink, share in zip(SHIFT * nodes, weights / 2, strict=True):
        u = np.concatenate(
            [kink + (kink + 1) * (nodes - 1) / 2, kink + (1 - kink) * (nodes + 1) / 2]
        )
        weight = np.concatenate([(kink + 1) * weights, (1 - kink) * weights]) / 4
        f, basis = np.abs(u - kink), _orthonormal(u, degree)
        coefficients = (weight * f) @ basis
        variance += share * float(weight @ (f - coefficients[0]) ** 2)
        left += share * float(weight @ (f - basis @ coefficients) ** 2)
    return float(variance), float(left / variance)


FAMILIES = {
    "smooth": Family("smooth functions, drawn", (0.0, 1.0), smooth, smooth_moments),
    "kinked": Family("kinked functions, drawn", (-1.0, 1.0), kinked, kinked_moments),
}
