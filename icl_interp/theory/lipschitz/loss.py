"""The window that minimises the loss, and what it costs where another would be best.

This is one part of the study `lipschitz`, which re-exports it. Losses are mean squared errors
against the noiseless f(x_q): bias(w) + sigma^2 nu(w). Minima are found by scalar minimisation of
splines through a `LossTable`, not by training; intervals come from leaving out groups of its
contexts.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.errata import Compared, Erratum
from icl_interp.theory.lipschitz.bias import class_bias_limit
from icl_interp.theory.lipschitz.classes import FunctionClass, function_class
from icl_interp.theory.lipschitz.table import LossTable, loss_table
from icl_interp.theory.lipschitz.window import (
    SLIDES,
    PerWindow,
    Window,
    as_window,
    check_dimension,
    noise_limit,
)
from icl_interp.theory.softmax import as_float64

__all__ = [
    "Estimate",
    "Optimum",
    "Transfer",
    "long_prompt_loss",
    "long_prompt_window",
    "optimal_window",
    "table_optimum",
    "transfer",
    "window_loss",
]

QUANTILE = 2.093  # of Student's t with 19 degrees of freedom: 95%, two-sided
STAGES = ((1e-6, 1e3), (3e2, 1e5), (3e4, 1e7))  # windows that the search for long prompts spans


class Estimate(NamedTuple):
    """Numbers with their standard errors."""

    value: Float[Tensor, "*window"]
    error: Float[Tensor, "*window"]


class Optimum(NamedTuple):
    """The window of least loss, with its 95% interval from the Monte Carlo, and that loss.

    Where the loss still falls at the edge of the table, the window is that edge and the interval
    open: high is inf (the minimum lies at a narrower window, or at the nearest neighbour) or low
    is 0.
    """

    window: Float[Tensor, ""]
    low: Float[Tensor, ""]
    high: Float[Tensor, ""]
    risk: Float[Tensor, ""]
    risk_error: Float[Tensor, ""]  # a standard error
    bias_share: Float[Tensor, ""]  # of the risk


class Transfer(NamedTuple):
    """What a window chosen for one class costs on another (Theorem 3)."""

    window: Float[Tensor, ""]  # optimal for the class of training
    risk: Float[Tensor, ""]  # of that window on the tested class
    best: Float[Tensor, ""]  # the tested class's own least risk
    ratio: Float[Tensor, ""]  # risk / best
    ratio_error: Float[Tensor, ""]  # a standard error


def optimal_window(
    lipschitz: float,
    noise: float,
    n: int,
    d: int,
    link: str = "relu",
    frequency: float | None = None,
    *,
    contexts: int | None = None,
    seed: int = 0,
) -> Optimum:
    """w*(L, sigma, n, d): the window with the least loss at this prompt length.

    It is exact up to Monte-Carlo error.

    The first call for (n, d) makes a table, in about a second; every later (L, sigma) at that (n,
    d) takes milliseconds, except for cosines, whose every L has a table of its own.

    Source: what Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    Theorem 2, bound up to constants for large n: w_KQ.

    Args:
        lipschitz: L, positive.
        noise: sigma, the standard deviation of the label noise, at least 0.
        n: labelled examples.
        d: coordinates of x, on the unit sphere.
        link: of the functions, see `function_class`.
        frequency: of cosines, see `function_class`.
        contexts: of the Monte Carlo, see `loss_table`.
        seed: of the Monte Carlo.

    Raises:
        ValueError: an argument is out of range, or the link unknown.

    Example:
        >>> smooth = optimal_window(lipschitz=1., noise=1., n=50, d=3, contexts=400)
        >>> steep = optimal_window(lipschitz=10., noise=10., n=50, d=3, contexts=400)
        >>> bool(abs(smooth.window - steep.window) < 1e-5 * smooth.window)
        True
    """
    functions = function_class(link, lipschitz, frequency)
    _variance(noise)  # before a table is made
    return table_optimum(
        loss_table(n, d, functions, contexts=contexts, seed=seed), lipschitz, noise
    )


def table_optimum(table: LossTable, lipschitz: float, noise: float) -> Optimum:
    """The best window of a table for one (L, sigma); see `optimal_window`.

    Source: as `optimal_window`; the interval is the jackknife's over groups of contexts, on the
    logarithm of w.

    Args:
        table: from `loss_table`.
        lipschitz: L, positive.
        noise: sigma, at least 0.

    Raises:
        ValueError: sigma is negative, or L does not fit the table.

    Example:
        >>> best = table_optimum(loss_table(50, 3, contexts=400), lipschitz=1., noise=1.)
        >>> bool(best.low < best.window < best.high)
        True
    """
    size, variance, curves = table.size(lipschitz), _variance(noise), _curves(table)
    log_windows, edges = curves.minima(size, variance)
    risks = curves.losses(log_windows, size, variance)[:, 0]
    bias = curves.losses(log_windows, size, 0.0)[0, 0]
    window, edge = math.exp(log_windows[0, 0]), int(edges[0, 0])
    half = QUANTILE * float(_jackknife(log_windows[1:, 0]))
    return Optimum(
        as_float64(window),
        as_float64(0.0 if edge < 0 else window * math.exp(-half)),
        as_float64(math.inf if edge > 0 else window * math.exp(half)),
        as_float64(float(risks[0])),
        _jackknife(risks[1:]),
        as_float64(float(bias / risks[0])),
    )


def window_loss(table: LossTable, w: Window, lipschitz: float, noise: float) -> Estimate:
    """The loss at any windows within a table, with standard errors: L(w) = bias(w) + sigma^2 nu(w).

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    "Results Part I", decomposition of equation (ICL).

    Args:
        table: from `loss_table`.
        w: any shape, within the table's windows.
        lipschitz: L, positive.
        noise: sigma, at least 0.

    Raises:
        ValueError: sigma is negative, L does not fit the table, or w lies outside it.

    Example:
        >>> import torch
        >>> table = loss_table(50, 3, contexts=400)
        >>> at = table.windows[9:12]
        >>> clean, noisy = window_loss(table, at, 1., 0.), window_loss(table, at, 1., 1.)
        >>> torch.allclose(noisy.value - clean.value, table.noise.mean(0)[9:12])
        True
    """
    size, variance, w = table.size(lipschitz), _variance(noise), as_window(w)
    first, last = table.windows[0], table.windows[-1]
    if not ((w >= first * (1 - 1e-9)) & (w <= last * (1 + 1e-9))).all():
        raise ValueError(
            f"the table spans windows from {float(first):g} to {float(last):g}, got {w.tolist()}"
        )
    losses = _curves(table).losses(w.log().numpy().reshape(1, -1), size, variance)
    return Estimate(torch.from_numpy(losses[0]).view(w.shape), _jackknife(losses[1:]).view(w.shape))


def transfer(
    trained: FunctionClass,
    tested: FunctionClass,
    noise: float,
    n: int,
    d: int,
    *,
    contexts: int | None = None,
    seed: int = 0,
) -> Transfer:
    """The risk on one class of the window that is optimal for another class.

    The class's own least risk stands beside it.

    Both classes see the same contexts, so the ratio is better known than either risk. It is 1 for
    one and the same class. A shared Lipschitz constant does not suffice for a ratio near 1: phased
    cosines of a high frequency fail.

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    Theorem 3 and "Empirical Generalization", up to Monte-Carlo error.

    Args:
        trained: the class whose optimal window is used.
        tested: the class that it is used on.
        noise: sigma in training and at test.
        n: labelled examples, in training and at test.
        d: coordinates of x.
        contexts: of the Monte Carlo, see `loss_table`.
        seed: of the Monte Carlo.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> gentle, steep = function_class("relu", 1.), function_class("relu", 10.)
        >>> bool(transfer(gentle, steep, noise=1., n=50, d=3, contexts=400).ratio > 2)
        True
    """
    variance = _variance(noise)
    tables = [
        loss_table(n, d, functions, contexts=contexts, seed=seed) for functions in (trained, tested)
    ]
    sizes = [
        table.size(functions.lipschitz)
        for table, functions in zip(tables, (trained, tested), strict=True)
    ]

    curves = [_curves(table) for table in tables]
    log_windows = curves[0].minima(sizes[0], variance)[0]
    own = curves[1].minima(sizes[1], variance)[0]
    risks, least = (curves[1].losses(at, sizes[1], variance)[:, 0] for at in (log_windows, own))
    ratios = risks / least
    values = (math.exp(log_windows[0, 0]), float(risks[0]), float(least[0]), float(ratios[0]))
    window, risk, best, ratio = map(as_float64, values)
    return Transfer(window, risk, best, ratio, _jackknife(ratios[1:]))


def long_prompt_loss(
    w: Window,
    lipschitz: float,
    noise: float,
    n: float,
    d: int,
    link: str = "relu",
    frequency: float | None = None,
) -> PerWindow:
    """The loss bias(w) + (sigma^2 / n) Z(2w) / Z(w)^2 for very long prompts.

    Prompts are so long that bias and n nu have their limits.

    For the classes that L only scales it is L^2 times a function of w and S = n L^2 / sigma^2.

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    "Proof Sketch", with the exact terms in place of the bounds.

    Args:
        w: any shape, at least 0.
        lipschitz: L, positive.
        noise: sigma, at least 0.
        n: labelled examples, any positive number.
        d: coordinates of x.
        link: of the functions, see `function_class`.
        frequency: of cosines, see `function_class`.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> import torch
        >>> w = torch.tensor([1., 10.])
        >>> steeper = long_prompt_loss(w, 2., 1., 100, d=3)
        >>> torch.allclose(steeper, 4 * long_prompt_loss(w, 1., 1., 400, d=3))
        True
    """
    if not n > 0:
        raise ValueError(
            f"n counts the labelled examples of a prompt and must be positive, got {n}"
        )
    functions = function_class(link, lipschitz, frequency)
    return class_bias_limit(functions, w, d) + _variance(noise) / n * noise_limit(w, d)


def long_prompt_window(
    lipschitz: float,
    noise: float,
    n: float,
    d: int,
    link: str = "relu",
    frequency: float | None = None,
) -> Float[Tensor, ""]:
    """The w that minimises `long_prompt_loss`: without sampling, for n as large as one likes.

    For sigma = 0 the loss falls for ever and the result is inf; a finite prompt has a finite
    optimum all the same.

    Source: as `optimal_window`, in the limit that Theorem 2 is about.

    Args:
        lipschitz: L, positive.
        noise: sigma, at least 0.
        n: labelled examples, any positive number.
        d: coordinates of x.
        link: of the functions, see `function_class`.
        frequency: of cosines, see `function_class`.

    Raises:
        ValueError: an argument is out of range, or the minimum lies beyond w = 10^-6 to 10^7.

    Example:
        >>> round(float(long_prompt_window(1., 1., n=1e4, d=3)), 1)
        15.6
    """
    check_dimension(d)
    if _variance(noise) == 0:
        function_class(link, lipschitz, frequency)
        return as_float64(math.inf)

    def loss(log_w: np.ndarray) -> np.ndarray:
        return long_prompt_loss(
            torch.as_tensor(np.exp(log_w)), lipschitz, noise, n, d, link, frequency
        ).numpy()

    # From wide windows to narrow ones, because the bias of narrow ones has many terms: 8 sqrt(w).
    for first, last in STAGES:
        grid = np.linspace(math.log(first), math.log(last), math.ceil(4 * math.log(last / first)))
        at, edge = _minimise(loss, grid)
        if edge <= 0:
            break
    if edge:
        side = "below 1e-06" if edge < 0 else "above 1e+07"
        raise ValueError(
            f"the optimal window lies {side} for S = n L^2 / sigma^2 = "
            f"{n * (lipschitz / noise) ** 2:.3g}"
        )
    return as_float64(math.exp(at))


class _Curves:
    """Cubic splines of log bias and log nu in log w.

    The first goes through a table's means, the others leave out one group of contexts each.
    """

    def __init__(self, table: LossTable) -> None:
        from scipy.interpolate import CubicSpline

        self.grid = table.windows.log().numpy()
        groups = torch.stack([table.bias, table.noise])
        left_out = (groups.sum(1, keepdim=True) - groups) / (groups.shape[1] - 1)
        self.means = (
            torch.cat([groups.mean(1, keepdim=True), left_out], 1).clamp(min=1e-300).numpy()
        )
        self.coefficients = np.moveaxis(
            CubicSpline(self.grid, np.log(self.means), axis=-1).c, 1, -1
        )

    def losses(self, log_w: np.ndarray, size: float, variance: float) -> np.ndarray:
        """Row by row, for log_w of shape (row, point) or (1, point)."""
        at = np.clip(np.searchsorted(self.grid, log_w, side="right") - 1, 0, len(self.grid) - 2)
        step = log_w - self.grid[at]
        rows = np.arange(self.means.shape[1])[:, None]
        cubic, square, linear, constant = self.coefficients[:, :, rows, at]
        bias, noise = np.exp(((cubic * step + square) * step + linear) * step + constant)
        return size * bias + variance * noise

    def minima(self, size: float, variance: float) -> tuple[np.ndarray, np.ndarray]:
        """log w of each row's least loss, (row, 1), and whether it is at an end of the grid.

        The second number is -1 or 1 where the least loss is the first or the last of the grid.
        """
        best = np.argmin(size * self.means[0] + variance * self.means[1], axis=1)[:, None]
        last = len(self.grid) - 1
        edge = (best == last).astype(int) - (best == 0)
        low, high = self.grid[np.maximum(best - 1, 0)], self.grid[np.minimum(best + 1, last)]
        golden = (math.sqrt(5) - 1) / 2
        for _ in range(36):  # golden sections, to 10^-8 of the bracket
            left, right = high - golden * (high - low), low + golden * (high - low)
            falls = self.losses(left, size, variance) > self.losses(right, size, variance)
            low, high = np.where(falls, left, low), np.where(falls, high, right)
        return np.where(edge == 0, (low + high) / 2, self.grid[best]), edge


@functools.lru_cache(maxsize=256)
def _curves(table: LossTable) -> _Curves:
    return _Curves(table)


def _minimise(loss: Callable[[np.ndarray], np.ndarray], grid: np.ndarray) -> tuple[float, int]:
    """The least of all minima, by a grid and then Brent's method.

    The second number is -1 or 1 where the least loss is at the first or the last point of the grid.
    """
    from scipy.optimize import minimize_scalar

    best = int(np.argmin(loss(grid)))
    if best in (0, len(grid) - 1):
        return float(grid[best]), -1 if best == 0 else 1
    bounds = (grid[best - 1], grid[best + 1])
    found = minimize_scalar(
        lambda x: float(loss(np.array(x))), bounds=bounds, method="bounded", options={"xatol": 1e-7}
    )
    return float(found.x), 0


def _jackknife(left_out: np.ndarray) -> Tensor:
    """The standard error from values that leave out one group of contexts each.

    Groups run along the first axis.
    """
    return torch.from_numpy(np.asarray(np.sqrt((len(left_out) - 1) * left_out.var(axis=0))))


def _variance(noise: float) -> float:
    if not 0 <= noise < math.inf:
        raise ValueError(
            f"noise is the standard deviation sigma and must be finite and at least 0, got {noise}"
        )
    return float(noise) ** 2


def _window_without_noise() -> float:
    """w* for L = 1, no noise, d = 3, n = 100."""
    return float(optimal_window(1.0, 0.0, 100, 3).window)


ERRATA = (
    Erratum(
        SLIDES,
        "Results Part I, extreme examples",
        "For L >> sigma attention picks the nearest neighbour: w goes to infinity.",
        "At finite n the best window stays finite without any noise: several neighbours "
        "interpolate better than the nearest one. It goes to infinity with n.",
        (optimal_window,),
        "best w for L = 1, sigma = 0, d = 3, n = 100",
        lambda: Compared(math.inf, _window_without_noise()),
    ),
)
