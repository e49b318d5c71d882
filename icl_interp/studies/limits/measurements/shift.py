"""Models beside their companions, inside and beyond the training range: the measurements of the claims on shifts.

Everybody meets the same functions and inputs, so that differences are paired by function.
"""

from typing import Any

import numpy as np
from torch import Tensor
from xarray import DataArray

from icl_interp import evaluation
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import GRID, Lab
from icl_interp.analyses.measurement import Planned, measurement
from icl_interp.checkpoints.companions import Role
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import as_numbers
from icl_interp.results import make_array, make_curve
from icl_interp.studies.limits.measurements import far
from icl_interp.studies.limits.measurements.boundary import gap_to_end
from icl_interp.tasks.base import Scalable
from icl_interp.tasks.distributions import Uniform

RELATED = ("no norm", "with norm", "wider", "narrower", "another seed")
SIGMAS = (1.0, 2.0, 5.0, 10.0)  # of Table 1: the functions' U(-sigma, sigma)
N_CONTEXTS = 3
N_FEW = 2  # contexts a function where three models or more are compared
INSIDE = np.array([0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0])  # of the half-width of the inputs' interval
COARSE = np.array([s * 10.0**k for s in (-1, 1) for k in np.arange(-1, 6.1, 0.5)])


def family(lab: Lab) -> dict[Role, Checkpoint]:
    """Companions that differ in norm, width or seed, each before the one that differs from it by its seed only."""
    roles = (Role(kind, another_seed=seed) for kind in RELATED for seed in (False, True))
    return {role: lab.companions[role] for role in roles if role in lab.companions}


def untrained(lab: Lab) -> dict[str, Lab]:
    """Benches with fresh weights of the model's config and its companions'; other seeds of one share theirs."""
    labs = {"model": lab_with(lab, fresh(lab, lab.model))}
    for role, other in family(lab).items():
        alike = "model" if role.kind == "another seed" else role.kind
        labs[str(role)] = labs[alike] if alike in labs else lab_with(lab, fresh(lab, other.model))
    return labs


def fresh(lab: Lab, model: HookedTransformer, number: int = 0) -> HookedTransformer:
    """An untrained model of the same config."""
    return HookedTransformer(model.cfg, seed=lab.seed + 1 + number).eval()


def lab_with(lab: Lab, model: HookedTransformer, **settings: Any) -> Lab:
    """The same bench with another model."""
    sizes = {"n_functions": lab.n_functions, "n_contexts": N_FEW, "seed": lab.seed, "device": lab.device}
    return Lab(model, settings.pop("task", lab.task), lab.encoding, **sizes)


def half_width(task: Any) -> float | None:
    """a, where inputs and coefficients of a task both come from U(-a, a)."""
    inputs, coefficients = getattr(task, "inputs", None), getattr(task, "coefficients", None)
    if inputs != coefficients or not isinstance(inputs, Uniform) or inputs.low != -inputs.high:
        return None
    return float(inputs.high)


def own_interval(facts: Facts) -> float | None:
    """`half_width` of the model's own task."""
    return half_width(facts.task)


def by_interval(lab: Lab) -> dict[float, Checkpoint | None]:
    """Models by the a of their U(-a, a), ascending; None stands for the lab's own."""
    own = half_width(lab.task)
    if own is None:
        return {}
    found: dict[float, Checkpoint | None] = {own: None}
    for role, other in lab.companions.items():
        a = half_width(other.task)
        if role.kind == "interval" and not role.another_seed and a is not None:
            found[a] = other
    return dict(sorted(found.items()))


# ---- one companion in one respect -----------------------------------------------------------------------------------


@measurement("shift/functions")
def functions(lab: Lab) -> DataArray:
    """Errors as functions are scaled, of the model and of companions with or without norm, wider, of another seed."""
    predictors = {"model": lab, **{str(role): other for role, other in family(lab).items()}}
    return evaluation.shifted(
        predictors, lab.task, SIGMAS, n_functions=lab.n_functions, n_contexts=N_CONTEXTS, seed=lab.seed
    )


@measurement("shift/functions, untrained")
def functions_untrained(lab: Lab) -> DataArray:
    """Errors in distribution of untrained models of the same configs."""
    return evaluation.shifted(
        untrained(lab), lab.task, SIGMAS[:1], n_functions=lab.n_functions, n_contexts=N_FEW, seed=lab.seed
    )


@measurement("shift/inside")
def inside(lab: Lab) -> DataArray:
    """Squared error at queries across the inputs' interval, of the model and its companions, trained and untrained.

    Axes: arm, predictor, function, and |x| as a share of the interval's half-width; both sides count.
    """
    low, high = lab.task.inputs.interval
    middle, half = (low + high) / 2, (high - low) / 2
    xs = np.concatenate([middle + half * INSIDE, middle - half * INSIDE])
    truth = lab.truth(xs, lab.small_sample)
    trained = {"model": lab, **{str(role): lab_with(lab, other.model) for role, other in family(lab).items()}}
    rows, done = [], {}
    for labs in (trained, untrained(lab)):
        for lab_of_model in labs.values():
            if id(lab_of_model) not in done:
                square = (lab_of_model.sweep(xs, prompts=lab.small_sample) - truth).square().mean(-1)
                done[id(lab_of_model)] = lab.by_function(square).reshape(lab.n_functions, 2, len(INSIDE)).mean(1)
            rows.append(done[id(lab_of_model)])
    values = np.reshape(rows, (2, len(trained), lab.n_functions, len(INSIDE)))
    axes = {
        "arm": ("trained", "untrained"),
        "predictor": tuple(trained),
        "function": tuple(range(lab.n_functions)),
        "share": tuple(INSIDE),
    }
    return make_curve(values, axes, note="query arm, within the inputs' interval; 2 contexts a function; float64")


# ---- training intervals ---------------------------------------------------------------------------------------------


@measurement("shift/intervals")
def intervals(lab: Lab) -> DataArray:
    """Errors of models trained on U(-a, a), tested on U(-sigma, sigma) for each of their a.

    Arms: both, inputs and functions from U(-sigma, sigma); functions, with inputs from the smallest interval (Table 3);
    untrained, the first with fresh weights.
    """
    models, own = by_interval(lab), half_width(lab.task)
    assert own is not None  # there are models with an interval
    assert isinstance(lab.task, Scalable)
    sizes = list(models)
    smallest = lab.task.scaled(functions=sizes[0] / own, inputs=sizes[0] / own)
    predictors = {str(a): other or lab for a, other in models.items()}
    blank = {str(a): lab_with(lab, fresh(lab, (other or lab).model, i)) for i, (a, other) in enumerate(models.items())}
    runs = {"both": (predictors, "both"), "functions": (predictors, "functions"), "untrained": (blank, "both")}
    values, note = [], ""
    for who, arm in runs.values():
        errors = evaluation.shifted(
            who,
            smallest,
            [a / sizes[0] for a in sizes],
            arm=arm,
            n_functions=lab.n_functions,
            n_contexts=1 if who is blank else N_FEW,
            seed=lab.seed,
        )
        values.append([errors.sel(predictor=name).values for name in (*who, "zero")])
        note = note or errors.attrs["note"]
    axes = {
        "arm": tuple(runs),
        "predictor": (*predictors, "zero"),
        "sigma": tuple(sizes),
        "function": tuple(range(lab.n_functions)),
    }
    return make_array(values, axes, note=note.partition(";")[0])


def _gaps(lab_of_model: Lab, f: Tensor, xs: np.ndarray) -> np.ndarray:
    """Squared distance of f from its own end in units of r: (function, x)."""
    r = lab_of_model.measure(far.certificate).iloc[0]["r"]
    return lab_of_model.by_function((gap_to_end(f, xs) / r).square())


@measurement("shift/onsets")
def onsets(lab: Lab) -> Planned[DataArray]:
    """How models trained on different intervals run into their plateaus, each on contexts of its own interval.

    Values: squared distance of f from its end, at 1e6 units of this model's task, in units of each model's own r.
    """
    models, xs, values = by_interval(lab), lab.x_unit * COARSE, []
    for other in models.values():
        if other is None:
            columns = [int(np.argmin(np.abs(GRID - x))) for x in COARSE]
            f = as_numbers((yield from lab.on_grid()))
            values.append(_gaps(lab, f[:, columns], xs))
        else:
            lab_of_model = lab_with(lab, other.model, task=other.task)
            values.append(_gaps(lab_of_model, as_numbers(lab_of_model.sweep(xs)), xs))
    axes = {"interval": tuple(models), "function": tuple(range(lab.n_functions)), "x": tuple(xs)}
    return make_curve(values, axes, note="query arm; float64")


@measurement("shift/onsets, untrained")
def onsets_untrained(lab: Lab) -> DataArray:
    """`shift/onsets` with fresh weights, at one point a decade, on one context a function."""
    models, xs, values = by_interval(lab), lab.x_unit * np.sort(far.DECADES), []
    for i, other in enumerate(models.values()):
        lab_of_model = lab_with(lab, fresh(lab, (other or lab).model, i), task=(other or lab).task)
        values.append(_gaps(lab_of_model, as_numbers(lab_of_model.sweep(xs, prompts=lab_of_model.one_each)), xs))
    return make_curve(values, {"interval": tuple(models), "function": tuple(range(lab.n_functions)), "x": tuple(xs)})
