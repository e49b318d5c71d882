"""The claim of `limits` that error rates are alike for all degrees that were trained on."""

import math
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
from icl_interp.analyses.natural import natural
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.limits.claims.error_rates import (
    ALIKE,
    APART,
    HIGHEST,
    SCOPE,
    Cell,
    errors_of_cells,
    graft,
    highest_rate,
    log_rates,
    may_be_too_high,
    only_class,
    rate_rows,
    trained_degrees,
)
from icl_interp.studies.limits.measurements.classes import errors, needs_polynomials, singles


def _one_class(facts: Facts) -> str | None:
    if reason := needs_polynomials(facts):
        return reason
    only = only_class(facts)
    if only is None or singles(facts.companions):
        return None
    return (
        f"The claim compares degrees; this model was trained on {only}, and no matched model "
        "trained on another degree is at hand (pass companions=, or `icl-interp complete RUN`)."
    )


def _extent(cells: tuple[np.ndarray, np.ndarray]) -> Interval:
    """Largest over smallest error rate, log10."""
    return bootstrap(lambda e, z: np.ptp(log_rates(e, z), axis=-1), *cells)


CRITERION = Criterion(
    (
        Condition(
            "extent",
            "largest over smallest squared error relative to predicting 0",
            at_most(math.log10(ALIKE)),
            at_least(math.log10(APART)),
            unit="log10",
        ),
        HIGHEST,
    ),
    (Precondition("degrees", at_least(2), "Prompts are too short to score two degrees."),),
    terms="Errors are divided by those of predicting 0 on the same points. The degrees are those "
    "that the model was trained on. If that is a single one, the degrees of matched models "
    "trained on one degree each count as well.",
)


def _cells(facts: Facts, result: DataArray) -> tuple[list[Cell], list[Cell]]:
    """The model on each degree it was trained on, and companions on the one that they know."""
    own: list[Cell] = []
    others: list[Cell] = []
    for degree in trained_degrees(facts):
        own.append(("model", degree))
    for degree, role in singles(facts.companions).items():
        others.append((str(role), degree))
    return _scored(result, own), _scored(result, others)


def _scored(result: DataArray, cells: list[Cell]) -> list[Cell]:
    """Those on degrees of which prompts are long enough."""
    return [(who, degree) for who, degree in cells if f"degree {degree}" in result.indexes["class"]]


def _compared(facts: Facts, result: DataArray) -> list[Cell]:
    """What is compared: a model that knows one degree only is judged with its companions."""
    own, others = _cells(facts, result)
    return own if len(own) > 1 else own + others


def _rates(result: DataArray, cells: list[Cell]) -> dict[str, Found]:
    """The extent of the error rates, and the highest of them."""
    rates = errors_of_cells(result, cells, "own")
    return {"extent": _extent(rates), "highest": highest_rate(rates)}


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """Error rates over the degrees, if there are two."""
    result = results[errors]
    cells = _compared(facts, result)
    found: dict[str, Found] = {"degrees": len(cells)}
    if len(cells) > 1:
        found |= _rates(result, cells)
    return found


def untrained(results: Results, facts: Facts) -> dict[str, Found]:
    """The same of an untrained model, beside the companions that are compared."""
    result = results[errors]
    cells = _compared(facts, result)
    if len(cells) < 2:
        return {}
    beside = graft(result, results.control[errors])
    return _rates(beside, cells)


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Every error rate, and the extent on the same late points for all."""
    if "extent" not in found:
        return Remarks()
    result = results[errors]
    own, others = _cells(facts, result)
    alone = len(own) < 2
    beside = "; and those of the matched models, trained as long" if alone else ""
    return Remarks(
        scope=f"{SCOPE}{beside}",
        caveat=may_be_too_high(found["highest"])
        or _on_late_points(result, _compared(facts, result)),
        details=tuple(rate_rows(result, own + others)),
    )


def _on_late_points(result: DataArray, cells: list[Cell]) -> str:
    """Which degrees are compared, and the extent on the same points for all."""
    late = _extent(errors_of_cells(result, cells, "late"))
    degrees = sorted(degree for _, degree in cells)
    listed = ", ".join(map(str, degrees))
    factor = natural(late.value, "log10")
    return (
        f"The degrees are {listed}; on the last points of the prompt, the same for all, it is "
        f"{factor}."
    )


DEGREES_ALIKE_CLAIM = Claim(
    id="limits.degrees_alike",
    question="functions",
    statement="Errors relative to predicting 0 are about the same for all degrees tested.",
    denied="Errors relative to predicting 0 are not the same for all degrees tested.",
    quote=Quote(
        "All models had roughly the same error rates for each polynomial class R^n[X], for as high "
        "as we tested.",
        "Naim & Asher (2025), section 4.1, Observation 1",
        "The paper does not say what counts as roughly the same; its own rates differ by up to a "
        "factor of 2.1 (Table 2). We allow a factor of up to 3, and call errors different from a "
        "factor of 5 on. Every error must also be at most a tenth of that of predicting 0.",
    ),
    kind="learning",
    reads="outputs",
    beside=("degrees",),
    criterion=CRITERION,
    measurements=(errors,),
    control=(errors,),
    aspects=("kind of task",),
    evidence=evidence,
    remarks=remarks,
    untrained=untrained,
    excluded=_one_class,
    figures=("classes",),
)
