"""The claim of `dispersion`: beyond the trained length the largest weight falls as 1 / n."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from xarray import DataArray

from icl_interp.analyses import output_unit, relevance
from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import (
    Condition,
    Criterion,
    Estimate,
    Found,
    Precondition,
    at_least,
    at_most,
)
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.relevance import Outcome, Standing
from icl_interp.resampling import simultaneous, slope
from icl_interp.studies.dispersion.measurements.largest import OCTAVES, largest

# Slopes of log(largest weight) in log n at which a head disperses, and from which it does not. A
# weight that falls as 1 / n has -1. Over eight trained lengths 1 / n^.5 falls to a third of its
# value, and 1 / n to an eighth: at -.5 a head is nearer to keeping its weight in the logarithm
# than to dispersing. Between both it does neither.
STEEPEST = -1.1
DISPERSED = -0.9
KEPT = -0.5
# Shares of heads: from which on the claim holds, and up to which it does not.
MOST = 0.9
HALF = 0.5
SHARE = "share"
COUNTED = "relevant heads"
QUOTE = Quote(
    "In this paper, we dispel this myth: even for tasks as simple as finding the maximum key, any "
    "learned circuitry must disperse as the number of items grows at test time.",
    "Veličković, Perivolaropoulos, Barbero & Pascanu (2024), abstract",
    "In our words, after accounts of the work: it proves that softmax of bounded scores gives "
    "every item a weight of order 1 / n. We found no length at which this is reached, and no "
    f"threshold. We test prompts of up to {OCTAVES[-1]} trained lengths, also where scores are "
    "not bounded.",
)


def excluded(facts: Facts) -> str | None:
    """Why a model has no weights on the keys of a longer prompt."""
    config = facts.config
    if config.mlp_only:
        return "The claim is about attention; this model has none."
    if not config.weights_add_up:
        return (
            "The claim is about attention weights that add up to 1; those of this model need not."
        )
    if config.positional_embedding_type in ("standard", "relative"):
        return (
            "The claim is about prompts longer than in training, and this model has learned "
            "positions, which end at the trained length."
        )
    return None


def slopes(result: DataArray) -> np.ndarray:
    """Least-squares slope of the log of the largest weight in log n, (unit, head)."""
    logs = result.transpose("unit", "head", "n").values
    n = result["n"].values.astype(float)
    return slope(np.log(n), logs)


class Slopes(NamedTuple):
    """Mean slopes of all heads, with intervals that hold for all at once."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, result: DataArray, level: float = relevance.USUAL) -> Self:
        """From logarithms of largest weights by n, head and unit."""
        return cls(*simultaneous(lambda mean: mean, slopes(result), level=level))


def standings(result: DataArray, level: float) -> dict[str, Standing]:
    """How each head counts: it disperses, or does not, or its slope leaves both open."""
    found = {}
    for name, *ends in zip(result.indexes["head"], *Slopes.of(result, level), strict=True):
        found[str(name)] = standing(*ends)
    return found


def standing(value: float, low: float, high: float) -> Standing:
    """How a head with such a slope counts.

    >>> sorted(standing(-0.8, -0.85, -0.75).possible), standing(-0.8, -0.85, -0.75).value
    (['no', 'yes'], 'no')
    """
    possible: set[Outcome] = {"yes", "no"}
    if low >= STEEPEST and high <= DISPERSED:
        possible = {"yes"}
    elif low >= KEPT:
        possible = {"no"}
    by_value: Outcome = "no"
    if STEEPEST <= value <= DISPERSED:
        by_value = "yes"
    return Standing(by_value, frozenset(possible))


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How many heads matter, and which share of them disperses."""
    mattering = relevance.Mattering.of(results, facts)

    def counting(level: float) -> dict[str, Standing]:
        return mattering.among(level, standings(results[largest], level))

    share = relevance.share_of_heads(SHARE, counting)
    found: dict[str, Found] = {COUNTED: mattering.counted}
    found[SHARE] = share
    return found


def untrained(results: Results, facts: Facts) -> dict[str, Estimate]:
    """The share among all heads of an untrained control: none of them matters."""
    result = results.control[largest]
    share = relevance.share_of_heads(SHARE, lambda level: standings(result, level))
    return {SHARE: share}


def rows(results: Results, facts: Facts) -> list[dict[str, Any]]:
    """Each head, whether it matters, its slope, and its largest weight at both ends."""
    result = results[largest]
    roles = relevance.Mattering.of(results, facts).roles
    logs = result.mean("unit").transpose("head", "n").values
    found = []
    for name, *ends, log in zip(result.indexes["head"], *Slopes.of(result), logs, strict=True):
        row: dict[str, Any] = {"head": str(name), "relevant": roles[str(name)]}
        row |= zip(("slope", "low", "high"), map(float, ends), strict=True)
        row["at the trained length"] = float(np.exp(log[0]))
        row["at the longest"] = float(np.exp(log[-1]))
        found.append(row)
    return found


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The slopes of the heads that matter, and what the verdict adds to the theorem."""
    every = rows(results, facts)
    mine = [row["slope"] for row in every if row["relevant"] == "yes"]
    n = results[largest]["n"].values
    caveat = ""
    if mine:
        caveat = (
            f"The slopes are {min(mine):.2f} to {max(mine):.2f} for n from {n[0]} to {n[-1]}; "
            "that of softmax of bounded scores tends to -1."
        )
    scope = "these weights, queries in distribution, and prompts of up to 8 trained lengths"
    return Remarks(scope=scope, caveat=caveat, details=tuple(every))


DISPERSES_CLAIM = Claim(
    id="dispersion.attention_disperses",
    kind="architecture",
    statement="Beyond the trained length nearly all heads that matter disperse: their largest "
    "weight shrinks like 1 / length.",
    denied="Beyond the trained length at least half of the heads that matter do not disperse.",
    question="attention",
    quote=QUOTE,
    reads="attention patterns",
    criterion=Criterion(
        (
            Condition(
                SHARE,
                "share of the heads that matter whose attention disperses",
                at_least(MOST),
                at_most(HALF),
                unit="share",
            ),
        ),
        (
            Precondition(
                COUNTED,
                at_least(1.0),
                "No head is sure to matter for the in-distribution prediction.",
            ),
        ),
        terms="A head matters if its ablation at least doubles the error; it does not if the "
        "error rises at most 1.25 times. A head disperses if log(largest weight) at a query has a "
        f"slope in log n between {STEEPEST} and {DISPERSED}, from the trained number of keys n to "
        f"{OCTAVES[-1]} times as many. It does not if the slope is at least {KEPT}. Heads in "
        "between count both ways.",
    ),
    measurements=(output_unit.own, relevance.relevance, largest),
    control=(largest,),
    aspects=("shares of heads",),
    evidence=evidence,
    untrained=untrained,
    remarks=remarks,
    excluded=excluded,
    figures=("largest_weights",),
)
CLAIMS = (DISPERSES_CLAIM,)
