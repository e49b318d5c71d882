"""The claim of `linear_attention` that training ends at the minimum (Theorems 4.1 and 4.5)."""

import math
from collections.abc import Mapping

import numpy as np

from icl_interp.analyses import tie
from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Found, at_least, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.tie import TIED
from icl_interp.resampling import bootstrap
from icl_interp.studies.linear_attention.claims.weights import (
    FAR,
    NEAR,
    SCOPE,
    TIED_TERMS,
    stored_numbers,
)
from icl_interp.studies.linear_attention.measurements.setting import (
    SAME_EVIDENCE,
    needs_layer,
    never_asked,
    task_in,
)
from icl_interp.studies.linear_attention.measurements.tied import loss, tied
from icl_interp.studies.linear_attention.measurements.weights import numbers, product

CLOSE = 1.05  # ratio of the model's error to that of the minimum that counts as reached
WORSE = 1.25  # ratio that counts as not reached

DISTANCE = Condition(
    "distance",
    "relative distance of the weights' product from that at the minimum",
    at_most(NEAR),
    at_least(FAR),
    unit="share",
)
LOSS = Condition(
    "loss",
    "mean squared error over that of the minimum, on the same prompts",
    at_most(math.log(CLOSE)),
    at_least(math.log(WORSE)),
    unit="ln",
)
CRITERION = Criterion(
    (DISTANCE, LOSS),
    TIED,
    terms="The product is that of the value and the query-key weights, and sizes are Frobenius "
    f"norms. {TIED_TERMS}",
)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How far the weights are from those of the minimum, and the error from its error."""
    own, least = results[loss].values
    distance = stored_numbers(results)["distance"]
    log_ratio = bootstrap(lambda a, b: np.log(a / b), own, least)
    return {"distance": distance, "loss": log_ratio, **tie.tied(results[tied])}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Where training ended if not at the minimum, and all numbers beside those of a control."""
    own = stored_numbers(results)
    control = stored_numbers(results.control)
    distance = own["distance"]
    trap = own["distance from rank one"]
    outside = own["outside"]
    excess = own["excess"]
    # The most telling of three: another end of training, weights beside the layer, the loss.
    if distance > FAR and trap <= FAR:
        caveat = (
            f"It is at another stationary point of the loss, the rank-one trap ({100 * trap:.2g} % "
            "away), which random weights can reach and the theorem's start cannot."
        )
    elif outside > NEAR:
        caveat = (
            "Biases and weights past attention, which the theorem's layer does not have, reach "
            f"{outside:.2g}."
        )
    else:
        caveat = f"With these weights the loss is {100 * excess:.2g} % above its minimum."
    rows = []
    for name, value in own.items():
        beside = control.get(name)
        row = {"number": name, "model": value, "randomly initialised control": beside}
        rows.append(row)
    theorem = "4.1"
    if task_in(facts).random_covariance:
        theorem = "4.5"
    scope = f"{SCOPE}; the minimum is that of Theorem {theorem}; {SAME_EVIDENCE}"
    return Remarks(scope=scope, caveat=caveat, details=tuple(rows))


CONVERGED_CLAIM = Claim(
    id="linear_attention.converged",
    question="weights and training",
    statement="Training has ended at the global minimum of the loss.",
    denied="Training has not ended at the global minimum of the loss.",
    quote=Quote(
        "the gradient flow of linear self-attention network f*_LSA (prove PL inequality holds) "
        "converges (exponentially about t) to a global minimum of the population loss L(θ).",
        "Zhang, Frei & Bartlett (2023), in Wu's slides (2025), slide 20, Theorem 4.1 (Theorem 4.5 "
        "on slide 29 for random covariances)",
        "The theorem is about gradient flow, gradient descent with infinitely small steps, from a "
        "special start. We judge weights from any training. We compare the product of the value "
        "and the query-key weights with that at the minimum, because one may be scaled up and the "
        "other down.",
    ),
    kind="learning",
    reads="weights of the layer",
    criterion=CRITERION,
    measurements=(product, numbers, loss, tied),
    about_weights=True,
    control=(numbers,),
    of_control=("distance",),
    aspects=("single layer", "single head", "kind of task"),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_layer,
    learned=never_asked,
)
