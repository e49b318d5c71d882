"""The claim of `linear_attention` that queries from another distribution are tolerated."""

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
from icl_interp.studies.linear_attention.claims.risk import log_ratio
from icl_interp.studies.linear_attention.measurements.setting import (
    SOURCE,
    needs_theory,
    not_learned,
)
from icl_interp.studies.linear_attention.measurements.shifts import INSIDE, query_shift

TOLERATED, HURT = 1.5, 3.0  # ratios of relative errors, shifted over in distribution

QUERY = Criterion(
    (Condition("ratio", "", (-INF, math.log10(TOLERATED)), (math.log10(HURT), INF)),),
    terms=(
        "mean squared error over the mean square of the label, with the query shifted over in "
        "distribution, the largest of three test conditions (query three times as far; query from an "
        "isotropic distribution of three times the standard deviation; query from a normal "
        f"distribution that is drawn): <= {TOLERATED:g} / >= {HURT:g}"
    ),
)


def _relative(result: DataArray, arm: str) -> tuple[np.ndarray, np.ndarray]:
    return result.sel(arm=arm, moment="error").values, result.sel(arm=arm, moment="truth^2").values


def shifted_ratio(result: DataArray, arms: tuple[str, ...]) -> Interval:
    """log10 of relative error shifted over in distribution, the largest over arms."""
    arrays = [array for arm in (INSIDE, *arms) for array in _relative(result, arm)]

    def statistic(*m: np.ndarray) -> np.ndarray:
        inside = log_ratio(m[0], m[1])
        return np.max(
            [log_ratio(m[i], m[i + 1]) - inside for i in range(2, len(m), 2)], axis=0
        ) / math.log(10)

    return bootstrap(statistic, *arrays)


def query_evidence(results: Results, facts: Facts) -> Evidence:
    """Is the relative error the same wherever the query comes from?

    No control is asked: who predicts next to nothing is off by the same share everywhere.
    """
    result = results[query_shift]
    arms = tuple(arm for arm in result.indexes["arm"] if arm != INSIDE)
    test = shifted_ratio(result, arms)
    rows, share = [], "error / mean square of the label"
    for arm in result.indexes["arm"]:
        error, size = (float(part.mean()) for part in _relative(result, arm))
        slope = float(result.sel(arm=arm, moment="prediction x truth").values.mean()) / size
        rows.append({"test condition": arm, share: error / size, "slope of predictions": slope})
    name = "error relative to the mean square of the label, query shifted / in distribution"
    quantities = {"ratio": Estimate.of(name, test, "log10")}
    says = answer(
        QUERY,
        quantities,
        "Queries from another distribution are tolerated.",
        "Queries from another distribution are not tolerated.",
        "queries from another distribution are tolerated",
    )
    inside, *shifted = sorted(rows, key=lambda row: row["test condition"] != INSIDE)
    worst = max(shifted, key=lambda row: row[share])
    limits = bound(
        QUERY, quantities, "ratio", f"at most {TOLERATED:g} times", f"at least {HURT:g} times"
    )
    says += (
        f" Relative to the mean square of the label the error is {worst[share]:.3g} with shifted "
        f"queries ({worst['test condition']}) and {inside[share]:.3g} in distribution, "
        f"{10**test.value:.3g} times as large ({limits})."
    )
    return Evidence(
        quantities,
        says,
        scope="these weights, M = N, examples in distribution",
        details=tuple(rows),
    )


QUERY_SHIFT_CLAIM = Claim(
    id="linear_attention.query_shift",
    question="far from the data",
    short="Linear attention tolerates queries from another distribution.",
    quote=Quote(
        "Thus, very general shifts in the query distribution can be tolerated.",
        "Zhang, Frei & Bartlett (2023), in Wu's slides (2025), 'Query shifts' (between slides 21 "
        "and 27),"
        " after equation (4.8)",
        "The slides argue for infinitely long prompts. We test prompts of the trained length with "
        "three other distributions of the query, one of them drawn, and compare errors relative to "
        "the mean square of the labels.",
    ),
    kind="learning",
    statement="Another distribution of queries is tolerated: errors stay the same relative to the "
    "labels",
    source=f"{SOURCE}, section 4.2",
    criterion=QUERY,
    measurements=(query_shift,),
    aspects=("single layer", "single head", "kind of task"),
    evidence=query_evidence,
    excluded=needs_theory,
    learned=not_learned,
)
