"""Queries and keys with read-ins of their own, as weights of a first layer that reads the stream.

Some codes compute queries, keys and values each from another linear map of the token. The first
layer of a `HookedTransformer` reads one stream, v = token W_E + b_E. As long as W_E keeps every
token apart, the token is an affine function of v, and so is what another read-in makes of it: the
two layers compute the same function. Later layers have nothing of the kind.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.models.transformer import HookedTransformer

LEAST = 1e-8  # of the singular values of W_E, the smallest over the largest


@dataclass(frozen=True, eq=False)
class ReadIn:
    """An affine map of tokens.

    Attributes:
        weight: W of token W + b, (d_in, width), as `embed.W_E`.
        bias: b.
    """

    weight: Float[Tensor, "d_in width"]
    bias: Float[Tensor, " width"]


def fold_read_ins(
    model: HookedTransformer, query: ReadIn | None = None, key: ReadIn | None = None
) -> None:
    """Have the first layer's queries and keys read tokens through read-ins of their own.

    `blocks.0.attn.W_Q` and `b_Q` (`W_K` and `b_K`) are those that read `query` (`key`), and are
    replaced by those that give the same queries (keys) from the stream:
    W_Q <- W_E^+ W W_Q and b_Q <- (b - b_E W_E^+ W) W_Q + b_Q, with W_E^+ the right inverse of W_E.

    Args:
        model: is changed. Values go on reading the stream.
        query: the read-in of queries, of the stream's width; None leaves them.
        key: the same of keys.

    Raises:
        InputError: tokens cannot be told from the stream (`W_E` has no right inverse, vectors of
            positions differ, tokens are bounded), a norm stands between, the layer has no biases,
            or a read-in has another shape.

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> config = HookedTransformerConfig(
    ...     1, 3, d_head=2, d_in=2, normalization_type=None, positional_embedding_type="none",
    ...     attn_only=True)
    >>> model = HookedTransformer(config).double()
    >>> old = model.blocks[0].attn.W_Q.detach().clone()
    >>> other = ReadIn(torch.eye(2, 3).double(), torch.ones(3).double())
    >>> fold_read_ins(model, query=other)
    >>> tokens = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]).double()
    >>> _, cache = model.run_with_cache(tokens)
    >>> wanted = (tokens @ other.weight + other.bias) @ old[0]
    >>> bool((cache["blocks.0.attn.hook_q"][:, :, 0] - wanted).abs().max() < 1e-12)
    True
    """
    _check_reads_tokens(model)
    W_E = model.W_E.detach().double()
    singular = torch.linalg.svdvals(W_E)
    if len(singular) < W_E.shape[0] or float(singular[-1]) <= LEAST * float(singular[0]):
        raise InputError(
            "a read-in of queries or keys needs a W_E that keeps tokens apart, but this one maps "
            f"{W_E.shape[0]} coordinates to {int((singular > LEAST * singular[0]).sum())}"
        )
    inverse = torch.linalg.pinv(W_E)  # W_E inverse = 1
    start = model.read_in_bias.detach().double()
    given = {letter: own for letter, own in (("Q", query), ("K", key)) if own is not None}
    # All are looked at before the first changes anything.
    for own in given.values():
        if own.weight.shape != W_E.shape or own.bias.shape != start.shape:
            raise InputError(
                f"a read-in has a weight {tuple(W_E.shape)} and a bias {tuple(start.shape)}, but "
                f"got {tuple(own.weight.shape)} and {tuple(own.bias.shape)}"
            )
    attention = model.blocks[0].attn
    for letter, own in given.items():
        weight: Tensor = getattr(attention, f"W_{letter}")
        bias: Tensor = getattr(attention, f"b_{letter}")
        reads = weight.detach().double()  # (head, width, d_head), of what the read-in gives
        from_stream = inverse @ own.weight.double()
        shift = own.bias.double() - start @ from_stream
        with torch.no_grad():
            bias.add_((shift @ reads).to(bias.dtype))
            weight.copy_((from_stream @ reads).to(weight.dtype))


def _check_reads_tokens(model: HookedTransformer) -> None:
    """Refuse a first layer whose stream is no affine function of the token."""
    cfg = model.cfg
    if cfg.n_layers == 0 or cfg.mlp_only:
        raise InputError("queries and keys with read-ins need a layer of attention; here is none")
    if cfg.normalization_type and cfg.norm_position in ("pre", "both"):
        raise InputError(
            "a norm stands before the first layer's queries and keys, so they are no affine "
            "function of the token: read-ins of their own need a model without it"
        )
    if cfg.embed_bound is not None:
        raise InputError(f"tokens are bounded as they are read in (embed_bound={cfg.embed_bound})")
    if cfg.no_bias in ("qkv", "attention", "linear"):
        raise InputError(
            f"the first layer has no biases (no_bias={cfg.no_bias!r}), and a read-in needs those "
            "of queries and keys"
        )
    if cfg.unit is not None:
        raise InputError(f"queries and keys of a fixed unit (unit={cfg.unit!r}) have no read-in")
