"""The claim of `linear_attention` that inputs of another scale are not tolerated."""

import numpy as np
from xarray import DataArray

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.linear_attention.measurements.setting import (
    SOURCE,
    needs_theory,
    not_learned,
    task_in,
    trained_landscape,
)
from icl_interp.studies.linear_attention.measurements.shifts import INPUT_FACTORS, covariate_shift
from icl_interp.theory import linear_attention as theory

EXPONENT, ABSORBED = (1.8, 2.2), 0.5  # of c in the slope of predictions on labels
GONE = 1e-6  # share of the slope at c = 1 below which, or with another sign, there is none left

COVARIATE = Criterion(
    (
        Condition("exponent", "", EXPONENT, (-INF, ABSORBED)),
        Condition("drawn", "", EXPONENT, (-INF, ABSORBED)),
    ),
    terms=(
        "power of c with which the slope of predictions on labels grows, where all inputs are scaled "
        f"by c = 1, 2, 3, and where they are by numbers that are drawn: both {EXPONENT[0]:g} to "
        f"{EXPONENT[1]:g} / one at most {ABSORBED:g} (the slope stays, as with least squares)"
    ),
)


def exponent(result: DataArray, drawn: bool = False) -> Interval:
    """Least-squares slope of ln(slope of predictions / that at c = 1) on ln c.

    The factors c are the known ones, or with `drawn` 1 and the drawn ones.
    """
    every = [float(c) for c in result.indexes["c"]]
    factors = [c for c in every if c == 1 or (c not in INPUT_FACTORS) is drawn]
    centred = np.log(factors) - np.log(factors).mean()
    arrays = [
        result.sel(c=c, moment=moment).values
        for c in factors
        for moment in ("prediction x truth", "truth^2")
    ]

    def statistic(*m: np.ndarray) -> np.ndarray:
        slopes = [m[i] / m[i + 1] for i in range(0, len(m), 2)]
        logs = np.array([np.log(np.maximum(slope / slopes[0], GONE)) for slope in slopes])
        return np.tensordot(centred, logs, axes=1) / (centred**2).sum()

    return bootstrap(statistic, *arrays)


def covariate_evidence(results: Results, facts: Facts) -> Evidence:
    """Do predictions grow by c^2 too much?

    Those of a layer that reads nothing past attention are cubic in x.
    """
    result, fresh = results[covariate_shift], results.control[covariate_shift]
    test, control = exponent(result), exponent(fresh)
    task = task_in(facts)
    rows = []
    for c in result.indexes["c"]:
        error, size, crossed = (
            float(result.sel(c=c, moment=moment).values.mean())
            for moment in ("error", "truth^2", "prediction x truth")
        )
        rows.append(
            {
                "c": c,
                "slope of predictions": crossed / size,
                "error / mean square of the label": error / size,
            }
        )
    name = "power of c in the slope of predictions on labels"
    drawn = exponent(result, drawn=True)
    quantities = {
        "exponent": Estimate.of(name, test),
        "drawn": Estimate.of(f"{name}, c drawn", drawn),
    }
    says = answer(
        COVARIATE,
        quantities,
        "Scaling all inputs by c makes predictions about c² times too large.",
        "Scaling all inputs by c does not make predictions c² times too large.",
        "scaling all inputs by c makes predictions c² times too large",
    )
    slopes, at = (
        ", ".join(f"{row[key]:.3g}" for row in rows) for key in ("slope of predictions", "c")
    )
    asked, against = f"a power of {EXPONENT[0]:g} to {EXPONENT[1]:g}", f"at most {ABSORBED:g}"
    says += (
        f" The slope of predictions on labels grows like c to the power {test.value:.3g} "
        f"[{test.low:.3g}, {test.high:.3g}], and {drawn.value:.3g} at c that were drawn "
        f"({bound(COVARIATE, quantities, 'exponent', asked, against)})."
    )
    caveat = f"At c = {at} it is {slopes}"
    if not task.random_covariance:
        expected = float(
            theory.prediction_slope(trained_landscape(task).product, task.covariance_matrix)
        )
        caveat += f" ({expected:.3g} c² for the optimal layer of Theorem 4.1)"
    return Evidence(
        quantities,
        says,
        scope="these weights, M = N, functions in distribution",
        control={"exponent": Estimate.of(name, control)},
        details=tuple(rows),
        caveat=f"{caveat}.",
    )


COVARIATE_SHIFT_CLAIM = Claim(
    id="linear_attention.covariate_shift",
    question="far from the data",
    short="Inputs scaled by c make predictions c² times too large.",
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
    statement="Inputs scaled by c are not tolerated: predictions come out c² times too large",
    source=f"{SOURCE}, section 4.2",
    criterion=COVARIATE,
    measurements=(covariate_shift,),
    control=(covariate_shift,),
    aspects=("single layer", "single head", "kind of task"),
    evidence=covariate_evidence,
    excluded=needs_theory,
    learned=not_learned,
)
