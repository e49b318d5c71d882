"""Models that copy the last label or average several: attention by position, set by hand."""

import torch

from icl_interp.experiments.calibration import NO, YES, Case, Construction
from icl_interp.experiments.power import Dial
from icl_interp.models import HookedTransformer, HookedTransformerConfig
from icl_interp.tasks import Uniform
from icl_interp_copying.coins import Coins

N_POINTS = 8
TASK = Coins(inputs=Uniform(-1, 1), n_points=N_POINTS)
CLAIM = "copying.last_label"


def reader(generator, labels):
    """Attention at the query that weighs these labels alike and no other token; it reads them to the output."""
    cfg = HookedTransformerConfig(
        n_layers=1,
        d_model=4,
        n_heads=1,
        d_head=2,
        n_ctx=2 * N_POINTS,
        attn_only=True,
        normalization_type=None,
        use_attn_scale=False,
    )
    model = HookedTransformer(cfg)
    score = 40 + 20 * float(torch.rand((), generator=generator))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.W_E[0, 0] = 1
        attention = model.blocks[0].attn
        # Label k is token 2 k + 1.
        model.pos_embed.W_pos[[2 * label + 1 for label in labels], 1] = 1
        attention.b_Q[0, 1], attention.W_K[0, 1, 1] = 1, score
        attention.W_V[0, 0, 0] = attention.W_O[0, 0, 2] = model.unembed.W_U[2, 0] = 1
    return Case(model, TASK)


CONSTRUCTIONS = (
    Construction(
        "copier of the last label",
        "all attention is on the last label",
        lambda g: reader(g, [N_POINTS - 2]),
        {CLAIM: YES},
    ),
    Construction(
        "average of all labels",
        "each of seven labels has the same weight, so one moves the prediction by a seventh",
        lambda g: reader(g, range(N_POINTS - 1)),
        {CLAIM: NO},
    ),
)
DIALS = (
    Dial(
        "labels that are averaged",
        CLAIM,
        "the last label and those before it have the same weight",
        lambda n, g: reader(g, range(N_POINTS - 1 - int(n), N_POINTS - 1)),
        (7, 3, 2, 1),
    ),
)
