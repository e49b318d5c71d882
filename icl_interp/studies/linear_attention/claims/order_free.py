"""The claim of `linear_attention` that the order of the examples does not matter."""

from collections.abc import Mapping

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
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.linear_attention.measurements.algorithms import order
from icl_interp.studies.linear_attention.measurements.setting import needs_regression

FREE = 0.01
SENSITIVE = 0.05
USED = 0.05  # share of the spread of predictions from which the examples count as read

SPREAD = Condition(
    "spread",
    "standard deviation of predictions over orders of the examples, over that over prompts",
    at_most(FREE),
    at_least(SENSITIVE),
    unit="share",
)
READS = Precondition(
    "contexts",
    at_least(USED),
    "The model hardly reads its examples: examples of another function change its "
    f"prediction by {{value:.2g}} times its standard deviation over prompts ({USED:g} "
    "needed).",
)
CRITERION = Criterion((SPREAD,), (READS,))
TINY = np.finfo(float).tiny


def sensitivity(result: DataArray, over: str = "orders") -> Interval:
    """Root of the variance over orders (or contexts) over that over prompts."""

    def root_of_ratio(within: np.ndarray, total: np.ndarray) -> np.ndarray:
        return np.sqrt(within / np.maximum(total, TINY))

    here = result.sel(over=over).values
    over_prompts = result.sel(over="prompts").values
    return bootstrap(root_of_ratio, here, over_prompts)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How far predictions change with the order of the examples, and with the examples."""
    result = results[order]
    return {"spread": sensitivity(result), "contexts": sensitivity(result, "contexts")}


def tells_orders_apart(facts: Facts) -> list[str]:
    """What a model of this design can tell the orders of its examples by; nothing for sums."""
    if facts.outside:
        return ["a design that is not known"]
    cfg = facts.config
    parts = []
    if cfg.positional_embedding_type != "none":
        parts.append("learned positions")
    if cfg.attention_dir == "causal" and cfg.n_layers > 1:
        parts.append("causal attention below the last layer")
    if cfg.position_weights is not None:
        parts.append("weights of positions")
    if cfg.queries is not None:
        parts.append("queries of the token before")
    return parts


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Whether the model's design decides the answer."""
    scope = "these weights, M = N, in distribution"
    if parts := tells_orders_apart(facts):
        return Remarks(scope, f"The model has {' and '.join(parts)}, which can tell orders apart.")
    return Remarks(
        scope,
        "An answer by algebra is no evidence of what training made.",
        by_algebra="nothing in the model's design can tell orders apart",
    )


ORDER_FREE_CLAIM = Claim(
    id="linear_attention.order_free",
    question="algorithm",
    statement="The order of the examples hardly changes the prediction.",
    denied="The order of the examples changes the prediction.",
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
    reads="outputs",
    criterion=CRITERION,
    measurements=(order,),
    control=(order,),
    of_control=("spread",),
    aspects=("single layer", "single head", "kind of task"),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_regression,
)
