"""The weight of each example in a prediction, and how much lies near the query.

It is measured of any model of ridge functions.

The weight of an example is the derivative of the prediction with respect to its label. For a
softmax unit that is its attention weight, for linear attention x_i^T M x_q / n. The share of the
absolute weights within a cap around the query is compared with that of two kernels on the same
prompts: x_i^T x_q, which has no window and no parameter that could make one, and the window that is
best for the task. The cap is where that window has half of its largest weight.
"""

import math
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.facts import Facts, needs_task
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.interventions.base import Intervention, intervene
from icl_interp.prompts import Prompts
from icl_interp.results import make_array, make_curve
from icl_interp.studies.lipschitz.measurements.transfer_errors import on_unit_sphere
from icl_interp.studies.lipschitz.measurements.unit import task_in, task_of
from icl_interp.studies.lipschitz.measurements.window_losses import best_window
from icl_interp.tasks.ridge import RidgeFunction

MODEL = "model"
PLAIN = "x_i . x_q"
WINDOW = "best window"
# Neither linear nor even: an even function has no linear part to find.
LINKS = ("relu", "phased_cosine")
ANGLES = 2000  # at which f is read for its linear part
BINS = 20  # of the cosine


def needs_linear_attention(facts: Facts) -> str | None:
    """Why there is no linear attention on functions that are not linear."""
    if reason := needs_task(facts, RidgeFunction):
        return reason
    task = task_in(facts)
    cfg = facts.config
    if cfg.mlp_only or cfg.score_fn != "linear" or facts.encoding != "stacked":
        return (
            "The claim is about linear attention on stacked prompts; this model has another design"
        )
    if task.link not in LINKS:
        asked = " or ".join(LINKS)
        return (
            f"The claim is about functions that are neither linear nor even ({asked}); this task's "
            f"are {task.link}"
        )
    if not on_unit_sphere(task):
        return (
            "The claim is about functions of all directions of inputs on the unit sphere, with "
            "sigma the identity"
        )
    return None


def half_weight_cosine(w: float) -> float:
    """The cosine to the query at which the window w has half of its largest weight.

    It is -1 where the window has more everywhere.

    >>> round(half_weight_cosine(math.log(2) / (1 - 0.5)), 12)
    0.5
    """
    return max(-1.0, 1 - math.log(2) / w)


def label_weights(
    lab: Lab, prompts: Prompts, *interventions: Intervention
) -> tuple[Float[Tensor, "batch example"], Float[Tensor, " batch"]]:
    """The derivative of the prediction with respect to each label, and the prediction.

    Both are those at the query.
    """
    dim = prompts.xs.shape[-1]
    last = lab.encoding.n_tokens(prompts.n_points) - 1
    weights = []
    out = []
    for rows in lab.chunks(prompts):
        tokens = lab.tokens(prompts[rows]).requires_grad_(True)
        with torch.enable_grad(), intervene(lab.model, *interventions):
            predictions = lab.model(tokens, range(last, last + 1))[:, 0, 0]
            (slopes,) = torch.autograd.grad(predictions.sum(), tokens, materialize_grads=True)
        weights.append(slopes[:, :-1, dim].cpu())
        out.append(predictions.detach().cpu())
    return torch.cat(weights), torch.cat(out)


def share_near(
    weights: Float[Tensor, "batch example"], cosines: Float[Tensor, "batch example"], edge: float
) -> Float[Tensor, " batch"]:
    """The share of each prompt's absolute weights that lies within the cap cos >= edge.

    It is NaN where all weights are 0.
    """
    size = weights.abs()
    near = size * (cosines >= edge)
    return near.sum(1) / size.sum(1)


def nonlinear_part(task: RidgeFunction, prompts: Prompts) -> Float[Tensor, " batch"]:
    """f(x_q) - a . x_q, which no linear function of the query has.

    The a is the best one for each f over the sphere.

    By symmetry a is a multiple of q, d E f(x) <q, x>, which is a mean over the angle between x and
    q.
    """
    d = task.dim
    q = prompts.parameters[:, :d].double()
    angles = math.pi * (torch.arange(ANGLES, dtype=torch.float64) + 0.5) / ANGLES
    density = angles.sin() ** (d - 2)
    density = density / density.sum()
    z = angles.cos()
    points = z[None, :, None] * q[:, None]
    along = task.value(prompts.parameters.double(), points)
    slope = d * (along * z) @ density
    query = prompts.xs[:, -1].double()
    truth = prompts.ys[:, -1, 0]
    return truth - slope * (query * q).sum(-1)


def opposite(task: RidgeFunction, prompts: Prompts) -> Prompts:
    """The same examples before the opposite query, with the value of f there."""
    xs = prompts.xs.clone()
    ys = prompts.ys.clone()
    xs[:, -1] = -xs[:, -1]
    truth = task.targets(prompts.parameters, xs[:, -1:])[:, 0]
    ys[:, -1] = truth.to(ys)
    return replace(prompts, xs=xs, ys=ys)


def _cosines(prompts: Prompts) -> Float[Tensor, "batch example"]:
    """Of each example to the query, on the unit sphere."""
    return torch.einsum("bid,bd->bi", prompts.xs[:, :-1], prompts.xs[:, -1])


@measurement("lipschitz/label weights", version=2)
def label_weights_near(lab: Lab) -> DataArray:
    """Share of the weights near the query; squared error, prediction and truth.

    The share is given of the model and of two kernels.

    A mean over the prompts of a unit: (number, unit). Each is shown with its query and with the
    opposite one, so that what is odd and what is even about the query do not mix by chance. "least"
    is the squared error at the query of the best linear function a . x_q for each f. "edge" is the
    cosine at which the cap ends, the same for all units. "weights" is the sum of the model's
    absolute weights, "weights beside attention" the same with all heads at their mean outputs, when
    nothing reads the examples but what stands beside attention.
    """
    task = task_of(lab)
    w = float(best_window(task).window)
    edge = half_weight_cosine(w)
    sides: list[dict[str, Float[Tensor, " batch"]]] = []
    turned = opposite(task, lab.prompts)
    for prompts in (lab.prompts, turned):
        cosines = _cosines(prompts)
        weights, out = label_weights(lab, prompts)
        beside, _ = label_weights(lab, prompts, lab.head_means)
        truth = prompts.ys[:, -1, 0]
        kernels = {MODEL: weights, PLAIN: cosines, WINDOW: (w * cosines).softmax(1)}
        side = {}
        for name, one in kernels.items():
            side[f"share, {name}"] = share_near(one, cosines, edge)
        side["weights"] = weights.abs().sum(1)
        side["weights beside attention"] = beside.abs().sum(1)
        side["error"] = (out - truth).square()
        rest = nonlinear_part(task, prompts)
        side["least"] = rest.square()
        side["prediction^2"] = out.square()
        side["truth^2"] = truth.square()
        side["edge"] = 0 * truth + edge
        sides.append(side)

    # The mean over a query and its opposite.
    first, second = sides
    values = [lab.by_unit((first[name] + second[name]) / 2) for name in first]
    note = (
        "near: cosine to the query at least the edge, where the best window has half of its "
        "largest weight"
    )
    axes = {"number": tuple(first), "unit": tuple(range(lab.n_units))}
    return make_array(values, axes, note=note)


@measurement("lipschitz/label weights by cosine")
def by_cosine(lab: Lab) -> DataArray:
    """Mean weight of examples by their cosine to the query: (kernel, cosine).

    It is over the mean size of weights.
    """
    task = task_of(lab)
    prompts = lab.few
    cosines = _cosines(prompts)
    w = float(best_window(task).window)
    weights, _ = label_weights(lab, prompts)
    kernels = {MODEL: weights, PLAIN: cosines, WINDOW: (w * cosines).softmax(1)}

    # The bin of each example, and how many examples a bin has.
    edges = torch.linspace(-1, 1, BINS + 1, dtype=torch.float64)
    above = torch.bucketize(cosines.clamp(-1, 1), edges, right=True)
    place = (above - 1).clamp(0, BINS - 1).flatten()
    count = torch.bincount(place, minlength=BINS).clamp(min=1)
    rows = []
    for one in kernels.values():
        size = float(one.abs().mean())
        sums = torch.bincount(place, weights=one.flatten(), minlength=BINS)
        rows.append(sums / count / size if size > 0 else sums * 0)
    centres = (edges[1:] + edges[:-1]) / 2
    axes = {"kernel": tuple(kernels), "cosine": tuple(centres.tolist())}
    note = "mean weight in a bin, over the mean absolute weight"
    return make_curve(torch.stack(rows).numpy(), axes, note=note)
