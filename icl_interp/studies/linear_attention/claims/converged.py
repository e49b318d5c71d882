"""The claim of `linear_attention` that training ends at the minimum (Theorems 4.1 and 4.5)."""

import math

import numpy as np

from icl_interp.analyses import tie
from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.tie import TIED
from icl_interp.resampling import bootstrap
from icl_interp.studies.linear_attention.claims.weights import (
    FAR,
    NEAR,
    SCOPE,
    TIED_TEXT,
    stored_numbers,
)
from icl_interp.studies.linear_attention.measurements.setting import (
    SAME_EVIDENCE,
    SOURCE,
    needs_layer,
    never_asked,
    task_in,
)
from icl_interp.studies.linear_attention.measurements.tied import loss, tied
from icl_interp.studies.linear_attention.measurements.weights import numbers, product

CLOSE, WORSE = (
    1.05,
    1.25,
)  # ratios of the model's error to that of the minimum that count as reached, and as not

CONVERGED = Criterion(
    (
        Condition("distance", "", (-INF, NEAR), (FAR, INF)),
        Condition("loss", "", (-INF, math.log(CLOSE)), (math.log(WORSE), INF)),
    ),
    TIED,
    terms=(
        "distance of the layer's product of value and query-key weights from that of the minimum of "
        f"the loss, over the size of the latter (|P - P*| / |P*|, Frobenius norm): <= {NEAR:g} / > "
        f"{FAR:g}; and the model's mean squared error over that of the minimum, on the same prompts: "
        f"<= {CLOSE:g} / > {WORSE:g}{TIED_TEXT}"
    ),
)


def converged(results: Results, facts: Facts) -> Evidence:
    """Is P that of the optimum?"""
    found, control = stored_numbers(results), stored_numbers(results.control)
    theorem = "4.5" if task_in(facts).random_covariance else "4.1"
    name = "distance of the weights' product from that of the minimum, |P - P*| / |P*|"
    excess = bootstrap(lambda own, least: np.log(own / least), *results[loss].values)
    error = "mean squared error / that of the minimum on the same prompts"
    quantities = {
        "distance": Estimate.exactly(name, found["distance"]),
        "loss": Estimate.of(error, excess, "ln"),
        **tie.tied(results[tied]),
    }
    says = answer(
        CONVERGED,
        quantities,
        f"Training has ended at the global minimum of the loss (Theorem {theorem}).",
        f"Training has not ended at the global minimum of the loss (Theorem {theorem}).",
        f"training has ended at the global minimum of the loss (Theorem {theorem})",
    )
    threshold = bound(
        CONVERGED, quantities, "distance", f"at most {100 * NEAR:g} %", f"more than {100 * FAR:g} %"
    )
    says += (
        f" The product of the value and query-key weights is {100 * found['distance']:.3g} % away "
        f"from that of the minimum ({threshold}), and its mean squared error is "
        f"{math.exp(excess.value):.4g} times the least."
    )
    if found["distance"] > FAR and found["distance from rank one"] <= FAR:
        caveat = (
            "It is at another stationary point of the loss, the rank-one trap "
            f"({100 * found['distance from rank one']:.2g} % away), which random weights can reach "
            "and the theorem's start cannot."
        )
    elif found["outside"] > NEAR:
        caveat = (
            "Biases and weights past attention, which the theorem's layer does not have, reach "
            f"{found['outside']:.2g}."
        )
    else:
        caveat = (
            f"By the weights the loss is {100 * found['excess']:.2g} % above its minimum. "
            f"{SAME_EVIDENCE}"
        )
    details = tuple(
        {"number": key, "model": found[key], "randomly initialised control": control.get(key)}
        for key in found
    )
    return Evidence(
        quantities,
        says,
        scope=SCOPE,
        control={"distance": Estimate.exactly(name, control["distance"])},
        details=details,
        caveat=caveat,
    )


CONVERGED_CLAIM = Claim(
    id="linear_attention.converged",
    question="weights and training",
    short="Training linear attention ends at the global minimum of the loss.",
    quote=Quote(
        "the gradient flow of linear self-attention network f*_LSA (prove PL inequality holds) "
        "converges (exponentially about t) to a global minimum of the population loss L(θ).",
        "Zhang, Frei & Bartlett (2023), in Wu's slides (2025), slide 20, Theorem 4.1 (Theorem 4.5 "
        "on slide 29 for random covariances)",
        "The theorem is about gradient flow, gradient descent with infinitely small steps, from a "
        "special"
        " start. We take whatever training made the weights, and compare the product of the value "
        "and the"
        " query-key weights with the minimum's, because one may be scaled up and the other down.",
    ),
    kind="learning",
    statement="Training a layer of linear self-attention ends at the global minimum W*, up to a "
    "scale",
    source=f"{SOURCE}, Theorems 4.1 and 4.5",
    criterion=CONVERGED,
    measurements=(product, numbers, loss, tied),
    about_weights=True,
    control=(numbers,),
    aspects=("single layer", "single head", "kind of task"),
    evidence=converged,
    excluded=needs_layer,
    learned=never_asked,
)
