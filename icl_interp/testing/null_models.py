"""Models that know nothing of a prompt's function: no claim about using a context may hold.

Each is of the same config as a given model, so that whatever can be asked of that model can be
asked of these. A constant one says one number; a blind one sees its own token only; a copier says
the last value again, and so uses its context without learning from it; an untrained one has fresh
weights. What follows from the design of a model must hold for an untrained one too.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.folding import attentions
from icl_interp.models.tokens import Encoding, Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.tasks.base import Task
from icl_interp.testing.reparameterisations.base import made, weights_of

FAINT = 1e-6  # of what heads write, in a model that is as good as blind
SEEDS = (1, 2, 3)  # of fresh weights
# In a copier: the constant that keeps the scale of norms, beside tokens of size 1; and by how much
# the key before the query outscores its neighbours.
MAST = 1e3
LEAD = 60.0


def constant(model: HookedTransformer, value: float = 0.5) -> HookedTransformer:
    """The model with a read-out of one number: it says `value` whatever it is shown. In float64."""
    weights = weights_of(model)
    weights["unembed.W_U"].zero_()
    weights["unembed.b_U"].fill_(value)
    return made(weights, model.cfg)


def blind(model: HookedTransformer, left: float = 0.0) -> HookedTransformer:
    """The model with every W_O times `left`: its heads see the context, and write nothing of it.

    In float64.

    Raises:
        InputError: the model has no attention, so that it is blind already.
    """
    if model.cfg.mlp_only:
        raise InputError(
            "a model without attention (mlp_only) sees no context already: use it as it is"
        )
    weights = weights_of(model)
    for part in attentions(model.cfg):
        weights[part + "W_O"] *= left
    return made(weights, model.cfg)


def untrained(cfg: HookedTransformerConfig, seed: int) -> HookedTransformer:
    """A model with fresh weights, in float64."""
    return HookedTransformer(cfg, seed=seed).double().eval()


class _Pairs(NamedTuple):
    """Coordinates of a copier's stream.

    Each thing stands in two, once with the opposite sign: the mean is always 0.

    Attributes:
        values: what a token shows where values stand.
        written: what the head writes.
        cosine: of the position's angle.
        sine: of the position's angle.
        mast: the constant.
    """

    values: range
    written: range
    cosine: int
    sine: int
    mast: int

    @classmethod
    def of(cls, n_targets: int) -> "_Pairs":
        """For values of so many coordinates."""
        written = range(n_targets, 2 * n_targets)
        free = 2 * n_targets  # the first coordinate that holds no value
        return cls(range(n_targets), written, cosine=free, sine=free + 1, mast=free + 2)

    @property
    def width(self) -> int:
        """Coordinates that are needed, both of each pair."""
        return 2 * (self.mast + 1)


def no_copier(cfg: HookedTransformerConfig) -> str | None:
    """Why no copier of this config can be built; None where one can."""
    n_needed = _Pairs.of(cfg.d_out).width
    narrowest = max(2, cfg.d_out)
    reasons = {
        "it has no attention (mlp_only)": cfg.mlp_only,
        f"{cfg.score_fn} weights do not add up to 1": not cfg.weights_add_up,
        "it has no vectors of positions": cfg.positional_embedding_type != "standard",
        "a norm acts on what its heads write (norm_position='output')": (
            not cfg.heads_write_to_stream
        ),
        "norms act on what its heads read and on the stream (norm_position='both')": (
            cfg.norm_position == "both"
        ),
        "norm_position alone does not tell its last norm (final_norm)": cfg.final_norm is not None,
        "a factor acts on what its heads write (residual_scale)": cfg.residual_scale != 1,
        "its Tanh norms bound each coordinate by itself": cfg.normalization_type == "Tanh",
        "the length of what a token is read in as is bounded": cfg.embed_bound is not None,
        f"its stream has {cfg.d_model} coordinates, of which {n_needed} are needed": (
            cfg.d_model < n_needed
        ),
        f"its heads have {cfg.head_width} coordinates, of which {narrowest} are needed": (
            cfg.head_width < narrowest
        ),
    }
    for reason, holds in reasons.items():
        if holds:
            return reason
    return None


def copier(cfg: HookedTransformerConfig, channel: int = 0) -> HookedTransformer:
    """A model that predicts at each token the content of the token before it, in float64.

    In a prompt this is the last value again.

    One head of the first layer attends to the position before its own: positions are angles, and
    the query's is turned back by one step. It writes what stands there in the value's channels, and
    that is read out. All other heads and MLPs write 0. Without a norm it is exact; norms keep their
    scale because of a large constant in the stream, as long as tokens are small beside it (errors
    of 1e-5 for tokens of size 1). The first token sees no other, and says itself.

    Args:
        cfg: of the model. With more tokens than 2 n_points of its task it is less sharp, but still
            by a factor of e^60.
        channel: of tokens, the first that holds a value: 0 where inputs and values take turns,
            `dim` where they are stacked.

    Raises:
        InputError: no such model of this config can be built; the message says why.
    """
    if reason := no_copier(cfg):
        raise InputError(f"no model of this config can be made to copy: {reason}")
    at = _Pairs.of(cfg.d_out)
    model = untrained(replace(cfg, init_std=0.0), 0)
    weights = weights_of(model)

    def put(name: str, coordinate: int, value: float | Tensor) -> None:
        """Write to a coordinate of the stream, and the opposite to its partner."""
        rows = weights[name]
        rows[..., 2 * coordinate] = value
        rows[..., 2 * coordinate + 1] = -value

    # What the stream holds at first: a token's values, the angle of its position, the constant.
    for i in at.values:
        row = torch.zeros(cfg.d_in, dtype=torch.float64)
        row[channel + i] = 1
        put("embed.W_E", i, row)
    angles = 2 * math.pi * torch.arange(cfg.n_ctx, dtype=torch.float64) / cfg.n_ctx
    put("pos_embed.W_pos", at.cosine, angles.cos())
    put("pos_embed.W_pos", at.sine, angles.sin())
    # What a norm divides by: the root of the mean square of two coordinates of size MAST.
    if cfg.normalization_type is None:
        scale = 1.0
        put("embed.b_E", at.mast, 0.0)
    else:
        scale = math.sqrt(2 * MAST**2 / cfg.d_model + cfg.eps)
        put("embed.b_E", at.mast, MAST)
    pre = scale if cfg.norm_position == "pre" else 1.0
    # cos of the angle between the key and the query turned back: 1 at the position before,
    # cos(step) at the next best.
    step = 2 * math.pi / cfg.n_ctx
    sharp = 1.0
    if cfg.n_ctx > 1:
        sharp = math.sqrt(LEAD / (1 - math.cos(step)) / model.blocks[0].attn.scale)
    size = pre * sharp
    turned = {"Q": (math.cos(step), math.sin(step)), "K": (1.0, 0.0)}
    for letter, (cosine, sine) in turned.items():
        of_head = weights[f"blocks.0.attn.W_{letter}"][0]
        of_head[2 * at.cosine, 0] = size * cosine
        of_head[2 * at.sine, 0] = size * sine
        of_head[2 * at.cosine, 1] = -size * sine
        of_head[2 * at.sine, 1] = size * cosine
    # The head copies values into the channels that are read out.
    values_of_head = weights["blocks.0.attn.W_V"][0]
    out_of_head = weights["blocks.0.attn.W_O"][0]
    for k, (value, written) in enumerate(zip(at.values, at.written, strict=True)):
        values_of_head[2 * value, k] = pre
        out_of_head[k, 2 * written] = 1.0
        out_of_head[k, 2 * written + 1] = -1.0
        # After a post-norm the stream has been divided once; further ones find it with a scale
        # of 1.
        weights["unembed.W_U"][2 * written, k] = scale
    return made(weights, cfg)


def value_channel(task: Task, encoding: Encoding) -> int:
    """The first channel of tokens that holds a value."""
    inner = getattr(encoding, "inner", encoding)
    return task.dim if isinstance(inner, Stacked) else 0


def ignorant(
    model: HookedTransformer, task: Task, encoding: Encoding
) -> Iterator[tuple[str, HookedTransformer]]:
    """Every ignorant model of the same config that there is, with its name."""
    yield "constant", constant(model)
    if not model.cfg.mlp_only:
        yield "blind", blind(model)
        yield "all but blind", blind(model, FAINT)
    if no_copier(model.cfg) is None:
        yield "copier of the last value", copier(model.cfg, value_channel(task, encoding))
    for seed in SEEDS:
        yield f"untrained, seed {seed}", untrained(model.cfg, seed)
