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
INTACT = "all heads"
PRUNED = "the needed heads"
NONE = "no heads"
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
    n_subsets = math.comb(n_heads, n_kept)
    if n_subsets <= MOST_SUBSETS:
        subsets = itertools.combinations(range(n_heads), n_kept)
        return min(subsets, key=cost)
    kept = tuple(range(n_heads))
    while len(kept) > n_kept:
        # All subsets that lack one head; they begin with those that lack the first.
        smaller = [kept[:i] + kept[i + 1 :] for i in range(len(kept))]
        kept = min(smaller, key=cost)
    return kept


@measurement("autoregression/different heads")
def different(lab: Lab) -> DataFrame:
    """How many heads differ in their patterns.

    Copies of a head, and heads that take each other off, count as one.
    """
    groups = heads_alike(lab, 0)
    n_heads = lab.model.cfg.n_heads
    return table_of_numbers({N_DIFFERENT: len(groups)}, note=f"{n_heads} heads in all")


@measurement("autoregression/pruned", version=2)
def pruned(lab: Lab) -> DataArray:
    """Normalised errors with all heads, with some, and with none: (unit, point, arm).

    "Some" is the needed number of different heads.

    Heads with one pattern stay or go together. A head that is taken out writes its mean at each
    position. Which heads stay is chosen on one half of the units, and the error is that of the
    other half.
    """
    alike = heads_alike(lab, 0)
    needed = real_heads_needed(process_of(lab))
    n_kept = min(needed, len(alike))
    intact = _errors(lab, range(lab.model.cfg.n_heads))
    none = _errors(lab, ())

    def members(chosen: Chosen) -> list[int]:
        """All heads of the chosen groups."""
        groups = (alike[group] for group in chosen)
        return list(itertools.chain.from_iterable(groups))

    # The two prompts of a unit stay in one half.
    prompts_of_unit = len(intact) // lab.n_units
    half = prompts_of_unit * (lab.n_units // 2)
    first = slice(0, half)
    second = slice(half, None)
    after = torch.empty_like(intact)
    for chosen_on, asked in ((first, second), (second, first)):

        def cost(chosen: Chosen, rows: slice = chosen_on) -> float:
            """Mean error on the half that heads are chosen on."""
            found = _errors(lab, members(chosen), rows)
            return float(found.mean())

        kept = best_subset(len(alike), n_kept, cost)
        after[asked] = _errors(lab, members(kept), asked)
    return by_arm(lab, (INTACT, PRUNED, NONE), [intact, after, none])


def _errors(
    lab: Lab, kept: Iterable[int], rows: slice = slice(None)
) -> Float[Tensor, "batch scored"]:
    """Normalised errors of prompts where all heads but these write their means."""
    prompts = lab.few[rows]
    every = range(lab.model.cfg.n_heads)
    out = sorted(set(every).difference(kept))
    cuts = []
    if out:
        places = [(0, head) for head in out]
        cuts.append(lab.head_means.only(*places))
    with intervene(lab.model, *cuts):
        predicted = outputs(lab.model, lab, prompts)
    return errors(predicted, lab, prompts)
