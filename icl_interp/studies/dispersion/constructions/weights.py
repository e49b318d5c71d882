"""Heads that find the query's own token among all others, under several score functions.

Inputs lie on a sphere, and a token x scores c <x, x_query>: the query's own token scores c, others
less. With softmax its weight is e^c / n up to a constant, with scaled softmax n^c / n.
"""

import functools

import torch

from icl_interp.experiments.calibration import NO, OPEN, YES, Case, Construction, between
from icl_interp.models.blank import blank
from icl_interp.models.config import ScoreName
from icl_interp.models.softmax_unit import SoftmaxAttention
from icl_interp.studies.dispersion.claims.disperses import DISPERSES_CLAIM
from icl_interp.studies.dispersion.measurements.largest import OCTAVES
from icl_interp.tasks.regression import LinearRegression
from icl_interp.tasks.vectors import Sphere

DISPERSES = DISPERSES_CLAIM.id
DIM = 16  # so that few tokens score nearly as much as the query's own
TASK = LinearRegression(n_dims=DIM, n_points=21, inputs=Sphere(DIM))
ROOM = OCTAVES[-1] * TASK.n_points  # tokens of the longest prompt


def finding(own: float, score_fn: ScoreName, g: torch.Generator, idle: float | None = None) -> Case:
    """One head in which the query's own token scores `own`; it reads labels, and x in a direction.

    Args:
        own: what the query's own token scores.
        score_fn: what makes weights of scores.
        g: draws the direction.
        idle: the same of a second head, which writes nothing; None for no such head.
    """
    scores = [own]
    if idle is not None:
        scores.append(idle)
    width = DIM + 1
    model = blank(
        width,
        d_head=width,
        n_heads=len(scores),
        n_ctx=ROOM,
        d_in=width,
        attention_dir="bidirectional",
        score_fn=score_fn,
    )
    attention = model.blocks[0].attn
    # Scores are of x alone; the last coordinate, the label, is where the first head writes.
    x = slice(0, DIM)
    y = DIM
    one = torch.eye(DIM)
    with torch.no_grad():
        model.embed.W_E.fill_diagonal_(1)
        for head, score in enumerate(scores):
            attention.W_K[head, x, x] = one
            attention.W_Q[head, x, x] = score * one
        direction = torch.randn(DIM, generator=g)
        attention.W_V[0, x, y] = direction / direction.norm()
        attention.W_V[0, y, y] = 1
        attention.W_O[0, y, y] = 1
        model.unembed.W_U[y] = 1
    return Case(model, TASK)


def drawn(low: float, high: float, score_fn: ScoreName, g: torch.Generator) -> Case:
    """The same with a score drawn between two others."""
    own = between(g, low, high)
    return finding(own, score_fn, g)


def beside_sharp(g: torch.Generator) -> Case:
    """A head that disperses, and one that keeps its weight and writes nothing."""
    own = between(g, 0.5, 1.0)
    sharp = between(g, 50, 70)
    return finding(own, "softmax", g, idle=sharp)


def smoothing(g: torch.Generator) -> Case:
    """A softmax unit that averages labels with weights of bounded scores."""
    size = between(g, 0.2, 0.6)
    unit = SoftmaxAttention.from_product(size * torch.eye(DIM))
    return Case(unit.to_transformer(ROOM), TASK)


CONSTRUCTIONS: tuple[Construction, ...] = (
    Construction(
        "softmax of bounded scores",
        "its own token weighs e^c / n up to a constant",
        functools.partial(drawn, 0.5, 1.0, "softmax"),
        {DISPERSES: YES},
    ),
    Construction(
        "a softmax unit over labelled examples",
        "scores lie within .6 of 0, so no weight exceeds e^1.2 / n",
        smoothing,
        {DISPERSES: YES},
    ),
    Construction(
        "softmax of bounded scores beside a sharp head that writes nothing",
        "the sharp head does not matter",
        beside_sharp,
        {DISPERSES: YES},
    ),
    Construction(
        "softmax of bounded scores that are too sharp for these lengths",
        "its own token keeps nearly all weight until n is about e^10",
        functools.partial(drawn, 50, 70, "softmax"),
        {DISPERSES: NO},
    ),
    Construction(
        "scaled softmax with a gap",
        "its own token weighs n^c / n and more than all others from c = 1 on",
        functools.partial(drawn, 2.5, 3.5, "scaled_softmax"),
        {DISPERSES: NO},
    ),
    Construction(
        "entmax with a gap",
        "all tokens that score 2 below its own have no weight",
        functools.partial(drawn, 8, 12, "entmax"),
        {DISPERSES: NO},
    ),
    Construction(
        "hardmax",
        "its own token has all weight, whatever n",
        functools.partial(drawn, 1, 2, "hardmax"),
        {DISPERSES: NO},
    ),
    Construction(
        "scaled softmax with a small gap",
        "its own token has a weight of n^-.7 up to a constant, which lies in neither region",
        functools.partial(drawn, 0.25, 0.35, "scaled_softmax"),
        {DISPERSES: OPEN},
    ),
)
