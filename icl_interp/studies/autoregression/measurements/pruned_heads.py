"""How many heads of a layer differ, and what is lost where some of them are taken out."""

import itertools
import math
from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float
from pandas import DataFrame
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.interventions.base import intervene
from icl_interp.results import table_of_numbers
from icl_interp.studies.autoregression.measurements.parts import heads_alike
from icl_interp.studies.autoregression.measurements.unit import (
    by_arm,
    errors,
    outputs,
    process_of,
    real_heads_needed,
)

MOST_SUBSETS = 300  # that are all tried; of more, heads are taken out one after the other
INTACT, PRUNED, NONE = "all heads", "the needed heads", "no heads"
N_DIFFERENT = "different heads"
Chosen = tuple[int, ...]


def best_subset(n_heads: int, n_kept: int, cost: Callable[[Chosen], float]) -> Chosen:
    """The heads to keep.

    All subsets of the wanted size are tried where they are `MOST_SUBSETS` at most. Of more, the
    head that costs least is taken out, again and again.

    Args:
        n_heads: how many there are.
        n_kept: how many are kept.
        cost: of keeping these heads.
    """
    if math.comb(n_heads, n_kept) <= MOST_SUBSETS:
        return min(itertools.combinations(range(n_heads), n_kept), key=cost)
    kept = tuple(range(n_heads))
    while len(kept) > n_kept:
        kept = min((tuple(h for h in kept if h != out) for out in kept), key=cost)
    return kept


@measurement("autoregression/different heads")
def different(lab: Lab) -> DataFrame:
    """How many heads differ in their patterns.

    Copies of a head, and heads that take each other off, count as one.
    """
    return table_of_numbers(
        {N_DIFFERENT: len(heads_alike(lab, 0))}, note=f"{lab.model.cfg.n_heads} heads in all"
    )


@measurement("autoregression/pruned", version=2)
def pruned(lab: Lab) -> DataArray:
    """Normalised errors with all heads, with some, and with none: (unit, point, arm).

    "Some" is the needed number of different heads.

    Heads with one pattern stay or go together. A head that is taken out writes its mean at each
    position. Which heads stay is chosen on one half of the units, and the error is that of the
    other half.
    """
    alike, n_kept = (
        heads_alike(lab, 0),
        min(real_heads_needed(process_of(lab)), len(heads_alike(lab, 0))),
    )
    intact, none = (_errors(lab, kept) for kept in (range(lab.model.cfg.n_heads), ()))
    after, half = torch.empty_like(intact), len(intact) // lab.n_units * (lab.n_units // 2)

    def members(chosen: Chosen) -> list[int]:
        return [head for group in chosen for head in alike[group]]

    for chosen_on, asked in (
        (slice(0, half), slice(half, None)),
        (slice(half, None), slice(0, half)),
    ):
        kept = best_subset(
            len(alike),
            n_kept,
            lambda chosen, rows=chosen_on: float(_errors(lab, members(chosen), rows).mean()),
        )
        after[asked] = _errors(lab, members(kept), asked)
    return by_arm(lab, (INTACT, PRUNED, NONE), [intact, after, none])


def _errors(
    lab: Lab, kept: Iterable[int], rows: slice = slice(None)
) -> Float[Tensor, "batch scored"]:
    """Normalised errors of prompts where all heads but these write their means."""
    prompts = lab.few[rows]
    out = [(0, head) for head in range(lab.model.cfg.n_heads) if head not in set(kept)]
    with intervene(lab.model, *([lab.head_means.only(*out)] if out else [])):
        return errors(outputs(lab.model, lab, prompts), lab, prompts)
