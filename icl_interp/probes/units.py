"""What intervals of these probes are made of: a number for each function, not for each prompt."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy.stats import false_discovery_control, norm, rankdata

from icl_interp.errors import InputError
from icl_interp.prompts import Prompts
from icl_interp.resampling import Interval, bootstrap

Statistic = Callable[..., np.ndarray]
FEWEST = 2  # functions that an interval needs


def by_function(
    values: Float[np.ndarray, "prompt *rest"], prompts: Prompts
) -> Float[np.ndarray, "function *rest"]:
    """The mean of a quantity over the prompts of each function.

    Contexts of one function are not independent, so functions are what is resampled.

    Raises:
        InputError: all prompts are of one function.
    """
    _, unit = np.unique(prompts.function.cpu().numpy(), return_inverse=True)
    counts = np.bincount(unit)
    if len(counts) < FEWEST:
        raise InputError(
            f"an interval over functions needs at least {FEWEST}, but these prompts are of "
            f"{len(counts)}: draw more, for example task.sample(64, generator)"
        )
    totals = np.zeros((len(counts), *values.shape[1:]))
    np.add.at(totals, unit, values)
    return (totals.T / counts).T


def mean_over_functions(values: Float[np.ndarray, " prompt"], prompts: Prompts) -> Interval:
    """The mean of a quantity of each prompt, with its interval over functions.

    >>> import torch
    >>> xs, function = torch.zeros(4, 2, 1), torch.tensor([0, 0, 1, 1])
    >>> prompts = Prompts(xs, xs, torch.zeros(4, 0), function)
    >>> mean_over_functions(np.array([1.0, 3.0, 5.0, 7.0]), prompts).value
    4.0
    """
    return bootstrap(_same, by_function(values, prompts))


def ratio_over_functions(
    over: np.ndarray, under: np.ndarray, prompts: Prompts, of: Statistic | None = None
) -> Interval:
    """The ratio of two means, or another function `of` of them, with its interval.

    Both quantities have a number for each prompt.
    """
    first = by_function(over, prompts)
    second = by_function(under, prompts)
    return bootstrap(of or _ratio, first, second)


def _same(mean: np.ndarray) -> np.ndarray:
    return mean


def _ratio(over: np.ndarray, under: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return over / under


def rank_correlation(
    a: Float[np.ndarray, "*batch item"], b: Float[np.ndarray, "*batch item"]
) -> Float[np.ndarray, "*batch"]:
    """Spearman's correlation along the last axis; 0 where one of both is constant.

    >>> rank_correlation(np.array([[1.0, 2.0, 9.0]]), np.array([[-1.0, -5.0, -6.0]])).round(9)
    array([-1.])
    """
    first = _centred_ranks(a)
    second = _centred_ranks(b)
    product = (first * second).sum(-1)
    squares = (first**2).sum(-1) * (second**2).sum(-1)
    varies = squares > 0
    squares = np.where(varies, squares, 1.0)
    return varies * product / np.sqrt(squares)


def _centred_ranks(values: np.ndarray) -> np.ndarray:
    ranks = rankdata(values, axis=-1)
    middle = ranks.mean(-1, keepdims=True)
    return ranks - middle


def p_above(values: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """P-values that numbers are not above 0, one-sided and normal, adjusted for their number.

    A number without a standard error has 1, and does not count.

    Source: Benjamini & Yekutieli (2001), "The control of the false discovery rate in multiple
    testing under dependency".

    >>> p_above(np.array([5.0, 0.0, 1.0]), np.array([1.0, 1.0, np.nan])).round(3)
    array([0.  , 0.75, 1.  ])
    """
    values = np.asarray(values, dtype=float)
    errors = np.asarray(errors, dtype=float)
    known = np.isfinite(values) & (errors >= 0)
    adjusted = np.ones(len(values))
    if known.any():
        with np.errstate(divide="ignore", invalid="ignore"):
            z = values[known] / errors[known]
        # Without any spread a number above 0 is above it for certain, and 0 is not.
        single = norm.sf(np.nan_to_num(z, nan=-np.inf, posinf=np.inf, neginf=-np.inf))
        adjusted[known] = false_discovery_control(single, method="by")
    return adjusted
