"""All models of known truth: opposite softmax heads, and heads that are not."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch

from icl_interp.experiments.calibration import NO, OPEN, YES, Case, Construction, between
from icl_interp.models.blank import blank
from icl_interp.studies.debiased.claims.head_patterns import PATTERNS_CLAIM
from icl_interp.studies.debiased.claims.step import STEP_CLAIM
from icl_interp.tasks.regression import LinearRegression

PATTERNS = PATTERNS_CLAIM.id
STEP = STEP_CLAIM.id
DIM = 4
TASK = LinearRegression(n_dims=DIM, n_points=61)
# w by coordinate: about 28 % and 8 % of the scores are not w <x_i, x_q>.
STRETCHED = (1.9, 1.0, 1.0, 0.1)
A_LITTLE = (1.4, 1.0, 1.0, 0.6)


class Head(NamedTuple):
    """A head's w, in units of a drawn one, and its weight of labels."""

    w: float
    label: float


OPPOSITE = (Head(1, 1), Head(-1, -1))
# One head of both stands twice, with half of the weight, and a third one reads nothing.
MANY = (Head(1, 0.5), Head(-1, -1), Head(1, 0.5), Head(-2, 0))


def attending(
    heads: Sequence[Head],
    g: torch.Generator,
    stretch: Sequence[float] = (1.0,) * DIM,
    inputs: float = 0.0,
) -> Case:
    """Softmax heads on tokens (x; y), which score by w <x_i, x_q> and read labels.

    Args:
        heads: w and weight of labels of each.
        g: draws the unit of w, and the size of the step.
        stretch: factors of w by coordinate.
        inputs: weight of x_1 in what every head reads, of that of labels.
    """
    unit = between(g, 0.08, 0.12)
    step = between(g, 0.6, 0.9)
    size = step / (2 * unit)
    width = DIM + 1
    # A stream of tokens, and heads that are wide enough for one.
    shape = {"n_heads": len(heads), "d_head": width, "d_in": width, "n_ctx": TASK.n_points}
    model = blank(width, attention_dir="bidirectional", keys="labelled", **shape)
    x = slice(0, DIM)
    y = DIM
    one = torch.eye(DIM, dtype=torch.float64)
    factors = torch.tensor(stretch, dtype=torch.float64).diag()
    attention = model.blocks[0].attn
    with torch.no_grad():
        model.embed.W_E.fill_diagonal_(1)
        model.unembed.W_U[y, 0] = 1
        attention.W_K[:, x, x] = one
        attention.W_O[:, y, y] = 1
        for number, head in enumerate(heads):
            w = unit * head.w
            label = size * head.label
            attention.W_Q[number, x, x] = w * factors
            value = attention.W_V[number, :, y]
            value[y] = label
            value[0] = label * inputs
    return Case(model, TASK)


def unequal(share: float, g: torch.Generator) -> Case:
    """Two heads of opposite w, the second of which has a share of the weight of the first."""
    return attending((Head(1, 1), Head(-1, -share)), g)


CONSTRUCTIONS: tuple[Construction, ...] = (
    Construction(
        "two opposite heads",
        "their scores differ in sign alone, and so do their weights of labels",
        functools.partial(attending, OPPOSITE),
        {PATTERNS: YES, STEP: YES},
    ),
    Construction(
        "opposite heads, one of them split, and an idle head",
        "heads that attend alike are one head, and one that reads nothing does not count",
        functools.partial(attending, MANY),
        {PATTERNS: YES, STEP: YES},
    ),
    Construction(
        "opposite heads of different strengths",
        "the weights add up to 0, so the step is debiased, but |w| is three times as large in one",
        functools.partial(attending, (Head(0.7, 1), Head(-2.1, -1))),
        {PATTERNS: NO, STEP: YES},
    ),
    Construction(
        "one head",
        "its prediction moves with a constant that is added to labels",
        functools.partial(attending, (Head(1, 1),)),
        {PATTERNS: NO, STEP: NO},
    ),
    Construction(
        "opposite heads that weigh labels unequally",
        "a part of the mean label is left",
        functools.partial(unequal, 0.3),
        {PATTERNS: NO, STEP: NO},
    ),
    Construction(
        "opposite heads that stretch inputs",
        "a step with a matrix, far from a multiple of the identity",
        functools.partial(attending, OPPOSITE, stretch=STRETCHED),
        {PATTERNS: NO, STEP: NO},
    ),
    Construction(
        "opposite heads that stretch inputs a little",
        "a step with a matrix between a multiple of the identity and another matrix",
        functools.partial(attending, OPPOSITE, stretch=A_LITTLE),
        {PATTERNS: OPEN, STEP: OPEN},
    ),
    Construction(
        "opposite heads that read inputs, too",
        "they read y_i + 2 x_1, so the step goes to another function",
        functools.partial(attending, OPPOSITE, inputs=2.0),
        {PATTERNS: NO, STEP: NO},
    ),
)
