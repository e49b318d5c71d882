"""The claim of `limits` that error rates are alike for all degrees that were trained on."""

import math

import numpy as np

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.limits.claims.error_rates import (
    ALIKE,
    APART,
    HIGHEST,
    LOW,
    SCOPE,
    Cell,
    as_factor,
    errors_of_cells,
    graft,
    highest_rate,
    log_rates,
    may_be_too_high,
    rate_rows,
    trained_degrees,
)
from icl_interp.studies.limits.measurements.classes import errors, needs_polynomials, singles


def _one_class(facts: Facts) -> str | None:
    reason = needs_polynomials(facts)
    if reason:
        return reason
    trained = trained_degrees(facts)
    if len(trained) > 1 or singles(facts.companions):
        return None
    which = f"degree {trained[0]} only" if trained else "constants only"
    return (
        f"The claim compares degrees; this model was trained on {which}, and no matched model "
        "trained on another degree is at hand (pass companions=)."
    )


def _extent(cells: tuple[np.ndarray, np.ndarray]) -> Interval:
    """Largest over smallest error rate, log10."""
    return bootstrap(lambda e, z: np.ptp(log_rates(e, z), axis=-1), *cells)


def _alike(cells: tuple[np.ndarray, np.ndarray]) -> dict[str, Estimate]:
    """What the criterion asks for: the extent of the rates, and the highest of them."""
    return {
        "extent": Estimate.of(
            "largest / smallest error relative to predicting 0", _extent(cells), "log10"
        ),
        "highest": Estimate.of("highest error relative to predicting 0", highest_rate(cells)),
    }


def degrees_alike(results: Results, facts: Facts) -> Evidence:
    """Are error rates alike over the degrees the model was trained on?

    A model that knows one degree only is judged with its companions.
    """
    result = results[errors]
    trained = [d for d in trained_degrees(facts) if f"degree {d}" in result.indexes["class"]]
    singly_trained: list[Cell] = [(str(role), d) for d, role in singles(facts.companions).items()]
    singly_trained = [
        (role, d) for role, d in singly_trained if f"degree {d}" in result.indexes["class"]
    ]
    cells: list[Cell] = [("model", d) for d in trained]
    if len(cells) < 2:
        cells += singly_trained
    scored = {"degrees": Estimate.exactly("degrees that can be scored", len(cells))}
    if len(cells) < 2:
        return Evidence(scored, "")
    found = _alike(errors_of_cells(result, cells, "own"))
    late = _extent(errors_of_cells(result, cells, "late"))
    listed = ", ".join(str(d) for _, d in sorted(cells, key=lambda c: c[1]))
    over = f"degrees {listed}"
    if len(trained) < 2:
        over = f"this model's degree and those of matched models trained on one each ({listed})"
    rows = rate_rows(result, cells)
    first = answer(
        DEGREES_ALIKE,
        scored | found,
        "Errors relative to predicting 0 are about the same for the degrees asked.",
        "Errors relative to predicting 0 are not the same for the degrees asked.",
        "errors relative to predicting 0 are about the same for the degrees asked",
    )
    threshold = bound(
        DEGREES_ALIKE, scored | found, "extent", f"at most {ALIKE:g}", f"at least {APART:g}"
    )
    says = (
        f"{first} Over {over} they go from {min(r['error rate'] for r in rows):.2g} to "
        f"{found['highest'].value:.2g}, a factor of {as_factor(found['extent'].value)} "
        f"({threshold})."
    )
    caveat = (
        may_be_too_high(found["highest"])
        or f"On the same late points for all it is {as_factor(late.value)}."
    )
    return Evidence(
        scored | found,
        says,
        caveat=caveat,
        scope=SCOPE
        if len(trained) > 1
        else f"{SCOPE}; and those of the matched models, trained as long",
        control=_alike(errors_of_cells(graft(result, results.control[errors]), cells, "own")),
        details=tuple(rows if len(trained) < 2 else rows + rate_rows(result, singly_trained)),
    )


DEGREES_ALIKE = Criterion(
    (Condition("extent", "", (-INF, math.log10(ALIKE)), (math.log10(APART), INF)), HIGHEST),
    (Precondition("degrees", (2, INF), "Prompts are too short to score two degrees."),),
    terms=(
        "squared error divided by that of predicting 0, on each degree trained on: largest over "
        f"smallest at most a factor of {ALIKE:g}, and none above {LOW} / at least a factor of "
        f"{APART:g}"
    ),
)

DEGREES_ALIKE_CLAIM = Claim(
    id="limits.degrees_alike",
    question="functions",
    short="Error rates are about the same for every degree of polynomial.",
    quote=Quote(
        "All models had roughly the same error rates for each polynomial class R^n[X], for as high "
        "as we tested.",
        "Naim & Asher (2025), section 4.1, Observation 1",
        "The paper does not say what counts as roughly the same; its own rates differ by up to a "
        "factor of 2.1 (Table 2). We allow a factor of 3, call them different from a factor of 5 "
        "on, and ask that every error be at most a tenth of that of predicting 0.",
    ),
    kind="learning",
    statement="Error rates in context are roughly the same for every degree of polynomials learned",
    source="Naim & Asher (2025), section 4.1, Observation 1",
    criterion=DEGREES_ALIKE,
    measurements=(errors,),
    control=(errors,),
    aspects=("kind of task",),
    evidence=degrees_alike,
    excluded=_one_class,
    figures=("classes",),
)
