"""How window and risk grow with S = n L^2 / sigma^2: Theorems 2 and 3.

Both are given as they are true and as they are printed.

This is one part of the study `lipschitz`, which re-exports it. For large S the bias is b w^-p, with
p = 3/2 for F_L^+ (a kink) and 2 for smooth classes, and the noise (sigma^2 / n) C_d w^((d-1)/2).
All exponents follow from these two. They need S large, and n large at a fixed L / sigma: for S
below about 10 the window grows like S itself, and for sigma = 0 it stays finite at every n.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Num
from torch import Tensor

from icl_interp.theory.errata import Compared, Erratum
from icl_interp.theory.lipschitz.bias import bias_asymptote
from icl_interp.theory.lipschitz.classes import (
    FunctionClass,
    check_lipschitz,
    function_class,
    harmonic_energies,
    highest_degree,
)
from icl_interp.theory.lipschitz.window import (
    SLIDES,
    check_dimension,
    noise_asymptote,
    noise_exponent,
)
from icl_interp.theory.softmax import as_float64

__all__ = [
    "PrintedExponents",
    "Slope",
    "asymptotic_risk",
    "asymptotic_window",
    "bias_share",
    "fitted_slope",
    "local_slopes",
    "risk_bound_as_printed",
    "risk_exponent",
    "transfer_bound",
    "transfer_bound_as_printed",
    "window_exponent",
    "window_exponents_as_printed",
]


class PrintedExponents(NamedTuple):
    """The exponents of S between which the slides have the window."""

    low: Float[Tensor, ""]
    high: Float[Tensor, ""]


class Slope(NamedTuple):
    """A fitted slope with its 95% interval."""

    slope: Float[Tensor, ""]
    low: Float[Tensor, ""]
    high: Float[Tensor, ""]


def window_exponent(d: int, link: str = "relu") -> Float[Tensor, ""]:
    """2/(d+2) for F_L^+ and 2/(d+3) for smooth classes: w* ~ S^e for large S.

    The first lies in the printed interval from 1/d to 2/d for d >= 2, at its lower end for d = 2;
    the second does not for d = 2, but the theorem is about F_L^+.

    Source: sharpens Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A.
    Mokhtari, Theorem 2.

    Args:
        d: coordinates of x, at least 2.
        link: of the functions, see `function_class`.

    Raises:
        ValueError: d below 2, or an unknown link.

    Example:
        >>> float(window_exponent(3)), round(float(window_exponent(3, "affine")), 4)
        (0.4, 0.3333)
    """
    bias_power = _bias_power(link)
    return 1 / (bias_power + noise_exponent(d))


def window_exponents_as_printed(d: int) -> PrintedExponents:
    """1/d and 2/d, the printed exponents of S in the bounds on w_KQ.

    Omega(S^(1/d)) < w_KQ < O(S^(2/d)). The bounds are true for F_L^+ and large S; see
    `window_exponent`.

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    Theorem 2.

    Args:
        d: coordinates of x, at least 2.

    Raises:
        ValueError: d below 2.

    Example:
        >>> low, high = window_exponents_as_printed(5)
        >>> bool(low < window_exponent(5) < high)
        True
    """
    check_dimension(d)
    low = as_float64(1 / d)
    high = as_float64(2 / d)
    return PrintedExponents(low, high)


def risk_exponent(d: int, link: str = "relu") -> Float[Tensor, ""]:
    """The exponent e of the least risk L^2 S^-e for large S.

    It is 3/(d+2) for F_L^+ and 4/(d+3) for smooth classes. The risk is of that order.

    Source: replaces Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A.
    Mokhtari, Theorem 3, whose bounds have 1/(d+2) (true, loose) and 2/(d+2) (false).

    Args:
        d: coordinates of x, at least 2.
        link: of the functions, see `function_class`.

    Raises:
        ValueError: d below 2, or an unknown link.

    Example:
        >>> round(float(risk_exponent(3)), 4)
        0.6
    """
    bias_power = _bias_power(link)
    return bias_power * window_exponent(d, link)


def bias_share(d: int, link: str = "relu") -> Float[Tensor, ""]:
    """The share of the bias in the least risk for large S.

    It is (d-1)/(d+2) for F_L^+ and (d-1)/(d+3) for smooth classes.

    Source: p bias = ((d-1)/2) noise at the minimum of b w^-p + (sigma^2 / n) C_d w^((d-1)/2).

    Args:
        d: coordinates of x, at least 2.
        link: of the functions, see `function_class`.

    Raises:
        ValueError: d below 2, or an unknown link.

    Example:
        >>> float(bias_share(3))
        0.4
    """
    return noise_exponent(d) * window_exponent(d, link)


def asymptotic_window(
    lipschitz: float, noise: float, n: float, d: int, link: str = "relu"
) -> Float[Tensor, ""]:
    """w* for large S with its constant: the minimiser of b w^-p + (sigma^2 / n) C_d w^((d-1)/2).

    Corrections fall slowly: the exact window is `long_prompt_window`, and `optimal_window` at
    finite n.

    Source: sharpens Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A.
    Mokhtari, Theorem 2.

    Args:
        lipschitz: L, positive.
        noise: sigma, positive.
        n: labelled examples, any positive number.
        d: coordinates of x.
        link: of the functions, see `function_class`.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> ratio = asymptotic_window(1., 1., 1e8, d=3) / asymptotic_window(1., 1., 1e6, d=3)
        >>> round(float(ratio), 4) == round(100**.4, 4)
        True
    """
    signal(lipschitz, noise, n)
    functions = function_class(link, lipschitz)
    b, p = _bias_law(functions, d)
    # At the minimum p b w^-p is the noise times its exponent.
    c_d = noise_asymptote(1.0, d)
    growth = noise**2 / n * noise_exponent(d) * c_d
    balance = p * b / growth
    return balance ** window_exponent(d, link)


def asymptotic_risk(
    trained: float, tested: float, noise: float, n: float, d: int
) -> Float[Tensor, ""]:
    """The risk on F_L'^+ of the window for F_L^+, for large S, with its constants.

    This makes Theorem 3 exact.

    Source: replaces Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A.
    Mokhtari, Theorem 3.

    Args:
        trained: L.
        tested: L'.
        noise: sigma, positive.
        n: labelled examples, any positive number.
        d: coordinates of x.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> own = asymptotic_risk(1., 1., 1., 1e6, d=3)
        >>> other = asymptotic_risk(1., 2., 1., 1e6, d=3)
        >>> round(float((other - own) / (3 * own)), 4) == float(bias_share(3))
        True
    """
    w = asymptotic_window(trained, noise, n, d)
    functions = function_class("relu", tested)
    b, p = _bias_law(functions, d)
    bias = b * w**-p
    return bias + noise**2 / n * noise_asymptote(w, d)


def risk_bound_as_printed(lipschitz: float, noise: float, n: float, d: int) -> Float[Tensor, ""]:
    """The printed upper bound L^2 S^(-1/(d+2)) on the risk: true, and loose.

    It is L^(2 - 2/(d+2)) (sigma^2 / n)^(1/(d+2)).

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    Theorem 3, up to a constant.

    Args:
        lipschitz: L, positive.
        noise: sigma, positive.
        n: labelled examples, any positive number.
        d: coordinates of x.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> float(risk_bound_as_printed(2., 1., 8., d=3)) == 4 * 32**-.2
        True
    """
    check_dimension(d)
    s = signal(lipschitz, noise, n)
    return lipschitz**2 * s ** (-1 / (d + 2))


def transfer_bound_as_printed(
    trained: float, tested: float, noise: float, n: float, d: int
) -> Float[Tensor, ""]:
    """The printed lower bound on the risk at L' of a window for L, up to a constant.

    For L' > L it is L'^2 S^(-2/(d+2)), which is false: too large for every constant as S grows. For
    L' <= L it is S^(1/(d+2)) / n, where a factor sigma^2 is missing: it is not a squared label. See
    `transfer_bound`.

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    Theorem 3; its second exponent is printed as 2 / (2 (d+2)).

    Args:
        trained: L.
        tested: L'.
        noise: sigma, positive.
        n: labelled examples, any positive number.
        d: coordinates of x.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> round(float(transfer_bound_as_printed(1., 2., 1., 32., d=3)), 12)
        1.0
    """
    check_dimension(d)
    s = signal(trained, noise, n)
    if check_lipschitz(tested) > trained:
        return tested**2 * s ** (-2 / (d + 2))
    return s ** (1 / (d + 2)) / n


def transfer_bound(
    trained: float, tested: float, noise: float, n: float, d: int
) -> Float[Tensor, ""]:
    """The order of the risk at L' of a window for L: a lower bound up to a constant, and sharp.

    L'^2 S^(-3/(d+2)) for L' > L and sigma^2 S^((d-1)/(d+2)) / n for L' <= L. With 4/(d+2), 1/(d+2)
    and d/(2 (d+2)) in the place of these exponents the bounds stay valid and are not sharp.

    Source: replaces Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A.
    Mokhtari, Theorem 3.

    Args:
        trained: L.
        tested: L'.
        noise: sigma, positive.
        n: labelled examples, any positive number.
        d: coordinates of x.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> import torch
        >>> def ratio(n):
        ...     return transfer_bound(1., 2., 1., n, d=3) / asymptotic_risk(1., 2., 1., n, d=3)
        >>> at = [ratio(1e6), ratio(1e9)]
        >>> torch.allclose(at[0], at[1])
        True
    """
    check_dimension(d)
    s = signal(trained, noise, n)
    if check_lipschitz(tested) > trained:
        return tested**2 * s ** (-3 / (d + 2))
    return noise**2 / n * s ** ((d - 1) / (d + 2))


def fitted_slope(x: Num[Tensor, " point"], y: Num[Tensor, "*repeat point"]) -> Slope:
    """The slope of log y on log x by least squares, with a 95% interval from Student's t.

    Of several repeats, such as seeds, each has its slope, and the interval is that of their mean.
    Of a single one the interval comes from its residuals, so a bent curve has a wide one.

    Source: ordinary least squares.

    Args:
        x: positive, two different values or more; three for a single repeat.
        y: positive; axes before the last are repeats.

    Raises:
        ValueError: values are not positive, too few, or those of x all the same.

    Example:
        >>> import torch
        >>> n = torch.tensor([10., 100., 1000.])
        >>> torch.allclose(fitted_slope(n, 3 * n**.4).slope, torch.tensor(.4).double())
        True
    """
    from scipy.special import stdtrit

    x = as_float64(x)
    y = as_float64(y).reshape(-1, len(x))
    _check_positive(x, y)
    repeats, points = y.shape
    freedom = repeats - 1 if repeats > 1 else points - 2
    if points < 2 or freedom < 1:
        raise ValueError(
            f"a slope with an interval needs 3 points, or 2 and repeats, got {points} and {repeats}"
        )

    # The slope of each repeat on log x less its mean
    log_x = x.log()
    log_y = y.log()
    centred = log_x - log_x.mean()
    spread = centred.square().sum()
    if not x.max() > x.min():
        raise ValueError(f"a slope needs two different values of x, got only {float(x[0]):g}")
    slopes = (log_y @ centred) / spread
    slope = slopes.mean()

    # The standard error, from the spread of the repeats or from the residuals of the single one
    if repeats > 1:
        error = slopes.std() / math.sqrt(repeats)
    else:
        single = log_y[0]
        residuals = single - single.mean() - slopes[0] * centred
        variance = residuals.square().sum() / freedom
        error = (variance / spread).sqrt()
    quantile = float(stdtrit(freedom, 0.975))
    half = quantile * error
    return Slope(slope, slope - half, slope + half)


def local_slopes(
    x: Num[Tensor, " point"], y: Num[Tensor, "*repeat point"]
) -> Float[Tensor, "*repeat step"]:
    """The slopes of log y on log x between neighbours.

    Source: finite differences.

    Args:
        x: positive.
        y: positive.

    Raises:
        ValueError: values are not positive.

    Example:
        >>> import torch
        >>> local_slopes(torch.tensor([1., 2., 4.]), torch.tensor([1., 4., 16.]))
        tensor([2., 2.], dtype=torch.float64)
    """
    x = as_float64(x)
    y = as_float64(y)
    _check_positive(x, y)
    rise = y.log().diff(dim=-1)
    run = x.log().diff()
    return rise / run


def _check_positive(x: Tensor, y: Tensor) -> None:
    if not ((x > 0).all() and (y > 0).all()):
        raise ValueError("slopes on logarithmic axes need positive x and y")


def signal(lipschitz: float, noise: float, n: float) -> Tensor:
    """S = n L^2 / sigma^2; ValueError unless all three are positive."""
    check_lipschitz(lipschitz)
    if not (noise > 0 and n > 0):
        raise ValueError(
            f"S = n L^2 / sigma^2 needs positive noise and n, got noise={noise} and n={n}"
        )
    ratio = lipschitz / noise
    return as_float64(n * ratio**2)


def _bias_power(link: str) -> float:
    """p of the bias b w^-p for large w: 3/2 with a kink, 2 without."""
    functions = function_class(link)
    return 1.5 if functions.link == "relu" else 2.0


def _bias_law(functions: FunctionClass, d: int) -> tuple[Tensor, float]:
    """b and p of the bias b w^-p for large w: 1 - lambda_k tends to k (k + d - 2) / (2w)."""
    p = _bias_power(functions.link)
    if functions.link == "relu":
        b = 2 * functions.lipschitz**2 / 3 * bias_asymptote(1.0, d)
        return b, p
    highest = highest_degree(functions)
    energies = harmonic_energies(functions, d, highest)
    k = torch.arange(len(energies), dtype=torch.float64)
    missing = k * (k + d - 2) / 2
    b = (energies * missing.square()).sum()
    return b, p


ERRATA = (
    Erratum(
        SLIDES,
        "Theorem 3, upper bound",
        "The risk is at most of order L^2 S^(-1/(d+2)), S = n L^2 / sigma^2.",
        "True and loose: it is of order L^2 S^(-3/(d+2)).",
        (risk_bound_as_printed, risk_exponent),
        "exponent of 1/S for d = 3",
        lambda: Compared(1 / 5, float(risk_exponent(3))),
    ),
    Erratum(
        SLIDES,
        "Theorem 3, lower bound for L' > L",
        "The risk is at least of order L'^2 S^(-2/(d+2)).",
        "Too large for every constant as S grows: it is of order L'^2 S^(-3/(d+2)).",
        (transfer_bound_as_printed, transfer_bound),
        "L = 1, L' = 2, d = 3, S = 10^8",
        lambda: Compared(
            float(transfer_bound_as_printed(1.0, 2.0, 1.0, 1e8, 3)),
            float(transfer_bound(1.0, 2.0, 1.0, 1e8, 3)),
        ),
    ),
    Erratum(
        SLIDES,
        "Theorem 3, lower bound for L' <= L",
        "The risk is at least S^(1/(d+2)) / n.",
        "A factor sigma^2 is missing, without which it is no squared label; with it the bound is "
        "valid, and sigma^2 S^((d-1)/(d+2)) / n is of the right order.",
        (transfer_bound_as_printed, transfer_bound),
        "L = 2, L' = 1, sigma = .1, d = 3, n = 100",
        lambda: Compared(
            float(transfer_bound_as_printed(2.0, 1.0, 0.1, 100, 3)),
            float(transfer_bound(2.0, 1.0, 0.1, 100, 3)),
        ),
    ),
)
