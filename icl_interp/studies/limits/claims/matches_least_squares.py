"""The claim of `limits` that a model matches least squares on polynomials (Proposition 1)."""

from collections.abc import Mapping

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
from icl_interp.studies.limits.claims.error_rates import (
    SCOPE,
    Cell,
    errors_of_cells,
    highest_rate,
    rate_rows,
    trained_degrees,
)
from icl_interp.studies.limits.measurements.classes import errors, needs_polynomials

# Table 2 of the paper prints errors of 0.00, which are below 0.005, where predicting 0 errs by 0.46
# to 0.64: at most about a hundredth of it. From five hundredths on they would be printed as 0.02.
NEAR = 0.01
FAR = 0.05

RATE = Condition(
    "rate",
    "highest squared error above that of least squares, relative to predicting 0",
    at_most(NEAR),
    at_least(FAR),
    scale="log",
)
CRITERION = Criterion(
    (RATE,),
    (Precondition("degrees", at_least(1), "Prompts are too short to score any degree."),),
    terms="Of the degrees that the model was trained on, the one with the highest number counts. "
    "Least squares that is told a function's degree n makes no error from point n + 2 on, and "
    "these points are scored.",
)


def _cells(facts: Facts, results: Results) -> list[Cell]:
    """The model on each degree that it was trained on, where prompts are long enough."""
    scored = results[errors].indexes["class"]
    cells = []
    for degree in trained_degrees(facts):
        if f"degree {degree}" in scored:
            cells.append(("model", degree))
    return cells


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """The highest error rate over the degrees trained on."""
    cells = _cells(facts, results)
    found: dict[str, Found] = {"degrees": len(cells)}
    if not cells:
        return found
    own = errors_of_cells(results[errors], cells, "own")
    found["rate"] = highest_rate(own)
    return found


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The error rate of each degree."""
    cells = _cells(facts, results)
    rows = rate_rows(results[errors], cells)
    if not rows:
        return Remarks()
    worst = max(rows, key=lambda row: row["error rate"])
    return Remarks(
        scope=SCOPE,
        caveat=f"It is highest for {worst['class']}; least squares that is told the degree makes "
        "no error there.",
        details=tuple(rows),
    )


MATCHES_LEAST_SQUARES_CLAIM = Claim(
    id="limits.matches_least_squares",
    question="functions",
    statement="On the polynomials of its task the model errs as little as least squares.",
    denied="On the polynomials of its task the model errs more than least squares.",
    quote=Quote(
        "Our models match the performance of classical polynomial regression techniques, such as "
        "Least Squares, which are known to achieve optimal recovery when the degree of the "
        "polynomial is known.",
        "Naim & Asher (2025), section 4.1, before Proposition 1",
        "The paper does not say what counts as a match. Least squares makes no error on its data, "
        "which have no noise, and Table 2 prints models' errors as 0.00 where predicting 0 errs "
        "by 0.46 to 0.64. We ask for an error of at most a hundredth of that of predicting 0, "
        "which two decimals can show. Five hundredths are no match. Proposition 1 is about inputs "
        "and coefficients of U(-1, 1); we ask it of any law.",
    ),
    kind="learning",
    reads="outputs",
    criterion=CRITERION,
    measurements=(errors,),
    control=(errors,),
    aspects=("kind of task",),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_polynomials,
    figures=("classes",),
)
