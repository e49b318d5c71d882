"""Bias and noise of every window at finite prompt length, by Monte Carlo.

One table serves all (L, sigma).

This is one part of the study `lipschitz`, which re-exports it. With M = w I on the unit sphere the
loss is L(w) = bias(w) + sigma^2 nu(w), nu = E sum_i a_i^2, without a cross term: label noise is
independent of all else. By rotation invariance the query may be the first unit vector. All windows
see the same contexts, so the table is a smooth function of w, and its minimum is far better known
than its values.
"""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.lipschitz.classes import FunctionClass, function_class
from icl_interp.theory.lipschitz.window import check_dimension, check_examples

__all__ = ["LossTable", "loss_table"]

GROUPS = 20  # of contexts; errors come from leaving out one of them
DIRECTIONS = 8  # q's per context, in as many strata
PER_OCTAVE = 3  # windows
SMALLEST = 2.0**-8
OCTAVES = 20
CHUNK = 400_000  # weights held at a time


@dataclass(frozen=True, eq=False)  # so that it can be the key of a cache
class LossTable:
    """Bias and noise on a grid of windows, for groups of contexts.

    The spread between groups gives the standard errors.

    Attributes:
        functions: the class; with L = 1 where L only scales it.
        n: labelled examples.
        d: coordinates of x.
        windows: w, (window,), a geometric grid.
        bias: mean squared bias over a group's contexts, (group, window), in squared units of the
            labels.
        noise: nu = E sum_i a_i^2, (group, window).
    """

    functions: FunctionClass
    n: int
    d: int
    windows: Float[Tensor, " window"]
    bias: Float[Tensor, "group window"]
    noise: Float[Tensor, "group window"]

    def size(self, lipschitz: float) -> float:
        """What the bias is to be multiplied by for functions of this Lipschitz constant.

        Raises:
            ValueError: the class is not a multiple of that at L = 1, and the table is for another
                L.
        """
        asked = self.functions.with_lipschitz(lipschitz)
        if not self.functions.scales and asked != self.functions:
            raise ValueError(
                f"the table of {self.functions.link} is for L={self.functions.lipschitz:g} and L "
                f"is no factor there, got L={lipschitz:g}: make a table for it"
            )
        return (asked.lipschitz / self.functions.lipschitz) ** 2


def loss_table(
    n: int,
    d: int,
    functions: FunctionClass | None = None,
    *,
    contexts: int | None = None,
    seed: int = 0,
) -> LossTable:
    """Bias and noise of the windows 2^-8 to 2^11.67 by Monte Carlo with common random numbers.

    The table is kept for later calls.

    Slopes, phases and labels' noise are averaged in closed form; 8 directions q per context are
    stratified by their cosine to the query. Two classes at the same n, d, contexts and seed see the
    same contexts.

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    "Results Part I", decomposition of equation (ICL) into L_bias and L_noise; the computation is
    ours.

    Args:
        n: labelled examples.
        d: coordinates of x, at least 2.
        functions: the class; None is F_L^+ at L = 1. Where L only scales the class the table is
            that of L = 1.
        contexts: how many; None takes about a second (12,000 for n = 100). Rounded up to a multiple
            of 20.
        seed: of the contexts.

    Raises:
        ValueError: n below 1, d below 2, or fewer than 20 contexts.

    Example:
        >>> import torch
        >>> table = loss_table(n=50, d=3, contexts=400)
        >>> nearly_uniform = table.noise.mean(0)[0]
        >>> torch.allclose(nearly_uniform, torch.tensor(1 / 50).double(), rtol=1e-4)
        True
    """
    check_examples(n)
    check_dimension(d)
    functions = functions or function_class("relu")
    if functions.scales:
        functions = functions.with_lipschitz(1.0)
    if contexts is None:
        contexts = min(20_000, max(400, 1_200_000 // n))
    if contexts < GROUPS:
        raise ValueError(f"contexts must be at least {GROUPS}, one for each group, got {contexts}")
    per_group = math.ceil(contexts / GROUPS)
    return _table(functions, n, d, per_group, seed)


@functools.lru_cache(maxsize=256)  # 30 kB each
def _table(functions: FunctionClass, n: int, d: int, per_group: int, seed: int) -> LossTable:
    n_windows = OCTAVES * PER_OCTAVE
    octaves = torch.arange(n_windows, dtype=torch.float64) / PER_OCTAVE
    windows = SMALLEST * 2**octaves
    generator = torch.Generator().manual_seed(seed)
    at_once = max(1, CHUNK // (n * n_windows))
    bias, noise = torch.zeros(2, GROUPS, n_windows, dtype=torch.float64)
    # Means over the contexts of a group, some of them at a time
    for group in range(GROUPS):
        for count in _chunks(per_group, at_once):
            keys = torch.randn(count, n, d, generator=generator, dtype=torch.float64)
            keys = torch.nn.functional.normalize(keys, dim=-1)
            directions = _directions(count, d, generator)
            squares, spread = _bias_and_noise(functions, keys, directions, windows)
            bias[group] += squares / per_group
            noise[group] += spread / per_group
    return LossTable(functions, n, d, windows, bias, noise)


def _chunks(total: int, at_once: int) -> Iterator[int]:
    while total > 0:
        yield min(total, at_once)
        total -= at_once


def _directions(
    count: int, d: int, generator: torch.Generator
) -> Float[Tensor, "context direction dim"]:
    """Uniform directions q, with q and -q taken as one.

    The squared cosine to the query is Beta(1/2, (d-1)/2), stratified.
    """
    from scipy.special import betaincinv

    places = torch.rand(count, DIRECTIONS, generator=generator, dtype=torch.float64)
    strata = ((torch.arange(DIRECTIONS) + places) / DIRECTIONS).numpy()
    squared = betaincinv(0.5, (d - 1) / 2, strata)
    squared = torch.from_numpy(np.asarray(squared))[..., None]
    # The query is the first unit vector, so the cosine is the first coordinate.
    rest = torch.randn(count, DIRECTIONS, d - 1, generator=generator, dtype=torch.float64)
    rest = torch.nn.functional.normalize(rest, dim=-1)
    across = (1 - squared).sqrt() * rest
    return torch.cat([squared.sqrt(), across], -1)


def _bias_and_noise(
    functions: FunctionClass,
    keys: Float[Tensor, "context key dim"],
    directions: Float[Tensor, "context direction dim"],
    windows: Float[Tensor, " window"],
) -> tuple[Float[Tensor, " window"], Float[Tensor, " window"]]:
    """Sums over the contexts."""
    count, n, d = keys.shape
    query = torch.zeros(count, 1, d, dtype=torch.float64)
    query[..., 0] = 1
    at_keys = functions.features(keys, directions)
    gaps = at_keys - functions.features(query, directions)

    octaves = len(windows) // PER_OCTAVE
    weights = torch.empty(octaves, PER_OCTAVE, count, n, dtype=torch.float64)
    noise = torch.empty(octaves, PER_OCTAVE, count, 1, dtype=torch.float64)
    cosines = keys[..., 0]
    first_windows = windows[:PER_OCTAVE, None, None]
    weights[0] = torch.softmax(first_windows * cosines, -1)
    # Twice the window squares the weights: no other exponentials are needed.
    for octave in range(octaves):
        squares = weights[octave].square()
        sums = squares.sum(-1, keepdim=True)
        noise[octave] = sums
        if octave + 1 < octaves:
            torch.div(squares, sums, out=weights[octave + 1])

    weights = weights.flatten(0, 1)
    noise = noise.flatten(0, 1)
    missed = torch.einsum("wcn,cns->wcs", weights, gaps)
    return missed.square().sum((1, 2)), noise.sum((1, 2))
