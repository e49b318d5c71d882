"""Models from elsewhere: anything with TransformerLens' config words, weight names and hook names."""

from dataclasses import fields
from typing import Any

import torch
from torch import nn

from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError
from icl_interp.models import tokens, weights
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import build, generator
from icl_interp.tasks.base import Task

_BUFFERS = ("attn.mask", "attn.IGNORE")  # TransformerLens 2 and 3 keep these in the state dict
TOLERANCE = 1e-4  # of the largest output


def as_checkpoint(model: Any, task: Task, encoding: Encoding | str | None = None) -> Checkpoint:
    """A bare model with the task that it is asked about, and how it reads that task's prompts.

    Args:
        model: see `adopt`.
        task: what the model is asked about.
        encoding: "interleaved" or "stacked", where the model's width does not tell.

    Raises:
        InputError: what `adopt` refuses, or prompts that do not fit the model.
    """
    model = adopt(model)
    encoding = tokens.named(encoding) if isinstance(encoding, str) else encoding
    encoding = encoding or tokens.infer(model.cfg.d_in, task.dim)
    config = RunConfig(model.cfg, task, tokens.name_of(encoding))
    return Checkpoint(model, task, encoding, config, provenance={"name": "bare model"})


def adopt(model: Any) -> HookedTransformer:
    """A `HookedTransformer` with the weights of a model that speaks TransformerLens' names.

    The copy is checked against the original on random prompts, so a model that merely shares the names is refused.

    Raises:
        InputError: no config or weights of that form, tensors that do not fit or hold NaN or infinity (named), or
            other outputs.
    """
    if isinstance(model, HookedTransformer):
        weights.check_finite(model.named_parameters(), "the model")
        return model
    if not isinstance(model, nn.Module) or not hasattr(model, "cfg"):
        raise InputError(
            "a model is given as a run folder, a bundled model's name, a Checkpoint, or a model with TransformerLens' "
            f"hook names and a cfg, but got {type(model).__name__}; for another kind of predictor, evaluate takes any "
            "object with predict(prompts)"
        )
    state = {name: t for name, t in model.state_dict().items() if not name.endswith(_BUFFERS)}
    weights.check_finite(model.named_parameters(), "the model")
    words = {f.name: getattr(model.cfg, f.name) for f in fields(HookedTransformerConfig) if hasattr(model.cfg, f.name)}
    if "embed.W_E" not in state or "unembed.W_U" not in state:
        raise InputError("the model has no embed.W_E and unembed.W_U: its weights do not have TransformerLens' names")
    words |= {"d_in": state["embed.W_E"].shape[0], "d_out": state["unembed.W_U"].shape[1]}
    words["positional_embedding_type"] = "standard" if "pos_embed.W_pos" in state else "none"
    copy = HookedTransformer(build(HookedTransformerConfig, words, "the model's cfg"))
    wanted = copy.state_dict()
    state.setdefault("embed.b_E", torch.zeros_like(wanted["embed.b_E"]))
    for name in sorted({*state, *wanted}):
        found = tuple(state[name].shape) if name in state else None
        needed = tuple(wanted[name].shape) if name in wanted else None
        if found != needed:
            raise InputError(f"the tensor {name} has shape {found}, but this config asks for {needed}")
    copy.load_state_dict(state)
    _compare(copy.eval(), model)
    return copy


def _compare(copy: HookedTransformer, model: nn.Module) -> None:
    random = torch.randn(2, copy.cfg.n_ctx, copy.cfg.d_in, generator=generator(0, "adopt"))
    was_training = model.training
    try:
        with torch.no_grad():
            ours, theirs = copy(random), model.eval()(random.to(next(model.parameters()))).cpu()
    except Exception as error:
        reason = " ".join(str(error).split())
        raise InputError(f"the model does not run on tokens of shape {tuple(random.shape)}: {reason}") from error
    finally:
        model.train(was_training)
    if ours.shape != theirs.shape:
        raise InputError(f"the model's output has shape {tuple(theirs.shape)}, but {tuple(ours.shape)} was expected")
    difference = float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-30))
    if not difference <= TOLERANCE:
        raise InputError(
            f"the model's outputs differ by {difference:.1e} of their size from those of a HookedTransformer with its "
            "config and weights, so hook names would mean something else in it"
        )
