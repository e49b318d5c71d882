"""Activation patching for prompts of numbers: which activation carries what tells prompts apart?

The model runs on a corrupted prompt with one activation replaced by its value on the clean prompt;
a metric of the output says how much of the clean answer comes back. (TransformerLens' own patching
reads the number of positions off the last axis of its input, which for tokens of shape (batch,
token, d_in) is d_in: it would patch one token only.)
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from tqdm.auto import tqdm
from xarray import DataArray

from icl_interp.errors import InputError, shown, unknown
from icl_interp.models.hooked import HookedModel
from icl_interp.models.transformer import model_in, tokens_in
from icl_interp.results import make_array

Metric = Callable[[Float[Tensor, "batch token d_out"]], Float[Tensor, ""] | float]
Where = Literal["token", "head"]

# The axes of each activation after the batch that can be patched, in their order; "token" is the
# query of a pattern.
_OF_TOKEN = (
    *("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_in", "mlp_out"),
    *("pre", "post"),
)
_OF_HEAD = ("q", "k", "v", "z", "result", "q_input", "k_input", "v_input")
AXES: dict[str, tuple[Where, ...]] = {
    **dict.fromkeys(_OF_TOKEN, ("token",)),
    **dict.fromkeys(_OF_HEAD, ("token", "head")),
    **dict.fromkeys(("attn_scores", "pattern"), ("head", "token")),
}


def patch(
    model: HookedModel,
    clean: Float[Tensor, "batch token d_in"],
    corrupted: Float[Tensor, "_ _ _"],
    metric: Metric,
    activation: str = "resid_pre",
    by: tuple[Where, ...] | None = None,
) -> DataArray:
    """The metric of a corrupted run with one activation at a time taken from the clean run.

    Source: Meng, Bau, Andonian & Belinkov (2022), *Locating and editing factual associations in
    GPT* (causal tracing); Zhang & Nanda (2023), *Towards best practices of activation patching in
    language models*, compares metrics.

    Args:
        model: runs on both prompts.
        clean: tokens whose activations are put in.
        corrupted: tokens the model runs on, of the same shape.
        metric: a number made of the model's output.
        activation: TransformerLens' short name of a hook: one of `AXES`.
        by: which places are patched one by one; along the others all are patched at once. Default:
            every token and, where there are heads, every head.

    Returns:
        The metric over "layer" and the axes of `by`.

    Raises:
        InputError: an activation or axis that cannot be patched, one that the model does not have,
            or clean and corrupted tokens of two shapes.

    >>> import torch
    >>> from icl_interp import HookedTransformer, HookedTransformerConfig
    >>> config = HookedTransformerConfig(n_layers=2, d_model=8, n_heads=2, init_std=1.0)
    >>> model = HookedTransformer(config)
    >>> clean, corrupted = torch.zeros(1, 5, 1), torch.ones(1, 5, 1)
    >>> result = patch(model, clean, corrupted, lambda out: out[0, -1, 0], "z")
    >>> dict(result.sizes)
    {'layer': 2, 'token': 5, 'head': 2}

    With the whole stream before a block, all of the clean answer comes back, at every layer:

    >>> metric = lambda out: out[0, -1, 0]
    >>> whole = patch(model, clean, corrupted, metric, "resid_pre", by=())
    >>> torch.allclose(torch.tensor(whole.values), metric(model(clean)).double(), atol=1e-5)
    True
    """
    if activation not in AXES:
        raise unknown("activation", activation, AXES)
    if by is None:
        by = ("token", "head") if "head" in AXES[activation] else ("token",)
    for name in by:
        if name not in AXES[activation]:
            raise InputError(
                f"{activation} has no axis {name!r}: patch it by {' and '.join(AXES[activation])}"
            )
    holder = model
    model = model_in(holder)
    clean = tokens_in(clean, holder)
    corrupted = tokens_in(corrupted, holder)
    if clean.shape != corrupted.shape:
        raise InputError(
            f"clean and corrupted tokens must have one shape, but got {tuple(clean.shape)} and "
            f"{tuple(corrupted.shape)}"
        )
    names = hooks_of(activation, model)
    axes: dict[str, range] = {}
    for name, n in sizes_of(model, by, clean.shape[1]).items():
        axes[name] = range(n)
    places = list(product(*axes.values()))
    values: list[float] = []
    with torch.no_grad():
        _, cache = model.run_with_cache(clean, names_filter=names)
        # No bar without a terminal.
        for layer, *place in tqdm(places, desc="patching", leave=False, disable=None):
            name = names[layer]
            put = partial(_put, activation, dict(zip(by, place, strict=True)), cache[name])
            out = model.run_with_hooks(corrupted, fwd_hooks=[(name, put)])
            values.append(_number(metric(out)))
    shape = list(map(len, axes.values()))
    note = f"metric with {activation} patched in from the clean run"
    return make_array(np.reshape(values, shape), axes, note=note)


def hook_of(activation: str, layer: int) -> str:
    """The full name of a hook, from TransformerLens' short one.

    >>> hook_of("z", 1), hook_of("post", 0), hook_of("q_input", 0)
    ('blocks.1.attn.hook_z', 'blocks.0.mlp.hook_post', 'blocks.0.hook_q_input')
    """
    part = ""
    if activation in ("pre", "post"):
        part = "mlp."
    elif "head" in AXES[activation] and not activation.endswith("_input"):
        part = "attn."
    return f"blocks.{layer}.{part}hook_{activation}"


def hooks_of(activation: str, model: HookedModel) -> list[str]:
    """The full names of an activation's hooks in all layers of a model.

    Raises:
        InputError: the model does not have one of them, or no layer.
    """
    n_layers = max(model.cfg.n_layers, 1)
    names = [hook_of(activation, layer) for layer in range(n_layers)]
    model.check_hooks(names)
    return names


def sizes_of(model: HookedModel, by: tuple[Where, ...], n_tokens: int) -> dict[str, int]:
    """How many places there are, by "layer" and the names in `by`, in their order."""
    sizes = {"layer": model.cfg.n_layers}
    for name in by:
        sizes[name] = n_tokens if name == "token" else model.cfg.n_heads
    return sizes


def _number(value: object) -> float:
    """What a metric returned, if it is one number."""
    try:
        return float(value)  # pyright: ignore[reportArgumentType] (what it cannot take, it says)
    except (TypeError, ValueError, RuntimeError) as error:
        what = shown(value)
        if isinstance(value, (Tensor, np.ndarray)):
            what = f"shape {tuple(value.shape)}"
        raise InputError(
            "metric must return one number for the whole output, for example lambda out: out[:, "
            f"-1].square().mean(), but returned {what}"
        ) from error


def _put(
    activation: str, place: dict[Where, int], clean: Tensor, corrupted: Tensor, hook: object
) -> Tensor:
    """`corrupted` with one place taken from `clean`; along axes that are not named, all of it."""
    where = [slice(None), *(place.get(name, slice(None)) for name in AXES[activation])]
    patched = corrupted.clone()
    patched[tuple(where)] = clean[tuple(where)]
    return patched
