"""The claim of `lipschitz` on linear attention: it has no window, so that it cannot adapt one."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import (
    SUPPORTED,
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
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.lipschitz.claims.window import never_asked, percent
from icl_interp.studies.lipschitz.measurements.example_weights import (
    MODEL,
    PLAIN,
    WINDOW,
    by_cosine,
    label_weights_near,
    needs_linear_attention,
)

NONE = 0.2  # of the way from the kernel x_i . x_q to the best window
SOME = 0.5
ABOVE = 0.9  # of the error of the best linear function of the query
BELOW = 0.6
READS = 0.05  # root mean square of predictions over that of f from which a model says something
APART = 0.1  # by which the best window's share and that of x_i . x_q must differ
# Share of the labels' weights that may reach the prediction by another way than attention.
BESIDE = 0.01
NOTHING = 1e-300
UNKNOWN = Interval(math.nan, math.nan, math.nan)

CRITERION = Criterion(
    (
        Condition(
            "concentration",
            "how far the weight near the query is on the way to that of the best window",
            at_most(NONE),
            at_least(SOME),
            unit="share",
            denied="The weights of the examples gather near the query.",
        ),
        Condition(
            "error",
            "mean squared error over that of the best linear function of the query",
            at_least(ABOVE),
            at_most(BELOW),
            scale="log",
            denied="The error falls clearly below that of a linear fit.",
        ),
    ),
    (
        Precondition(
            "apart",
            at_least(APART),
            "For this task the best window has hardly more weight near the query than x_i . x_q "
            f"has (the shares differ by {{value:.2g}}, {APART:g} needed).",
        ),
        Precondition(
            "reads",
            at_least(READS),
            "The model predicts next to nothing (its predictions have {value:.2g} times the size "
            f"of the target, {READS:g} needed).",
        ),
        Precondition(
            "beside",
            at_most(BESIDE, least=0.0),
            "With attention at its mean, {value:.2g} of the labels' weights in the prediction "
            f"remain (at most {BESIDE:g} allowed), so something beside linear attention reads the "
            "examples.",
        ),
    ),
    terms="The weight near the query is a share of the weight of all examples. The way goes from "
    "the share of the kernel x_i . x_q (0 %) to that of the best softmax window (100 %).",
)


def share_near(result: DataArray, name: str) -> np.ndarray:
    """The share of the weight near the query, of the model or of a kernel, by unit."""
    return result.sel(number=f"share, {name}").values


def concentration(result: DataArray) -> Interval:
    """0 for the kernel x_i . x_q, 1 for the best window."""
    own = share_near(result, MODEL)
    if not np.isfinite(own).all():
        return UNKNOWN

    def way(own: np.ndarray, plain: np.ndarray, window: np.ndarray) -> np.ndarray:
        return (own - plain) / (window - plain)

    return bootstrap(way, own, share_near(result, PLAIN), share_near(result, WINDOW))


def _over(result: DataArray, number: str, other: str) -> Interval:
    """One number over another; units are resampled."""
    mine = result.sel(number=number).values
    theirs = result.sel(number=other).values
    positive = number == "error"
    return bootstrap(lambda a, b: a / np.maximum(b, NOTHING), mine, theirs, positive=positive)


def size(result: DataArray) -> Interval:
    """Root mean square of predictions over that of the target."""
    predicted = result.sel(number="prediction^2").values
    true = result.sel(number="truth^2").values
    return bootstrap(lambda a, b: np.sqrt(a / np.maximum(b, NOTHING)), predicted, true)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """Where the weights on examples gather, and how large the error is."""
    result = results[label_weights_near]
    plain = share_near(result, PLAIN)
    window = share_near(result, WINDOW)
    return {
        "apart": bootstrap(lambda a, b: a - b, window, plain),
        "reads": size(result),
        "beside": _over(result, "weights beside attention", "weights"),
        "error": _over(result, "error", "least"),
        "concentration": concentration(result),
    }


def is_linear(cfg: HookedTransformerConfig) -> bool:
    """Whether predictions are linear in the query whatever the weights are, biases apart.

    So it is in one layer of linear attention whose keys are the examples alone: the query enters
    once, through what it attends by.
    """
    plain = cfg.attn_only and cfg.normalization_type is None and cfg.embed_bound is None
    linear = cfg.score_fn == "linear" and cfg.keys == "labelled"
    return plain and linear and cfg.n_layers == 1


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The number that did not decide, and the shares behind them."""
    result = results[label_weights_near]
    decision = CRITERION.decide(found)
    if decision.condition and decision.condition.quantity == "error":
        way = percent(found["concentration"].value)
        caveat = f"The weight near the query has gone {way} % of the way to the best window's."
    else:
        caveat = f"The error is {found['error'].value:.3g} times that of the best linear fit."
    # The shares of the model and of both kernels, and the errors.
    rows: list[dict[str, Any]] = []
    for name in (MODEL, PLAIN, WINDOW):
        share = share_near(result, name).mean()
        rows.append({"kernel": name, "share near the query": float(share)})
    names = {
        "mean squared error": "error",
        "mean squared error of the best linear function of the query for each target": "least",
        "cosine to the query from which an example counts as near": "edge",
    }
    for name, key in names.items():
        mean = result.sel(number=key).values.mean()
        rows.append({"number": name, "value": float(mean)})
    # Whether the design alone decides.
    by_algebra = ""
    if decision.verdict == SUPPORTED and is_linear(facts.config):
        by_algebra = "predictions are linear in the query"
    return Remarks(
        scope="these weights, this task, prompts in distribution; an example's weight is the "
        "derivative of ŷ with respect to its label",
        caveat=caveat,
        by_algebra=by_algebra,
        details=tuple(rows),
    )


LINEAR_CLAIM = Claim(
    id="lipschitz.linear_attention_does_not_adapt",
    question="attention",
    statement="Examples near the query get no more weight, and the error stays that of a linear "
    "fit.",
    denied="Linear attention adapts its weights to the functions.",
    quote=Quote(
        "To our knowledge, first result showing how pretrained softmax attention facilitates ICL.",
        "Collins et al. (2024), slides by A. Mokhtari, 'Results Part I', 'Some extreme examples'",
        "This is the nearest sentence: the slides do not speak of linear attention. They say that "
        "softmax attention adapts; that linear attention cannot is our converse. Its weight x_i^T "
        "M x_q / n has one shape at every size of M, so neither L nor the noise can narrow it. We "
        "also judge models of several layers, with MLPs before a layer of linear attention, which "
        "can adapt.",
    ),
    kind="architecture",
    reads="the design of the model, and its gradients",
    criterion=CRITERION,
    measurements=(label_weights_near, by_cosine),
    control=(label_weights_near,),
    of_control=("concentration", "error"),
    aspects=("kind of task",),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_linear_attention,
    learned=never_asked,
    figures=("lipschitz_linear",),
)
