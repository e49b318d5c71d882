"""The claims of `linear_attention` on what a model computes: which algorithm, and whether order matters to it."""

import math

import numpy as np
from xarray import DataArray

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import coordinates
from icl_interp.studies.linear_attention.measurements.algorithms import (
    PRECONDITIONED,
    SIZE,
    TRUTH,
    algorithms,
    order,
)
from icl_interp.studies.linear_attention.measurements.setting import (
    SAME_EVIDENCE,
    SOURCE,
    needs_layer,
    needs_regression,
    needs_theory,
    not_learned,
    task_in,
)
from icl_interp.studies.linear_attention.measurements.tied import LEARNED, learned, loss

NEARER = 2.0  # factor of squared distances that tells two algorithms apart
SAME = 1e-3  # of the labels' mean square: algorithms whose predictions are closer are one
# Similarity 1 - distance / size from which the nearest algorithm may be called the model's.
ALIKE = 0.9
FLOOR = 1e-8  # of the labels' mean square: distances below are rounding
FREE, SENSITIVE = 0.01, 0.05
USED = 0.05  # share of the spread of predictions from which the examples count as read

ALGORITHM = Criterion(
    "squared distance of predictions from one preconditioned step over that from the nearest other "
    f"algorithm, on prompts of as many examples as in training (M = N): <= {1 / NEARER:g} / >= "
    f"{NEARER:g}",
    (Condition("ratio", (-INF, -math.log10(NEARER)), (math.log10(NEARER), INF)),),
    (LEARNED,),
)


def rivals(result: DataArray, m: int) -> list[str]:
    """Algorithms that are not one preconditioned step under another name, at this length."""
    size = result.sel(M=m, algorithm=SIZE, depth=1, statistic="apart").values.mean()
    named = [
        name for name in result.indexes["algorithm"] if name not in (SIZE, TRUTH, PRECONDITIONED)
    ]
    return [
        name
        for name in named
        if result.sel(M=m, algorithm=name, depth=1, statistic="apart").values.mean() > SAME * size
    ]


def nearer(result: DataArray, m: int, depth: int) -> Interval:
    """log10 of the distance from one preconditioned step over that from the nearest other algorithm."""
    names = (PRECONDITIONED, *rivals(result, m))
    arrays = [
        result.sel(M=m, algorithm=name, depth=depth, statistic="distance").values
        for name in (*names, SIZE)
    ]

    def statistic(own: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        *others, size = rest
        floor = FLOOR * size
        return np.log10((own + floor) / (np.min(others, axis=0) + floor))

    return bootstrap(statistic, *arrays)


def algorithm(results: Results, facts: Facts) -> Evidence:
    """Is one preconditioned step the nearest of all algorithms?"""
    result, fresh = results[algorithms], results.twin[algorithms]
    n, last = task_in(facts).n_points - 1, coordinates(result, "depth")[-1]
    test, twin = nearer(result, n, last), nearer(fresh, n, last)
    title = "squared distance from one preconditioned step / from the nearest other algorithm"
    quantities = {"ratio": Estimate.of(title, test, "log10"), **learned(results, facts)}
    names = [name for name in result.indexes["algorithm"] if name not in (SIZE, TRUTH)]
    rows = []
    for m in result.indexes["M"]:
        for depth in result.indexes["depth"]:
            size = result.sel(M=m, algorithm=SIZE, depth=depth, statistic="distance").values
            for name in (*names, TRUTH):
                distance = result.sel(M=m, algorithm=name, depth=depth, statistic="distance").values
                found = bootstrap(lambda a, b: 1 - a / b, distance, size)
                cosine = bootstrap(
                    lambda a: a,
                    result.sel(M=m, algorithm=name, depth=depth, statistic="cosine").values,
                )
                rows.append(
                    {
                        "M": m,
                        "depth": depth,
                        "algorithm": name,
                        "similarity": found.value,
                        "low": found.low,
                        "high": found.high,
                        "cosine of gradients": cosine.value,
                        "cosine, low": cosine.low,
                        "cosine, high": cosine.high,
                    }
                )
    others = rivals(result, n)
    at = {row["algorithm"]: row for row in rows if (row["M"], row["depth"]) == (n, last)}
    best, rival = (
        max(known, key=lambda name: at[name]["similarity"])
        for known in ((PRECONDITIONED, *others), others)
    )
    merged = [name for name in names if name != PRECONDITIONED and name not in others]
    says = answer(
        ALGORITHM,
        quantities,
        "Of all algorithms compared, the model is nearest to one preconditioned step of gradient "
        "descent.",
        f"The model is nearer to {rival} than to one preconditioned step of gradient descent.",
        "one preconditioned step of gradient descent is the nearest algorithm",
    )
    times = [f"{10**end:.3g}" for end in (test.value, test.low, test.high)]
    threshold = bound(
        ALGORITHM, quantities, "ratio", f"at most {1 / NEARER:g}", f"at least {NEARER:g}"
    )
    says += (
        f" After {n} examples its squared distance from this step is {times[0]} [{times[1]}, "
        f"{times[2]}] times that from {rival} ({threshold})."
    )
    if at[best]["similarity"] < ALIKE:
        caveat = (
            f"It is like none of them: its similarity to the nearest, {best}, is only "
            f"{at[best]['similarity']:.3f} (1: the same predictions)."
        )
    elif merged:
        caveat = f"On this task {', '.join(merged)} is the same as one preconditioned step."
    elif needs_layer(facts) is None:
        caveat = f"Its similarity to {best} is {at[best]['similarity']:.3f}. {SAME_EVIDENCE}"
    else:
        caveat = (
            f"Its similarity to {best} is {at[best]['similarity']:.3f} (1: the same predictions)."
        )
    return Evidence(
        quantities,
        says,
        scope="these weights, this task, predictions at the query",
        twin={"ratio": Estimate.of(title, twin, "log10")},
        details=(
            *rows,
            *({"M": n, "algorithm": one, "the same as": PRECONDITIONED} for one in merged),
        ),
        caveat=caveat,
    )


# ---- order ---------------------------------------------------------------------------------------

ORDER = Criterion(
    "standard deviation of predictions over orders of the same examples, divided by that over "
    f"prompts: <= {FREE:g} / > {SENSITIVE:g}",
    (Condition("spread", (-INF, FREE), (SENSITIVE, INF)),),
    (
        Precondition(
            "contexts",
            (USED, INF),
            "The model hardly reads its examples: those of another function change its prediction "
            f"by {{value:.2g}} times its standard deviation over prompts ({USED:g} needed).",
        ),
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
    """Does the order of the examples leave the prediction as it is, as in every algorithm for independent examples?"""
    result, fresh = results[order], results.twin[order]
    test, twin = sensitivity(result), sensitivity(fresh)
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
        twin={"spread": Estimate.of(name, twin)},
        caveat=caveat,
    )


ALGORITHM_CLAIM = Claim(
    id="linear_attention.algorithm",
    question="algorithm",
    short="The model computes one preconditioned step of gradient descent.",
    quote=Quote(
        "The f*_LSA prediction ŷ_query = [f*_LSA(E_P; (W*^PV, W*^KQ))]_(d+1),(M+1) is ... = "
        "x_query^T Γ⁻¹"
        " ((1/M) Σ_i y_i x_i).",
        "Zhang, Frei & Bartlett (2023), in Wu's slides (2025), slide 21, equation (3) (follows "
        "from Theorem 4.1 on slide 20)",
        "This is the nearest sentence: the slides give the formula and do not call it a step of "
        "gradient descent; we call it one, with Γ⁻¹ as the preconditioner, a fixed matrix. We ask "
        "whether the model's predictions are closer to this formula than to other algorithms for "
        "linear regression.",
    ),
    kind="learning",
    statement="The model implements one preconditioned step of gradient descent",
    source=f"{SOURCE}, Theorem 4.1 and equation (3): the prediction is x_q^T Γ⁻¹ (1/M) Σ y_i x_i",
    criterion=ALGORITHM,
    measurements=(algorithms, loss),
    twin=(algorithms,),
    aspects=("single layer", "single head", "kind of task"),
    evidence=algorithm,
    excluded=needs_theory,
    learned=not_learned,
    figures=("linear_attention",),
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
    twin=(order,),
    aspects=("single layer", "single head", "kind of task"),
    evidence=order_evidence,
    excluded=needs_regression,
)
