"""Recovered shares of many places as one table: intervals, permutation p-values, q-values."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import false_discovery_control
from torch import Tensor

from icl_interp.contrasts import Way
from icl_interp.errors import InputError
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import make_table

N_PERMUTATIONS = 20_000
AT_ONCE = 2000  # permutations
NUMBERS = 500_000  # that some permutations of prompts hold together
NOTE = (
    "share: how much of the way from the corrupted to the clean prediction comes back; low and "
    "high: 95 % interval, functions resampled; p: permutation of functions, under which what moved "
    "has nothing to do with the way; q: Benjamini-Yekutieli over all rows of this table"
)


def share_table(
    places: Mapping[str, Sequence[object]],
    predictions: Float[Tensor, "place batch"],
    way: Way,
    *,
    seed: int = 0,
    n_permutations: int = N_PERMUTATIONS,
) -> pd.DataFrame:
    """A row a place.

    Args:
        places: columns that name the places.
        predictions: at the query of each prompt, with each place edited.
        way: from the corrupted to the clean predictions.
        seed: of resampling and of permutations.
        n_permutations: of functions; the smallest p-value is about one over their number.

    Source: Benjamini & Yekutieli (2001), *The control of the false discovery rate in multiple
    testing under dependency*, for q.

    >>> import torch
    >>> ends = torch.linspace(-1, 1, 40)
    >>> way = Way(torch.zeros(40), ends, np.arange(40))
    >>> found = share_table({"place": ["all", "none"]}, torch.stack([ends, 0 * ends]), way)
    >>> found["share"].tolist(), found["q"].round(2).tolist()
    ([1.0, 0.0], [0.0, 1.0])
    """
    moved, length = way.by_unit(predictions)
    found = []
    for one in moved:
        found.append(bootstrap(_ratio, one, length, seed=seed, far=False))
    intervals = interval_columns(found)
    p = p_values(predictions, way, seed, n_permutations)
    q = false_discovery_control(p, method="by")
    note = f"{NOTE}; {len(p)} places"
    share = intervals.pop("value")
    columns = {**places, "share": share, **intervals}
    columns["p"] = p
    columns["q"] = q
    return make_table(columns, note=note)


def interval_columns(found: Sequence[Interval]) -> dict[str, pd.Series]:
    """Values of intervals and their ends as columns of a table.

    >>> list(interval_columns([Interval(2.0, 1.0, 4.0)]))
    ['value', 'low', 'high']
    """
    table = pd.DataFrame(list(found), columns=["value", "low", "high"])
    return {str(name): column for name, column in table.items()}


def edge_columns(pairs: Sequence[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Writers and readers of edges as columns of a table.

    >>> edge_columns([("head 0.0", "MLP 0"), ("MLP 0", "read-out")])
    {'writer': ('head 0.0', 'MLP 0'), 'reader': ('MLP 0', 'read-out')}
    """
    writers, readers = zip(*pairs, strict=True)
    return {"writer": writers, "reader": readers}


def p_values(
    predictions: Float[Tensor, "place batch"],
    way: Way,
    seed: int = 0,
    n_permutations: int = N_PERMUTATIONS,
) -> Float[np.ndarray, " place"]:
    """Two-sided permutation p-values of recovered shares.

    Under the null what the prediction moves by has nothing to do with the way of its own prompt,
    so the ways may change places between functions. The observed order counts as one permutation.

    Source: Phipson & Smyth (2010), *Permutation p-values should never be zero*.

    Raises:
        InputError: functions with different numbers of prompts.
    """
    n_units = way.units.max() + 1
    sizes = np.bincount(way.units)
    if np.ptp(sizes):
        raise InputError("permutations need as many prompts of every function, but these differ")
    # Prompts by function: (place, function x prompt) and (function, prompt).
    order = np.argsort(way.units, kind="stable")
    moves = predictions - way.start
    moved = moves.numpy()[:, order]
    length = way.length.numpy()[order]
    length = length.reshape(n_units, -1)
    seen = moved @ length.ravel()
    # Permutations are centred at every function's moves with the mean way.
    centre = moved @ np.tile(length.mean(0), n_units)
    # Rounding must not decide between equal permutations.
    bound = np.abs(seen - centre)
    bound *= 1 - 1e-9
    random = np.random.default_rng([seed, n_units])
    exceeded = np.ones(len(seen))
    at_once = max(1, min(AT_ONCE, NUMBERS // len(order)))
    for start in range(0, n_permutations, at_once):
        n = min(at_once, n_permutations - start)
        units = np.tile(np.arange(n_units), (n, 1))
        ways = length[random.permuted(units, axis=1)]
        drawn = moved @ ways.reshape(n, -1).T
        drawn -= centre[:, None]
        far = np.abs(drawn) >= bound[:, None]
        exceeded += far.sum(1)
    return exceeded / (n_permutations + 1)


def _ratio(moved: np.ndarray, length: np.ndarray) -> np.ndarray:
    return moved / length
