"""The claim of `limits` that far from the data softmax acts as a hardmax.

The claim about uniform averages takes from here what both share.
"""

from collections.abc import Mapping, Sequence
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
from icl_interp.analyses.relevance import OUT, Outcome, Standing
from icl_interp.probes.attention import TARGETS
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.limits.claims.far_words import asked
from icl_interp.studies.limits.measurements.concentration import (
    CONCENTRATED,
    FAR_CONDITIONS,
    concentration,
    delta,
    far_swap,
)
from icl_interp.studies.limits.measurements.far import power

# Shares of contexts far out, from which and up to which. The first was 0.95, in each of four
# conditions at once and for all heads simultaneously: then 1,024 prompts do not tell a head that
# turns in 96 % of contexts from one that turns in 94 %, and models stay open all of whose heads
# turn. 0.9 is nearly all as well (it is what is asked of heads), and between 0.8 and 0.9 lie more
# than two standard errors of a share at half the sample, .02 each.
TURNED = 0.9
NOT_TURNED = 0.8
# Share of contexts in distribution from which a head is concentrated before anything goes far.
NEARBY = 0.5
# Change of the prediction far from the data, in u, up to which two patterns do the same.
SAME = 0.02
# Shares of heads: from which on the claim holds, and up to which it does not.
MOST = 0.9
HALF = 0.5


def _standings(result: DataArray, level: float) -> dict[str, Standing]:
    """How each head counts: whether it turns into a hardmax, or is one already ("out").

    "Already" is in distribution, where its pattern is concentrated.
    """
    shares = np.moveaxis(result.values[:, :-1], -1, 0)  # (unit, head, condition)
    n_contexts = int(result.values[0, -1, 0])
    # Whether a head is concentrated nearby; whether it has turned, where the least share decides;
    # and for two signs whether it has not, where the larger of two shares decides.
    n_decisions = 4 * shares.shape[1]
    low, high = relevance.proportions(shares, n_contexts, level, n_decisions)
    mean = shares.mean(0)
    found = {}
    for i, name in enumerate(result.indexes["head"]):
        found[name] = _standing(mean[i], low[i], high[i])
    return found


def _standing(share: np.ndarray, low: np.ndarray, high: np.ndarray) -> Standing:
    """The standing of one head, from its shares in distribution, at six far queries, and later.

    "Later" counts contexts whose pattern turns into a hardmax further out, for both signs. Of the
    six the last two are drawn, one of each sign.
    """
    ways: set[Outcome] = {"yes", "no"}
    drawn_or_later = np.maximum(high[5:7], high[7:])
    if low[1:7].min() >= TURNED:
        ways = {"yes"}
    elif drawn_or_later.min() <= NOT_TURNED:
        ways = {"no"}
    # A head that is concentrated in distribution has nothing to turn into.
    possible: frozenset[Outcome] = frozenset(ways)
    if low[0] >= NEARBY:
        possible = OUT
    elif high[0] >= NEARBY:
        possible |= OUT
    by_value: Outcome = "no"
    if share[0] >= NEARBY:
        by_value = "out"
    elif share[1:7].min() >= TURNED:
        by_value = "yes"
    return Standing(by_value, possible)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """Whether heads that matter put all their weight on one token when the query is far."""
    mattering = relevance.Mattering.of(results, facts)

    def counting(level: float) -> dict[str, Standing]:
        standings = _standings(results[concentration], level)
        return mattering.among(level, standings)

    usual = counting(relevance.USUAL)
    found: dict[str, Found] = {}
    found["relevant heads"] = mattering.counted
    found["heads left"] = relevance.counted("heads left", usual)
    found["share"] = relevance.share_of_heads("share", counting)
    return found


def untrained(results: Results, facts: Facts) -> dict[str, Estimate]:
    """The share among all heads of an untrained control: none of them matters."""
    result = results.control[concentration]
    share = relevance.share_of_heads("share", lambda level: _standings(result, level))
    return {"share": share}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """How many heads there are of each kind, what swapped patterns change, and each head."""
    result = results[concentration]
    mattering = relevance.Mattering.of(results, facts)
    standings = _standings(result, relevance.USUAL)
    heads = mattering.among(relevance.USUAL, standings)
    # Where heads were asked, and in how many contexts.
    near, out = (power(facts.x_unit * x) for x in FAR_CONDITIONS[2:])
    where = f"|x| = {near}, {out} and places drawn between, heads that matter in distribution"
    n_contexts = int(result.values[0, -1].sum())
    u = output_unit.u(results)
    causal = _causal(results[far_swap], u)
    rows = []
    for name in result.indexes["head"]:
        role = mattering.roles[name]
        rows.append(_head_row(name, result, results[delta], role, heads[name]))
    return Remarks(
        scope=asked(facts, where, n_contexts),
        caveat=_counts(heads, rows, causal),
        causal=causal,
        details=tuple(rows),
    )


def _counts(
    heads: Mapping[str, Standing], rows: Sequence[Mapping[str, Any]], causal: Mapping[str, Any]
) -> str:
    """How many heads put their attention on one token, and what limits what that says."""
    n_yes = 0
    n_asked = 0
    unclear = 0
    for head in heads.values():
        n_yes += head.value == "yes"
        n_asked += head.value != "out"
        unclear += {"yes", "no"} <= head.possible
    already = 0
    for row in rows:
        already += row["relevant"] == "yes" and row["in distribution"] >= NEARBY
    counts = f"{n_yes} of {n_asked} do"
    # Only the most serious limit is told.
    if causal["heads idle far out"]:
        return (
            f"{counts}; no head has an effect there: making attention uniform changes the "
            f"prediction by {causal['uniform instead']:.2g} standard deviations."
        )
    if unclear:
        return f"{counts}; {unclear} are unclear and count both ways."
    if already:
        return f"{counts}; another {already} attend to one token in distribution already."
    return f"{counts}."


def _causal(swap: DataArray, u: float) -> dict[str, Any]:
    """Root mean square change of the prediction by each swap, in u.

    Where the prediction levels off it can be close to 0.
    """
    effect = _change(swap, "one-hot", u)
    nearby = _change(swap, "one-hot", u, nearby=True)
    uniform = _change(swap, "uniform", u)
    flattened = _change(swap, "flattened", u)
    return {
        "intervention": "all attention of every head at the query put on the token with the "
        "largest weight",
        "effect": effect.value,
        "low": effect.low,
        "high": effect.high,
        "unit": "u",
        "criterion": f"changes the prediction there by at most {SAME} of its standard deviation in "
        "distribution (u)",
        "meets the criterion": bool(effect.high <= SAME),
        "power: the same swap in distribution": nearby.value,
        "uniform instead": uniform.value,
        "flattened by a temperature of 1e6": flattened.value,
        "heads idle far out": bool(uniform.value <= SAME),
    }


def _change(swap: DataArray, arm: str, u: float, nearby: bool = False) -> Interval:
    """Root mean square change of the prediction by a swap in u, far out or in distribution."""
    change = swap.sel(arm=arm).values
    # The two far queries stand behind those in distribution.
    change = change[:, :-2] if nearby else change[:, -2:]
    unit = max(u, 1e-300)
    with np.errstate(invalid="ignore", divide="ignore"):  # a model of one value has no unit
        squares = change.mean(1) / unit**2

    def size(mean: np.ndarray) -> np.ndarray:
        return np.sqrt(np.maximum(mean, 1e-30))

    return bootstrap(size, squares, positive=True)


def _head_row(
    name: str, result: DataArray, curve: DataArray, role: str, standing: Standing
) -> dict[str, Any]:
    """The shares of one head, and the token that it puts its weight on."""
    shares = result.sel(head=name).values[:-1].mean(-1)
    targets = {}
    for target in TARGETS:
        weights = curve.sel(statistic=target, head=name).values
        targets[target] = weights[[0, -1]].mean()
    row: dict[str, Any] = {"head": name, "relevant": role}
    row["in distribution"] = float(shares[0])
    row["far"] = float(shares[1:5].min())
    row["far, drawn places"] = float(shares[5:7].min())
    row["later"] = float(shares[7:].min())
    row["hardmax"] = " or ".join(sorted(standing.possible))
    row["target"] = max(targets, key=targets.__getitem__)
    return row


def needs_softmax(facts: Facts) -> str | None:
    """Why a claim about softmax cannot apply."""
    config = facts.config
    if config.mlp_only:
        return "The claim is about softmax attention; this model has no attention."
    if config.score_fn != "softmax":
        return (
            "The claim is about softmax attention; this model's score function is "
            f"{config.score_fn}."
        )
    if config.position_weights:
        return (
            "The claim is about softmax attention; this model multiplies what softmax gives by "
            "weights of positions."
        )
    return None


MATTERS = (
    "A head matters if its ablation at least doubles the error; it does not if the error rises at "
    "most 1.25 times."
)
RELEVANT = Precondition(
    "relevant heads", at_least(1.0), "No head is sure to matter for the in-distribution prediction."
)
LEFT = Precondition(
    "heads left",
    at_least(1.0),
    "No head is left: those that matter put their attention on one token already in distribution.",
)

HARDMAX = Criterion(
    (
        Condition(
            "share",
            "share of heads that matter whose attention is on one token",
            at_least(MOST),
            at_most(HALF),
            unit="share",
        ),
    ),
    (RELEVANT, LEFT),
    terms=f"{MATTERS} Its attention is on one token if in at least {TURNED:.0%} of contexts at "
    f"least {1 - CONCENTRATED:.0%} of its weight is there, for queries at 1e4, 1e5 and places "
    f"drawn between. It is not on one token if that holds in at most {NOT_TURNED:.0%} of contexts "
    "and the gap between its scores has stopped growing. Heads in between count both ways. Heads "
    "that attend to one token already in distribution do not count.",
)

SOFTMAX_HARDMAX_CLAIM = Claim(
    id="limits.softmax_hardmax",
    question="attention",
    statement="Far from the data nearly all heads that matter put their attention on one token.",
    denied="Far from the data at least half of the heads that matter do not put their attention on "
    "one token.",
    quote=Quote(
        "First, when one input value is significantly larger than the rest, softmax, like hardmax, "
        "assigns a probability close to 1 to the largest value and nearly zero to all others.",
        "Naim & Asher (2025), section 6, after Proposition 4 (also appendix G.2 and Table 4)",
        "The paper shows softmax of five given numbers (Table 4). We look at the trained heads "
        "that matter for the prediction, with the query at 1e4 and 1e5 units, and count those "
        "that put their attention on one token there. Heads that do so already near the data are "
        "left out, because distance is not the cause there.",
    ),
    kind="architecture",
    reads="attention patterns",
    criterion=HARDMAX,
    measurements=(output_unit.own, relevance.relevance, concentration, delta, far_swap),
    control=(concentration,),
    aspects=("shares of heads",),
    evidence=evidence,
    untrained=untrained,
    remarks=remarks,
    excluded=needs_softmax,
    figures=("heads",),
)
