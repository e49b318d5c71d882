"""The claim of `linear_attention` that the risk is that of Theorem 4.2."""

import math

import numpy as np
from xarray import DataArray

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.linear_attention.measurements.setting import (
    SAME_EVIDENCE,
    SOURCE,
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

CLOSE, OFF = 1.05, 1.25  # ratios of a measured risk to the formula: within, beyond
TINY = np.finfo(float).tiny


def log_ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """ln(a / b), where neither is taken to be below the smallest float."""
    return np.log(np.maximum(a, TINY) / np.maximum(b, TINY))


RISK = Criterion(
    (Condition("ratio", "", (-INF, math.log(CLOSE)), (math.log(OFF), INF)),),
    terms=(
        "factor between the measured mean squared error and that of Theorem 4.2, either way, the "
        f"largest over numbers M of examples: <= {CLOSE:g} / > {OFF:g}"
    ),
)


def by_length(result: DataArray, who: str) -> np.ndarray:
    """Errors of one predictor, by unit and number of examples."""
    return result.sel(who=who).values


def worst_ratio(result: DataArray, who: str, over: str) -> Interval:
    """The largest |ln ratio| of two risks over lengths, groups of prompts resampled."""
    return bootstrap(
        lambda a, b: np.abs(log_ratio(a, b)).max(-1),
        by_length(result, who),
        by_length(result, over),
    )


def risk_evidence(results: Results, facts: Facts) -> Evidence:
    """Is the measured risk that of the theorem, at every length?"""
    result, fresh = results[risk], results.control[risk]
    test, control = worst_ratio(result, MODEL, BEST), worst_ratio(fresh, MODEL, BEST)
    rows = []
    for i, m in enumerate(result.indexes["M"]):
        own = by_length(result, MODEL)[:, i]
        row = {"M": m, "measured": float(own.mean())}
        for who in (BEST, OWN, PRINTED, ZERO):
            if who in result.indexes["who"]:
                other = by_length(result, who)[:, i]
                ratio = bootstrap(lambda a, b: np.exp(log_ratio(a, b)), own, other)
                row |= {
                    who: float(other.mean()),
                    f"measured / {who}": ratio.value,
                    f"{who}, low": ratio.low,
                    f"{who}, high": ratio.high,
                }
        rows.append(row)
    name = "factor between the mean squared error and that of Theorem 4.2, the largest over M"
    quantities = {"ratio": Estimate.of(name, test, "ln")}
    says = answer(
        RISK,
        quantities,
        "The error is the one that Theorem 4.2 gives, at every number of examples that was tried.",
        "The error is not the one that Theorem 4.2 gives.",
        "the error is the one that Theorem 4.2 gives",
    )
    worst = max(rows, key=lambda row: abs(math.log(max(row[f"measured / {BEST}"], TINY))))
    threshold = bound(
        RISK, quantities, "ratio", f"within a factor of {CLOSE:g}", f"off by more than {OFF:g}"
    )
    says += (
        f" At {worst['M']} examples, where it is farthest off, it is "
        f"{worst[f'measured / {BEST}']:.3g} [{worst[f'{BEST}, low']:.3g}, "
        f"{worst[f'{BEST}, high']:.3g}] times the theorem's ({threshold})."
    )
    if OWN in result.indexes["who"]:
        off = 100 * math.expm1(worst_ratio(result, MODEL, OWN).value)
        caveat = (
            "With the model's own weights in place of the optimal ones the formula is within "
            f"{off:.2g} %. {SAME_EVIDENCE}"
        )
    else:
        more = rows[-1][PRINTED] / max(rows[-1]["measured"], TINY)
        caveat = (
            f"Without the factor 1/M, as the slides print it, the formula is {more:.3g} times what "
            "is measured."
        )
    return Evidence(
        quantities,
        says,
        scope="these weights, this task, prompts of M examples",
        control={"ratio": Estimate.of(name, control, "ln")},
        details=tuple(rows),
        caveat=caveat,
    )


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
    short="The error on M examples is the one Theorem 4.2 gives.",
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
    statement="The error on prompts of M examples is that of Theorem 4.2, for every M",
    source=f"{SOURCE}, Theorem 4.2, with the factor 1/M that the slides leave out",
    criterion=RISK,
    measurements=(risk,),
    control=(risk,),
    aspects=("single layer", "single head", "kind of task"),
    evidence=risk_evidence,
    excluded=_needs_fixed,
    learned=not_learned,
    figures=("linear_attention",),
)
