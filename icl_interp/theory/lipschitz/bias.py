"""The bias of a window: its local average less the function at the query, for long prompts.

This is one part of the study `lipschitz`, which re-exports it. For n to infinity a window
multiplies the part of a function in the harmonic degree k by lambda_k(w) (`harmonic_shrinkage`), so
its mean squared bias is sum_k E f_k^2 (1 - lambda_k)^2. That is exact: no quadrature is needed.
"""

import math
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.errata import Compared, Erratum
from icl_interp.theory.lipschitz.classes import (
    FunctionClass,
    function_class,
    harmonic_energies,
    highest_degree,
    total_energy,
)
from icl_interp.theory.lipschitz.window import (
    SLIDES,
    PerWindow,
    Window,
    as_window,
    check_dimension,
    check_examples,
    harmonic_shrinkage,
    mean_cosine,
    noise_limit,
)
from icl_interp.theory.softmax import as_float64

__all__ = [
    "FinitePromptTerm",
    "PrintedBiasBounds",
    "bias_asymptote",
    "bias_bounds_as_printed",
    "bias_limit",
    "class_bias_limit",
    "class_finite_prompt_term",
    "finite_prompt_term",
    "kink_density",
    "linear_bias_asymptote",
    "linear_bias_limit",
]

# kappa: of (z)_+ smoothed by a Gaussian, integrated over z
KINK = (2 - math.sqrt(2)) / (3 * math.sqrt(math.pi))
# The class F_L^+ whose bias is beta: 2 L^2 / 3 = 1
UNIT = function_class("relu", math.sqrt(1.5))


class FinitePromptTerm(NamedTuple):
    """The two parts of what the bias has at order 1/n, each times n."""

    # phi, of the average around its mean
    variance: Float[Tensor, "*window"]
    # The weights' denominator is random too, which shifts that mean.
    ratio: Float[Tensor, "*window"]

    @property
    def total(self) -> Float[Tensor, "*window"]:
        """The sum."""
        return self.variance + self.ratio


class PrintedBiasBounds(NamedTuple):
    """What the slides bound the bias by, in units of L^2 and up to unstated constants."""

    lower: Float[Tensor, "*window"]
    upper: Float[Tensor, "*window"]


def bias_limit(w: Window, d: int) -> PerWindow:
    """beta_inf(w; d), the limit of the bias term beta for long prompts.

    beta = E(sum_i a_i (q^T x_i)_+ - (q^T x_q)_+)^2.

    The bias on F_L^+ is (2 L^2 / 3) beta, because l1 and l2 are independent with E l^2 = L^2 / 3.

    Source: the exact form of L_bias in Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024),
    slides by A. Mokhtari, "Proof Sketch", where it is bounded.

    Args:
        w: any shape, at least 0; M = w I.
        d: coordinates of x, at least 2, on the unit sphere.

    Returns:
        beta_inf, with the shape of w.

    Raises:
        ValueError: a negative w, or d below 2.

    Example:
        >>> import torch
        >>> bias_limit(torch.tensor([0., 10.]), d=3) * 1e3
        tensor([104.1667, 2.9400], dtype=torch.float64)
    """
    return class_bias_limit(UNIT, w, d)


def linear_bias_limit(w: Window, d: int) -> PerWindow:
    """(1 - A_d(w))^2 / d, the same limit for linear functions of slope 1.

    The window shrinks such a function by A_d(w).

    Source: `mean_cosine`, with E (q^T x_q)^2 = 1/d.

    Args:
        w: any shape, at least 0.
        d: coordinates of x, at least 2.

    Raises:
        ValueError: a negative w, or d below 2.

    Example:
        >>> import torch
        >>> of_class = class_bias_limit(function_class("linear"), 10., d=3)
        >>> torch.allclose(linear_bias_limit(10., d=3), of_class)
        True
    """
    missed = 1 - mean_cosine(w, d)
    return missed.square() / d


def class_bias_limit(functions: FunctionClass, w: Window, d: int) -> PerWindow:
    """The mean squared bias on any class for long prompts: sum_k E f_k^2 (1 - lambda_k(w))^2.

    Factors of L are included.

    Source: the Funk-Hecke theorem, see `harmonic_energies`.

    Args:
        functions: the class, with its L.
        w: any shape, at least 0.
        d: coordinates of x, at least 2.

    Raises:
        ValueError: a negative w, or d below 2.

    Example:
        >>> import torch
        >>> steep = class_bias_limit(function_class("relu", 3.), 10., d=5)
        >>> torch.allclose(steep, 2 * 3**2 / 3 * bias_limit(10., d=5))
        True
    """
    w = as_window(w)
    check_dimension(d)
    energies, rest = _energies(functions, w, d)
    shrinkage = harmonic_shrinkage(w, d, len(energies) - 1)
    missed = (1 - shrinkage).square() * energies
    return missed.sum(-1) + rest


def finite_prompt_term(w: Window, d: int) -> FinitePromptTerm:
    """What n (beta_n - beta_inf) tends to, in two parts; see `class_finite_prompt_term`.

    Source: replaces "+ L^2 / n" in Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024),
    slides by A. Mokhtari, "Proof Sketch".

    Args:
        w: any shape, at least 0.
        d: coordinates of x, at least 2.

    Raises:
        ValueError: a negative w, or d below 2.

    Example:
        >>> import torch
        >>> at_0 = finite_prompt_term(0., d=3).variance  # Var (q^T x)_+ = 1/(2d) - (E (q^T x)_+)^2
        >>> torch.allclose(at_0, torch.tensor(1 / 6 - 1 / 16).double())
        True
    """
    return class_finite_prompt_term(UNIT, w, d)


def class_finite_prompt_term(functions: FunctionClass, w: Window, d: int) -> FinitePromptTerm:
    """n (bias_n - bias_inf) for n to infinity, on any class.

    With m_w = E_w f, the mean under weights e^(w t) / Z(w), and R = Z(2w) / Z(w)^2: variance
    phi = R E_2w (f - m_w)^2 and ratio = 2 R (f(x_q) - m_w) (m_2w - m_w), both averaged over f. Both
    hold for w^((d-1)/2) much below n.

    Source: the expansion of a ratio of two means to first order in 1/n.

    Args:
        functions: the class, with its L.
        w: any shape, at least 0.
        d: coordinates of x, at least 2.

    Raises:
        ValueError: a negative w, or d below 2.

    Example:
        >>> import torch
        >>> linear = function_class("linear")
        >>> term = class_finite_prompt_term(linear, 100., d=3)
        >>> # E_2w |x|^2 = 1, so phi -> R / (2 w)
        >>> torch.allclose(term.variance, torch.tensor(1 / 3).double(), rtol=1e-3)
        True
    """
    w = as_window(w)
    check_dimension(d)
    energies, rest = _energies(functions, 2 * w, d)
    highest = len(energies) - 1
    # Degree by degree m_w is `once` times f, and m_2w `twice` times f.
    once = harmonic_shrinkage(w, d, highest)
    twice = harmonic_shrinkage(2 * w, d, highest)
    around = 1 - 2 * once * twice + once.square()
    shifted = (1 - once) * (twice - once)
    R = noise_limit(w, d)
    variance = (around * energies).sum(-1) + rest
    shift = (shifted * energies).sum(-1)
    return FinitePromptTerm(R * variance, 2 * R * shift)


def kink_density(d: int) -> Float[Tensor, ""]:
    """The density f_c(0) of q^T x_q at the kink of (z)_+; 1/2 for d = 3.

    f_c(0) = Gamma(d/2) / (sqrt(pi) Gamma((d-1)/2)).

    Source: the law of one coordinate of a uniform point on the sphere.

    Args:
        d: coordinates of x, at least 2.

    Raises:
        ValueError: d below 2.

    Example:
        >>> kink_density(3)
        tensor(0.5000, dtype=torch.float64)
    """
    check_dimension(d)
    gammas = math.exp(math.lgamma(d / 2) - math.lgamma((d - 1) / 2))
    return as_float64(gammas / math.sqrt(math.pi))


def bias_asymptote(w: Window, d: int) -> PerWindow:
    """kappa f_c(0) w^(-3/2), kappa = (2 - sqrt 2) / (3 sqrt pi): what `bias_limit` approaches.

    The kink makes it.

    Source: sharpens Omega(L^2 / w^2) < L_bias < Theta(L^2 / w + L^2 / n) of Collins, Parulekar,
    Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari, "Proof Sketch".

    Args:
        w: any shape, positive.
        d: coordinates of x, at least 2.

    Raises:
        ValueError: a negative w, or d below 2.

    Example:
        >>> ratio = bias_limit(1e5, d=3) / bias_asymptote(1e5, d=3)
        >>> round(float(ratio), 2)
        1.01
    """
    w = as_window(w)
    return KINK * kink_density(d) * w**-1.5


def linear_bias_asymptote(w: Window, d: int) -> PerWindow:
    """(d-1)^2 / (4 d w^2), which `linear_bias_limit` approaches as w grows.

    A smooth function is shrunk; it has no kink.

    Source: A_d(w) = 1 - (d-1) / (2w) + O(1/w^2).

    Args:
        w: any shape, positive.
        d: coordinates of x, at least 2.

    Raises:
        ValueError: a negative w, or d below 2.

    Example:
        >>> import torch
        >>> torch.allclose(linear_bias_asymptote(50., d=3), linear_bias_limit(50., d=3))
        True
    """
    check_dimension(d)
    w = as_window(w)
    return (d - 1) ** 2 / (4 * d) * w**-2.0


def bias_bounds_as_printed(w: Window, n: int) -> PrintedBiasBounds:
    """1 / w^2 and 1 / w + 1 / n, between which the slides have L_bias / L^2, up to constants.

    True as orders for w >= 1 and w^((d-1)/2) <= n. The lower bound is false for w to 0, where the
    bias stays bounded.

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    "Proof Sketch", Omega(L^2 / w^2) < L_bias < Theta(L^2 / w + L^2 / n), with w in the convention
    of the other slides.

    Args:
        w: any shape, positive.
        n: labelled examples.

    Raises:
        ValueError: a negative w, or n below 1.

    Example:
        >>> tuple(bias_bounds_as_printed(2., n=4))
        (tensor(0.2500, dtype=torch.float64), tensor(0.7500, dtype=torch.float64))
    """
    w = as_window(w)
    check_examples(n)
    lower = w**-2.0
    upper = 1 / w + 1 / n
    return PrintedBiasBounds(lower, upper)


def _energies(functions: FunctionClass, w: Tensor, d: int) -> tuple[Tensor, float]:
    """The energies up to a degree, and what lies above it.

    These windows let nothing through beyond that degree.
    """
    widest = math.sqrt(float(w.max())) if w.numel() else 0.0
    let_through = math.ceil(8 * widest) + 40
    highest = max(highest_degree(functions), let_through)
    energies = harmonic_energies(functions, d, highest)
    rest = total_energy(functions, d) - float(energies.sum())
    return energies, max(rest, 0.0)


def _bounds_for_a_wide_window() -> Compared:
    """The printed lower bound and the bias of long prompts at w = .01, d = 3, over L^2."""
    printed = bias_bounds_as_printed(0.01, 100)
    true = bias_limit(0.01, 3)
    return Compared(float(printed.lower), float(true))


ERRATA = (
    Erratum(
        SLIDES,
        "Proof Sketch, bias",
        "The bias is at least of order L^2 / w^2.",
        "That is true for w >= 1 with w^((d-1)/2) <= n, and false for w to 0, where the bias stays "
        "bounded.",
        (bias_bounds_as_printed, bias_limit),
        "bias over L^2 at w = .01, d = 3, for long prompts",
        _bounds_for_a_wide_window,
    ),
)
