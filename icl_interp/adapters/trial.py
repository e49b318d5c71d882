"""What is tried on a module when it is adapted, so that nothing about it is guessed."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from icl_interp.adapters import norms
from icl_interp.adapters.adapted import Adapted, Sizes
from icl_interp.adapters.spots import NormSpot, Spot
from icl_interp.adapters.sums import why_no_sum
from icl_interp.errors import InputError

SAME = 1e-5  # of the largest number, in float32
BY_HEAD = ("hook_q", "hook_k", "hook_v", "hook_z")
STREAM_BY_HEAD = ("hook_result", "hook_q_input", "hook_k_input", "hook_v_input")
AXES = {
    "hook_pattern": "(batch, head, query, key)",
    "hook_attn_scores": "(batch, head, query, key)",
    **dict.fromkeys(BY_HEAD, "(batch, token, head, d_head)"),
    **dict.fromkeys(STREAM_BY_HEAD, "(batch, token, head, width)"),
}
STREAM = "(batch, token, width)"


@dataclass
class Seen:
    """What a run showed.

    Attributes:
        out: its predictions. values: the activation at each hook point, by name.
        widest: numbers a token in the widest output of a submodule.
    """

    out: Tensor
    values: dict[str, Tensor] = field(default_factory=dict)
    widest: int = 1


def settle(model: Adapted, tokens: Tensor) -> None:
    """Try a module on tokens, and write what comes out into its `cfg` and its hook points.

    Raises:
        InputError: it does not run; its predictions change from run to run; a place is not
            reached, or has another shape than its hook point; a norm divides by no scale; or the
            read-out makes other predictions of the last stream than the module.
    """
    out = _first_run(model, tokens)
    _tell_norms(model, tokens)
    seen = _look(model, tokens)
    _check_same(seen.out, out, "attaching functions that only read changes its predictions")
    _check_shapes(model, seen.values, tokens)
    _tell_used(model, tokens, out)
    for name, value in seen.values.items():
        if name.endswith("hook_pattern") and not _adds_up(value):
            model.distributions = False
    model.cfg = Sizes(
        n_layers=_n_layers(model),
        d_in=tokens.shape[-1],
        d_out=out.shape[-1],
        n_params=sum(weight.numel() for weight in model.module.parameters()),
        widest=seen.widest,
        attention_dir="causal" if _is_causal(model, tokens, out) else "bidirectional",
        device=str(model.numbers.device),
        width=_width(seen.values),
        heads=_heads(seen.values),
        has_norms=bool(model.norms),
    )
    model.no_sum = why_no_sum(model, tokens)
    if model.readout:
        _check_readout(model, seen)


def _first_run(model: Adapted, tokens: Tensor) -> Tensor:
    try:
        with torch.no_grad():
            out = model(tokens)
            again = model(tokens)
    except InputError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"the module does not run on tokens of shape {tuple(tokens.shape)}: {reason}; give "
            "example=tokens that it reads, or call=lambda module, tokens: ... that runs it"
        ) from error
    _check_same(
        again,
        out,
        "its predictions change from run to run; where dropout does that, call module.eval() first",
    )
    return out


def _check_same(new: Tensor, old: Tensor, what: str) -> None:
    if not bool((new - old).abs().max() <= SAME * old.abs().max().clamp(min=1e-30)):
        raise InputError(f"this module cannot be adapted: {what}")


def _tell_norms(model: Adapted, tokens: Tensor) -> None:
    """The kind of each norm, from one of its inputs and outputs."""
    for spot in model.norms.values():
        held: dict[str, Any] = {}

        def keep(module: nn.Module, args: Any, kwargs: Any, out: Any, held: Any = held) -> None:
            held["x"], held["out"] = (args or tuple(kwargs.values()))[0], out

        submodule = spot.place.within(model.module)
        handle = submodule.register_forward_hook(keep, with_kwargs=True)
        try:
            with torch.no_grad():
                model(tokens)
        finally:
            handle.remove()
        if not held:
            model._check_reached(spot, 0)
        if not isinstance(held["x"], Tensor) or not isinstance(held["out"], Tensor):
            raise InputError(f"{spot.place.module!r} is no norm: it does not map tensor to tensor")
        spot.kind = norms.told(submodule, held["x"], held["out"], spot.place.module)


def _look(model: Adapted, tokens: Tensor) -> Seen:
    """A run with every hook point read, and with the output of every submodule measured."""
    values: dict[str, Tensor] = {}
    sizes = [tokens.shape[-1]]

    def read(t: Tensor, hook: Any) -> None:
        values[hook.name] = t.detach().clone()

    def measure(module: nn.Module, args: Any, out: Any) -> None:
        if isinstance(out, Tensor):
            sizes.append(-(-out.numel() // (tokens.shape[0] * tokens.shape[1])))

    with ExitStack() as stack:
        for part in model.module.modules():
            handle = part.register_forward_hook(measure)
            stack.callback(handle.remove)
        fwd_hooks = [(name, read) for name in model.hook_dict]
        stack.enter_context(model.hooks(fwd_hooks=fwd_hooks))
        stack.enter_context(torch.no_grad())
        out = model(tokens)
    return Seen(out, values, max(sizes))


def _check_shapes(model: Adapted, values: dict[str, Tensor], tokens: Tensor) -> None:
    """Refuse activations that are not those of their hook points."""
    n, n_tokens = tokens.shape[:2]
    width = _width(values)
    # The axes follow from the end of a hook point's name.
    for spot in model.spots:
        last = spot.name.rpartition(".")[2]
        shape = tuple(values[spot.name].shape)
        axes = AXES.get(last, STREAM)
        if isinstance(spot, NormSpot):
            continue
        if last in ("hook_pattern", "hook_attn_scores"):
            fits = len(shape) == 4 and (shape[0], *shape[2:]) == (n, n_tokens, n_tokens)
        elif last in BY_HEAD:
            fits = len(shape) == 4 and shape[:2] == (n, n_tokens)
        elif last in STREAM_BY_HEAD:
            fits = len(shape) == 4 and shape[:2] == (n, n_tokens)
            fits = fits and width in (None, shape[3])
        else:
            fits = len(shape) == 3 and shape[:2] == (n, n_tokens)
            if last.startswith("hook_resid"):
                fits = fits and shape[2] == width
        if not fits:
            raise InputError(
                f"{spot.name} needs {axes} with {n} prompts of {n_tokens} tokens"
                f"{_of_width(last, width)}, but {spot.place} has shape {shape}: name another "
                "place, or give Place(..., take=...)"
            )


def _of_width(last: str, width: int | None) -> str:
    return f" and one width ({width}) everywhere" if last.startswith("hook_resid") else ""


def _tell_used(model: Adapted, tokens: Tensor, out: Tensor) -> None:
    """Which hook points reach the output: by the gradient, and else by an edit of each."""
    zeros: dict[str, Tensor] = {}

    def add(t: Tensor, hook: Any) -> Tensor:
        zeros[hook.name] = torch.zeros_like(t, requires_grad=True)
        return t + zeros[hook.name]

    spots = [spot for spot in model.spots if spot.used]
    with torch.enable_grad(), model.hooks(fwd_hooks=[(spot.name, add) for spot in spots]):
        total = model(tokens).sum()
    gradients: Sequence[Tensor | None] = [None] * len(zeros)
    if zeros and total.requires_grad:
        gradients = torch.autograd.grad(total, list(zeros.values()), allow_unused=True)
    by_name = dict(zip(zeros, gradients, strict=True))
    for spot in spots:
        if by_name[spot.name] is None:
            spot.used = _moves(model, spot, tokens, out)


def _moves(model: Adapted, spot: Spot, tokens: Tensor, out: Tensor) -> bool:
    """Whether another activation there gives other predictions."""
    with torch.no_grad(), model.hooks(fwd_hooks=[(spot.name, lambda t, hook: 2 * t + 1)]):
        return not torch.equal(model(tokens), out)


def _adds_up(pattern: Tensor) -> bool:
    total = pattern.sum(-1)
    return bool((pattern >= 0).all() and (total - 1).abs().max() < SAME * 10)


def _n_layers(model: Adapted) -> int:
    blocks = set()
    for name in model.hook_dict:
        parts = name.split(".")
        if parts[0] == "blocks":
            blocks.add(parts[1])
    return len(blocks)


def _width(values: dict[str, Tensor]) -> int | None:
    for name, value in values.items():
        if "hook_resid" in name:
            return value.shape[-1]
    return None


def _heads(values: dict[str, Tensor]) -> int | None:
    counts = []
    for name, value in values.items():
        if name.endswith("hook_pattern"):
            counts.append(value.shape[1])
        if name.rpartition(".")[2] in (*BY_HEAD, *STREAM_BY_HEAD):
            counts.append(value.shape[2])
    if len(set(counts)) > 1:
        raise InputError(
            f"layers have different numbers of heads ({_listed(counts)}), which no probe here reads"
        )
    return counts[0] if counts else None


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts))


def _is_causal(model: Adapted, tokens: Tensor, out: Tensor) -> bool:
    """Whether other last tokens leave the predictions before them."""
    others = tokens.clone()
    others[:, -1] = -others[:, -1] - 1
    with torch.no_grad():
        moved = (model(others) - out)[:, :-1].abs().max()
    return bool(moved <= SAME * out.abs().max())


def _check_readout(model: Adapted, seen: Seen) -> None:
    """Refuse a read-out that is not what the module makes predictions with."""
    last = f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"
    if last not in seen.values:
        raise InputError("readout=[...] reads the residual stream: give residual=[...] as well")
    with torch.no_grad():
        made = model.read_out(seen.values[last])
    if made.shape != seen.out.shape:
        raise InputError(
            f"readout={list(model.readout)} makes {tuple(made.shape)} of the last stream, but the "
            f"module predicts {tuple(seen.out.shape)}"
        )
    _check_same(
        made,
        seen.out,
        f"readout={list(model.readout)} makes other predictions of its last stream than it does",
    )
