"""Weights that carry out steps of descent, and weights that do something else."""

import functools

import torch

from icl_interp.experiments.calibration import NO, OPEN, YES, Case, Construction, between
from icl_interp.models.blank import blank
from icl_interp.models.constructed import EXAMPLES, descent, gd_plus_plus
from icl_interp.models.softmax_unit import SoftmaxAttention
from icl_interp.studies.gradient_descent.claims.steps import STEPS_CLAIM
from icl_interp.tasks.regression import LinearRegression

STEPS = STEPS_CLAIM.id
DIM = 4
TASK = LinearRegression(n_dims=DIM, n_points=21)


def of_one_size(layers: int, g: torch.Generator) -> Case:
    """Descent with one size, a step a layer."""
    size = between(g, 0.3, 0.6)
    return Case(descent(TASK.n_points, (size,) * layers, DIM), TASK)


def preconditioned(g: torch.Generator) -> Case:
    """Two steps of descent with a drawn matrix and a size a step."""
    matrix = torch.eye(DIM) + 0.2 * torch.randn(DIM, DIM, generator=g)
    first = between(g, 0.3, 0.5)
    second = between(g, 0.3, 0.5)
    return Case(descent(TASK.n_points, (first * matrix, second * matrix), DIM), TASK)


def plus_plus(g: torch.Generator) -> Case:
    """Two steps of GD++ with drawn sizes."""
    sizes = (between(g, 0.3, 0.5), between(g, 0.3, 0.5))
    shrinks = (between(g, 0.1, 0.2), between(g, 0.1, 0.2))
    return Case(gd_plus_plus(TASK.n_points, sizes, shrinks, DIM), TASK)


def idle(g: torch.Generator) -> Case:
    """A step of descent, and a layer that does nothing: without the step nothing is left."""
    size = between(g, 0.3, 0.6)
    return Case(descent(TASK.n_points, (size, 0.0), DIM), TASK)


def going_up(layers: int, g: torch.Generator) -> Case:
    """Steps against those of descent: each makes the error of the examples larger."""
    size = between(g, 0.2, 0.5)
    return Case(descent(TASK.n_points, (-size,) * layers, DIM), TASK)


def down_and_up(g: torch.Generator) -> Case:
    """A step of descent, and one of half its size back."""
    size = between(g, 0.4, 0.6)
    return Case(descent(TASK.n_points, (size, -size / 2), DIM), TASK)


def side_by_side(layers: int, g: torch.Generator) -> Case:
    """One step, of which each layer takes a part: none reads what another one writes."""
    case = of_one_size(layers, g)
    model = case.model
    written = DIM + 1  # a coordinate beside the label, which stays as it is
    wider = blank(
        DIM + 2, n_layers=layers, d_head=DIM + 1, n_ctx=TASK.n_points, d_in=DIM + 1, **EXAMPLES
    )
    with torch.no_grad():
        wider.embed.W_E.fill_diagonal_(1)
        wider.unembed.W_U[written, 0] = -1
        for block, other in zip(wider.blocks, model.blocks, strict=True):
            attention = block.attn
            attention.W_Q[:, : DIM + 1] = other.attn.W_Q / layers
            attention.W_K[:, : DIM + 1] = other.attn.W_K
            attention.W_V[:, : DIM + 1] = other.attn.W_V
            attention.W_O[0, DIM, written] = 1
    return Case(wider, TASK)


def shift_of(distance: float) -> float:
    """How much of x_1 labels need for a D of descent to the shifted function.

    Descent to w + c e_1 is the same linear map of both parts. Functions have w ~ N(0, I), and steps
    with the same map are the nearest, so D = c^2 / (d + c^2).

    >>> c = shift_of(0.2)
    >>> round(c**2 / (DIM + c**2), 9)
    0.2
    """
    return (DIM * distance / (1 - distance)) ** 0.5


def shifted(shift: float, g: torch.Generator, layers: int = 2) -> Case:
    """Descent that reads labels as y + c x_1 in every layer, so it goes to another function."""
    case = of_one_size(layers, g)
    with torch.no_grad():
        for block in case.model.blocks:
            block.attn.W_V[0, 0, DIM] = -shift
    return case


def shifted_between(low: float, high: float, layers: int, g: torch.Generator) -> Case:
    """The same at a distance drawn between two others."""
    distance = between(g, low, high)
    return shifted(shift_of(distance), g, layers)


def averaging(g: torch.Generator) -> Case:
    """A sharp softmax average: the label of the example with the largest <x_i, x_query>, nearly."""
    sharpness = between(g, 3, 5)
    unit = SoftmaxAttention.from_product(sharpness * torch.eye(DIM))
    return Case(unit.to_transformer(TASK.n_points), TASK)


CONSTRUCTIONS: tuple[Construction, ...] = (
    Construction(
        "a layer that is a step of descent",
        "its weights are von Oswald et al.'s for one step",
        functools.partial(of_one_size, 1),
        {STEPS: YES},
    ),
    Construction(
        "three layers that are steps of descent",
        "every layer is the same step, and without one of them two are left",
        functools.partial(of_one_size, 3),
        {STEPS: YES},
    ),
    Construction(
        "two layers that are preconditioned steps",
        "both layers multiply the gradient by a drawn matrix, as in Ahn et al.",
        preconditioned,
        {STEPS: YES},
    ),
    Construction(
        "two layers that are steps of GD++",
        "each layer also makes the inputs better conditioned",
        plus_plus,
        {STEPS: YES},
    ),
    Construction(
        "a step of descent to a shifted function",
        "the layer reads labels as y + c x_1: D = c^2 / (d + c^2) is drawn between .2 and .4",
        functools.partial(shifted_between, 0.2, 0.4, 1),
        {STEPS: NO},
    ),
    Construction(
        "two steps of descent to a shifted function",
        "both layers read labels as y + c x_1: D is drawn between .2 and .4",
        functools.partial(shifted_between, 0.2, 0.4, 2),
        {STEPS: NO},
    ),
    Construction(
        "a layer that takes the label of the likest example",
        "a sharp softmax is no linear map of the labels with weights <P x_i, x_query>",
        averaging,
        {STEPS: NO},
    ),
    Construction(
        "two steps of descent to a function shifted a little",
        "D is drawn between .065 and .075, which lies in neither region",
        functools.partial(shifted_between, 0.065, 0.075, 2),
        {STEPS: OPEN},
    ),
    Construction(
        "steps that go up",
        "the weights are those of descent with sizes below 0, so every step raises the error",
        functools.partial(going_up, 2),
        {STEPS: OPEN},
    ),
    Construction(
        "a step down and one up",
        "the second layer takes back half of what the first has done",
        down_and_up,
        {STEPS: OPEN},
    ),
    Construction(
        "three layers that share one step",
        "each does a third of the step and reads what was there before: without one, less is left",
        functools.partial(side_by_side, 3),
        {STEPS: OPEN},
    ),
    Construction(
        "a step of descent beside an idle layer",
        "both layers together are two steps, one of size 0, but without the first no step is left",
        idle,
        {STEPS: OPEN},
    ),
)
