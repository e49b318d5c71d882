"""The claim of `dispersion`: beyond the trained length the largest weight falls as 1 / n."""

from collections.abc import Mapping
from typing import Any

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
STEEPEST, DISPERSED, KEPT = -1.1, -0.9, -0.5
MOST, HALF = 0.9, 0.5  # shares of heads: from which on the claim holds, and up to which it does not
SHARE, COUNTED = "share", "relevant heads"
QUOTE = Quote(
    "In this paper, we dispel this myth: even for tasks as simple as finding the maximum key, any "
    "learned circuitry must disperse as the number of items grows at test time.",
    "Veličković, Perivolaropoulos, Barbero & Pascanu (2024), abstract",
    "They prove that softmax of bounded scores gives every item a weight of order 1 / n. The work "
    "gives no length at which this is reached, and no threshold. We ask it of prompts of up to "
    f"{OCTAVES[-1]} trained lengths, also where scores are not bounded.",
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
            "positions, of which none lie beyond."
        )
    return None


def slopes(result: DataArray) -> np.ndarray:
    """Least-squares slope of the log of the largest weight in log n, (unit, head)."""
    logs = result.transpose("unit", "head", "n").values
    return slope(np.log(result["n"].values.astype(float)), logs)


def standings(result: DataArray, level: float) -> dict[str, Standing]:
    """How each head counts: it disperses, or does not, or its slope leaves both open."""
    value, low, high = simultaneous(lambda mean: mean, slopes(result), level=level)
    found = {}
    for place, name in enumerate(result.indexes["head"]):
        disperses = STEEPEST <= low[place] and high[place] <= DISPERSED
        keeps = low[place] >= KEPT
        possible: set[Outcome] = {"yes"} if disperses else {"no"} if keeps else {"yes", "no"}
        middle = STEEPEST <= value[place] <= DISPERSED
        found[str(name)] = Standing("yes" if middle else "no", frozenset(possible))
    return found


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How many heads matter, and which share of them disperses."""
    mattering = relevance.Mattering.of(results, facts)

    def counting(level: float) -> dict[str, Standing]:
        return mattering.among(level, standings(results[largest], level))

    share = relevance.share_of_heads(SHARE, counting)
    return {COUNTED: mattering.counted, SHARE: share}


def untrained(results: Results, facts: Facts) -> dict[str, Estimate]:
    """The share among all heads of an untrained control: none of them matters."""
    result = results.control[largest]
    return {SHARE: relevance.share_of_heads(SHARE, lambda level: standings(result, level))}


def rows(results: Results, facts: Facts) -> list[dict[str, Any]]:
    """Each head, whether it matters, its slope, and its largest weight at both ends."""
    result = results[largest]
    roles = relevance.Mattering.of(results, facts).roles
    value, low, high = simultaneous(lambda mean: mean, slopes(result), level=relevance.USUAL)
    found = []
    for place, name in enumerate(result.indexes["head"]):
        weight = np.exp(result.sel(head=name).mean("unit").values)
        row = {"head": str(name), "relevant": roles[str(name)], "slope": float(value[place])}
        row |= {"low": float(low[place]), "high": float(high[place])}
        row |= {"at the trained length": float(weight[0]), "at the longest": float(weight[-1])}
        found.append(row)
    return found


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The slopes of the heads that matter, and what the verdict adds to the theorem."""
    every = rows(results, facts)
    mine = [row["slope"] for row in every if row["relevant"] == "yes"]
    first, last = (int(n) for n in results[largest]["n"].values[[0, -1]])
    caveat = ""
    if mine:
        caveat = (
            f"Slopes are {min(mine):.2f} to {max(mine):.2f} for n from {first} to {last}; softmax of "
            "bounded scores tends to -1."
        )
    scope = "these weights, queries in distribution, and prompts of up to 8 trained lengths"
    return Remarks(scope=scope, caveat=caveat, details=tuple(every))


DISPERSES_CLAIM = Claim(
    id="dispersion.attention_disperses",
    kind="architecture",
    statement="Beyond the trained length nearly all heads that matter disperse.",
    denied="Beyond the trained length at least half of the heads that matter do not disperse.",
    question="attention",
    quote=QUOTE,
    reads="attention patterns",
    criterion=Criterion(
        (
            Condition(
                SHARE,
                "share of the heads that matter that disperse",
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
        terms="A head matters where its ablation at least doubles the error; it does not where the "
        "error rises at most 1.25 times. It disperses where log(largest weight) at a query has a "
        f"slope in log n between {STEEPEST} and {DISPERSED}, from the trained number of keys n to "
        f"{OCTAVES[-1]} times as many; it does not where the slope is at least {KEPT}. Heads in "
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
