"""The claim of `limits` that a model does better than algorithms that must know the degree."""

from dataclasses import replace

import numpy as np
import torch
from xarray import DataArray

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Results, measurement
from icl_interp.baselines.base import Predictor
from icl_interp.baselines.named import classical
from icl_interp.baselines.regression import MaximumDegree
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import make_array
from icl_interp.studies.limits.claims.kinds import in_brackets
from icl_interp.studies.limits.measurements import classes
from icl_interp.studies.limits.measurements.classes import (
    needs_polynomials,
    polynomial_in,
    polynomial_task,
    squared_errors,
)

# Knows what the model was trained on, but not this function's degree.
LARGEST_DEGREE = "least squares, largest degree"
CAUTIOUS = "least squares, twice that degree"
BAYES = "Bayes over degrees"
MODEL = "model"
# Times: a factor of 1.56 apart. With 128 units of 8 prompts the ratio has a standard error of about
# 0.11 of itself, at half the sample 0.16, and two of these are a factor of 1.38.
BETTER, WORSE = 0.8, 1.25


# ---- better without knowing the degree -----------------------------------------------------------


def of_degree(lab: Lab, degree: int) -> Prompts:
    """Polynomials of one degree: as many units as the lab has, each with as many contexts."""
    task, draw = (
        replace(polynomial_task(lab), degrees=(degree,)),
        generator(lab.seed, "algorithms/degree", degree),
    )
    if task.paired:
        return task.sample_pairs(lab.n_units, draw, n_contexts=lab.n_contexts, dtype=torch.float64)
    return task.sample(lab.n_units, draw, n_contexts=lab.unit_size, dtype=torch.float64)


@measurement("algorithms/unknown degree", version=2)
def unknown_degree(lab: Lab) -> DataArray:
    """Squared error on each degree trained on, of the model and of algorithms not told the degree.

    Scored from each degree's own n + 2nd point on, where the model predicts something. Least
    squares has the features of the largest degree trained on, or of twice that for somebody who
    does not know it either (of least norm while points are too few); the Bayes predictor weighs the
    degrees trained on by how well they explain the points. What least squares misses with too few
    points varies so much with the inputs that units need all their contexts.
    """
    task = polynomial_task(lab)
    predictors: dict[str, Predictor] = {
        MODEL: lab,
        LARGEST_DEGREE: MaximumDegree(task.max_degree),
        CAUTIOUS: MaximumDegree(2 * task.max_degree),
        BAYES: classical(task)[BAYES],
    }
    degrees = [d for d in sorted(set(task.degrees)) if 0 < d < task.n_points - 1]
    values = np.empty((len(predictors), len(degrees), lab.n_units))
    for column, degree in enumerate(degrees):
        prompts = of_degree(lab, degree)
        found = [
            squared_errors(predictor, prompts)[:, degree + 1 :] for predictor in predictors.values()
        ]
        silent = (
            found[0].isnan()
        )  # all points but the query, where attention looks both ways: nobody is scored there
        for row, square in enumerate(found):
            values[row, column] = lab.by_unit(square.masked_fill(silent, torch.nan).nanmean(-1))
    axes = {
        "predictor": tuple(predictors),
        "class": tuple(f"degree {d}" for d in degrees),
        "unit": tuple(range(lab.n_units)),
    }
    note = (
        f"{lab.unit_size} prompts a unit, points from the class's own n + 2nd on; algorithms in "
        "float64"
    )
    return make_array(values, axes, note=note)


def _times(result: DataArray, other: str) -> Interval:
    """The model's mean error over degrees, over that of another predictor.

    A draw of the mixture has each degree equally often.
    """
    own, its = (result.sel(predictor=who).mean("class").values for who in (MODEL, other))
    return bootstrap(lambda x, y: x / np.maximum(y, np.finfo(float).tiny), own, its, positive=True)


def better_than_unknown_degree(results: Results, facts: Facts) -> Evidence:
    """Is the model's error below that of least squares which allows for the largest degree?"""
    result = results[unknown_degree]
    names, who = list(result.indexes["class"]), list(result.indexes["predictor"])
    times = _times(result, LARGEST_DEGREE)
    mean = result.mean("unit")
    listed = ", ".join(name.removeprefix("degree ") for name in names)
    name = "error / error of least squares with the largest degree"
    quantities = {"ratio": Estimate.of(name, times, "times")}
    first = answer(
        UNKNOWN_DEGREE,
        quantities,
        "The model does better than least squares that does not know the degree.",
        "The model does worse than least squares that does not know the degree.",
        "the model does better than least squares that does not know the degree",
    )
    threshold = bound(
        UNKNOWN_DEGREE, quantities, "ratio", f"at most {BETTER:g}", f"at least {WORSE:g}"
    )
    says = (
        f"{first} Over degrees {listed} its squared error is {in_brackets(times)} times that of "
        f"least squares with the largest degree ({threshold})."
    )
    caveat = (
        f"It is {in_brackets(_times(result, BAYES))} times that of the Bayes predictor over "
        "degrees."
    )
    details = (
        *(
            {
                "class": one,
                **{p: float(mean.sel({"predictor": p, "class": one}).values) for p in who},
            }
            for one in names
        ),
        {"class": "mean over degrees", **{p: float(mean.sel(predictor=p).mean()) for p in who}},
    )
    return Evidence(
        quantities,
        says,
        scope="these weights, this task, functions and inputs in distribution, no noise; from each "
        "degree's n + 2nd point on, where least squares that is told the degree makes no error",
        control={
            "ratio": Estimate.of(
                name, _times(results.control[unknown_degree], LARGEST_DEGREE), "times"
            )
        },
        details=details,
        caveat=caveat,
    )


def _knows_the_degree(facts: Facts) -> str | None:
    reason = needs_polynomials(facts)
    if reason:
        return reason
    degrees = sorted({d for d in polynomial_in(facts).degrees if d > 0})
    if len(degrees) > 1:
        return None
    which = f"degree {degrees[0]} only" if degrees else "constants only"
    return (
        "The claim is about models that do not know a function's degree; this model was trained on "
        f"{which}."
    )


UNKNOWN_DEGREE = Criterion(
    (Condition("ratio", "", (0.0, BETTER), (WORSE, INF), scale="log"),),
    terms=(
        "squared error divided by that of least squares with features of the largest degree trained "
        f"on, mean over the points n + 2, n + 3, ... of functions of each degree n: at most {BETTER:g} "
        f"times / at least {WORSE:g} times"
    ),
)

BETTER_THAN_UNKNOWN_DEGREE_CLAIM = Claim(
    id="limits.better_than_unknown_degree",
    question="algorithm",
    short="The model beats algorithms that must know the function's degree.",
    quote=Quote(
        "In this sense, our models did better than optimal algorithms like LS or polynomial "
        "regression, which require knowing a function’s degree.",
        "Naim & Asher (2025), section 5, first paragraph",
        "The paper compares what each method must be told, not its errors. We compare the model's "
        "error with that of least squares that uses the largest degree trained on, because it does "
        "not know the degree, and ask for at most 0.8 times as much: as good as is not better.",
    ),
    kind="learning",
    statement="The model does better than optimal algorithms would that have to know a function's "
    "degree",
    source="Naim & Asher (2025), section 5",
    criterion=UNKNOWN_DEGREE,
    measurements=(unknown_degree, classes.errors),  # the figure draws the latter
    control=(unknown_degree,),
    aspects=("kind of task",),
    evidence=better_than_unknown_degree,
    excluded=_knows_the_degree,
    figures=("classes",),
)
