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
    # Refuses a negative noise before a table is made.
    _variance(noise)
    table = loss_table(n, d, functions, contexts=contexts, seed=seed)
    return table_optimum(table, lipschitz, noise)


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
    size = table.size(lipschitz)
    variance = _variance(noise)
    curves = _curves(table)

    # Row 0 is of all contexts, and each of the others leaves out a group.
    log_windows, edges = curves.minima(size, variance)
    risks = curves.losses(log_windows, size, variance)[:, 0]
    risk = risks[0]
    bias = curves.losses(log_windows, size, 0.0)[0, 0]
    window = math.exp(log_windows[0, 0])

    # The interval is open where the window is at an edge of the table.
    half = QUANTILE * float(_jackknife(log_windows[1:, 0]))
    edge = int(edges[0, 0])
    low = 0.0 if edge < 0 else window * math.exp(-half)
    high = math.inf if edge > 0 else window * math.exp(half)
    return Optimum(
        window=as_float64(window),
        low=as_float64(low),
        high=as_float64(high),
        risk=as_float64(risk),
        risk_error=_jackknife(risks[1:]),
        bias_share=as_float64(bias / risk),
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
    size = table.size(lipschitz)
    variance = _variance(noise)
    w = as_window(w)
    first = table.windows[0]
    last = table.windows[-1]
    # The ends may have been rounded.
    not_below = w >= first * (1 - 1e-9)
    not_above = w <= last * (1 + 1e-9)
    if not (not_below & not_above).all():
        raise ValueError(
            f"the table spans windows from {float(first):g} to {float(last):g}, got {w.tolist()}"
        )
    log_windows = w.log().numpy().reshape(1, -1)
    losses = _curves(table).losses(log_windows, size, variance)
    value = torch.from_numpy(losses[0])
    error = _jackknife(losses[1:])
    return Estimate(value.view(w.shape), error.view(w.shape))


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
    trained_table = loss_table(n, d, trained, contexts=contexts, seed=seed)
    tested_table = loss_table(n, d, tested, contexts=contexts, seed=seed)
    trained_size = trained_table.size(trained.lipschitz)
    tested_size = tested_table.size(tested.lipschitz)
    trained_curves = _curves(trained_table)
    tested_curves = _curves(tested_table)

    # The window of the one class and the tested class's own, both on the tested class
    log_windows, _ = trained_curves.minima(trained_size, variance)
    own, _ = tested_curves.minima(tested_size, variance)
    risks = tested_curves.losses(log_windows, tested_size, variance)[:, 0]
    least = tested_curves.losses(own, tested_size, variance)[:, 0]
    ratios = risks / least

    # Row 0 is of all contexts, and each of the others leaves out a group.
    window = math.exp(log_windows[0, 0])
    return Transfer(
        window=as_float64(window),
        risk=as_float64(risks[0]),
        best=as_float64(least[0]),
        ratio=as_float64(ratios[0]),
        ratio_error=_jackknife(ratios[1:]),
    )


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
    bias = class_bias_limit(functions, w, d)
    variance = _variance(noise)
    return bias + variance / n * noise_limit(w, d)


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
        w = torch.as_tensor(np.exp(log_w))
        losses = long_prompt_loss(w, lipschitz, noise, n, d, link, frequency)
        return losses.numpy()

    # From wide windows to narrow ones, because the bias of narrow ones has many terms: 8 sqrt(w).
    for first, last in STAGES:
        n_points = math.ceil(4 * math.log(last / first))
        grid = np.linspace(math.log(first), math.log(last), n_points)
        at, edge = _minimise(loss, grid)
        if edge <= 0:
            break
    if edge:
        side = "below 1e-06" if edge < 0 else "above 1e+07"
        s = n * (lipschitz / noise) ** 2
        raise ValueError(f"the optimal window lies {side} for S = n L^2 / sigma^2 = {s:.3g}")
    return as_float64(math.exp(at))


class _Curves:
    """Cubic splines of log bias and log nu in log w.

    The first goes through a table's means, the others leave out one group of contexts each.
    """

    def __init__(self, table: LossTable) -> None:
        from scipy.interpolate import CubicSpline

        self.grid = table.windows.log().numpy()
        # (bias or noise, group, window)
        groups = torch.stack([table.bias, table.noise])
        mean = groups.mean(1, keepdim=True)
        total = groups.sum(1, keepdim=True)
        left_out = (total - groups) / (groups.shape[1] - 1)
        means = torch.cat([mean, left_out], 1)
        # A bias may be 0, which has no logarithm.
        self.means = means.clamp(min=1e-300).numpy()
        # (power, bias or noise, row, piece)
        splines = CubicSpline(self.grid, np.log(self.means), axis=-1)
        self.coefficients = np.moveaxis(splines.c, 1, -1)

    def losses(self, log_w: np.ndarray, size: float, variance: float) -> np.ndarray:
        """Row by row, for log_w of shape (row, point) or (1, point)."""
        # The piece that each window lies in; beyond the grid the first or the last
        n_pieces = len(self.grid) - 1
        at = np.searchsorted(self.grid, log_w, side="right") - 1
        at = np.clip(at, 0, n_pieces - 1)
        step = log_w - self.grid[at]
        rows = np.arange(self.means.shape[1])[:, None]
        cubic, square, linear, constant = self.coefficients[:, :, rows, at]
        logarithms = ((cubic * step + square) * step + linear) * step + constant
        bias, noise = np.exp(logarithms)
        return size * bias + variance * noise

    def minima(self, size: float, variance: float) -> tuple[np.ndarray, np.ndarray]:
        """log w of each row's least loss, (row, 1), and whether it is at an end of the grid.

        The second number is -1 or 1 where the least loss is the first or the last of the grid.
        """
        bias, noise = self.means
        on_grid = size * bias + variance * noise
        best = np.argmin(on_grid, axis=1)[:, None]
        last = len(self.grid) - 1
        edge = (best == last).astype(int) - (best == 0)
        # Golden sections between the neighbours on the grid, to 10^-8 of the bracket
        low = self.grid[np.maximum(best - 1, 0)]
        high = self.grid[np.minimum(best + 1, last)]
        golden = (math.sqrt(5) - 1) / 2
        for _ in range(36):
            part = golden * (high - low)
            left = high - part
            right = low + part
            at_left = self.losses(left, size, variance)
            at_right = self.losses(right, size, variance)
            falls = at_left > at_right
            low = np.where(falls, left, low)
            high = np.where(falls, high, right)
        middle = (low + high) / 2
        return np.where(edge == 0, middle, self.grid[best]), edge


@functools.lru_cache(maxsize=256)
def _curves(table: LossTable) -> _Curves:
    return _Curves(table)


def _minimise(loss: Callable[[np.ndarray], np.ndarray], grid: np.ndarray) -> tuple[float, int]:
    """The least of all minima, by a grid and then Brent's method.

    The second number is -1 or 1 where the least loss is at the first or the last point of the grid.
    """
    from scipy.optimize import minimize_scalar

    def at_point(x: float) -> float:
        return float(loss(np.array(x)))

    best = int(np.argmin(loss(grid)))
    if best == 0:
        return float(grid[best]), -1
    if best == len(grid) - 1:
        return float(grid[best]), 1
    bounds = (grid[best - 1], grid[best + 1])
    found = minimize_scalar(at_point, bounds=bounds, method="bounded", options={"xatol": 1e-7})
    return float(found.x), 0


def _jackknife(left_out: np.ndarray) -> Tensor:
    """The standard error from values that leave out one group of contexts each.

    Groups run along the first axis.
    """
    others = len(left_out) - 1
    error = np.sqrt(others * left_out.var(axis=0))
    return torch.from_numpy(np.asarray(error))


def _variance(noise: float) -> float:
    if not 0 <= noise < math.inf:
        raise ValueError(
            f"noise is the standard deviation sigma and must be finite and at least 0, got {noise}"
        )
    return float(noise) ** 2


def _window_without_noise() -> float:
    """w* for L = 1, no noise, d = 3, n = 100."""
    best = optimal_window(1.0, 0.0, 100, 3)
    return float(best.window)


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
