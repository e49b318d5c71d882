"""The claim of `linear_attention` that queries from another distribution are tolerated."""

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
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.linear_attention.claims.risk import log_ratio
from icl_interp.studies.linear_attention.measurements.setting import needs_theory, not_learned
from icl_interp.studies.linear_attention.measurements.shifts import INSIDE, query_shift

TOLERATED = 1.5  # ratio of relative errors, shifted over in distribution
HURT = 3.0
SHARE = "error / mean square of the label"

RATIO = Condition(
    "ratio",
    "largest relative error with shifted queries, over that in distribution",
    at_most(math.log10(TOLERATED)),
    at_least(math.log10(HURT)),
    unit="log10",
)
CRITERION = Criterion(
    (RATIO,),
    terms="A relative error is the mean squared error over the mean square of the label. Queries "
    "are shifted in three ways: moved three times as far out; drawn from an isotropic "
    "distribution of three times the standard deviation; and drawn from a normal distribution "
    "that is itself drawn at random.",
)


def shifted_ratio(result: DataArray) -> Interval:
    """log10 of relative error shifted over in distribution, the largest over shifts."""
    arms = [INSIDE, *_shifts(result)]
    arrays = []
    for arm in arms:
        of_arm = result.sel(arm=arm)
        arrays.append(of_arm.sel(moment="error").values)
        arrays.append(of_arm.sel(moment="truth^2").values)

    def statistic(*moments: np.ndarray) -> np.ndarray:
        errors = moments[::2]
        sizes = moments[1::2]
        relative = np.array(list(map(log_ratio, errors, sizes)))
        worst = np.max(relative[1:] - relative[0], axis=0)
        return worst / math.log(10)

    return bootstrap(statistic, *arrays)


def _shifts(result: DataArray) -> list[str]:
    return [arm for arm in result.indexes["arm"] if arm != INSIDE]


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """The largest relative error with shifted queries over that in distribution.

    No control is asked: who predicts next to nothing is off by the same share everywhere.
    """
    return {"ratio": shifted_ratio(results[query_shift])}


def _row(result: DataArray, arm: str) -> dict[str, Any]:
    means = result.sel(arm=arm).mean("unit")
    error = float(means.sel(moment="error"))
    size = float(means.sel(moment="truth^2"))
    product = float(means.sel(moment="prediction x truth"))
    return {"test condition": arm, SHARE: error / size, "slope of predictions": product / size}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The relative errors themselves."""
    result = results[query_shift]
    rows = {arm: _row(result, arm) for arm in result.indexes["arm"]}
    worst = max(_shifts(result), key=lambda arm: rows[arm][SHARE])
    shifted = rows[worst][SHARE]
    inside = rows[INSIDE][SHARE]
    scope = "these weights, M = N, examples in distribution"
    caveat = (
        f"The relative error is {shifted:.3g} with shifted queries ({worst}) and "
        f"{inside:.3g} in distribution."
    )
    return Remarks(scope=scope, caveat=caveat, details=tuple(rows.values()))


QUERY_SHIFT_CLAIM = Claim(
    id="linear_attention.query_shift",
    question="far from the data",
    statement="Queries from another distribution are tolerated.",
    denied="Queries from another distribution are not tolerated.",
    quote=Quote(
        "Thus, very general shifts in the query distribution can be tolerated.",
        "Zhang, Frei & Bartlett (2023), in Wu's slides (2025), 'Query shifts' (between slides 21 "
        "and 27),"
        " after equation (4.8)",
        "The slides argue for infinitely long prompts. We test prompts of the trained length with "
        "three other distributions of the query, one of them drawn at random, and compare errors "
        "relative to the mean square of the labels.",
    ),
    kind="learning",
    reads="outputs",
    criterion=CRITERION,
    measurements=(query_shift,),
    aspects=("single layer", "single head", "kind of task"),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_theory,
    learned=not_learned,
)
