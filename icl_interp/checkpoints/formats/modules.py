"""Models in memory: whether a copy of one computes what the original computes."""

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from icl_interp.errors import InputError
from icl_interp.models.tokens import Encoding, Interleaved
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator

TOLERANCE = 1e-5  # of the largest output, in float32
_LABELS = ("ys", "y")  # what a second argument for labels is called


def unwrapped(model: Any) -> Any:
    """The model in what torch.compile and DataParallel make of it; anything else as it is."""
    while isinstance(model, nn.Module):
        inner = getattr(model, "_orig_mod", None)
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            inner = model.module
        if not isinstance(inner, nn.Module):
            break
        model = inner
    return model


def compare(
    mine: HookedTransformer,
    model: nn.Module,
    call: Callable[..., Any] | None = None,
    dim: int | None = None,
) -> Encoding | None:
    """Refuse a copy whose outputs on random prompts are not those of the model that it was made of.

    Args:
        mine: the copy, of the same weights.
        model: the original. It takes tokens, or the inputs (batch, point, dim) and labels (batch,
            point) or (batch, point, target) of prompts, and may leave out the last axis of scalar
            values.
        call: what computes its outputs, where that is not the model itself.
        dim: coordinates of an input, where values may be wider.

    Returns:
        The encoding, where the original takes inputs and labels, and so encodes them by itself.

    Raises:
        InputError: the model does not run, or other outputs.
    """
    # Both outputs, on the same inputs.
    call = call or model
    inputs, ours, encoding = _inputs(mine, call, dim or mine.cfg.d_in)
    if next(model.parameters()).dtype in (torch.float16, torch.bfloat16):
        # Arithmetic in 8 or 11 bits differs by more than a wrong model may: the same weights are
        # compared in float32.
        model, call = copy.deepcopy((model, call))
        model.float()
    first = next(model.parameters())
    was_training = model.training
    try:
        model.eval()
        with torch.no_grad():
            theirs = call(*(tensor.to(first) for tensor in inputs))
    except Exception as error:
        reason = " ".join(str(error).split())
        shapes = " and ".join(str(tuple(tensor.shape)) for tensor in inputs)
        what = "inputs and labels" if encoding else "tokens"
        raise InputError(f"the model does not run on {what} of shape {shapes}: {reason}") from error
    finally:
        model.train(was_training)

    # They must have one shape and be the same numbers, but for rounding.
    if not isinstance(theirs, Tensor):
        raise InputError(f"the model returns a {type(theirs).__name__}, but a tensor was expected")
    if encoding and theirs.shape == ours.shape[:2] and ours.shape[2] == 1:
        theirs = theirs[..., None]
    if ours.shape != theirs.shape:
        raise InputError(
            f"the model's output has shape {tuple(theirs.shape)}, but {tuple(ours.shape)} was "
            "expected"
        )
    theirs = theirs.to(ours)
    difference = float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-30))
    if not difference <= TOLERANCE:
        raise InputError(
            f"the model's outputs differ by {difference:.1e} of their size from those of a "
            "HookedTransformer with its config and weights, so hook names would mean something "
            "else in it"
        )
    return encoding


def _inputs(
    mine: HookedTransformer, call: Callable[..., Any], dim: int
) -> tuple[list[Tensor], Tensor, Encoding | None]:
    """Random inputs as the model takes them, our outputs on them, and the model's own encoding.

    The encoding is None for a model that takes tokens.
    """
    cfg = mine.cfg
    rng = generator(0, "adopt")
    with torch.no_grad():
        if _takes_labels(call):
            n = cfg.n_ctx // 2
            xs = torch.randn(2, n, dim, generator=rng)
            ys = torch.randn(2, n, cfg.d_out, generator=rng)
            shown_ys = ys[..., 0] if cfg.d_out == 1 else ys
            prompts = Prompts(xs, shown_ys, ys[:, :1, 0], torch.arange(2))
            encoding = Interleaved()
            return [xs, shown_ys], mine(encoding.encode(prompts))[:, ::2], encoding
        tokens = torch.randn(2, cfg.n_ctx, cfg.d_in, generator=rng)
        return [tokens], mine(tokens), None


def _takes_labels(call: Callable[..., Any]) -> bool:
    """Whether inputs and labels are two arguments, as in the models of Garg et al. (2022).

    The number or the names of the arguments decide.
    """
    function = call.forward if isinstance(call, nn.Module) else call
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = []
    n_needed = 0
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in positional:
            names.append(parameter.name)
            n_needed += parameter.default is parameter.empty
    return n_needed == 2 or (n_needed == 1 < len(names) and names[1] in _LABELS)
