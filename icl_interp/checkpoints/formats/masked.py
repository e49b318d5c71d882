"""GPT-2's finite mask: whether scores can come so low that a token sees those after it.

Older versions of `transformers` put `attn.masked_bias` (-1e4) where a score is masked. The softmax
then hides these keys only as long as visible scores are far above it.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator

MARGIN = 20.0  # exp(-20) = 2e-9: what a masked key may weigh beside a visible one
SIZES = (1.0, 10.0, 100.0)  # of the tokens that are tried
N_TRIED = 64


def check(model: HookedTransformer, masks: Mapping[str, Tensor], where: object) -> str | None:
    """Refuse a model whose scores come down to a finite mask of its file.

    Args:
        model: with weights of the file; its own masked scores are -inf.
        masks: the mask buffers of the file.
        where: the file, for messages.

    Returns:
        A note where weights allow such scores, but none of the tokens that were tried has them.

    Raises:
        InputError: some tokens that were tried have them.
    """
    constant = -math.inf
    for name, mask in masks.items():
        if name.endswith("masked_bias"):
            constant = max(constant, float(mask.max()))
    floor = constant + MARGIN
    if model.cfg.attention_dir != "causal" or -_largest(model) > floor:
        return None
    lowest = math.inf
    for size in SIZES:
        lowest = min(lowest, _lowest(model, size))
    if lowest <= floor:
        raise InputError(
            f"{where}: its masked_bias is {constant:g}, and visible scores come down to "
            f"{lowest:.3g}, so that tokens see those after them, which no model here does"
        )
    return (
        f"masked_bias is {constant:g}, which scores may reach on other inputs than were "
        "tried: there the original would see later tokens, and this copy does not."
    )


def _largest(model: HookedTransformer) -> float:
    """A number that no score's size exceeds: |q| |k| / sqrt(d_head) for all normalised streams."""
    cfg = model.cfg
    bound = 0.0
    for i in range(cfg.n_layers):
        here = f"blocks.{i}"
        longest = _longest(model, here, "Q") * _longest(model, here, "K")
        bound = max(bound, float(longest.max()))
    return bound / math.sqrt(cfg.head_width) if cfg.use_attn_scale else bound


def _longest(model: HookedTransformer, block: str, letter: str) -> Tensor:
    """A length that no query (or key) of each head exceeds."""
    state = model.state_dict()
    weight = state[f"{block}.attn.W_{letter}"].double()
    bias = state[f"{block}.attn.b_{letter}"].double()
    gain = state[f"{block}.ln1.w"].double()
    shift = state[f"{block}.ln1.b"].double()
    # A normalised stream is no longer than sqrt(d_model).
    stretch = torch.linalg.matrix_norm(gain[:, None] * weight, ord=2)
    constant = shift @ weight + bias
    return math.sqrt(model.cfg.d_model) * stretch + constant.norm(dim=-1)


def _lowest(model: HookedTransformer, size: float) -> float:
    """The least score that is a query's largest, over random tokens of a size."""
    shape = (N_TRIED, model.cfg.n_ctx, model.cfg.d_in)
    tokens = size * torch.randn(shape, generator=generator(0, "masked bias"))
    with torch.no_grad():
        _, cache = model.run_with_cache(
            tokens, names_filter=lambda name: name.endswith("hook_attn_scores")
        )
    lowest = math.inf
    for scores in cache.values():
        lowest = min(lowest, float(scores.amax(-1).min()))
    return lowest
