"""The claim of `linear_attention` on which algorithm a model computes."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Found, at_least, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.natural import in_a_sentence
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

RATIO = Condition(
    "ratio",
    "squared distance from one preconditioned step over that from the nearest other algorithm",
    at_most(-math.log10(NEARER)),
    at_least(math.log10(NEARER)),
    unit="log10",
)
CRITERION = Criterion(
    (RATIO,),
    terms="Distances are between predictions, on prompts with as many examples as in training (M "
    "= N). The step is one of gradient descent, multiplied by a fixed matrix (the preconditioner).",
)


def compared(result: DataArray) -> list[str]:
    """The algorithms that the model is compared with."""
    return [name for name in result.indexes["algorithm"] if name not in (SIZE, TRUTH)]


def rivals(result: DataArray, m: int) -> list[str]:
    """Algorithms that are not one preconditioned step under another name, at this length."""
    apart = result.sel(M=m, depth=1, statistic="apart")
    size = apart.sel(algorithm=SIZE).values
    least = SAME * size.mean()
    found = []
    for name in compared(result):
        distance = apart.sel(algorithm=name).values
        if name != PRECONDITIONED and distance.mean() > least:
            found.append(name)
    return found


def nearer(result: DataArray, m: int, depth: int) -> Interval:
    """How near predictions are to one preconditioned step: log10 of a ratio of distances.

    It is the distance from one preconditioned step over that from the nearest other algorithm.
    """
    distances = result.sel(M=m, depth=depth, statistic="distance")
    names = (PRECONDITIONED, *rivals(result, m), SIZE)

    def statistic(own: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        *others, size = rest
        floor = FLOOR * size
        return np.log10((own + floor) / (np.min(others, axis=0) + floor))

    return bootstrap(statistic, *(distances.sel(algorithm=name).values for name in names))


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How near the last layer's prediction is to one preconditioned step."""
    result = results[algorithms]
    n_examples = task_in(facts).n_points - 1
    last = coordinates(result, "depth")[-1]
    return {"ratio": nearer(result, n_examples, last)}


def _row(result: DataArray, m: int, depth: int, name: str) -> dict[str, Any]:
    """How alike the model after some layers and one algorithm are, on prompts of m examples."""
    here = result.sel(M=m, depth=depth)
    size = here.sel(algorithm=SIZE, statistic="distance").values
    distance = here.sel(algorithm=name, statistic="distance").values
    similarity = bootstrap(lambda a, b: 1 - a / b, distance, size)
    cosines = here.sel(algorithm=name, statistic="cosine").values
    cosine = bootstrap(lambda a: a, cosines)
    return {
        "M": m,
        "depth": depth,
        "algorithm": name,
        "similarity": similarity.value,
        "low": similarity.low,
        "high": similarity.high,
        "cosine of gradients": cosine.value,
        "cosine, low": cosine.low,
        "cosine, high": cosine.high,
    }


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The nearest algorithm, and which algorithms are one on this task."""
    result = results[algorithms]
    task = task_in(facts)
    n_examples = task.n_points - 1
    last = coordinates(result, "depth")[-1]
    names = compared(result)
    rows = []
    similarity = {}
    for m in result.indexes["M"]:
        for depth in result.indexes["depth"]:
            for name in (*names, TRUTH):
                row = _row(result, m, depth, name)
                rows.append(row)
                if (m, depth) == (n_examples, last):
                    similarity[name] = row["similarity"]
    # Which of them is the nearest, and which are one preconditioned step under another name.
    others = rivals(result, n_examples)
    best = max((PRECONDITIONED, *others), key=lambda name: similarity[name])
    merged = [name for name in names if name != PRECONDITIONED and name not in others]
    for name in merged:
        rows.append({"M": n_examples, "algorithm": name, "the same as": PRECONDITIONED})
    nearest = similarity[best]
    if nearest < ALIKE:
        caveat = (
            f"It resembles none of them: its similarity to the nearest, {best}, is only "
            f"{nearest:.3f} (1: the same predictions)."
        )
    elif merged:
        caveat = f"On this task {', '.join(merged)} is the same as {PRECONDITIONED}."
        if best != PRECONDITIONED:
            caveat = f"The nearest is {best}; {in_a_sentence(caveat)}."
    else:
        caveat = f"Its similarity to {best} is {nearest:.3f} (1: the same predictions)."
    scope = "these weights, this task, predictions at the query"
    if not facts.outside and needs_layer(facts) is None:
        scope += f"; {SAME_EVIDENCE}"
    return Remarks(scope=scope, caveat=caveat, details=tuple(rows))


ALGORITHM_CLAIM = Claim(
    id="linear_attention.algorithm",
    question="algorithm",
    statement="The model is nearer to one preconditioned step of gradient descent than to any "
    "rival compared.",
    denied="The model is nearer to another algorithm than to one preconditioned step of gradient "
    "descent.",
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
    reads="outputs",
    criterion=CRITERION,
    measurements=(algorithms,),
    control=(algorithms,),
    aspects=("single layer", "single head", "kind of task"),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_theory,
    learned=not_learned,
    figures=("linear_attention",),
)
