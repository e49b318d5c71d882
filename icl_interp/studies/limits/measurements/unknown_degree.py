"""Errors of a model and of algorithms that are not told the degree of a polynomial."""

from dataclasses import replace

import numpy as np
import torch
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.baselines.base import Predictor
from icl_interp.baselines.named import classical
from icl_interp.baselines.regression import MaximumDegree
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.limits.measurements.classes import polynomial_task, squared_errors

# Knows what the model was trained on, but not this function's degree.
LARGEST_DEGREE = "least squares, largest degree"
CAUTIOUS = "least squares, twice that degree"
BAYES = "Bayes over degrees"
MODEL = "model"


def of_degree(lab: Lab, degree: int) -> Prompts:
    """Polynomials of one degree: as many units as the lab has, each with as many contexts."""
    task = replace(polynomial_task(lab), degrees=(degree,))
    draw = generator(lab.seed, "algorithms/degree", degree)
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
    degrees = sorted(set(task.degrees).intersection(range(1, task.n_points - 1)))
    values = np.empty((len(predictors), len(degrees), lab.n_units))
    for column, degree in enumerate(degrees):
        prompts = of_degree(lab, degree)
        found = []
        for predictor in predictors.values():
            square = squared_errors(predictor, prompts)
            found.append(square[:, degree + 1 :])
        # Where attention looks both ways the model says something at the query alone: elsewhere
        # nobody is scored.
        silent = found[0].isnan()
        for row, square in enumerate(found):
            scored = square.masked_fill(silent, torch.nan)
            values[row, column] = lab.by_unit(scored.nanmean(-1))
    axes = {
        "predictor": tuple(predictors),
        "class": tuple(f"degree {d}" for d in degrees),
        "unit": range(lab.n_units),
    }
    points = "points from the class's own n + 2nd on; algorithms in float64"
    return make_array(values, axes, note=f"{lab.unit_size} prompts a unit, {points}")
