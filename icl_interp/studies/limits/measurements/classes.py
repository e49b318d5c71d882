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
    if facts.task_kind != "Polynomial":
        return (
            f"The claim is about polynomials of one number; this model's task is {facts.task_kind}."
        )
    return None


def polynomial_in(facts: Facts) -> Polynomial:
    """The task that a report knows of: no other is measured, see `needs_polynomials`."""
    assert isinstance(facts.task, Polynomial)
    return facts.task


def singles(roles: Iterable[Role]) -> dict[int, Role]:
    """Companions that were trained on one degree each: role by degree."""
    return {role.degrees[0]: role for role in roles if len(role.degrees) == 1 and not role.further}


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
    shape = (lab.n_units, 1, _n_contexts(lab), lab.task.n_points, 1)
    drawn = lab.task.inputs.sample(shape, generator(lab.seed, "classes/inputs"), torch.float64)
    return drawn.expand(-1, _functions(lab), -1, -1, -1).flatten(0, 2)


def polynomials(lab: Lab, degree: int) -> Prompts:
    """Polynomials of one degree: every degree has the same inputs and the same first coefficients.

    So a difference between two degrees is what the further coefficients make, and errors are paired
    by function. The partner of coefficients a has 2 m - a, with m the mean of their law.
    """
    law = polynomial_task(lab).coefficients
    columns = [
        law.sample((lab.n_units,), generator(lab.seed, "classes/coefficient", k), torch.float64)
        for k in range(degree + 1)
    ]
    own = torch.stack(columns, -1)
    xs, parameters = inputs(lab), _each(lab, own, 2 * law.mean - own)
    return _prompts(lab, xs, polynomial_task(lab).targets(parameters, xs), parameters)


def drawn_powers(lab: Lab) -> Prompts:
    """Polynomials of powers that are drawn: each power up to the largest is kept with a chance of one half.

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
    parameters = full.parameters * keep.repeat_interleave(prompts_per_unit(lab), 0)
    return _prompts(lab, full.xs, task.targets(parameters, full.xs), parameters)


def unseen_inside(task: Polynomial) -> list[int]:
    """Degrees from 1 up, below the largest trained on, that were not trained on."""
    return [d for d in range(1, task.max_degree) if d not in task.degrees]


def sinusoids(lab: Lab) -> Prompts:
    """A class that is truly outside: sinusoids that change sign once more than any polynomial the model was trained on.

    They have (n + 1) / 2 periods over the inputs' interval, for the largest degree n, a phase of
    their own each, and the mean square of the polynomials of that degree. The partner of a sinusoid
    is its negative.
    """
    task, xs = polynomial_task(lab), inputs(lab)
    low, high = task.inputs.interval
    amplitude = polynomials(lab, task.max_degree).ys.square().mean().mul(2).sqrt()
    frequency = math.pi * (task.max_degree + 1) / (high - low)
    phase = (
        2
        * math.pi
        * torch.rand(lab.n_units, 1, generator=generator(lab.seed, "classes/phase")).double()
    )
    parameters = _each(lab, phase, phase + math.pi)
    return _prompts(
        lab, xs, amplitude * torch.sin(frequency * xs + parameters[:, None]), parameters
    )


def _each(lab: Lab, own: Tensor, partners: Tensor) -> Float[Tensor, "batch parameter"]:
    """The parameters of each prompt, from those of each unit's function and of its partner, if it has one."""
    functions = torch.stack([own, partners][: _functions(lab)], 1)  # (unit, function, parameter)
    return functions.flatten(0, 1).repeat_interleave(_n_contexts(lab), 0)


def _prompts(lab: Lab, xs: Tensor, ys: Tensor, parameters: Tensor) -> Prompts:
    return Prompts(xs, ys, parameters, torch.arange(len(xs)) // _n_contexts(lab))


def squared_errors(predictor: Predictor, prompts: Prompts) -> Float[Tensor, "batch point"]:
    """Squared error at every point; NaN where the predictor says nothing."""
    return (predictions(predictor, prompts) - prompts.ys).square().mean(-1)


def per_unit(values: Float[Tensor, "batch point"], n_units: int) -> Float[np.ndarray, " unit"]:
    """Mean over the points that have a value and over the prompts of each unit."""
    return values.nanmean(-1).view(n_units, -1).mean(-1).numpy()


# ---- measurements --------------------------------------------------------------------------------


@measurement("classes/errors", version=3)
def errors(lab: Lab) -> DataArray:
    """Squared error of each unit of each class, for the model, its companions and the zero predictor.

    Classes: every degree up to one more than the largest trained on, polynomials of drawn powers,
    and sinusoids. A companion trained on one degree is measured on that degree. Points: "own" from
    the class's own n + 2nd on (section 3.3), "late" the same last points for all classes. "least
    squares" has the features of the largest degree; it is measured where these do not suffice. NaN
    where nothing was measured.
    """
    task, n_points = polynomial_task(lab), lab.task.n_points
    roles = singles(lab.companions)
    companions = {degree: str(role) for degree, role in roles.items()}
    top = task.max_degree + 1
    degrees = [d for d in sorted({*range(1, top + 1), *companions}) if d and d + 1 < n_points]
    classes = {f"degree {d}": d for d in degrees} | dict.fromkeys((DRAWN, OUTSIDE))
    predictors = ["model", *companions.values(), "least squares", "zero"]
    late = min(max(n_points // 2, top + 1), n_points - 1)
    values = np.full((len(predictors), len(classes), 2, lab.n_units), np.nan)
    for column, (name, degree) in enumerate(classes.items()):
        prompts = (
            polynomials(lab, degree)
            if degree
            else drawn_powers(lab)
            if name == DRAWN
            else sinusoids(lab)
        )
        first = degree + 1 if degree else task.n_determining
        found: dict[str, Tensor] = {}
        if degree is None or degree <= top:
            found["model"] = squared_errors(lab, prompts)
        if degree in companions:
            found[companions[degree]] = squared_errors(lab.companions[roles[degree]], prompts)
        if name == OUTSIDE or (degree and degree > task.max_degree):
            found["least squares"] = squared_errors(LeastSquares(task), prompts)
        # Where a model predicts nothing (all but the query when attention looks both ways) nobody
        # is scored.
        silent = torch.stack(list(found.values())).isnan().any(0)
        found["zero"] = prompts.ys.square().mean(-1)
        for predictor, square in found.items():
            square = square.masked_fill(silent, torch.nan)
            rows = [
                per_unit(square[:, start:], lab.n_units)
                for start in (min(first, n_points - 1), late)
            ]
            values[predictors.index(predictor), column] = rows
    axes = {
        "predictor": tuple(predictors),
        "class": tuple(classes),
        "points": ("own", "late"),
        "unit": tuple(range(lab.n_units)),
    }
    return make_array(
        values,
        axes,
        note=f"{prompts_per_unit(lab)} prompts a unit, the same inputs for every class; float32",
    )
