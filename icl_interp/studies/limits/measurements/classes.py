"""Prompts of every class of functions on one bench, and what models make of them.

Classes share their inputs and, degree by degree, their coefficients, so that errors are paired by
function. Prompts come in units, as everywhere: an antithetic pair of functions, or one function
where their law has no symmetry.
"""

import math
from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.baselines.base import Predictor, predictions
from icl_interp.baselines.regression import LeastSquares
from icl_interp.checkpoints.companions import Role
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.tasks.functions import Polynomial

OUTSIDE = "sinusoid"  # the class that no polynomial of the trained degrees comes near
DRAWN = "drawn powers"  # polynomials of some powers only, another choice for each function


# ---- what the model was trained on ---------------------------------------------------------------


def needs_polynomials(facts: Facts) -> str | None:
    """Why a claim about polynomials cannot apply."""
    kind = facts.task_kind
    if kind != "Polynomial":
        return f"The claim is about polynomials of one number; this model's task is {kind}."
    return None


def polynomial_in(facts: Facts) -> Polynomial:
    """The task that a report knows of: no other is measured, see `needs_polynomials`."""
    assert isinstance(facts.task, Polynomial)
    return facts.task


def singles(roles: Iterable[Role]) -> dict[int, Role]:
    """Companions that were trained on one degree each: role by degree."""
    found = {}
    for role in roles:
        if len(role.degrees) == 1 and not role.further:
            degree = role.degrees[0]
            found[degree] = role
    return found


# ---- prompts of every class ----------------------------------------------------------------------


def polynomial_task(lab: Lab) -> Polynomial:
    """The lab's task."""
    assert isinstance(lab.task, Polynomial)  # no other is measured: see `needs_polynomials`
    return lab.task


def prompts_per_unit(lab: Lab) -> int:
    """Prompts of each unit, as many as the lab's.

    With a quarter of them a few contexts decided: of `degrees_135` the ratio of `unseen_classes`
    had a standard error of 0.04 to 0.08 decades, by the seed; with all it is 0.04 for each of four
    seeds.
    """
    return lab.unit_size


def _functions(lab: Lab) -> int:
    """Functions of each unit."""
    return 2 if lab.task.paired else 1


def _n_contexts(lab: Lab) -> int:
    return prompts_per_unit(lab) // _functions(lab)


def inputs(lab: Lab) -> Float[Tensor, "batch point dim"]:
    """The inputs that the prompts of every class share.

    Partners of a pair have the same, context by context.
    """
    task = lab.task
    shape = (lab.n_units, 1, _n_contexts(lab), task.n_points, 1)
    draw = generator(lab.seed, "classes/inputs")
    drawn = task.inputs.sample(shape, draw, torch.float64)
    for_partners = drawn.expand(-1, _functions(lab), -1, -1, -1)
    return for_partners.flatten(0, 2)


def polynomials(lab: Lab, degree: int) -> Prompts:
    """Polynomials of one degree: every degree has the same inputs and the same first coefficients.

    So a difference between two degrees is what the further coefficients make, and errors are paired
    by function. The partner of coefficients a has 2 m - a, with m the mean of their law.
    """
    task = polynomial_task(lab)
    law = task.coefficients
    columns = []
    for k in range(degree + 1):
        draw = generator(lab.seed, "classes/coefficient", k)
        column = law.sample((lab.n_units,), draw, torch.float64)
        columns.append(column)
    own = torch.stack(columns, -1)
    partners = 2 * law.mean - own
    parameters = _each(lab, own, partners)
    xs = inputs(lab)
    ys = task.targets(parameters, xs)
    return _prompts(lab, xs, ys, parameters)


def drawn_powers(lab: Lab) -> Prompts:
    """Polynomials of drawn powers: each power up to the largest is kept with chance one half.

    x + x^5 and 1 + x^2 are such, so a function's class is known to nobody beforehand. At least one
    power from 1 up is kept, the same ones in partners. The largest power is the largest degree
    trained on; one more where all degrees up to it were trained on, since nothing below is new
    then.
    """
    task = polynomial_task(lab)
    top = task.max_degree + (not unseen_inside(task))
    full = polynomials(lab, top)
    draw = generator(lab.seed, "classes/powers")
    keep = torch.rand(lab.n_units, top + 1, generator=draw) < 0.5
    some = 1 + torch.randint(top, (lab.n_units,), generator=draw)
    keep[torch.arange(lab.n_units), some] = True
    kept = keep.repeat_interleave(prompts_per_unit(lab), 0)
    parameters = full.parameters * kept
    ys = task.targets(parameters, full.xs)
    return _prompts(lab, full.xs, ys, parameters)


def unseen_inside(task: Polynomial) -> list[int]:
    """Degrees from 1 up, below the largest trained on, that were not trained on."""
    return [d for d in range(1, task.max_degree) if d not in task.degrees]


def sinusoids(lab: Lab) -> Prompts:
    """A class that is truly outside: sinusoids with one sign change more than the polynomials.

    The polynomials are those that the model was trained on. The sinusoids have (n + 1) / 2 periods
    over the inputs' interval, for the largest degree n, a phase of their own each, and the mean
    square of the polynomials of that degree. The partner of a sinusoid is its negative.
    """
    task = polynomial_task(lab)
    xs = inputs(lab)
    low, high = task.inputs.interval
    top = task.max_degree
    largest = polynomials(lab, top)
    mean_square = largest.ys.square().mean()
    amplitude = mean_square.mul(2).sqrt()
    frequency = math.pi * (top + 1) / (high - low)
    draw = generator(lab.seed, "classes/phase")
    turn = torch.rand(lab.n_units, 1, generator=draw).double()
    phase = 2 * math.pi * turn
    parameters = _each(lab, phase, phase + math.pi)
    angle = frequency * xs + parameters[:, None]
    ys = amplitude * torch.sin(angle)
    return _prompts(lab, xs, ys, parameters)


def _each(lab: Lab, own: Tensor, partners: Tensor) -> Float[Tensor, "batch parameter"]:
    """The parameters of each prompt, from those of each unit's function and of its partner.

    A unit has a partner where functions come in pairs.
    """
    of_unit = [own, partners][: _functions(lab)]
    functions = torch.stack(of_unit, 1)  # (unit, function, parameter)
    return functions.flatten(0, 1).repeat_interleave(_n_contexts(lab), 0)


def _prompts(lab: Lab, xs: Tensor, ys: Tensor, parameters: Tensor) -> Prompts:
    function = torch.arange(len(xs)) // _n_contexts(lab)
    return Prompts(xs, ys, parameters, function)


def squared_errors(predictor: Predictor, prompts: Prompts) -> Float[Tensor, "batch point"]:
    """Squared error at every point; NaN where the predictor says nothing."""
    error = predictions(predictor, prompts) - prompts.ys
    return error.square().mean(-1)


def per_unit(values: Float[Tensor, "batch point"], n_units: int) -> Float[np.ndarray, " unit"]:
    """Mean over the points that have a value and over the prompts of each unit."""
    over_points = values.nanmean(-1)
    by_unit = over_points.view(n_units, -1)
    return by_unit.mean(-1).numpy()


# ---- measurements --------------------------------------------------------------------------------


@measurement("classes/errors", version=3)
def errors(lab: Lab) -> DataArray:
    """Squared error of each unit of each class, for the model, its companions and predicting 0.

    Classes: every degree up to one more than the largest trained on, polynomials of drawn powers,
    and sinusoids. A companion trained on one degree is measured on that degree. Points: "own" from
    the class's own n + 2nd on (section 3.3), "late" the same last points for all classes. "least
    squares" has the features of the largest degree; it is measured where these do not suffice. NaN
    where nothing was measured.
    """
    task = polynomial_task(lab)
    n_units = lab.n_units
    n_points = task.n_points
    query = n_points - 1
    roles = singles(lab.companions)
    companions = {degree: str(role) for degree, role in roles.items()}
    predictors = ["model", *companions.values(), "least squares", "zero"]

    # Classes by name, with the degree of those that have one.
    top = task.max_degree + 1
    classes: dict[str, int | None] = {}
    for degree in sorted({*range(1, top + 1), *companions}):
        if degree and degree + 1 < n_points:
            classes[f"degree {degree}"] = degree
    classes[DRAWN] = None
    classes[OUTSIDE] = None

    late = min(max(n_points // 2, top + 1), query)
    values = np.full((len(predictors), len(classes), 2, n_units), np.nan)
    for column, (name, degree) in enumerate(classes.items()):
        first = task.n_determining
        if degree:
            prompts = polynomials(lab, degree)
            first = degree + 1
        elif name == DRAWN:
            prompts = drawn_powers(lab)
        else:
            prompts = sinusoids(lab)
        found: dict[str, Tensor] = {}
        if degree is None or degree <= top:
            found["model"] = squared_errors(lab, prompts)
        if degree in companions:
            companion = lab.companions[roles[degree]]
            found[companions[degree]] = squared_errors(companion, prompts)
        if name == OUTSIDE or (degree and degree > task.max_degree):
            found["least squares"] = squared_errors(LeastSquares(task), prompts)
        # Where a model predicts nothing (all but the query when attention looks both ways) nobody
        # is scored.
        errors_of_all = torch.stack(list(found.values()))
        silent = errors_of_all.isnan().any(0)
        found["zero"] = prompts.ys.square().mean(-1)
        own = min(first, query)
        for predictor, square in found.items():
            row = predictors.index(predictor)
            scored = square.masked_fill(silent, torch.nan)
            values[row, column, 0] = per_unit(scored[:, own:], n_units)
            values[row, column, 1] = per_unit(scored[:, late:], n_units)
    axes = {
        "predictor": tuple(predictors),
        "class": tuple(classes),
        "points": ("own", "late"),
        "unit": tuple(range(n_units)),
    }
    size = prompts_per_unit(lab)
    note = f"{size} prompts a unit, the same inputs for every class; float32"
    return make_array(values, axes, note=note)
