"""The claim of `lipschitz` that a softmax head is a kernel smoother of the prompt's labels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses import relevance
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
from icl_interp.analyses.relevance import Effect, Outcome, Standing
from icl_interp.resampling import simultaneous
from icl_interp.studies.lipschitz.claims.window import percent
from icl_interp.studies.lipschitz.measurements.heads import (
    ANY_LABELS,
    ANY_VALUES,
    LABELS,
    NOTHING,
    SPREAD,
    UNTOLD,
    VALUES,
    needs_softmax_and_labels,
    smoother,
)
from icl_interp.studies.lipschitz.measurements.redrawn_examples import surely_missed, surely_told

SHARE = 0.9  # of the heads that matter
NO_SHARE = 0.5
# Of what the head does to the prediction: up to here its smoother does it, from there not.
REPLACED = 0.1
MISSED = 0.25
ROUNDING = 1e-9  # share of what a head does up to which nothing is missed
# What is averaged, with a kernel of the family and with any kernel.
ARMS = {"labels": (LABELS, ANY_LABELS), "values": (VALUES, ANY_VALUES)}

SHARE_REPLACED = Condition(
    "share",
    "share of heads that matter that an average of labels replaces",
    at_least(SHARE, most=1.0),
    at_most(NO_SHARE, least=0.0),
    unit="share",
)
ANY_HEADS = Precondition(
    "heads", at_least(1), "No head is sure to matter at the query, so there is nothing to replace."
)
CRITERION = Criterion(
    (SHARE_REPLACED,),
    (ANY_HEADS,),
    terms="A head matters at the query if replacing its output by its mean moves the prediction "
    f"by {relevance.MOVES:g} standard deviations of the true values, and does not matter if that "
    f"is at most {relevance.STILL:g}. Its replacement is an average of the labels with weights "
    "that depend on the inputs alone. A head is replaced if that moves the prediction by at most "
    f"{100 * REPLACED:g} % as much (in mean square). It is not replaced if it is {100 * MISSED:g} "
    "% or more both with a kernel of a fixed family and with any kernel at all. The latter is "
    "read off prompts that share the example and the query and nothing else.",
)


def matters(result: DataArray, level: float) -> dict[str, Effect]:
    """What each head does at the query, as a root mean square change of the prediction.

    The change is that with the head's mean in its place.
    """

    def log_size(mean: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(mean, relevance.SMALLEST)) / 2

    moved = result.sel({"stand-in": NOTHING}).values.T
    value, low, high = map(np.exp, simultaneous(log_size, moved, level=level))
    found = {}
    for i, name in enumerate(result.indexes["head"]):
        found[name] = Effect(float(value[i]), float(low[i]), float(high[i]), False)
    return found


@dataclass(frozen=True)
class Part:
    """Of what a head does at the query, the part that its stand-in does not do.

    NaN where it was not tried.

    Attributes:
        value: by the kernel of the family. low, high: of its interval.
        any_value: by any kernel. any_low, any_high: likewise.
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    any_value: float = math.nan
    any_low: float = math.nan
    any_high: float = math.nan

    @property
    def least(self) -> float:
        """By the better of the kernels that were tried."""
        if math.isnan(self.any_value):
            return self.value
        return min(self.value, self.any_value)

    @property
    def shown(self) -> tuple[float, float, float]:
        """Value and interval by the better of the kernels that were tried."""
        if self.least == self.value or math.isnan(self.value):
            return self.value, self.low, self.high
        return self.any_value, self.any_low, self.any_high

    def standing(self, n_examples: int) -> Standing:
        """Replaced where one kernel does what the head does; not where none does, not even any."""
        if math.isnan(self.value):
            return Standing("out", relevance.OUT)
        # By the kernel of the family alone, then by any kernel where that was tried.
        replaced = self.high <= REPLACED
        neither = False
        if not math.isnan(self.any_value):
            most = surely_told(self.any_high, n_examples)
            least = surely_missed(self.any_low, n_examples)
            replaced = replaced or most <= REPLACED
            neither = min(self.low, least) >= MISSED
        ways: set[Outcome] = {"yes", "no"}
        if replaced:
            ways = {"yes"}
        elif neither:
            ways = {"no"}
        likely = replaced or self.least <= REPLACED
        return Standing("yes" if likely else "no", frozenset(ways))


def missed(result: DataArray, what: str, level: float) -> dict[str, Part]:
    """What smoothers of the labels, or of the head's own values, miss.

    Intervals of all heads and kernels hold at once.

    Args:
        result: what was measured.
        what: "labels" or "values".
        level: of confidence.
    """
    names = list(result.indexes["head"])
    fitted, _ = ARMS[what]
    tried = []
    left = []
    all_of_it = []
    for arm in ARMS[what]:
        for name in names:
            numbers = _numbers(result, name, arm)
            if numbers is not None:
                tried.append((name, arm))
                left.append(numbers)
                all_of_it.append(result.sel({"head": name, "stand-in": NOTHING}).values)
    found = {name: Part() for name in names}
    if not tried:
        return found

    # Rounding errors, where a kernel does all that the head does, have no size that an interval
    # could tell.
    tiny = np.finfo(float).tiny

    def log_share(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.log(a / (b + tiny) + ROUNDING)

    logs = simultaneous(log_share, np.stack(left, 1), np.stack(all_of_it, 1), level=level)
    # What is left of almost nothing may be too many times it for a float: an interval without end.
    with np.errstate(over="ignore"):
        values, lows, highs = (np.exp(part).tolist() for part in logs)
    for i, (name, arm) in enumerate(tried):
        part = found[name]
        if arm == fitted:
            found[name] = replace(part, value=values[i], low=lows[i], high=highs[i])
        else:
            found[name] = replace(part, any_value=values[i], any_low=lows[i], any_high=highs[i])
    return found


def _numbers(result: DataArray, name: str, row: str) -> np.ndarray | None:
    values = result.sel({"head": name, "stand-in": row}).values
    return values if np.isfinite(values).all() else None


def untold(result: DataArray, name: str, n_examples: int) -> float:
    """The share of the spread of a head's log weights that depends on the rest of the prompt.

    It is what changes when all but example and query is drawn anew.

    NaN where that was not tried, or where there is no spread.
    """
    spread = _numbers(result, name, SPREAD)
    rest = _numbers(result, name, UNTOLD)
    if spread is None or rest is None or not spread.mean() > 0:
        return math.nan
    changed = float(rest.mean() / spread.mean())
    share = surely_missed(changed, n_examples)
    # Of a head that inputs tell nothing about, a sample may give a little more than 1.
    return min(1.0, share)


def standings(result: DataArray, what: str, level: float, n_examples: int) -> dict[str, Standing]:
    """How each head counts, whether it matters or not; heads that were not tried count as none."""
    parts = missed(result, what, level)
    return {name: part.standing(n_examples) for name, part in parts.items()}


def counting(result: DataArray, what: str, level: float, n_examples: int) -> dict[str, Standing]:
    """The standings of heads where those that do not matter at the query do not count."""
    effects = matters(result, level)
    found = standings(result, what, level, n_examples)
    return {name: standing.among(effects[name]) for name, standing in found.items()}


def _share(what: str, result: DataArray, facts: Facts) -> Estimate:
    """The share of the heads that matter which an average of labels, or of values, replaces."""
    n_examples = facts.n_points - 1
    return relevance.share_of_heads(
        "share of heads", lambda level: counting(result, what, level, n_examples)
    )


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How many heads matter at the query, and the share that a smoother of the labels replaces."""
    result = results[smoother]
    heads = counting(result, "labels", relevance.USUAL, facts.n_points - 1)
    return {
        "heads": relevance.counted("heads that matter at the query", heads),
        "share": _share("labels", result, facts),
    }


def untrained(results: Results, facts: Facts) -> dict[str, Found]:
    """The share of all heads of a control, whether they matter or not."""
    share = relevance.share_of_heads(
        "share of heads",
        lambda level: standings(results.control[smoother], "labels", level, facts.n_points - 1),
    )
    return {"share": share}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """What the average misses in the worst head, and what its log weights depend on."""
    result = results[smoother]
    rows = details(result, facts.n_points - 1)
    counted = [row["labels: least missed"] for row in rows if row["counts"]]
    by_values = _share("values", result, facts)
    return Remarks(
        scope="these weights, the last query of prompts in distribution, heads that matter there, "
        "one head at a time",
        caveat=caveat(rows),
        causal={
            "intervention": "replace a head's output at the last query by an average of the labels",
            "effect": max(counted, default=math.nan),
            "unit": "share of what the head does to the prediction, mean square; the worst head",
            "the head's own values with the smoother's weights: share of heads replaced": (
                by_values.value
            ),
        },
        details=rows,
    )


def _replaced(heads: Sequence[dict[str, Any]], what: str) -> int:
    return sum(row[f"{what}: least missed"] <= REPLACED for row in heads)


def caveat(rows: tuple[dict[str, Any], ...]) -> str:
    """What the average misses, or what the log weights depend on.

    The head is the one that the average misses most.
    """
    heads = [row for row in rows if row["counts"]]
    if not heads:
        return ""
    worst = max(heads, key=lambda row: row["labels: least missed"])
    n = len(heads)
    if _replaced(heads, "labels") == n:
        head = worst["head"]
        least = percent(worst["labels: least missed"])
        return (
            f"For head {head}{', the worst,' * (n > 1)} it misses "
            f"{least} % of what the head does to the prediction "
            f"(mean square; at most {100 * REPLACED:g} % counts as replaced)."
        )
    # Why it is not replaced: by what its log weights depend on.
    share = worst["log weights: share that redraws change"]
    if math.isnan(share):
        return (
            "With the same weights on the head's own values it can replace "
            f"{_replaced(heads, 'values')}."
        )
    changes = (
        f"In head {worst['head']} {percent(share)} % of the log weights' spread changes with the "
        "rest of the prompt"
    )
    if share >= MISSED:
        return f"{changes}, so they depend on more than two inputs."
    if share <= REPLACED:
        return f"{changes}, but it does not average labels alone."
    return f"{changes}."


def details(result: DataArray, n_examples: int) -> tuple[dict[str, Any], ...]:
    """A row a head, or heads that count as one."""
    effects = matters(result, relevance.USUAL)
    by_arm = {what: missed(result, what, relevance.USUAL) for what in ARMS}
    rows = []
    for name, effect in effects.items():
        row = {
            "head": name,
            "matters at the query": effect.role,
            "counts": effect.matters,
            "moves the prediction by": effect.value,
        }
        for what, parts in by_arm.items():
            part = parts[name]
            row[f"{what}: missed"] = part.value
            row[f"{what}: low"] = part.low
            row[f"{what}: high"] = part.high
            row[f"{what}: missed by any kernel"] = part.any_value
            row[f"{what}: least missed"] = part.least
        row["log weights: share that redraws change"] = untold(result, name, n_examples)
        rows.append(row)
    return tuple(rows)


SMOOTHER_CLAIM = Claim(
    id="lipschitz.kernel_smoother",
    question="attention",
    statement="Nearly all heads that matter at the query average the labels with a kernel of the "
    "inputs.",
    denied="At least half of the heads that matter at the query do not average the labels with a "
    "kernel.",
    quote=Quote(
        "L(M) := E_(f, {x_i}, {ε_i}) ( Σ_i (f(x_i) + ε_i) e^(x_i^T M x_(n+1)) / Σ_i e^(x_i^T M "
        "x_(n+1)) − f(x_(n+1)) )²",
        "Collins et al. (2024), slides by A. Mokhtari, equation (ICL), 'Pretraining population "
        "loss'",
        "The slides define the model as such an average. We test for any softmax head whether it "
        "is one, up to an affine map of the average. Any kernel of the inputs is allowed, not "
        "only x^T M x_q. The kernel is fitted to the head's scores on other prompts, as one whose "
        "logarithm is a polynomial of low degree. If that fails, it is read off the head on "
        "prompts that share the example and the query and nothing else, which leaves no kernel "
        "out. The claim says more than that a head averages its own values with its own weights, "
        "which is always true: here weights may depend on the inputs alone, and labels are "
        "averaged.",
    ),
    kind="architecture",
    reads="attention scores, and heads, which are replaced",
    criterion=CRITERION,
    measurements=(smoother,),
    control=(smoother,),
    untrained=untrained,
    aspects=("shares of heads",),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_softmax_and_labels,
    figures=("lipschitz_smoother",),
)
