"""The claim of `linear_attention` on training with a new covariance in every prompt."""

import math

from xarray import DataArray

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.linear_attention.claims.risk import OFF, by_length, log_ratio
from icl_interp.studies.linear_attention.measurements.setting import (
    SAME_EVIDENCE,
    SOURCE,
    needs_layer,
    needs_theory,
    not_learned,
    task_in,
    trained_landscape,
)
from icl_interp.studies.linear_attention.measurements.shifts import BEST, MODEL, ZERO, risk
from icl_interp.theory import linear_attention as theory

BEATS = 0.5  # ratio to the risk of the best layer of linear attention that no such layer has

RANDOM = Criterion(
    (Condition("ratio", "", (-math.log(OFF), math.log(OFF)), (-INF, math.log(BEATS))),),
    terms=(
        "mean squared error over that of the optimal layer of Theorem 4.5, on prompts of as many "
        f"examples as in training (M = N): within a factor of {OFF:g} / at most {BEATS:g} (better than "
        "any layer of linear attention)"
    ),
)


def random_covariance(results: Results, facts: Facts) -> Evidence:
    """Is the error that of the best layer of linear attention, which does not learn the task?"""
    result, fresh = results[risk], results.control[risk]
    task = task_in(facts)
    n = task.n_points - 1
    column = result.indexes["M"].get_loc(n)

    def against(curve: DataArray, over: str, at: int) -> Interval:
        return bootstrap(log_ratio, by_length(curve, MODEL)[:, at], by_length(curve, over)[:, at])

    test, control = against(result, BEST, column), against(fresh, BEST, column)
    rows = []
    for i, m in enumerate(result.indexes["M"]):
        zero, best = against(result, ZERO, i), against(result, BEST, i)
        rows.append(
            {
                "M": m,
                "error": float(by_length(result, MODEL)[:, i].mean()),
                "Theorem 4.5's": float(by_length(result, BEST)[:, i].mean()),
                "error / Theorem 4.5's": math.exp(best.value),
                "error / zero predictor's": math.exp(zero.value),
            }
        )
    limit = theory.random_limit(task.spectrum_moments())
    exact = float(
        theory.random_risk(
            trained_landscape(task).product, task.spectrum_moments(), n, task.noise_std**2
        )
    )
    name = "mean squared error / that of the optimal layer of Theorem 4.5"
    quantities = {"ratio": Estimate.of(name, test, "ln")}
    says = answer(
        RANDOM,
        quantities,
        "With varying covariances the model does not learn more than the best layer of linear "
        "attention.",
        "With varying covariances the model does better than any layer of linear attention.",
        "the model is only as good as the best layer of linear attention",
    )
    limits = bound(RANDOM, quantities, "ratio", f"within a factor of {OFF:g}", f"at most {BEATS:g}")
    says += (
        f" After {n} examples its mean squared error is {math.exp(test.value):.3g} "
        f"[{math.exp(test.low):.3g}, {math.exp(test.high):.3g}] times that of this layer "
        f"({limits})."
    )
    caveat = (
        f"However long the prompts, its mean prediction is {float(limit.mean()):.3g} times the "
        "right value."
    )
    if needs_layer(facts) is None:
        caveat += f" {SAME_EVIDENCE}"
    whole = {"number": "error of Theorem 4.5's optimum, mean over all covariances", "value": exact}
    return Evidence(
        quantities,
        says,
        scope="these weights, this distribution of covariances",
        control={"ratio": Estimate.of(name, control, "ln")},
        details=(whole, *rows),
        caveat=caveat,
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
    short="Linear attention cannot learn the task when input covariances vary.",
    quote=Quote(
        "This shows that training on in-context examples with random covariate distributions does "
        "not allow for in-context learning of a hypothesis class with varying covariate "
        "distributions.",
        "Zhang, Frei & Bartlett (2023), in Wu's slides (2025), slide 31, after Theorem 4.5 (slide "
        "29)",
        "The slides conclude this from the mean prediction for infinitely long prompts, which is a "
        "third of the right one in their example. We compare the error on prompts of the trained "
        "length with that of the weights of Theorem 4.5, and also judge softmax models, which the "
        "slides report to succeed.",
    ),
    kind="learning",
    statement="With a new covariance in every prompt the task is not learned: the error stays that "
    "of Theorem 4.5",
    source=f"{SOURCE}, Theorem 4.5",
    criterion=RANDOM,
    measurements=(risk,),
    control=(risk,),
    aspects=("single layer", "single head", "kind of task"),
    evidence=random_covariance,
    excluded=_needs_random,
    learned=not_learned,
    figures=("linear_attention",),
)
