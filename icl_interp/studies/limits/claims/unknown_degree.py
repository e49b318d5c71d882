"""The claim of `limits` that a model does better than algorithms that must know the degree."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Found, at_least, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.natural import measured
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.limits.claims.error_rates import only_class
from icl_interp.studies.limits.measurements import classes
from icl_interp.studies.limits.measurements.classes import needs_polynomials
from icl_interp.studies.limits.measurements.unknown_degree import (
    BAYES,
    LARGEST_DEGREE,
    MODEL,
    unknown_degree,
)

TINY = np.finfo(float).tiny
# Times: a factor of 1.56 apart. With 128 units of 8 prompts the ratio has a standard error of about
# 0.11 of itself, at half the sample 0.16, and two of these are a factor of 1.38.
BETTER = 0.8
WORSE = 1.25


def _times(result: DataArray, other: str) -> Interval:
    """The model's mean error over degrees, over that of another predictor.

    A draw of the mixture has each degree equally often.
    """
    mean = result.mean("class")
    own = mean.sel(predictor=MODEL).values
    its = mean.sel(predictor=other).values
    return bootstrap(lambda x, y: x / np.maximum(y, TINY), own, its, positive=True)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """The model's error over that of least squares which allows for the largest degree."""
    return {"ratio": _times(results[unknown_degree], LARGEST_DEGREE)}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The Bayes predictor beside it, and every mean error."""
    result = results[unknown_degree]
    mean = result.mean("unit")
    rows = []
    for name in result.indexes["class"]:
        rows.append(_row(name, mean.sel({"class": name})))
    rows.append(_row("mean over degrees", mean.mean("class")))
    over_bayes = measured(_times(result, BAYES), "")
    return Remarks(
        scope="these weights, this task, functions and inputs in distribution, no noise; from each "
        "degree's n + 2nd point on, where least squares that is told the degree makes no error",
        caveat=f"Over that of the Bayes predictor over degrees it is {over_bayes}.",
        details=tuple(rows),
    )


def _row(name: str, errors: DataArray) -> dict[str, Any]:
    """The error of every predictor."""
    row: dict[str, Any] = {"class": name}
    for who in errors.indexes["predictor"]:
        row[who] = float(errors.sel(predictor=who))
    return row


def _knows_the_degree(facts: Facts) -> str | None:
    if reason := needs_polynomials(facts):
        return reason
    only = only_class(facts)
    if only is None:
        return None
    return (
        "The claim is about models that do not know a function's degree; this model was trained on "
        f"{only}."
    )


CRITERION = Criterion(
    (
        Condition(
            "ratio",
            "squared error over that of least squares with the largest degree",
            at_most(BETTER, least=0.0),
            at_least(WORSE),
            unit="times",
            scale="log",
        ),
    ),
    terms="The largest degree is that of the functions trained on. Errors are means over the "
    "degrees n trained on and over the points from n + 2 on.",
)

BETTER_THAN_UNKNOWN_DEGREE_CLAIM = Claim(
    id="limits.better_than_unknown_degree",
    question="algorithm",
    statement="The model does better than least squares that does not know the degree.",
    denied="The model does worse than least squares that does not know the degree.",
    quote=Quote(
        "In this sense, our models did better than optimal algorithms like LS or polynomial "
        "regression, which require knowing a function’s degree.",
        "Naim & Asher (2025), section 5, first paragraph",
        "The paper compares what each method must be told, not its errors. We compare the model's "
        "error with that of least squares with the largest degree trained on, because such least "
        "squares does not know the degree either. To be better, the model may make at most 0.8 "
        "times its error.",
    ),
    kind="learning",
    reads="outputs",
    criterion=CRITERION,
    measurements=(unknown_degree, classes.errors),  # the figure draws the latter
    control=(unknown_degree,),
    aspects=("kind of task",),
    evidence=evidence,
    remarks=remarks,
    excluded=_knows_the_degree,
    figures=("classes",),
)
