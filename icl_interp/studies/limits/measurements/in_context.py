"""What the two notions of learning in context, ICL1 and ICL2, ask for.

ICL1: the error for a function and a query under several contexts. ICL2: errors under many laws of
functions and inputs.
"""

import math
from dataclasses import replace

import numpy as np
import torch
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.limits.measurements.classes import per_unit, polynomial_task, squared_errors
from icl_interp.tasks.distributions import Distribution, Normal, Uniform
from icl_interp.tasks.functions import Polynomial

CONTEXTS = 8  # of each function: how much the error varies between them is to be seen
SCALES = (0.1, 3.0, 10.0)  # of the half-widths trained on; Table 1 goes up to 10
DRAWN = 4  # laws whose two scales are drawn, from the least of `SCALES` to the largest
PARTS = ("error", "squared error", "within", "law's mean")


def same_query(lab: Lab) -> Prompts:
    """Prompts of which those of one unit ask for the same x, under contexts of their own."""
    prompts = lab.units("limits/same query", n_contexts=CONTEXTS)
    # The first query of each unit takes the place of the others.
    queries = prompts.xs[:, -1].view(lab.n_units, -1, lab.task.dim)
    shared = queries[:, :1].expand_as(queries)
    xs = prompts.xs.clone()
    xs[:, -1] = shared.flatten(0, 1)
    ys = prompts.ys.clone()
    ys[:, -1] = lab.task.targets(prompts.parameters, xs[:, -1:])[:, 0]
    return replace(prompts, xs=xs, ys=ys)


@measurement("in context/one query, several contexts")
def contexts(lab: Lab) -> DataArray:
    """Errors for one function and query under several contexts: (part, unit).

    Parts are means over the functions of a unit: the absolute error, its square, the variance of
    the absolute error over contexts, and the squared error of the law's mean.
    """
    prompts = same_query(lab)
    truth = prompts.ys[:, -1, 0]
    guess = lab.task.expected(prompts.xs[:, -1:])[:, 0, 0]
    said = lab.run_single([lab.ask(prompts=prompts)])[0][:, 0, 0].double()
    # The contexts of one function follow each other.
    n_each = len(prompts) // len(prompts.function.unique())
    error = (said - truth).abs()
    error = error.view(lab.n_units, -1, n_each)
    variance = error.var(-1)
    square = error.square()
    of_law = (guess - truth).square()
    of_law = of_law.view(lab.n_units, -1)
    rows = [error.mean((1, 2)), square.mean((1, 2)), variance.mean(1), of_law.mean(1)]
    values = torch.stack(rows)
    axes = {"part": PARTS, "unit": range(lab.n_units)}
    note = f"{n_each} contexts of each function; float32"
    return make_array(values.numpy(), axes, note=note)


# ---- laws ----------------------------------------------------------------------------------------


def other_family(law: Distribution) -> Distribution:
    """A normal law for a uniform one and the reverse, of the same mean and standard deviation."""
    if isinstance(law, Normal):
        half = math.sqrt(3) * law.std
        low = law.mean - half
        high = law.mean + half
        return Uniform(low, high)
    return Normal(law.std, law.mean)


def laws(lab: Lab) -> dict[str, Polynomial]:
    """Tasks of the same degrees with other laws of functions and inputs, by name.

    Known ones, among them another family, and some whose two scales are drawn, log-uniformly.
    """
    task = polynomial_task(lab)

    # Known laws.
    family = {"inputs": other_family(task.inputs)}
    family |= {"coefficients": other_family(task.coefficients)}
    found = {"as trained": task, "another family": replace(task, **family)}
    for scale in SCALES:
        found[f"functions × {scale:g}"] = task.scaled(functions=scale)
    for scale in SCALES:
        found[f"inputs × {scale:g}"] = task.scaled(inputs=scale)

    # Laws whose scales are drawn.
    low = math.log(min(SCALES))
    high = math.log(max(SCALES))
    draw = generator(lab.seed, "limits/drawn laws")
    shares = torch.rand(DRAWN, 2, generator=draw).double()
    scales = (low + (high - low) * shares).exp()
    for functions, inputs in scales.tolist():
        name = f"functions × {functions:.2g}, inputs × {inputs:.2g}"
        found[name] = task.scaled(functions=functions, inputs=inputs)
    return found


@measurement("in context/laws")
def by_law(lab: Lab) -> DataArray:
    """Squared errors under several laws of functions and inputs: (predictor, law, unit).

    Of the model and of the law's mean, from the point on at which the examples determine the
    function. Each law has prompts of its own.
    """
    tasks = laws(lab)
    shape = (2, len(tasks), lab.n_units)
    values = np.empty(shape)
    for i, task in enumerate(tasks.values()):
        draw = generator(lab.seed, "limits/laws", i)
        if task.paired:
            prompts = task.sample_pairs(lab.n_units, draw, dtype=torch.float64)
        else:
            prompts = task.sample(lab.n_units, draw, n_contexts=2, dtype=torch.float64)
        square = squared_errors(lab, prompts)
        last = task.n_points - 1
        guess = (task.expected(prompts.xs) - prompts.ys).square().mean(-1)
        # Where attention looks both ways a model says something at the query alone.
        guess = guess.masked_fill(square.isnan(), torch.nan)
        first = min(task.n_determining, last)
        values[0, i] = per_unit(square[:, first:], lab.n_units)
        values[1, i] = per_unit(guess[:, first:], lab.n_units)
    who = ("model", "law's mean")
    names = tuple(tasks)
    units = range(lab.n_units)
    axes = {"predictor": who, "law": names, "unit": units}
    return make_array(values, axes, note="two prompts a unit; float32")
