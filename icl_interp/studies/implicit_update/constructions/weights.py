"""Layers that average labels, in front of an MLP that writes what was averaged.

Hidden units stay positive, so the MLP is linear: two units write what was averaged. Of every other
coordinate that the MLP reads there are two units with opposite weights. Together they write
nothing, but a gradient goes through each.
"""

import functools
from typing import Any, NamedTuple, Self

import torch

from icl_interp.experiments.calibration import NO, OPEN, YES, Case, Construction, between
from icl_interp.models.blank import blank
from icl_interp.models.transformer import HookedTransformer
from icl_interp.studies.implicit_update.claims.rank_one import RANK_ONE_CLAIM
from icl_interp.studies.implicit_update.claims.steps import DESCENT_CLAIM, VANISH_CLAIM
from icl_interp.tasks.base import Task
from icl_interp.tasks.distributions import Uniform
from icl_interp.tasks.functions import Polynomial
from icl_interp.tasks.regression import LinearRegression
from icl_interp.tasks.vectors import Sphere

DESCENT = DESCENT_CLAIM.id
VANISH = VANISH_CLAIM.id
RANK_ONE = RANK_ONE_CLAIM.id
LIFT = 100.0  # that keeps hidden units positive
ONE = 3.0  # the constant in the stream, beside inputs of at most .4
FLAT = Polynomial(degrees=(1,), coefficients=Uniform(-1, 1), inputs=Uniform(-0.4, 0.4), n_points=20)
LINEAR = LinearRegression(n_dims=2, n_points=41, inputs=Sphere(2))
STEPS = 4  # of descent that nearly finds w


class Places(NamedTuple):
    """Coordinates of the stream: inputs, then these, with the mean input between two of them."""

    label: int
    one: int
    mean: int
    out: int

    @classmethod
    def of(cls, task: Task) -> Self:
        """For inputs of so many coordinates."""
        dim = task.dim
        return cls(dim, dim + 1, dim + 2, 2 * dim + 3)


def layers(
    task: Task, n_layers: int = 1, constant: float = ONE, **scores: Any
) -> HookedTransformer:
    """Layers that read tokens and a constant, and do nothing yet.

    Args:
        task: of the model.
        n_layers: how many.
        constant: in the stream.
        scores: settings of attention.
    """
    dim = task.dim
    at = Places.of(task)
    model = blank(
        at.out + 1,
        n_layers=n_layers,
        d_head=dim + 1,
        d_mlp=4 * dim + 4,
        n_ctx=task.n_points,
        d_in=dim + 1,
        attn_only=False,
        act_fn="relu",
        attention_dir="bidirectional",
        **scores,
    )
    with torch.no_grad():
        model.embed.W_E.fill_diagonal_(1)
        model.embed.b_E[at.one] = constant
        model.unembed.W_U[at.out, 0] = 1
    return model


def case_of(model: HookedTransformer, task: Task, found: int, sign: int, unmoved: float) -> Case:
    """The last MLP writes what attention has found; two units of each other coordinate cancel.

    Args:
        model: as `layers` gives it, with its attention set.
        task: of the model.
        found: the coordinate that holds what was found.
        sign: that it has there.
        unmoved: weight of what the two units of another coordinate write, each.
    """
    at = Places.of(task)
    mlp = model.blocks[-1].mlp
    others = [*range(at.label), at.one, *range(at.mean + 1, at.out)]
    with torch.no_grad():
        mlp.b_in.fill_(LIFT)
        for unit, turn in enumerate((sign, -sign)):
            mlp.W_in[found, unit] = turn
            mlp.W_out[unit, at.out] = (1 - 2 * unit) / 2
        for place, coordinate in enumerate(others):
            unit = 2 + 2 * place
            mlp.W_in[coordinate, unit : unit + 2] = 1
            mlp.W_out[unit, at.out] = unmoved
            mlp.W_out[unit + 1, at.out] = -unmoved
    return Case(model, task, n_units=128)


def mean_label(unmoved: float) -> Case:
    """A layer that averages labels."""
    at = Places.of(FLAT)
    model = layers(FLAT)
    attention = model.blocks[0].attn
    with torch.no_grad():
        attention.W_V[0, at.label, 0] = 1
        attention.W_O[0, 0, at.mean] = 1
    return case_of(model, FLAT, at.mean, 1, unmoved)


def descent(
    n_steps: int, size: float, unmoved: float, moved: float = 0.0, norm: str | None = "visible"
) -> Case:
    """Layers that are steps of descent on w from 0, as in `models.constructed.descent`.

    The query is a key as well, with what is left of its label, which is 0 at first.

    Args:
        n_steps: how many.
        size: of each step.
        unmoved: weight of what units write that no example moves.
        moved: size of a mean of inputs in the stream, which the MLP reads as it reads inputs.
        norm: what scores are divided by.
    """
    at = Places.of(LINEAR)
    x = slice(0, at.label)
    model = layers(LINEAR, n_steps, 0.0, score_fn="linear", score_norm=norm)
    identity = torch.eye(at.label, dtype=torch.float64)
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_Q[0, x, x] = size * identity
            block.attn.W_K[0, x, x] = identity
            block.attn.W_V[0, at.label, 0] = -1
            block.attn.W_O[0, 0, at.label] = 1
        last = model.blocks[-1].attn
        last.W_V[0, x, 1:] = identity
        last.W_O[0, 1:, at.mean + 1 : at.out] = moved * identity
    return case_of(model, LINEAR, at.label, -1, unmoved)


def averaging(low: float, high: float, g: torch.Generator) -> Case:
    """The mean label, with a weight of unmoved units drawn between two others."""
    return mean_label(between(g, low, high))


def one_step(g: torch.Generator) -> Case:
    """A step of descent: the sum of y_i <x_i, x_query>, times its size."""
    return descent(1, between(g, 1.8, 2.0) / LINEAR.n_points, 0.02, norm=None)


def converged(low: float, high: float, g: torch.Generator) -> Case:
    """Steps of descent that nearly find w, with unmoved units."""
    return descent(STEPS, between(g, 1.4, 1.6), between(g, low, high))


def restless(g: torch.Generator) -> Case:
    """The same, and a mean of inputs, which changes with examples whatever their labels are."""
    return descent(STEPS, between(g, 1.4, 1.6), 0.02, between(g, 200, 400))


CONSTRUCTIONS: tuple[Construction, ...] = (
    Construction(
        "the mean label, and a constant",
        "the mean of n labels is online descent on a constant, with steps of 1 / n",
        functools.partial(averaging, 0.01, 0.1),
        {RANK_ONE: YES, DESCENT: YES},
    ),
    Construction(
        "a step of descent on w",
        "each example adds what its own loss pulls at, and what it adds does not depend on n",
        one_step,
        {DESCENT: YES, VANISH: NO},
    ),
    Construction(
        "steps of descent that nearly find w",
        "a further example of the same function tells nothing new, and one of another does",
        functools.partial(converged, 0.01, 0.1),
        {VANISH: YES},
    ),
    Construction(
        "steps of descent that nearly find w, and hidden units that no example moves",
        "gradients go through units that stay: the cosine is (1 + 10 a)^-.5 with a from 60 on",
        functools.partial(converged, 60, 120),
        {DESCENT: NO, VANISH: YES},
    ),
    Construction(
        "steps of descent that nearly find w, and a mean of inputs in units that cancel",
        "the mean moves with each example, whatever its label is, and changes no prediction",
        restless,
        {DESCENT: NO, VANISH: NO},
    ),
    Construction(
        "the mean label, and some hidden units that no example moves",
        "a from 3 to 6 gives a cosine between .16 and .23, where neither region lies",
        functools.partial(averaging, 3, 6),
        {DESCENT: OPEN},
    ),
)
