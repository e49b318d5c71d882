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
    mine: HookedTransformer, model: nn.Module, call: Callable[..., Any] | None = None
) -> Encoding | None:
    """Refuse a copy whose outputs on random prompts are not those of the model that it was made of.

    Args:
        mine: the copy, of the same weights.
        model: the original. It takes tokens, or the inputs (batch, point, dim) and labels (batch,
            point) of prompts.
        call: what computes its outputs, where that is not the model itself.

    Returns:
        The encoding, where the original takes inputs and labels, and so encodes them by itself.

    Raises:
        InputError: the model does not run, or other outputs.
    """
    call = call or model
    inputs, ours, encoding = _inputs(mine, call)
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
    if not isinstance(theirs, Tensor):
        raise InputError(f"the model returns a {type(theirs).__name__}, but a tensor was expected")
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
    mine: HookedTransformer, call: Callable[..., Any]
) -> tuple[list[Tensor], Tensor, Encoding | None]:
    """Random inputs as the model takes them, our outputs on them, and the encoding that it does itself."""
    cfg, rng = mine.cfg, generator(0, "adopt")
    with torch.no_grad():
        if _takes_labels(call):
            n = cfg.n_ctx // 2
            xs, ys = torch.randn(2, n, cfg.d_in, generator=rng), torch.randn(2, n, generator=rng)
            prompts = Prompts(xs, ys, ys[:, :1], torch.arange(2))
            encoding = Interleaved()
            return [xs, ys], mine(encoding.encode(prompts))[:, ::2, 0], encoding
        tokens = torch.randn(2, cfg.n_ctx, cfg.d_in, generator=rng)
        return [tokens], mine(tokens), None


def _takes_labels(call: Callable[..., Any]) -> bool:
    """Whether inputs and labels are two arguments, as in the models of Garg et al. (2022): by number or by name."""
    function = call.forward if isinstance(call, nn.Module) else call
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = [p for p in inspect.signature(function).parameters.values() if p.kind in positional]
    needed = [p for p in found if p.default is p.empty]
    return len(needed) == 2 or (len(needed) == 1 < len(found) and found[1].name in _LABELS)
