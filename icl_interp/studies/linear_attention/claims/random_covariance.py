"""The claim of `linear_attention` on training with a new covariance in every prompt."""

import math
from collections.abc import Mapping
from typing import Any

from xarray import DataArray

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Found, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.linear_attention.claims.risk import OFF, log_ratio
from icl_interp.studies.linear_attention.measurements.setting import (
    SAME_EVIDENCE,
    needs_layer,
    needs_theory,
    not_learned,
    task_in,
    trained_landscape,
)
from icl_interp.studies.linear_attention.measurements.shifts import BEST, MODEL, ZERO, risk
from icl_interp.theory import linear_attention as theory

BEATS = 0.5  # ratio to the risk of the best layer of linear attention that no such layer has

RATIO = Condition(
    "ratio",
    "mean squared error over that of the optimal layer of Theorem 4.5",
    (-math.log(OFF), math.log(OFF)),
    at_most(math.log(BEATS)),
    unit="ln",
)
CRITERION = Criterion(
    (RATIO,), terms="Errors are on prompts with as many examples as in training (M = N)."
)


def against(result: DataArray, over: str, m: int) -> Interval:
    """ln of the model's error over that of another predictor, on prompts of m examples."""
    own = result.sel(who=MODEL, M=m).values
    other = result.sel(who=over, M=m).values
    return bootstrap(log_ratio, own, other)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """The error over that of the best layer of linear attention, which does not learn the task."""
    n = task_in(facts).n_points - 1
    return {"ratio": against(results[risk], BEST, n)}


def _row(result: DataArray, m: int) -> dict[str, Any]:
    here = result.sel(M=m)
    own = here.sel(who=MODEL).values
    best = here.sel(who=BEST).values
    over_best = against(result, BEST, m)
    over_zero = against(result, ZERO, m)
    return {
        "M": m,
        "error": float(own.mean()),
        "Theorem 4.5's": float(best.mean()),
        "error / Theorem 4.5's": math.exp(over_best.value),
        "error / zero predictor's": math.exp(over_zero.value),
    }


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """What the best layer of linear attention tends to, and errors at every length."""
    task = task_in(facts)
    moments = task.spectrum_moments()
    product = trained_landscape(task).product
    exact = theory.random_risk(product, moments, task.n_points - 1, task.noise_std**2)
    of_best = {
        "number": "error of Theorem 4.5's optimum, mean over all covariances",
        "value": float(exact),
    }
    rows: list[dict[str, Any]] = [of_best]
    result = results[risk]
    for m in result.indexes["M"]:
        rows.append(_row(result, m))
    limit = float(theory.random_limit(moments).mean())
    scope = "these weights, this distribution of covariances"
    if needs_layer(facts) is None:
        scope += f"; {SAME_EVIDENCE}"
    return Remarks(
        scope,
        f"However long the prompts, that layer's mean prediction is {limit:.3g} times the right "
        "value.",
        details=tuple(rows),
    )


def _needs_random(facts: Facts) -> str | None:
    reason = needs_theory(facts)
    if reason or task_in(facts).random_covariance:
        return reason
    return (
        "The claim is about training with a new covariance in every prompt; this model was trained "
        "on one"
    )


RANDOM_COVARIANCE_CLAIM = Claim(
    id="linear_attention.random_covariance",
    question="algorithm",
    statement="With varying covariances the model learns no more than the best layer of linear "
    "attention.",
    denied="With varying covariances the model does better than any layer of linear attention.",
    quote=Quote(
        "This shows that training on in-context examples with random covariate distributions does "
        "not allow for in-context learning of a hypothesis class with varying covariate "
        "distributions.",
        "Zhang, Frei & Bartlett (2023), in Wu's slides (2025), slide 31, after Theorem 4.5 (slide "
        "29)",
        "The slides conclude this from the mean prediction for infinitely long prompts, which is "
        "a third of the right one in their example. We compare the error on prompts of the "
        "trained length with that of the weights of Theorem 4.5. We also judge softmax models, "
        "which succeed according to the slides.",
    ),
    kind="learning",
    reads="the design of the model",
    criterion=CRITERION,
    measurements=(risk,),
    control=(risk,),
    aspects=("single layer", "single head", "kind of task"),
    evidence=evidence,
    remarks=remarks,
    excluded=_needs_random,
    learned=not_learned,
    figures=("linear_attention",),
)
