"""Heads that share the work: models that learned, with an overlap of heads that is known.

The task is a path s_{t+1} = W s_t, W diagonal with entries of size 1, of which each token shows s_t
and s_{t-1}. A head of linear attention that reads s_{t-1} with s_t and mixes the states,

    (2 / t) sum_k s_k <s_{k-1}, s_t>,

knows W: of all the products of coordinates in it only W s_t stays as t grows. All heads here have
this mixture, but for a hundredth part by which they attend each in its own way, and write parts of
it that add up to the prediction. So what a head writes is what it predicts, and nothing else is
read.

Source of the step: Sander, Giryes, Suzuki, Blondel & Peyre (2024), *How do transformers perform
in-context autoregressive learning?*, section 4.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.experiments.calibration import NO, OPEN, YES, Case, Construction
from icl_interp.models.blank import blank
from icl_interp.models.tokens import Augmented
from icl_interp.tasks.autoregressive import AutoregressiveProcess

N_DIMS = 3  # complex coordinates, of two numbers each
N_HEADS = 3
N_POINTS = 96  # then the rest of the mixture is 5 % of the variance: a head less misses far more
ORTHOGONAL = "heads.orthogonality"
N = 2 * N_DIMS
# Coordinates of the stream: of the tokens (what is 0, s_t and s_{t-1}), and one a head that nobody
# reads.
PREDICTION = slice(0, N)
NOW = slice(N, 2 * N)
BEFORE = slice(2 * N, 3 * N)
WIDTH = 3 * N + N_HEADS
# Heads that attend alike are one head of several parts. So each attends by a coordinate of its own
# so much more than by the others.
MORE = 0.01

# What each head writes of the mixture; they add up to the identity.
Parts = Float[Tensor, "head coordinate coordinate"]
# What each head writes to the coordinates that nobody reads.
Unread = Float[Tensor, "head extra"]
EYE = torch.eye(N_DIMS, dtype=torch.float64)
OWN: Parts = torch.diag_embed(EYE)  # each head a coordinate


def _between(g: torch.Generator, low: float, high: float) -> float:
    drawn = torch.rand((), generator=g, dtype=torch.float64)
    return low + (high - low) * float(drawn)


def alike(share: float) -> Parts:
    """Each head a third of the prediction; a share of it is replaced by the head's coordinate."""
    return (1 - share) * EYE / N_HEADS + share * OWN


def predictor(
    g: torch.Generator, parts: Parts, unread: Unread | None = None, n_points: int = N_POINTS
) -> Case:
    """The model whose heads write these parts of the prediction, in a basis drawn at random.

    Args:
        g: draws.
        parts: of each head.
        unread: how strongly each head also writes to coordinates of the stream that nobody reads.
        n_points: of a path.
    """
    task = AutoregressiveProcess(n_dims=N_DIMS, matrices="unitary", n_points=n_points)
    model = blank(
        WIDTH,
        n_heads=len(parts),
        d_head=N,
        n_ctx=n_points,
        d_in=3 * N,
        d_out=N,
        # So that the last token alone counts: early ones know little of W.
        attention_dir="bidirectional",
        score_fn="linear",
        score_norm="visible",  # a mean over the tokens
    )
    identity = torch.eye(N, dtype=torch.float64)
    written = _of_real_numbers(parts)
    size = _between(g, 0.5, 2)
    attn = model.blocks[0].attn
    with torch.no_grad():
        model.embed.W_E[:, : 3 * N] = torch.eye(3 * N)
        # A query is s_t, a key s_{t-1}, and the value of a token is s_t again.
        attn.W_Q[:, NOW] = identity
        attn.W_K[:, BEFORE] = identity
        attn.W_V[:, NOW] = identity
        attn.W_Q[:N_HEADS, NOW] += MORE * _of_real_numbers(OWN)
        attn.W_O[:, :, PREDICTION] = 2 * size * written
        if unread is not None:
            lengths = written.norm(dim=2)[..., None]
            attn.W_O[:, :, 3 * N :] = 2 * size * lengths * unread[:, None]
        model.unembed.W_U[PREDICTION] = identity / size
    case = Case(model, task, encoding=Augmented())
    return turned(g, case)


def _of_real_numbers(parts: Parts) -> Float[Tensor, "head n n"]:
    """Each map on the real and the imaginary part of every complex coordinate."""
    both = torch.eye(2, dtype=torch.float64)
    return torch.stack([torch.kron(part, both) for part in parts])


def turned(g: torch.Generator, case: Case) -> Case:
    """The same function with the stream in another orthonormal basis, drawn at random.

    Overlaps stay as they are.
    """
    noise = torch.randn(WIDTH, WIDTH, generator=g, dtype=torch.float64)
    turn = torch.linalg.qr(noise).Q
    model = case.model
    attn = model.blocks[0].attn
    with torch.no_grad():
        for reading in (attn.W_Q, attn.W_K, attn.W_V, model.unembed.W_U):
            reading.copy_(turn.T @ reading)
        for writing in (model.embed.W_E, attn.W_O):
            writing.copy_(writing @ turn)
    return case


def shares(g: torch.Generator) -> Parts:
    """Every head the whole prediction, times a share of its own.

    So the maps of heads are the same but for a factor. One share is about -1 and two are about 1,
    so that nothing is predicted without one of the latter.
    """
    drawn = 0.9 + 0.2 * torch.rand(N_HEADS, generator=g, dtype=torch.float64)
    drawn[0] *= -1
    own = drawn / drawn.sum()
    return own[:, None, None] * EYE


def unlike(g: torch.Generator) -> Parts:
    """Each head a third of everything, and more of a rotation of its own.

    The rotations add up to 0. They lie at angles of 120 degrees in the plane of two antisymmetric
    maps, which are orthogonal to the identity. With a squared size of .46 all overlaps of two heads
    are (1/3 - .46 / 2) / (1/3 + .46) = .13, about as by chance.
    """
    noise = torch.randn(N_DIMS, 2, generator=g, dtype=torch.float64)
    axes = torch.linalg.qr(noise).Q.T
    each = EYE.expand(2, N_DIMS, N_DIMS)
    turns = torch.linalg.cross(axes[:, None], each) / 2**0.5
    angles = 2 * torch.pi * torch.arange(N_HEADS, dtype=torch.float64) / N_HEADS
    plane = torch.stack([angles.cos(), angles.sin()], 1)
    own = torch.einsum("hk,kij->hij", plane, turns)
    return EYE / N_HEADS + 0.46**0.5 * own


def _with_two_that_cancel(g: torch.Generator) -> Parts:
    """A coordinate each, beside two heads that take each other off."""
    noise = torch.randn(N_DIMS, N_DIMS, generator=g, dtype=torch.float64)
    return torch.cat([OWN, noise[None], -noise[None]])


def _to_one_coordinate(g: torch.Generator) -> Unread:
    """All heads write to the same coordinate that nobody reads."""
    unread = torch.zeros(N_HEADS, N_HEADS, dtype=torch.float64)
    unread[:, 0] = _between(g, 3, 30)
    return unread


def _to_a_coordinate_each(g: torch.Generator) -> Unread:
    """Each head writes to a coordinate of its own that nobody reads."""
    return _between(g, 3, 30) * torch.eye(N_HEADS, dtype=torch.float64)


def _usual(case: Case) -> Case:
    """With the sample of a report.

    With half of it the overlap is too uncertain in 24 of 200 draws.
    """
    return replace(case, n_units=128, n_contexts=4)


CONSTRUCTIONS: tuple[Construction, ...] = (
    Construction(
        "heads with a coordinate each",
        "each head predicts a coordinate of its own: all overlaps are 0",
        lambda g: _usual(predictor(g, OWN)),
        {ORTHOGONAL: YES},
    ),
    Construction(
        "heads with a coordinate each, all of which write to one more that nobody reads",
        "only what nobody reads overlaps, and that does not count",
        lambda g: _usual(predictor(g, OWN, _to_one_coordinate(g))),
        {ORTHOGONAL: YES},
    ),
    Construction(
        "heads with a coordinate each, beside two that take each other off",
        "together the two write nothing, so they do not count",
        lambda g: _usual(predictor(g, _with_two_that_cancel(g))),
        {ORTHOGONAL: YES},
    ),
    Construction(
        "heads that do nearly the same",
        "each predicts a third of everything, and a little more of one coordinate: overlaps are "
        "about .9",
        lambda g: predictor(g, alike(_between(g, 0.1, 0.2))),
        {ORTHOGONAL: NO},
    ),
    Construction(
        "heads that do nearly the same, each of which writes to one more coordinate that nobody "
        "reads",
        "only what nobody reads does not overlap, and that does not count",
        lambda g: predictor(g, alike(_between(g, 0.1, 0.2)), _to_a_coordinate_each(g)),
        {ORTHOGONAL: NO},
    ),
    Construction(
        "heads that do the same",
        "maps of two heads differ by a factor: all of them are one head, which has nothing to be "
        "compared with",
        lambda g: predictor(g, shares(g)),
        {ORTHOGONAL: OPEN},
    ),
    Construction(
        "heads at the angle of random ones",
        "overlaps are .13, about as by chance",
        lambda g: predictor(g, unlike(g)),
        {ORTHOGONAL: OPEN},
    ),
)
