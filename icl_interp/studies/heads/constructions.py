"""Layers whose heads share one step of gradient descent: models that learned, with an overlap of heads that is known.

Source of the step: von Oswald et al. (2023), *Transformers learn in-context by gradient descent*, Proposition 1.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.experiments.calibration import NO, OPEN, YES, Case, Construction
from icl_interp.models.blank import blank
from icl_interp.tasks.distributions import Normal, Uniform
from icl_interp.tasks.regression import LinearRegression

N_DIMS = 3
N_HEADS = 3
N_POINTS = 128  # with 127 examples one step misses 2.8 / 127 of the variance of y: a head less misses far more
WIDTH = N_DIMS + 1 + N_HEADS
ORTHOGONAL = "heads.orthogonality"


def _between(g: torch.Generator, low: float, high: float) -> float:
    return low + (high - low) * float(torch.rand((), generator=g, dtype=torch.float64))


def layer(g: torch.Generator, d_head: int, n_points: int = N_POINTS) -> tuple[Case, float]:
    """A layer of linear attention that reads its tokens into the first coordinates, and the rate of the step."""
    half_width = _between(g, 0.5, 2)
    law = Uniform(-half_width, half_width)
    task = LinearRegression(n_dims=N_DIMS, inputs=law, weights=Normal(_between(g, 0.5, 2)), n_points=n_points)
    model = blank(
        WIDTH, n_heads=N_HEADS, d_head=d_head, n_ctx=n_points, d_in=N_DIMS + 1, score_fn="linear", score_norm="labelled"
    )
    with torch.no_grad():
        model.embed.W_E[:, : N_DIMS + 1] = torch.eye(N_DIMS + 1)
        model.blocks[0].attn.W_V[:, N_DIMS, 0] = 1  # every head reads the label
    return Case(model, task), _between(g, 0.95, 1.05) / law.std**2


def turned(g: torch.Generator, case: Case) -> Case:
    """The same function with the stream in another orthonormal basis, drawn at random: overlaps stay."""
    noise = torch.randn(WIDTH, WIDTH, generator=g, dtype=torch.float64)
    turn = torch.linalg.qr(noise).Q
    model, attn = case.model, case.model.blocks[0].attn
    with torch.no_grad():
        for weights in (attn.W_Q, attn.W_K, attn.W_V):
            weights.copy_(turn.T @ weights)
        for weights in (model.embed.W_E, attn.W_O):
            weights.copy_(weights @ turn)
        model.unembed.W_U.copy_(turn.T @ model.unembed.W_U)
    return case


def a_coordinate_each(g: torch.Generator, cosine: float) -> Case:
    """Each head takes the step along a coordinate of its own, and writes along a direction of its own.

    The cosine between the directions of two heads is the overlap of their OV maps; that of their QK maps is 0. Their
    outputs overlap by the cosine times the correlation of the steps, which chance has too.
    """
    case, rate = layer(g, d_head=1)
    attn, heads = case.model.blocks[0].attn, range(N_HEADS)
    with torch.no_grad():
        attn.W_Q[heads, heads, 0], attn.W_K[heads, heads, 0] = rate, 1
    return turned(g, written_along(case, cosine))


def written_along(case: Case, cosine: float) -> Case:
    """The layer, whose heads write along directions of this cosine between any two; what each writes counts once."""
    between: Float[Tensor, "head head"] = torch.full((N_HEADS, N_HEADS), cosine, dtype=torch.float64)
    directions = torch.linalg.cholesky(between.fill_diagonal_(1))
    with torch.no_grad():
        case.model.blocks[0].attn.W_O[:, 0, N_DIMS + 1 :] = directions
        case.model.unembed.W_U[N_DIMS + 1 :, 0] = torch.linalg.solve(
            directions, torch.ones(N_HEADS, dtype=torch.float64)
        )
    return case


def a_share_each(g: torch.Generator) -> Case:
    """Every head takes the whole step, times a share of its own: their maps are the same but for a factor.

    One share is about -1 and two are about 1, so that no step is left without one of the latter.
    """
    case, rate = layer(g, d_head=N_DIMS)
    attn, size = case.model.blocks[0].attn, _between(g, 0.5, 2)
    shares = 0.9 + 0.2 * torch.rand(N_HEADS, generator=g, dtype=torch.float64)
    shares[0] *= -1
    with torch.no_grad():
        attn.W_Q[:, :N_DIMS], attn.W_K[:, :N_DIMS] = rate * torch.eye(N_DIMS), torch.eye(N_DIMS)
        attn.W_O[:, 0, N_DIMS + 1] = size * shares / shares.sum()
        case.model.unembed.W_U[N_DIMS + 1, 0] = 1 / size
    return turned(g, case)


CONSTRUCTIONS: tuple[Construction, ...] = (
    Construction(
        "heads with a coordinate and a direction each",
        "two heads read different coordinates and write along orthogonal directions: all overlaps are 0",
        # With half of a report's sample the overlap is too uncertain in 24 of 200 draws.
        lambda g: replace(a_coordinate_each(g, 0.0), n_units=128, n_contexts=4),
        {ORTHOGONAL: YES},
    ),
    Construction(
        "heads that do the same",
        "maps of two heads differ by a factor: all overlaps are 1",
        a_share_each,
        {ORTHOGONAL: NO},
    ),
    Construction(
        "heads at the angle of random ones",
        "directions of two heads have a cosine of 0.4 to 0.6; random ones in three dimensions have 0.5 on average",
        lambda g: a_coordinate_each(g, _between(g, 0.4, 0.6)),
        {ORTHOGONAL: OPEN},
    ),
)
