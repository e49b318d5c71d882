"""Families of continuous functions, drawn anew for every unit, beside those the paper names.

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
from numpy.polynomial.legendre import leggauss, legvander
from torch import Tensor

LENGTHS = (1.0, 2.0)  # of correlation, in units of the domain's width, which is 1
SIZE = 1 / 16  # mean variance of a smooth function over its domain: that of sin is 0.061
N_COSINES = 16
SHIFT = 0.5  # of kinks and of constants
NODES = 64  # of a quadrature
Values = Float[Tensor, "function point"]
Draw = Callable[[Values, torch.Generator], Values]


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
    width = high - low
    share = torch.rand(n, 1, generator=g, dtype=torch.float64)
    return low + width * share


def _normal(shape: tuple[int, ...], g: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=g, dtype=torch.float64)


# ---- smooth functions ----------------------------------------------------------------------------


def smooth(xs: Values, g: torch.Generator) -> Values:
    """Smooth functions at some inputs."""
    n = len(xs)
    shape = (n, N_COSINES, 1)
    low, high = map(math.log, LENGTHS)
    log_length = _uniform(n, low, high, g)
    length = log_length.exp()
    frequency = _normal(shape, g) / length[:, None]
    turn = torch.rand(shape, generator=g, dtype=torch.float64)
    phase = 2 * math.pi * turn
    amplitude = _normal(shape, g)
    amplitude = amplitude * math.sqrt(2 / N_COSINES)
    # The process at all inputs, and last at the middle of the domain.
    middle = torch.full_like(xs[:, :1], 0.5)
    places = torch.cat([xs, middle], 1)
    cosines = torch.cos(frequency * places[:, None] + phase)
    terms = amplitude * cosines
    waves = terms.sum(1)
    change = waves[:, :-1] - waves[:, -1:]
    variance = _unit_variance()
    size = math.sqrt(SIZE / variance)
    mean = _uniform(n, -1, 1, g)
    return mean + size * change


@functools.cache
def _correlations() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes and weights of a quadrature on [-1, 1], and the process's correlations between nodes.

    The weights add up to 1. The correlations are means over lengths: second moments of functions of
    several lengths are means, too.
    """
    nodes, weights = leggauss(NODES)
    distance = (nodes[:, None] - nodes) / 2
    low, high = np.log(LENGTHS)
    middle = (low + high) / 2
    half = (high - low) / 2
    lengths = np.exp(middle + half * nodes)
    square = distance[..., None] ** 2
    each = np.exp(-square / (2 * lengths**2))
    correlation = each @ weights / 2
    return nodes, weights / 2, correlation


@functools.cache
def _unit_variance() -> float:
    """Mean variance over the domain of functions whose prior variance is 1."""
    _, weights, correlation = _correlations()
    shared = weights @ correlation @ weights
    return float(1 - shared)


@functools.cache
def smooth_moments(degree: int) -> tuple[float, float]:
    """Mean variance of smooth functions over [0, 1], and the share that polynomials leave.

    The polynomials have the given degree.
    """
    nodes, weights, correlation = _correlations()
    polynomials = _orthonormal(nodes, degree)
    basis = weights[:, None] * polynomials
    explained = np.einsum("xk,xy,yk->k", basis, correlation, basis)
    share = explained[1:].sum() / _unit_variance()
    return SIZE, float(1 - share)


def _orthonormal(u: np.ndarray, degree: int) -> np.ndarray:
    """Legendre polynomials 0 .. degree on [-1, 1], of mean square 1: (point, polynomial)."""
    values = legvander(u, degree)
    order = np.arange(degree + 1)
    return values * np.sqrt(2 * order + 1)


# ---- kinked functions ----------------------------------------------------------------------------


def kinked(xs: Values, g: torch.Generator) -> Values:
    """Kinked functions at some inputs."""
    n = len(xs)
    constant = _uniform(n, -SHIFT, SHIFT, g)
    place = _uniform(n, -SHIFT, SHIFT, g)
    coin = torch.randint(0, 2, (n, 1), generator=g)
    sign = 2 * coin - 1
    offset = xs - place
    return constant + sign * offset.abs()


@functools.cache
def kinked_moments(degree: int) -> tuple[float, float]:
    """Mean variance of kinked functions over [-1, 1], and the share that polynomials leave.

    The polynomials have the given degree. Either side of a kink by itself, so that the quadrature
    is exact; so is the one over kinks, since what a kinked function has in common with a polynomial
    is a polynomial of the kink.
    """
    nodes, weights = leggauss(NODES)
    kinks = SHIFT * nodes
    shares = weights / 2
    variance = 0.0
    left = 0.0
    for kink, share in zip(kinks, shares, strict=True):
        below = kink + 1
        above = 1 - kink
        lower = kink + below * (nodes - 1) / 2
        upper = kink + above * (nodes + 1) / 2
        u = np.concatenate([lower, upper])
        of_lower = below * weights
        of_upper = above * weights
        weight = np.concatenate([of_lower, of_upper]) / 4
        f = np.abs(u - kink)
        basis = _orthonormal(u, degree)
        # The best polynomial in the mean square, of which the first coefficient is the mean.
        coefficients = (weight * f) @ basis
        fit = basis @ coefficients
        from_mean = f - coefficients[0]
        from_fit = f - fit
        variance += share * float(weight @ from_mean**2)
        left += share * float(weight @ from_fit**2)
    left_share = left / variance
    return float(variance), float(left_share)


FAMILIES = {
    "smooth": Family("smooth functions, drawn", (0.0, 1.0), smooth, smooth_moments),
    "kinked": Family("kinked functions, drawn", (-1.0, 1.0), kinked, kinked_moments),
}
