"""The claim on predictions: they are those of a debiased step of descent."""

from collections.abc import Mapping
from typing import Any

from xarray import DataArray

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Found, at_least, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.debiased.claims.head_patterns import (
    SEEN,
    VARIANCE,
    apart,
    excluded,
    variance,
)
from icl_interp.studies.debiased.measurements import predictions as measured
from icl_interp.studies.debiased.measurements.predictions import predictions

# Squared distances over the variance of predictions.
NEAR = 0.05
FAR = 0.10
DISTANCE = "distance"
OFFSET = "offset"
TURNED = "turned"
OF = {DISTANCE: measured.IN_DISTRIBUTION, OFFSET: measured.WITH_OFFSET, TURNED: measured.TURNED}
QUOTE = Quote(
    "Our analysis reveals that such emergent structures enable multi-head attention to "
    "approximately implement a debiased gradient descent predictor -- one that outperforms "
    "single-head attention and nearly achieves Bayesian optimality up to proportional factor.",
    "He, Pan, Chen & Yang (2025), abstract",
    "The work gives no threshold. On long prompts a plain step predicts nearly the same, so we "
    "also add a constant to all labels, which changes a plain step. Turning the scores' signs "
    "is our causal test. The thresholds were fixed beforehand.",
)


def distance(result: DataArray, comparison: str) -> Interval:
    """D = E (f - g)^2 / Var f, with its interval; 1 for predictions that do not vary."""
    here = result.sel(comparison=comparison)
    own = here.sel(number=measured.OWN).values
    return bootstrap(apart, here.sel(number=measured.SQUARED).values, own**2)


def evidence(results: Results, facts: Facts) -> Mapping[str, Found]:
    """The variance of predictions, and their distances from the step."""
    result = results[predictions]
    found: dict[str, Found] = {VARIANCE: variance(result)}
    for name, comparison in OF.items():
        found[name] = distance(result, comparison)
    return found


def rows(result: DataArray) -> list[dict[str, Any]]:
    """D of each comparison with its interval."""
    found = []
    for comparison in measured.COMPARISONS:
        one = distance(result, comparison)
        found.append({"comparison": comparison, "D": one.value, "low": one.low, "high": one.high})
    return found


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """How far a plain step is, with and without the constant."""
    every = rows(results[predictions])
    of = {row["comparison"]: row["D"] for row in every}
    caveat = (
        f"A plain step is at {of[measured.PLAIN]:.2g}, and at {of[measured.PLAIN_OFFSET]:.2g} "
        "with the constant."
    )
    scope = "these weights, and prompts of the trained length; the step is tuned to the model"
    return Remarks(scope=scope, caveat=caveat, details=tuple(every))


STEP_CLAIM = Claim(
    id="debiased.step",
    kind="architecture",
    statement="The layer takes one debiased step of gradient descent.",
    denied="The layer does something other than one debiased step of gradient descent.",
    question="algorithm",
    quote=QUOTE,
    reads="the prediction, with a constant added to labels, and with scores turned",
    criterion=Criterion(
        (
            Condition(
                DISTANCE,
                "squared distance to a debiased step, over the variance of predictions",
                at_most(NEAR),
                at_least(FAR),
                unit="share",
            ),
            Condition(
                OFFSET,
                "the same with a constant added to all labels of a prompt",
                at_most(NEAR),
                at_least(FAR),
                unit="share",
            ),
            Condition(
                TURNED,
                "squared distance to the step with the other sign, with all scores' signs turned",
                at_most(NEAR),
                at_least(FAR),
                unit="share",
            ),
        ),
        (SEEN,),
        terms="A debiased step predicts a number times the mean of y_i <x_i - mean of x, x_q> over "
        "the examples. The number is the one that is nearest to the model on other functions. The "
        f"constant is drawn for each prompt, and is {measured.OFFSET:g} times as large as labels.",
    ),
    measurements=(predictions,),
    control=(predictions,),
    aspects=("depth", "single layer", "kind of task"),
    evidence=evidence,
    remarks=remarks,
    excluded=excluded,
    figures=("debiased_heads",),
)
CLAIMS = (STEP_CLAIM,)
