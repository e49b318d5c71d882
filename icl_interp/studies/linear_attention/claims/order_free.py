"""The claim of `linear_attention` that the order of the examples does not matter."""

import numpy as np
from xarray import DataArray

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.linear_attention.measurements.algorithms import order
from icl_interp.studies.linear_attention.measurements.setting import SOURCE, needs_regression

FREE, SENSITIVE = 0.01, 0.05
USED = 0.05  # share of the spread of predictions from which the examples count as read

ORDER = Criterion(
    (Condition("spread", "", (-INF, FREE), (SENSITIVE, INF)),),
    (
        Precondition(
            "contexts",
            (USED, INF),
            "The model hardly reads its examples: those of another function change its prediction "
            f"by {{value:.2g}} times its standard deviation over prompts ({USED:g} needed).",
        ),
    ),
    terms=(
        "standard deviation of predictions over orders of the same examples, divided by that over "
        f"prompts: <= {FREE:g} / > {SENSITIVE:g}"
    ),
)


def sensitivity(result: DataArray, over: str = "orders") -> Interval:
    """Root of the variance over orders (or contexts) over that over prompts."""
    return bootstrap(
        lambda within, total: np.sqrt(within / np.maximum(total, np.finfo(float).tiny)),
        result.sel(over=over).values,
        result.sel(over="prompts").values,
    )


def order_evidence(results: Results, facts: Facts) -> Evidence:
    """Does the order of the examples leave the prediction as it is?

    It does in every algorithm for independent examples.
    """
    result, fresh = results[order], results.control[order]
    test, control = sensitivity(result), sensitivity(fresh)
    cfg = facts.config
    reasons = [
        reason
        for reason, present in {
            "learned positions": cfg.positional_embedding_type != "none",
            "causal attention below the last layer": cfg.attention_dir == "causal"
            and cfg.n_layers > 1,
            "weights of positions": cfg.position_weights is not None,
            "queries of the token before": cfg.queries is not None,
        }.items()
        if present
    ]
    name = (
        "change of the prediction with the order of the examples / its standard deviation over "
        "prompts"
    )
    swapped = (
        "change of the prediction with examples of another function / its standard deviation over "
        "prompts"
    )
    quantities = {
        "spread": Estimate.of(name, test),
        "contexts": Estimate.of(swapped, sensitivity(result, "contexts")),
    }
    # Sums over the examples have no order: of such a model the answer follows from its design.
    by_design = (
        "" if reasons else "By algebra: nothing in the model's design can tell orders apart. "
    )
    says = by_design + answer(
        ORDER,
        quantities,
        "The order of the examples hardly changes the prediction.",
        "The order of the examples changes the prediction.",
        "the order of the examples changes the prediction",
    )
    threshold = bound(
        ORDER, quantities, "spread", f"at most {100 * FREE:g} %", f"more than {100 * SENSITIVE:g} %"
    )
    says += (
        f" Over orders of the examples its standard deviation is {100 * test.value:.3g} % of that "
        f"over prompts ({threshold})."
    )
    caveat = (
        f"The model has {' and '.join(reasons)}, which can tell orders apart."
        if reasons
        else "So it is no evidence of what training made."
    )
    return Evidence(
        quantities,
        says,
        scope="these weights, M = N, in distribution",
        control={"spread": Estimate.of(name, control)},
        caveat=caveat,
    )


ORDER_FREE_CLAIM = Claim(
    id="linear_attention.order_free",
    question="algorithm",
    short="The order of the examples does not change the prediction.",
    quote=Quote(
        "Then, the prediction ŷ_query is ŷ_query = ((w_21^PV)^T, w_22^PV) · (E E^T / N) (W_11^KQ ; "
        "(w_21^KQ)^T) x_query",
        "Zhang, Frei & Bartlett (2023), in Wu's slides (2025), equation (3.6)",
        "This is the nearest sentence: the slides do not speak of order, but E has one column per "
        "example, and E E^T is a sum over columns, so their order cannot matter. We shuffle the "
        "examples,"
        " and also ask this of models that are not linear attention.",
    ),
    kind="architecture",
    statement="The order of the examples does not matter",
    source=f"{SOURCE}, equation (3): at the optimum the prediction depends on Σ y_i x_i alone",
    criterion=ORDER,
    measurements=(order,),
    control=(order,),
    aspects=("single layer", "single head", "kind of task"),
    evidence=order_evidence,
    excluded=needs_regression,
)
