"""The claim of `linear_attention` on which algorithm a model computes."""

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
from icl_interp.results import coordinates
from icl_interp.studies.linear_attention.measurements.algorithms import (
    PRECONDITIONED,
    SIZE,
    TRUTH,
    algorithms,
)
from icl_interp.studies.linear_attention.measurements.setting import (
    SAME_EVIDENCE,
    SOURCE,
    needs_layer,
    needs_theory,
    not_learned,
    task_in,
)

NEARER = 2.0  # factor of squared distances that tells two algorithms apart
SAME = 1e-3  # of the labels' mean square: algorithms whose predictions are closer are one
# Similarity 1 - distance / size from which the nearest algorithm may be called the model's.
ALIKE = 0.9
FLOOR = 1e-8  # of the labels' mean square: distances below are rounding

ALGORITHM = Criterion(
    (Condition("ratio", "", (-INF, -math.log10(NEARER)), (math.log10(NEARER), INF)),),
    terms=(
        "squared distance of predictions from one preconditioned step over that from the nearest other "
        f"algorithm, on prompts of as many examples as in training (M = N): <= {1 / NEARER:g} / >= "
        f"{NEARER:g}"
    ),
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
    """How near predictions are to one preconditioned step: log10 of a ratio of distances.

    It is the distance from one preconditioned step over that from the nearest other algorithm.
    """
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
    result, fresh = results[algorithms], results.control[algorithms]
    n, last = task_in(facts).n_points - 1, coordinates(result, "depth")[-1]
    test, control = nearer(result, n, last), nearer(fresh, n, last)
    title = "squared distance from one preconditioned step / from the nearest other algorithm"
    quantities = {"ratio": Estimate.of(title, test, "log10")}
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
        control={"ratio": Estimate.of(title, control, "log10")},
        details=(
            *rows,
            *({"M": n, "algorithm": one, "the same as": PRECONDITIONED} for one in merged),
        ),
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
    measurements=(algorithms,),
    control=(algorithms,),
    aspects=("single layer", "single head", "kind of task"),
    evidence=algorithm,
    excluded=needs_theory,
    learned=not_learned,
    figures=("linear_attention",),
)
