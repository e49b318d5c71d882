"""Which directions of the residual stream later parts of the model read.

What a head or an MLP writes into other directions reaches no prediction. A read-out that is fitted
to the whole stream would see it all the same, so that two models of the same function could get
different answers. So read-outs are fitted to what is read.
"""

from collections.abc import Sequence
from typing import TypeGuard

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.models.attention import Attention
from icl_interp.models.hooked import HookedModel
from icl_interp.models.layers import MLP
from icl_interp.models.transformer import HookedTransformer

# Relative size below which a direction is not read, and a part not heard: rounding of float32.
ROUNDING = 1e-6
TINY = 1e-150
Directions = Float[Tensor, "d_model direction"]
Streams = Sequence[Float[Tensor, "*batch _"]]


def as_read(model: HookedModel, streams: Streams) -> list[Float[Tensor, "*batch _"]]:
    """The streams after 0, 1, ..., all blocks, in coordinates of what later parts read of them.

    The coordinates are those of any basis, so this is for what is the same in all orthonormal ones.
    A norm reads every coordinate, since its scale depends on all. So the stream of a model with
    norms is left as it is, and so is that of an adapted module, whose weights have no known place.

    Args:
        model: the model that the streams are of.
        streams: one for each depth, (..., d_model).

    Returns:
        One for each depth, (..., direction); a single 0 where nothing is read.

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> config = HookedTransformerConfig(n_layers=1, d_model=8, normalization_type=None)
    >>> model = HookedTransformer(config)
    >>> streams = [torch.randn(5, 8), torch.randn(5, 8)]
    >>> [tuple(one.shape) for one in as_read(model, streams)]
    [(5, 8), (5, 1)]
    """
    if not _has_unread(model):
        return list(streams)
    found = []
    for stream, directions in zip(streams, directions_read(model), strict=True):
        seen = stream @ directions.to(stream)
        found.append(seen if directions.shape[1] else torch.zeros_like(stream[..., :1]))
    return found


def projected(model: HookedModel, streams: Streams) -> list[Float[Tensor, "*batch d_model"]]:
    """The same in the coordinates of the stream: what nothing reads of it is 0.

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> config = HookedTransformerConfig(n_layers=1, d_model=8, normalization_type=None)
    >>> model = HookedTransformer(config)
    >>> last = torch.randn(2, 5, 8)
    >>> _, kept = projected(model, [last, last])
    >>> bool((model.unembed(kept) - model.unembed(last)).abs().max() < 1e-5)
    True
    """
    if not _has_unread(model):
        return list(streams)
    found = []
    for stream, directions in zip(streams, directions_read(model), strict=True):
        projector = directions @ directions.T
        found.append(stream @ projector.to(stream))
    return found


def _has_unread(model: HookedModel) -> TypeGuard[HookedTransformer]:
    """Whether there may be directions of the stream that nothing reads, and weights that tell."""
    return isinstance(model, HookedTransformer) and not model.cfg.normalization_type


def directions_read(model: HookedTransformer) -> list[Directions]:
    """Orthonormal directions that parts after 0, 1, ..., all blocks read, in float64.

    After the last block the read-out reads W_U. Before that it is what a block reads, as far as
    anything of what it makes of it is read later, and what is read after the block. The model has
    no norms.
    """
    cfg = model.cfg
    read_out = _exact(model.unembed.W_U)
    read = basis(read_out)
    found = [read]
    for block in reversed(list(model.blocks)):
        if not cfg.attn_only:
            further = _read_by_mlp(block.mlp, read)
            read = basis(torch.cat([read, further], 1))
        if not cfg.mlp_only:
            further = _read_by_attention(block.attn, read)
            read = basis(torch.cat([read, further], 1))
        found.append(read)
    found.reverse()
    return found


def basis(columns: Float[Tensor, "d_model column"]) -> Directions:
    """An orthonormal basis of what columns span, up to rounding of their weights.

    >>> tuple(basis(torch.tensor([[3.0, 1.0], [0.0, 0.0]])).shape)
    (2, 1)
    """
    directions, sizes, _ = torch.linalg.svd(columns, full_matrices=False)
    return directions[:, sizes > ROUNDING * columns.norm()]


def _exact(weight: Tensor) -> Tensor:
    return weight.detach().double()


def _read_by_mlp(mlp: MLP, later: Directions) -> Float[Tensor, "d_model _"]:
    """What hidden units read that write into one of the directions read later."""
    written = _exact(mlp.W_out)
    sizes = written.norm(dim=1)
    arrives = written @ later
    heard = arrives.norm(dim=1) > ROUNDING * sizes.max()
    return _exact(mlp.W_in)[:, heard]


def _read_by_attention(attn: Attention, later: Directions) -> Float[Tensor, "d_model _"]:
    """What heads read for values that arrive in a direction read later, and where they look."""
    value = _exact(attn.W_V)
    out = _exact(attn.W_O)
    # Of a constant value the size of a linear pattern arrives.
    constant = _exact(attn.b_V)
    sources = torch.cat([value, constant[:, None]], 1)
    arrives = sources @ out @ later
    # By head: how much arrives, and how large it could be.
    loud = arrives.flatten(1).norm(dim=1)
    largest = sources.flatten(1).norm(dim=1) * out.flatten(1).norm(dim=1)
    heard = loud > ROUNDING * largest.max()
    parts = [arrives[:, :-1], *_looks(attn)]
    columns = []
    for part in parts:
        # Of one size, so that none is rounding beside another.
        by_model = part[heard].transpose(0, 1).flatten(1)
        columns.append(by_model / by_model.norm().clamp(min=TINY))
    return torch.cat(columns, 1)


def _looks(attn: Attention) -> list[Float[Tensor, "head d_model _"]]:
    """What queries read that some key meets, and keys that some query meets."""
    query = _exact(attn.W_Q)
    key = _exact(attn.W_K)
    if attn.positions == "rotary":  # each column meets that of another one
        return [query, key]
    queries = torch.cat([query, _exact(attn.b_Q)[:, None]], 1)
    keys = torch.cat([key, _exact(attn.b_K)[:, None]], 1)
    return [query @ keys.mT, key @ queries.mT]
