"""Recovered shares of many places as one table: intervals, permutation p-values, q-values."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.stats import false_discovery_control
from torch import Tensor

from icl_interp.contrasts import Way
from icl_interp.resampling import bootstrap
from icl_interp.results import make_table

N_PERMUTATIONS = 20_000
AT_ONCE = 2000  # permutations
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

    >>> ends = torch.linspace(-1, 1, 40)
    >>> way = Way(torch.zeros(40), ends, np.arange(40))
    >>> found = share_table({"place": ["all", "none"]}, torch.stack([ends, 0 * ends]), way)
    >>> found["share"].tolist(), found["q"].round(2).tolist()
    ([1.0, 0.0], [0.0, 1.0])
    """
    moved, length = way.by_unit(predictions)
    found = [bootstrap(_ratio, one, length, seed=seed) for one in moved]
    p = p_values(predictions, way, seed, n_permutations)
    columns = {
        **places,
        "share": [one.value for one in found],
        "low": [one.low for one in found],
        "high": [one.high for one in found],
        "p": p,
        "q": false_discovery_control(p, method="by"),
    }
    return make_table(columns, note=f"{NOTE}; {len(p)} places")


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
        ValueError: functions with different numbers of prompts.
    """
    order = np.argsort(way.units, kind="stable")
    n_units = way.units.max() + 1
    moved = (predictions - way.start).numpy()[:, order].reshape(len(predictions), n_units, -1)
    length = (way.end - way.start).numpy()[order].reshape(n_units, -1)
    seen = np.einsum("pub,ub->p", moved, length)
    # The products of every function's moves with every function's way; a permutation picks one of
    # each row. Their mean is what permutations are centred at.
    centre = np.einsum("pb,b->p", moved.mean(1), length.sum(0))
    random = np.random.default_rng([seed, n_units])
    exceeded = np.ones(len(seen))
    flat = moved.reshape(len(moved), -1)
    # Rounding must not decide between equal permutations.
    bound = np.abs(seen - centre) * (1 - 1e-9)
    done = 0
    while done < n_permutations:
        n = min(AT_ONCE, n_permutations - done)
        rows = random.permuted(np.tile(np.arange(n_units), (n, 1)), axis=1)
        drawn = flat @ length[rows].reshape(n, -1).T
        exceeded += (np.abs(drawn - centre[:, None]) >= bound[:, None]).sum(1)
        done += n
    return exceeded / (n_permutations + 1)


def _ratio(moved: np.ndarray, length: np.ndarray) -> np.ndarray:
    return moved / length


def over(ways: Sequence[Float[Tensor, " batch"]]) -> Float[Tensor, "place batch"]:
    """Predictions of several places as one tensor in float64."""
    return torch.stack([one.double().cpu() for one in ways])
