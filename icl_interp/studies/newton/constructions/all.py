"""All models of known truth: their layers hold iterates of Newton, or steps of descent."""

import functools
from collections.abc import Sequence

import torch

from icl_interp.experiments.calibration import NO, OPEN, YES, Case, Construction, between
from icl_interp.models.blank import blank
from icl_interp.models.constructed import EXAMPLES, descent, newton
from icl_interp.studies.newton.claims.iterations import LINEAR_CLAIM, THREE_CLAIM
from icl_interp.tasks.regression import LinearRegression

LINEAR = LINEAR_CLAIM.id
THREE = THREE_CLAIM.id
DIM = 4
TASK = LinearRegression(n_dims=DIM, n_points=21)
STEPS = 6  # of Newton's iteration and of descent; R2 is then above .9
ITERATES = (2, 5, 8)  # whose M the layers of `ahead` use that read labels
UNEVEN = (1, 2, 7, 8)  # which layers move on to by about 1.6, 4.5 and 1.5 iterations


def start(g: torch.Generator) -> float:
    """Of Newton's iteration: below 1 / (largest eigenvalue)^2 on nearly all prompts."""
    return between(g, 0.07, 0.09)


def one_a_layer(g: torch.Generator) -> Case:
    """Newton's iteration, an iterate a layer."""
    return Case(newton(TASK.n_points, STEPS, start(g), DIM), TASK)


def steps(g: torch.Generator) -> Case:
    """Descent with one size, a step a layer."""
    size = between(g, 0.4, 0.5)
    return Case(descent(TASK.n_points, (size,) * STEPS, DIM), TASK)


def ahead(share: float, g: torch.Generator, iterates: Sequence[int] = ITERATES) -> Case:
    """Newton's M of some iterates, prepared before as many layers read labels.

    Head j prepares z = M x / 2^t, where M is iterate t = `iterates[j]`. Then layer j takes
    <x, M (h - S w)> off the residual with a share of this M, and else with that of the second head.
    So it multiplies what is left by (1 - share) R_1 + share R_j, where R_j = (I - start S^2)^(2^t).
    With `ITERATES` a share of 1 is about three iterations a layer; 0 is the same preconditioned
    step in each.
    """
    heads = len(iterates)
    width = DIM + 1 + heads * DIM
    prepared = 1 + iterates[-1]
    shape = {"n_layers": prepared + heads, "n_heads": heads, "d_head": width, "d_in": DIM + 1}
    model = blank(width, n_ctx=TASK.n_points, **shape, **EXAMPLES)
    x = slice(0, DIM)
    y = DIM
    one = torch.eye(DIM, dtype=torch.float64)
    begin = start(g) * one
    with torch.no_grad():
        model.embed.W_E.fill_diagonal_(1)
        model.unembed.W_U[y, 0] = -1
        for layer, block in enumerate(model.blocks):
            attention = block.attn
            attention.W_K[:, x, x] = one
            for head, done in enumerate(iterates):
                z = slice(width - (head + 1) * DIM, width - head * DIM)
                attention.W_O[head].fill_diagonal_(1)
                attention.W_Q[head, x if layer == 0 else z, x] = one
                # M = start S first, then iterations as in `newton`, then labels.
                if layer == 0:
                    attention.W_V[head, x, z] = begin
                elif layer <= done:
                    attention.W_V[head, z, z] = -(2.0 ** (layer - 2)) * one
                elif layer >= prepared:
                    own = share * (head == layer - prepared)
                    part = own + (1 - share) * (head == 1)
                    attention.W_V[head, y, y] = -part * 2.0**done
    return Case(model, TASK)


CONSTRUCTIONS: tuple[Construction, ...] = (
    Construction(
        "an iterate of Newton a layer",
        "after layer k + 2 the residual of the query is that of iterate k",
        one_a_layer,
        {LINEAR: YES, THREE: NO},
    ),
    Construction(
        "three iterates of Newton a layer",
        "M is iterated before labels are read, and then every third iterate is used",
        functools.partial(ahead, 1.0),
        {LINEAR: YES, THREE: YES},
    ),
    Construction(
        "iterates of Newton at uneven distances",
        "the layers move on by about 1.6, 4.5 and 1.5 iterations: three on average, and none by it",
        functools.partial(ahead, 1.0, iterates=UNEVEN),
        {LINEAR: YES, THREE: OPEN},
    ),
    Construction(
        "six steps of descent, one a layer",
        "after k layers k steps are taken",
        steps,
        {LINEAR: NO, THREE: NO},
    ),
    Construction(
        "the same iterate of Newton as the preconditioner of every step",
        "M is iterated before labels are read, and then it stays the same: steps add up, and none "
        "is doubled",
        functools.partial(ahead, 0.0),
        {LINEAR: NO, THREE: NO},
    ),
)
