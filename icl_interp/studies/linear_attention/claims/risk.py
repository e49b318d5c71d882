"""The claim of `linear_attention` that the risk is that of Theorem 4.2."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Found, at_least, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.linear_attention.measurements.setting import (
    SAME_EVIDENCE,
    needs_layer,
    not_learned,
    task_in,
)
from icl_interp.studies.linear_attention.measurements.shifts import (
    BEST,
    MODEL,
    OWN,
    PRINTED,
    ZERO,
    risk,
)

CLOSE = 1.05  # ratio of a measured risk to the formula: within
OFF = 1.25  # beyond
TINY = np.finfo(float).tiny


def log_ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """ln(a / b), where neither is taken to be below the smallest float."""
    above = np.maximum(a, TINY)
    below = np.maximum(b, TINY)
    return np.log(above / below)


RATIO = Condition(
    "ratio",
    "largest factor between the mean squared error and that of Theorem 4.2",
    at_most(math.log(CLOSE)),
    at_least(math.log(OFF)),
    unit="ln",
)
CRITERION = Criterion(
    (RATIO,),
    terms="The factor is the larger of both errors over the smaller one, at the number M of "
    "examples where it is largest.",
)


def worst_ratio(result: DataArray, who: str, over: str) -> Interval:
    """The largest |ln ratio| of two risks over lengths, groups of prompts resampled."""
    mine = result.sel(who=who).values
    other = result.sel(who=over).values
    return bootstrap(lambda a, b: np.abs(log_ratio(a, b)).max(-1), mine, other)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How far the measured risk is from the theorem's, at the worst length."""
    return {"ratio": worst_ratio(results[risk], MODEL, BEST)}


def _row(result: DataArray, m: int) -> dict[str, Any]:
    """The measured risk on m examples, beside the formulas."""
    here = result.sel(M=m)
    own = here.sel(who=MODEL).values
    row = {"M": m, "measured": float(own.mean())}
    for who in (BEST, OWN, PRINTED, ZERO):
        if who in result.indexes["who"]:
            other = here.sel(who=who).values
            ratio = bootstrap(lambda a, b: np.exp(log_ratio(a, b)), own, other)
            row[who] = float(other.mean())
            row[f"measured / {who}"] = ratio.value
            row[f"{who}, low"] = ratio.low
            row[f"{who}, high"] = ratio.high
    return row


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Where the risk is farthest off, and what the formula gives with other weights."""
    result = results[risk]
    rows = [_row(result, m) for m in result.indexes["M"]]
    worst = max(rows, key=lambda row: abs(math.log(max(row[f"measured / {BEST}"], TINY))))
    m = worst["M"]
    times = worst[f"measured / {BEST}"]
    caveat = f"At M = {m} the error is {times:.3g} times the theorem's"
    if OWN in result.indexes["who"]:
        apart = worst_ratio(result, MODEL, OWN)
        off = 100 * math.expm1(apart.value)
        caveat += f"; with the model's own weights the formula is within {off:.2g} %."
    else:
        longest = rows[-1]
        more = longest[PRINTED] / max(longest["measured"], TINY)
        caveat += f"; without its factor 1/M the formula is {more:.3g} times what is measured."
    scope = f"these weights, this task, prompts of M examples; {SAME_EVIDENCE}"
    return Remarks(scope=scope, caveat=caveat, details=tuple(rows))


def _needs_fixed(facts: Facts) -> str | None:
    reason = needs_layer(facts)
    if reason or not task_in(facts).random_covariance:
        return reason
    return (
        "The claim is about one covariance of the inputs; linear_attention.random_covariance is "
        "about random ones"
    )


RISK_CLAIM = Claim(
    id="linear_attention.risk",
    question="algorithm",
    statement="The error on prompts of M examples is the one that Theorem 4.2 gives, for every M "
    "that was tried.",
    denied="The error is not the one that Theorem 4.2 gives.",
    quote=Quote(
        "E(ŷ_query − y_query)² = min_w E(⟨w, x_query⟩ − y_query)² + tr[ΣΓ⁻²Λ] + "
        "(1/N²)[‖a‖²_(Γ⁻²Λ³) + 2 tr(Λ)‖a‖²_(Γ⁻²Λ²) + tr(Λ)²‖a‖²_(Γ⁻²Λ)]",
        "Zhang, Frei & Bartlett (2023), in Wu's slides (2025), slide 27, Theorem 4.2",
        "The slides print tr[ΣΓ⁻²Λ] without its factor 1/M, where M is the number of examples; we "
        "test the formula with this factor, which simulations confirm. Here N is the number of "
        "examples in training, Λ the covariance of the inputs, Σ that of xy, a the best weights, "
        "and Γ the matrix of Theorem 4.1.",
    ),
    kind="learning",
    reads="the design of the layer",
    criterion=CRITERION,
    measurements=(risk,),
    control=(risk,),
    aspects=("single layer", "single head", "kind of task"),
    evidence=evidence,
    remarks=remarks,
    excluded=_needs_fixed,
    learned=not_learned,
    figures=("linear_attention",),
)
