"""The claim of `limits` that attention averages uniformly over many tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from icl_interp.resampling import simultaneous
from icl_interp.studies.limits.claims.softmax import HALF, MATTERS, MOST, RELEVANT, needs_softmax
from icl_interp.studies.limits.measurements.dispersion import BEYOND, deficit, dispersion

UNIFORM = 0.105  # entropy deficit up to which a pattern counts as uniform (N_eff / n >= 0.9)
# The same as a share: of the tokens, e to the entropy of a pattern.
EVENLY = float(np.exp(-UNIFORM))
SHORTEST = 10.0  # tokens of a prompt from which an average over many of them can be spoken of


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """Whether heads that matter average uniformly when there are many tokens."""
    mattering = relevance.Mattering.of(results, facts)
    trained = _trained_length(results[dispersion])
    found: dict[str, Found] = {}
    found["relevant heads"] = mattering.counted
    found["trained length"] = Estimate.exactly("trained length", trained, "tokens")
    if trained < SHORTEST:
        return found

    def counting(level: float) -> dict[str, Standing]:
        standings = _standings(results[deficit], level)
        return mattering.among(level, standings)

    found["share"] = relevance.share_of_heads("share", counting)
    return found


def untrained(results: Results, facts: Facts) -> dict[str, Estimate]:
    """The share among all heads of an untrained control: none of them matters."""
    result = results.control[deficit]
    share = relevance.share_of_heads("share", lambda level: _standings(result, level))
    return {"share": share}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """How many heads are uniform and where, each head, and what a uniform head costs."""
    scope = (
        "these weights, this task, in-distribution queries, up to 10 trained lengths (resampled "
        "scores)"
    )
    if "share" not in found:
        return Remarks(scope=scope)
    mattering = relevance.Mattering.of(results, facts)
    standings = _standings(results[deficit], relevance.USUAL)
    heads = mattering.among(relevance.USUAL, standings)
    # By how much the error rises if one head is made uniform, over the error itself.
    swaps = results[relevance.relevance].sel(intervention="uniform", statistic="rise").values
    error = max(facts.error, 1e-300)
    rises = swaps.mean(-1) / error
    rows = _dispersion_rows(results[dispersion], results[deficit], mattering.roles, rises)
    mine = [row for row in rows if heads[row["head"]].value != "out"]
    told = Remarks(scope=scope, causal=_causal(mine), details=rows)
    if not mine:
        return told
    counts = _counts(heads, mine)
    at_10 = counts["uniform at 10 trained lengths"]
    in_limit = counts["uniform in the limit"]
    caveat = (
        f"At ten times the trained length {at_10} of {len(mine)} are uniform, and in the limit of "
        f"many tokens {in_limit}."
    )
    return replace(told, caveat=caveat, details=(*rows, counts))


def _trained_length(curve: DataArray) -> float:
    """Tokens of a prompt in training; the lengths behind it are resampled."""
    lengths = curve["n"].values
    return float(lengths[-len(BEYOND) - 1])


def _causal(mine: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What it costs to make the attention of one head uniform."""
    rises = [row["uniform swap, relative rise of error"] for row in mine]
    return {
        "intervention": "make the attention of one head uniform",
        "criterion": "the error in distribution rises by at most 10 %",
        "effect": float(np.median(rises)) if rises else float("nan"),
        "relevant heads that can be made uniform": sum(rise <= 0.1 for rise in rises),
        "relevant heads": len(mine),
    }


def _counts(heads: Mapping[str, Standing], mine: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many of the heads that matter are uniform, and where."""
    at_10 = 0
    for head in heads.values():
        at_10 += head.value == "yes"
    in_limit = 0
    later = 0
    among_x = 0
    among_y = 0
    weights = []
    for row in mine:
        in_limit += row["limit"] <= UNIFORM
        later += row["at 10 trained lengths"] > UNIFORM >= row["limit"]
        among_x += row["within x"] <= UNIFORM
        among_y += row["within y"] <= UNIFORM
        weights.append(row["max weight at 40 trained lengths"])
    # The keys are printed in this order.
    return {
        "heads that matter": len(mine),
        "uniform at 10 trained lengths": at_10,
        "uniform in the limit": in_limit,
        "not yet at 10 trained lengths, but in the limit": later,
        "uniform among x tokens": among_x,
        "uniform among y tokens": among_y,
        "largest weight at 40 trained lengths": max(weights),
    }


def _standings(result: DataArray, level: float) -> dict[str, Standing]:
    """How each head counts: uniform at ten trained lengths, or not.

    A head that is uniform in the limit only, or is unclear, counts both ways.
    """
    # (unit, head) each
    at = result.sel(n="10 x trained").values.T
    limit = result.sel(n="limit").values.T

    def both(now: np.ndarray, end: np.ndarray) -> np.ndarray:
        return np.concatenate([now, end], -1)

    _, low, high = simultaneous(both, at, limit, level=level)
    n = at.shape[1]
    found = {}
    for i, name in enumerate(result.indexes["head"]):
        possible: set[Outcome] = {"yes", "no"}
        least = min(low[i], low[n + i])
        if high[i] <= UNIFORM:
            possible = {"yes"}
        elif least > UNIFORM:
            possible = {"no"}
        mean = at[:, i].mean()
        by_value: Outcome = "yes" if mean <= UNIFORM else "no"
        found[name] = Standing(by_value, frozenset(possible))
    return found


def _dispersion_rows(
    curve: DataArray, result: DataArray, roles: Mapping[str, str], rises: np.ndarray
) -> tuple[dict[str, Any], ...]:
    """A row for each head: deficits of its pattern, its scores, and what a uniform swap costs."""
    trained = -len(BEYOND) - 1
    rows = []
    for name, rise in zip(curve.indexes["head"], rises, strict=False):
        at, beyond, limit, score_range = result.sel(head=name).values.mean(-1)
        widest = curve.sel(head=name).values
        bound = min(score_range, score_range**2 / 8)
        row = {
            "head": name,
            "relevant": roles[name],
            "at the trained length": float(at),
            "at 10 trained lengths": float(beyond),
            "limit": float(limit),
            "score range": float(score_range),
            "bound min(R, R^2/8)": float(bound),
            "max weight at 40 trained lengths": float(widest[1, -1]),
            "within x": float(widest[2, -2]),
            "within y": float(widest[3, -2]),
            "variance from samples": float(widest[4, trained]),
            "uniform swap, relative rise of error": float(rise),
        }
        rows.append(row)
    return tuple(rows)


LONG = Precondition(
    "trained length",
    at_least(SHORTEST),
    "Prompts of {value:.0f} tokens are too short to tell what attention does over many.",
)

CRITERION = Criterion(
    (
        Condition(
            "share",
            "share of the heads that matter that average uniformly",
            at_least(MOST),
            at_most(HALF),
            unit="share",
        ),
    ),
    (LONG, RELEVANT),
    terms=f"{MATTERS} It averages uniformly if its attention at ten times the trained length is "
    f"spread as evenly as over {EVENLY:.0%} of the n tokens (log n minus the entropy of the "
    f"attention is at most {UNIFORM}). Heads that are uniform only in the limit of many tokens "
    "count both ways, as do heads in between.",
)

SOFTMAX_UNIFORM_CLAIM = Claim(
    id="limits.softmax_uniform",
    question="attention",
    statement="Over many tokens nearly all heads that matter average uniformly.",
    denied="Even over many tokens at least half of the heads that matter do not average uniformly.",
    quote=Quote(
        "Second, when dealing with long sequences where the input values are both numerous and "
        "similar in"
        " magnitude, softmax tends to a uniform distribution.",
        "Naim & Asher (2025), section 6, after Proposition 4 (also appendix G.2)",
        "The paper gives no measurement, and appendix G.2 drops the condition of similar values. "
        "We measure how far each head that matters is from uniform at ten times the trained number "
        "of tokens; beyond the trained length its scores are drawn from those at trained "
        "positions.",
    ),
    kind="architecture",
    reads="attention patterns",
    criterion=CRITERION,
    measurements=(output_unit.own, relevance.relevance, dispersion, deficit),
    control=(deficit,),
    aspects=("shares of heads",),
    evidence=evidence,
    untrained=untrained,
    remarks=remarks,
    excluded=needs_softmax,
    figures=("dispersion",),
)
