"""The claim of `limits` that a model cannot ICL2: it fails under some laws of its class."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses.claim import EXPLAINS, LEARNED_R2, Claim, Remarks
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
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.limits.claims.error_rates import LOW
from icl_interp.studies.limits.measurements.classes import needs_polynomials
from icl_interp.studies.limits.measurements.in_context import by_law

# Squared error over that of the best guess without examples, from which these help little. From
# `LOW` on a law is learned; a factor of 5 lies between.
FAILS = 0.5
TRAINED = "as trained"


def _others(result: DataArray) -> list[str]:
    """All laws but that of the training."""
    laws = list(result.indexes["law"])
    laws.remove(TRAINED)
    return laws


def worst(result: DataArray, laws: list[str]) -> Interval:
    """The largest relative error of some laws."""
    chosen = result.sel(law=laws)
    model = chosen.sel(predictor="model").values.T
    guess = chosen.sel(predictor="law's mean").values.T
    return bootstrap(_largest, model, guess, positive=True)


def _largest(error: np.ndarray, guess: np.ndarray) -> np.ndarray:
    ratios = error / guess
    return ratios.max(-1)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """The relative error under the law where it is largest."""
    result = results[by_law]
    found = worst(result, _others(result))
    return {"R2": facts.learned, "worst": found}


def untrained(results: Results, facts: Facts) -> dict[str, Found]:
    """The same of an untrained control."""
    result = results.control[by_law]
    found = worst(result, _others(result))
    return {"worst": found}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Which law is the worst, and the relative error under each."""
    result = results[by_law]
    rows = [_row(result, TRAINED)]
    most = ""
    largest = 0.0
    failing = 0
    for law in _others(result):
        row = _row(result, law)
        rows.append(row)
        size = row["relative error"]
        failing += size >= FAILS
        if size >= largest:
            most = law
            largest = size
    n_laws = len(rows) - 1
    return Remarks(
        scope="these weights, polynomials of the degrees trained on, without noise; only points "
        "at which the examples determine the function",
        caveat=f"The largest error is under {most}; it is at least {FAILS:g} for {failing} of "
        f"{n_laws} laws.",
        details=tuple(rows),
    )


def _row(result: DataArray, law: str) -> dict[str, Any]:
    one = worst(result, [law])
    row: dict[str, Any] = {"law": law}
    row["relative error"] = one.value
    row["low"] = one.low
    row["high"] = one.high
    return row


CRITERION = Criterion(
    (
        Condition(
            "worst",
            "largest squared error under any law tested, over that of the law's mean",
            at_least(FAILS),
            at_most(LOW, least=0.0),
            unit="times",
            scale="log",
        ),
    ),
    (
        Precondition(
            "R2", at_least(LEARNED_R2), f"{EXPLAINS}, so there is no success to compare with."
        ),
    ),
    terms="The laws are: the uniform family in place of the normal one or vice versa; functions "
    "or inputs times 0.1, 3 and 10; and four laws that scale both by numbers drawn from 0.1 to 10.",
)

NO_ICL2_CLAIM = Claim(
    id="limits.no_icl2",
    question="functions",
    statement="Under some laws of functions and inputs the model does not learn in context.",
    denied="Under all laws of functions and inputs that were tested the model learns in context "
    "(ICL2).",
    quote=Quote(
        "However, even if the model can approximate large values without LN, the model still "
        "couldn’t ICL2 as Table 1 indicates for big values.",
        "Naim & Asher (2025), section 5, above Observation 2; ICL2 is defined in section 3.1",
        "ICL2 is the capability of “approximating all functions within the target class across "
        "all possible distributions over functions and inputs”. One law under which a model fails "
        "refutes it, and no number of laws proves it. We test eleven, four of them drawn at "
        "random. A model fails where its squared error is at least half that of the best guess "
        "without examples. The sentence is about models without LayerNorm; we test all models "
        "that learned polynomials.",
    ),
    kind="architecture",
    reads="outputs",
    criterion=CRITERION,
    measurements=(by_law,),
    control=(by_law,),
    aspects=("kind of task",),
    evidence=evidence,
    untrained=untrained,
    remarks=remarks,
    excluded=needs_polynomials,
    figures=("in_context",),
)
