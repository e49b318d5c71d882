"""GPT-2's finite mask: whether scores can come so low that a token sees those after it.

Older versions of `transformers` put `attn.masked_bias` (-1e4) where a score is masked. The softmax
then hides these keys only as long as visible scores are far above it.
"""

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
    constants = [mask.double() for name, mask in masks.items() if name.endswith("masked_bias")]
    if not constants or model.cfg.attention_dir != "causal":
        return None
    floor = max(float(constant.max()) for constant in constants) + MARGIN
    if -_largest(model) > floor:
        return None
    lowest = min(_lowest(model, size) for size in SIZES)
    if lowest <= floor:
        raise InputError(
            f"{where}: its masked_bias is {floor - MARGIN:g}, and visible scores come down to "
            f"{lowest:.3g}, so that tokens see those after them, which no model here does"
        )
    return (
        f"masked_bias is {floor - MARGIN:g}, which scores may reach on other inputs than were "
        "tried: there the original would see later tokens, and this copy does not."
    )


def _largest(model: HookedTransformer) -> float:
    """A number that no score's size exceeds: |q| |k| / sqrt(d_head) for all normalised streams."""
    bound = 0.0
    width = model.cfg.d_model**0.5
    state = {name: tensor.double() for name, tensor in model.state_dict().items()}
    scale = model.cfg.head_width**0.5 if model.cfg.use_attn_scale else 1.0
    for i in range(model.cfg.n_layers):
        gain = state[f"blocks.{i}.ln1.w"]
        shift = state[f"blocks.{i}.ln1.b"]
        lengths = []
        for letter in "QK":
            weight = state[f"blocks.{i}.attn.W_{letter}"]
            constant = shift @ weight + state[f"blocks.{i}.attn.b_{letter}"]
            stretch = torch.linalg.matrix_norm(gain[:, None] * weight, ord=2)
            lengths.append(width * stretch + constant.norm(dim=-1))
        bound = max(bound, float((lengths[0] * lengths[1]).max()) / scale)
    return bound


def _lowest(model: HookedTransformer, size: float) -> float:
    """The least score that is a query's largest, over random tokens of a size."""
    shape = (N_TRIED, model.cfg.n_ctx, model.cfg.d_in)
    tokens = size * torch.randn(shape, generator=generator(0, "masked bias"))
    with torch.no_grad():
        _, cache = model.run_with_cache(
            tokens, names_filter=lambda name: name.endswith("hook_attn_scores")
        )
    return min(float(scores.amax(-1).min()) for scores in cache.values())
