"""Weights whose layers hold iterates of Newton, steps of descent, or nothing until the last one."""

import functools

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
STEPS = 6  # of Newton's iteration, at the end of which R2 is above .9
READING = 3  # layers of `ahead` that read labels


def start(g: torch.Generator) -> float:
    """Of Newton's iteration: below 1 / (largest eigenvalue)^2 on nearly all prompts."""
    return between(g, 0.07, 0.09)


def one_a_layer(g: torch.Generator) -> Case:
    """Newton's iteration, an iterate a layer."""
    return Case(newton(TASK.n_points, STEPS, start(g), DIM), TASK)


def at_the_end(g: torch.Generator) -> Case:
    """Newton's iteration of which no layer but the last says anything about f(x)."""
    case = one_a_layer(g)
    with torch.no_grad():
        for block in case.model.blocks[:-1]:
            block.attn.W_V[0, DIM, DIM] = 0
    return case


def steps(layers: int, g: torch.Generator) -> Case:
    """Descent with one size, a step a layer."""
    size = between(g, 0.4, 0.5)
    return Case(descent(TASK.n_points, (size,) * layers, DIM), TASK)


def ahead(first: int, more: int, share: float, g: torch.Generator) -> Case:
    """Newton's M of several iterates, prepared before three layers read labels.

    Head j prepares z = M x / 2^t, where M is iterate t = first + more * j. Then layer j takes
    <x, M (h - S w)> off the residual with a share of this M, and else with that of head 0. So it
    multiplies what is left by (1 - share) R_0 + share R_j, where R_j = (I - start S^2)^(2^t). A
    share of 1 is about `more` iterations a layer; 0 is the same preconditioned step in each.

    Args:
        first: iterate of head 0.
        more: iterations that a further head is ahead.
        share: of a layer's own M.
        g: draws the start.
    """
    begin = start(g)
    most = first + more * (READING - 1)
    width = DIM + 1 + READING * DIM
    model = blank(
        width,
        n_layers=1 + most + READING,
        n_heads=READING,
        d_head=width,
        n_ctx=TASK.n_points,
        d_in=DIM + 1,
        **EXAMPLES,
    )
    x = slice(0, DIM)
    y = DIM
    one = torch.eye(DIM, dtype=torch.float64)
    with torch.no_grad():
        model.embed.W_E.fill_diagonal_(1)
        model.unembed.W_U[y, 0] = -1
        for layer, block in enumerate(model.blocks):
            attention = block.attn
            reader = layer - 1 - most
            for head in range(READING):
                z = slice(width - (head + 1) * DIM, width - head * DIM)
                done = first + more * head
                attention.W_K[head, x, x] = one
                attention.W_O[head].fill_diagonal_(1)
                attention.W_Q[head, x if layer == 0 else z, x] = one
                # M = start S first, then iterations as in `newton`, then labels.
                if layer == 0:
                    attention.W_V[head, x, z] = begin * one
                elif layer <= done:
                    attention.W_V[head, z, z] = -(2.0 ** (layer - 2)) * one
                elif reader >= 0:
                    part = share * (head == reader) + (1 - share) * (head == 0)
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
        functools.partial(ahead, 1, 3, 1.0),
        {LINEAR: YES, THREE: YES},
    ),
    Construction(
        "six steps of descent, one a layer",
        "after k layers k steps are taken",
        functools.partial(steps, 6),
        {LINEAR: NO, THREE: NO},
    ),
    Construction(
        "four steps of descent, one a layer",
        "after k layers k steps are taken",
        functools.partial(steps, 4),
        {LINEAR: NO, THREE: NO},
    ),
    Construction(
        "the same iterate of Newton as the preconditioner of every step",
        "M is iterated before labels are read, and then it stays: steps add up, none is doubled",
        functools.partial(ahead, 5, 0, 1.0),
        {LINEAR: NO, THREE: NO},
    ),
    Construction(
        "Newton's iteration that reads labels at its end",
        "no layer but the last says anything about f(x), so there is no trend",
        at_the_end,
        {LINEAR: OPEN, THREE: OPEN},
    ),
)
