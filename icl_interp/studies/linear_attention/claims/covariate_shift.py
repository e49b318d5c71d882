"""The claim of `linear_attention` that inputs of another scale are not tolerated."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Found, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.linear_attention.measurements.setting import (
    needs_theory,
    not_learned,
    task_in,
    trained_landscape,
)
from icl_interp.studies.linear_attention.measurements.shifts import INPUT_FACTORS, covariate_shift
from icl_interp.theory import linear_attention as theory

EXPONENT = (1.8, 2.2)  # of c in the slope of predictions on labels
ABSORBED = 0.5
GONE = 1e-6  # share of the slope at c = 1 below which, or with another sign, there is none left

CRITERION = Criterion(
    (
        Condition(
            "exponent",
            "power of c in the slope of predictions on labels",
            EXPONENT,
            at_most(ABSORBED),
        ),
        Condition("drawn", "the same power, for c drawn at random", EXPONENT, at_most(ABSORBED)),
    ),
    terms="All inputs of a prompt are multiplied by c. The power is that of c with which the "
    "slope grows. Least squares keeps the slope, so its power is 0.",
)


def exponent(result: DataArray, drawn: bool = False) -> Interval:
    """Least-squares slope of ln(slope of predictions / that at c = 1) on ln c.

    The factors c are the known ones, or with `drawn` 1 and the drawn ones.
    """
    factors = []
    arrays = []
    for c in result.indexes["c"]:
        if c == 1 or (c not in INPUT_FACTORS) is drawn:
            factors.append(float(c))
            for moment in ("prediction x truth", "truth^2"):
                arrays.append(result.sel(c=c, moment=moment).values)
    logs_of_c = np.log(factors)
    centred = logs_of_c - logs_of_c.mean()

    def statistic(*moments: np.ndarray) -> np.ndarray:
        slopes = np.array(moments[::2]) / np.array(moments[1::2])
        logs = np.log(np.maximum(slopes / slopes[0], GONE))
        return np.tensordot(centred, logs, axes=1) / (centred**2).sum()

    return bootstrap(statistic, *arrays)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """The power with which predictions outgrow labels, at known and at drawn factors."""
    result = results[covariate_shift]
    known = exponent(result)
    drawn = exponent(result, drawn=True)
    return {"exponent": known, "drawn": drawn}


def _rows(result: DataArray) -> list[dict[str, Any]]:
    """A row for each factor of the inputs."""
    means = result.mean("unit")
    rows = []
    for c in result.indexes["c"]:
        size = float(means.sel(c=c, moment="truth^2"))
        rows.append(
            {
                "c": c,
                "slope of predictions": float(means.sel(c=c, moment="prediction x truth")) / size,
                "error / mean square of the label": float(means.sel(c=c, moment="error")) / size,
            }
        )
    return rows


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The slopes themselves, and what the optimal layer's would be."""
    rows = _rows(results[covariate_shift])
    factors = ", ".join(f"{row['c']:.3g}" for row in rows)
    slopes = ", ".join(f"{row['slope of predictions']:.3g}" for row in rows)
    caveat = f"At c = {factors} the slope is {slopes}"
    task = task_in(facts)
    if not task.random_covariance:
        best = trained_landscape(task).product
        expected = float(theory.prediction_slope(best, task.covariance_matrix))
        caveat += f" ({expected:.3g} c² for the optimal layer of Theorem 4.1)"
    return Remarks(
        scope="these weights, M = N, functions in distribution",
        caveat=f"{caveat}.",
        details=tuple(rows),
    )


COVARIATE_SHIFT_CLAIM = Claim(
    id="linear_attention.covariate_shift",
    question="far from the data",
    statement="Scaling all inputs by c makes predictions about c² times too large.",
    denied="Scaling all inputs by c does not make predictions c² times too large.",
    quote=Quote(
        "In contrast to query shifts, covariate shifts cannot be fully tolerated. ... if we "
        "consider test prompts where the covariates are scaled by a constant c ≠ 1, then ŷ_query ≈ "
        "... = c² x_query^T w ≠ x_query^T w",
        "Zhang, Frei & Bartlett (2023), in Wu's slides (2025), 'Covariate shifts' (between slides "
        "21 and 27), eq. (5)",
        "The factor c² is the limit for long prompts. We scale all inputs by c = 1, 2 and 3, and "
        "by drawn c, on prompts of the trained length, and fit the power of c with which "
        "predictions outgrow the labels.",
    ),
    kind="learning",
    reads="outputs",
    criterion=CRITERION,
    measurements=(covariate_shift,),
    control=(covariate_shift,),
    of_control=("exponent",),
    aspects=("single layer", "single head", "kind of task"),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_theory,
    learned=not_learned,
)
