"""A layer that is a step of descent, in front of an MLP that writes what attention has found.

Hidden units stay positive, so the MLP is linear: two units write what was found. Two units of every
other coordinate that the MLP reads write nothing together, but a gradient goes through each.
"""

import torch

from icl_interp.experiments.calibration import NO, YES, Case, Construction, between
from icl_interp.models.blank import blank
from icl_interp.studies.implicit_update.claims.rank_one_steps import DESCENT_CLAIM, RANK_ONE_CLAIM
from icl_interp.tasks.regression import LinearRegression
from icl_interp.tasks.vectors import Sphere

TASK = LinearRegression(n_dims=2, n_points=41, inputs=Sphere(2))
# Coordinates of the stream: inputs, label, what attention finds, a mean of inputs, prediction.
LABEL = 2
FOUND = 3
INPUTS = slice(4, 6)
OUT = 6
UNMOVED = (0, 1, LABEL, 4, 5)
LIFT = 1000.0  # that keeps hidden units positive


def layer(g: torch.Generator, unmoved: float = 0.02, moved: float = 0.0) -> Case:
    """One step of descent on w from 0, of a size that is drawn: a sum of y_i <x_i, x>.

    The query is a key as well, with the label 0.

    Args:
        g: draws the size, about 2 / n.
        unmoved: weight of what the two units of another coordinate write, each.
        moved: size of a mean of inputs in the stream, which the MLP reads as it reads inputs.
    """
    model = blank(
        OUT + 1,
        d_head=3,
        d_mlp=2 + 2 * len(UNMOVED),
        n_ctx=TASK.n_points,
        d_in=3,
        attn_only=False,
        act_fn="relu",
        attention_dir="bidirectional",
        score_fn="linear",
        score_norm=None,
    )
    attention = model.blocks[0].attn
    mlp = model.blocks[0].mlp
    size = between(g, 1.8, 2.0) / TASK.n_points
    opposite = torch.tensor([1.0, -1.0])
    with torch.no_grad():
        model.embed.W_E.fill_diagonal_(1)
        model.unembed.W_U[OUT, 0] = 1
        # Attention finds what the labels say, and moves the mean of inputs.
        attention.W_Q[0, :2].fill_diagonal_(size)
        attention.W_K[0, :2].fill_diagonal_(1)
        attention.W_V[0, :3].fill_diagonal_(1)
        attention.W_O[0, LABEL, FOUND] = 1
        attention.W_O[0, :2, INPUTS].fill_diagonal_(moved)
        # Two units write what was found, and two of each other coordinate cancel.
        mlp.b_in.fill_(LIFT)
        written = mlp.W_out[:, OUT]
        written[:2] = opposite / 2
        mlp.W_in[FOUND, :2] = opposite
        for place, coordinate in enumerate(UNMOVED, 1):
            units = slice(2 * place, 2 * place + 2)
            mlp.W_in[coordinate, units] = 1
            written[units] = unmoved * opposite
    return Case(model, TASK, n_units=128)


CONSTRUCTIONS: tuple[Construction, ...] = (
    Construction(
        "a step of descent on w",
        "each example adds what its own loss pulls at",
        layer,
        {RANK_ONE_CLAIM.id: YES, DESCENT_CLAIM.id: YES},
    ),
    Construction(
        "a step of descent on w, and hidden units that no example moves",
        "gradients go through units that stay: the cosine falls as (1 + 10 a)^-.5",
        lambda g: layer(g, between(g, 60, 120)),
        {DESCENT_CLAIM.id: NO},
    ),
    Construction(
        "a step of descent on w, and a mean of inputs in units that cancel",
        "the mean moves with each example, whatever its label is, and changes no prediction",
        lambda g: layer(g, moved=between(g, 200, 400)),
        {DESCENT_CLAIM.id: NO},
    ),
)
