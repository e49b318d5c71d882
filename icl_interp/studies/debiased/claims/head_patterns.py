"""The claim on weights: heads score by w <x_i, x_q> with one |w|, read labels, and add up to 0."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from xarray import DataArray

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
from icl_interp.analyses.facts import Facts, needs_linear_functions
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import bootstrap
from icl_interp.studies.debiased.measurements import heads as measured
from icl_interp.studies.debiased.measurements import predictions as said
from icl_interp.studies.debiased.measurements.heads import heads
from icl_interp.studies.debiased.measurements.predictions import predictions
from icl_interp.tasks.regression import LinearRegression

# Shares of scores and of values that are something else than w <x_i, x_q> and labels.
CLEAN = 0.05
MIXED = 0.2
# How far weights of labels are from adding up to 0: `imbalance`.
BALANCED = 0.1
ONE_SIDED = 0.3
# Standard deviation of |w| over heads, of its mean.
EVEN = 0.1
UNEVEN = 0.3
READ = 0.99  # of the prediction's variance: what heads read off examples
# Of the mean squared label: predictions that vary less vary by rounding alone.
FAINT = 1e-6
VARIANCE = "variance"
OTHER_SCORES = "other scores"
SPREAD = "spread"
OTHER_VALUES = "other values"
SUM = "sum"
READING = "reading"
PREDICTED = "predicted"
SEEN = Precondition(
    VARIANCE,
    at_least(FAINT),
    "The variance of its predictions is only {value:.2g} of the mean squared label, so nothing can "
    "be seen.",
)
Values = np.ndarray | np.floating
QUOTE = Quote(
    "a diagonal and homogeneous pattern in the key-query (KQ) weights, and a last-entry-only and "
    "zero-sum pattern in the output-value (OV) weights",
    "He, Pan, Chen & Yang (2025), abstract",
    'The work adds: "Remarkably, these patterns consistently appear from gradient-based training '
    "starting from random initialization.\" We read the abstract word for word, and the authors' "
    "code, but not the whole paper. The thresholds are ours. They were fixed before trained models "
    "were measured, but for that on predictions, which changed no verdict.",
)


def excluded(facts: Facts) -> str | None:
    """Why a model is not one layer of softmax heads on inputs that are alike in all directions."""
    config = facts.config
    reason = needs_linear_functions(facts)
    if reason:
        return reason
    task = facts.task
    assert isinstance(task, LinearRegression)
    if task.covariance is not None:
        return (
            "The claim is about inputs that vary alike in all directions; those of this model "
            "have a covariance of their own."
        )
    one_layer = config.n_layers == 1 and config.attn_only and not facts.norms
    if not one_layer or config.score_fn != "softmax" or facts.encoding != "stacked":
        return (
            "The claim is about one layer of softmax attention without norms and MLP, whose tokens "
            "hold an input and its label; this model is another."
        )
    return None


def strengths(inputs: np.ndarray, both: np.ndarray) -> np.ndarray:
    """w of each head, by least squares of its scores on <x_i, x_q>."""
    return both / inputs


def shares(weights: np.ndarray) -> np.ndarray:
    """How much each head counts: the size of its weight of labels, of the sum; 0 where all are 0.

    >>> shares(np.array([1.0, -3.0])).tolist()
    [0.25, 0.75]
    """
    sizes = np.abs(weights)
    total = sizes.sum(-1, keepdims=True)
    return _over(sizes, total)


def _over(part: Values, whole: Values, empty: float = 0.0) -> np.ndarray:
    """A part of a whole, or a number where there is none."""
    there = whole > 0
    return np.where(there, part / np.where(there, whole, 1.0), empty)


def others(
    scores: np.ndarray, inputs: np.ndarray, both: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """The share of scores that is not w <x_i, x_q>; 0 for heads that attend to all alike."""
    share = shares(weights)
    explained = both**2 / inputs
    whole = (share * scores).sum(-1)
    left = scores - explained
    missed = (share * left).sum(-1)
    return _over(missed, whole)


def spread(inputs: np.ndarray, both: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Standard deviation of |w| over its mean; 0 where all heads attend to all alike.

    >>> spread(np.ones(2), np.array([0.2, -0.2]), np.array([1.0, -1.0])).item()
    0.0
    """
    share = shares(weights)
    sizes = np.abs(strengths(inputs, both))
    mean = (share * sizes).sum(-1)
    apart = sizes - mean[..., None]
    variance = (share * apart**2).sum(-1)
    return _over(np.sqrt(variance), mean)


def imbalance(w: np.ndarray, weights: np.ndarray) -> float:
    """|P + N| / (|P| + |N|), with P the weights of labels of heads with w above 0, N of others.

    Heads of one sign are taken together, so that two that nearly cancel hide no third one.

    >>> imbalance(np.array([0.2, 0.2, -0.2]), np.array([9.0, -8.0, -1.0]))
    0.0
    """
    above = weights[w > 0].sum()
    below = weights[w <= 0].sum()
    sizes = abs(above) + abs(below)
    return float(abs(above + below) / sizes) if sizes else 1.0


def apart(missed: np.ndarray, square: np.ndarray) -> np.ndarray:
    """A squared distance over the variance of predictions; 1 for predictions that do not vary."""
    return _over(missed, square, empty=1.0)


def explained(missed: np.ndarray, square: np.ndarray) -> np.ndarray:
    """The share of predictions that a reading explains; 0 for predictions that do not vary."""
    return 1 - apart(missed, square)


def other_values(left: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The share of what all heads read that is not labels; 1 where nothing is read."""
    return _over(left.sum(-1), values.sum(-1), empty=1.0)


def variance(result: DataArray) -> float:
    """The variance of predictions, over the mean squared label."""
    whole = result.sel(comparison=said.IN_DISTRIBUTION)
    own = whole.sel(number=said.OWN).values
    return float(own.var() / whole.sel(number=said.LABEL).values.mean())


def evidence(results: Results, facts: Facts) -> Mapping[str, Found]:
    """What scores and values hold, how alike heads are, and whether they add up to 0."""
    result = results[heads]
    scores, inputs, both, values, left, weights = _numbers(result)
    w = strengths(inputs.mean(0), both.mean(0))
    compared = results[predictions]
    missed = compared.sel(number=said.SQUARED)
    square = compared.sel(comparison=said.READ, number=said.OWN).values ** 2
    return {
        VARIANCE: variance(compared),
        READING: bootstrap(explained, missed.sel(comparison=said.READ).values, square),
        PREDICTED: bootstrap(apart, missed.sel(comparison=said.AS_CLAIMED).values, square),
        OTHER_SCORES: bootstrap(others, scores, inputs, both, weights),
        SPREAD: bootstrap(spread, inputs, both, weights),
        OTHER_VALUES: bootstrap(other_values, left, values),
        SUM: imbalance(w, weights[0]),
    }


def _numbers(result: DataArray) -> np.ndarray:
    """All numbers of heads, (number, unit, head)."""
    chosen = result.sel(number=list(measured.NUMBERS))
    return chosen.transpose("number", "unit", "head").values


def by_head(result: DataArray) -> list[dict[str, Any]]:
    """w of each head with its interval, the rest of its scores, and its weight of labels."""
    rows = []
    for name in result.indexes["head"]:
        scores, inputs, both, _, _, weights = _numbers(result.sel(head=[name]))[..., 0]
        w = bootstrap(strengths, inputs, both)
        one = np.ones(1)
        whole = scores.mean() * one
        other = others(whole, inputs.mean() * one, both.mean() * one, one)
        row = {"head": str(name), "w": w.value, "low": w.low, "high": w.high}
        row["other scores"] = float(other)
        row["weight of labels"] = float(weights[0])
        rows.append(row)
    return rows


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """w and weight of each head."""
    rows = by_head(results[heads])
    above = [row for row in rows if row["w"] > 0]
    caveat = f"Of {len(rows)} different heads {len(above)} have w above 0."
    scope = "these weights, and prompts of the trained length in distribution"
    return Remarks(scope=scope, caveat=caveat, details=tuple(rows))


PATTERNS_CLAIM = Claim(
    id="debiased.head_patterns",
    kind="architecture",
    statement="Heads score examples by w <x_i, x_q> with one |w|, and read labels with weights "
    "that sum to 0.",
    denied="Heads score by something else, or differ in |w|, or read more than labels, or do not "
    "sum to 0.",
    question="attention",
    quote=QUOTE,
    reads="scores and values of the heads",
    criterion=Criterion(
        (
            Condition(
                OTHER_SCORES,
                "share of scores that is not w <x_i, x_q>",
                at_most(CLEAN),
                at_least(MIXED),
                unit="share",
            ),
            Condition(
                SPREAD,
                "standard deviation of |w| over heads, of its mean",
                at_most(EVEN),
                at_least(UNEVEN),
                unit="share",
            ),
            Condition(
                OTHER_VALUES,
                "share of what heads read that is not labels",
                at_most(CLEAN),
                at_least(MIXED),
                unit="share",
            ),
            # Two heads that nearly cancel count for much above, and for nothing in predictions.
            Condition(
                PREDICTED,
                "squared distance from heads that are exactly so, over the variance of predictions",
                at_most(CLEAN),
                at_least(MIXED),
                unit="share",
            ),
            Condition(
                SUM, "|P + N| / (|P| + |N|)", at_most(BALANCED), at_least(ONE_SIDED), unit="share"
            ),
        ),
        (
            SEEN,
            Precondition(
                READING,
                at_least(READ),
                "What heads read off the examples is only {value:.3g} of the variance of "
                f"predictions ({READ:g} needed).",
            ),
        ),
        terms="Scores are those before softmax, about their mean over the examples of a prompt. w "
        "is what least squares gives for them on <x_i, x_q>. What a head reads is what it adds to "
        "the prediction for an example that has all of its weight. Heads that attend alike are "
        "one head. Heads count by the sizes of their weights of labels. P is the sum of these "
        "weights of heads with w above 0, and N that of the others. Heads that are exactly so have "
        "scores +w or -w times <x_i, x_q>, with the mean |w|, and read labels alone.",
    ),
    measurements=(heads, predictions),
    control=(heads, predictions),
    aspects=("depth", "single layer", "kind of task"),
    evidence=evidence,
    remarks=remarks,
    excluded=excluded,
    figures=("debiased_heads",),
)
CLAIMS = (PATTERNS_CLAIM,)
