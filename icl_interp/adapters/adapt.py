"""`icl_interp.adapt`: names what plays the part of our hook points in any module."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icl_interp.adapters.adapted import Adapted
from icl_interp.adapters.place import Place
from icl_interp.adapters.spots import NormSpot, Spot
from icl_interp.adapters.trial import settle
from icl_interp.errors import InputError, several, shown
from icl_interp.models import tokens as encodings
from icl_interp.models.tokens import Encoding
from icl_interp.provenance import generator
from icl_interp.tasks.base import Task

Named = str | Place
N_PROMPTS = 2  # of the trial
N_POINTS = 4
# What an adapted module has under these names is no hook point.
RESERVED = ("task", "module", "spots", "readout", "call", "unembed", "distributions", "hook_dict")


def adapt(
    module: nn.Module,
    *,
    encoding: Encoding | str,
    residual: Sequence[Named] = (),
    norms: Sequence[Named] | Mapping[str, Named] = (),
    patterns: Sequence[Named] = (),
    scores: Sequence[Named] = (),
    points: Mapping[str, Named] | None = None,
    readout: Sequence[str] = (),
    call: Callable[[nn.Module, Tensor], Tensor] | None = None,
    example: Float[Tensor, "batch token d_in"] | None = None,
    task: Task | None = None,
) -> Adapted:
    """A module as it is, with hook points where its submodules play their part.

    Nothing is converted and no weight is copied. `icl_interp.probe`, `icl_interp.intervene` and
    `icl_interp.interventions.patch` run on the result where what they use was named, and else say
    what they lack. `icl_interp.analyze` and `icl_interp.evaluate` take it as a predictor.

    The module is tried on random tokens: each place must be reached once in a run and have the
    shape of its hook point, each norm must divide by a scale, and the read-out must make the
    module's own predictions. An edit that would change nothing is refused later, where it is made.

    Args:
        module: takes tokens (batch, token, d_in) and predicts at every token, (batch, token, d_out)
            or (batch, token). In evaluation mode.
        encoding: how it reads prompts, by object or by name.
        residual: the residual stream before the first block and after each of them, so one more
            than there are blocks: `blocks.0.hook_resid_pre`, then `blocks.i.hook_resid_post`. What
            leaves a block enters the next one, so it is `blocks.i.hook_resid_pre` there, too.
        norms: what divides by a scale: `NAME.hook_scale`, with a name of our own ("ln_final") where
            a mapping gives one, and else the submodule's.
        patterns: attention weights (batch, head, query, key) of each layer, for
            `blocks.i.attn.hook_pattern`. A place after softmax whose output is used on.
        scores: what becomes the pattern, likewise, -inf where a key is hidden.
        points: further hook points by their names, such as `blocks.0.attn.hook_z`.
        readout: the submodules that make predictions of the last stream, in their order: for
            `LogitLens`.
        call: runs the module on tokens, where `module(tokens)` does not: `(module, tokens)`.
        example: tokens for the trial. By default random ones, as wide as the first `nn.Linear`.
        task: what prompts are drawn from, where a tool draws them: `circuits.circuit` needs one.

    Raises:
        InputError: a submodule that does not exist, or whatever the trial refuses.

    >>> import torch
    >>> import icl_interp
    >>> body = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 8), nn.Linear(8, 1))
    >>> model = icl_interp.adapt(body, encoding="interleaved", residual=["0", "2"], readout=["3"])
    >>> found = icl_interp.probe(model, torch.randn(4, 5, 1), [icl_interp.probes.LogitLens()])
    >>> found["logit_lens.prediction"].sizes["depth"]
    2
    """
    if task is not None and not isinstance(task, Task):
        raise InputError(f"task must be a task, of icl_interp.tasks, but got {shown(task)}")
    if not isinstance(module, nn.Module):
        raise InputError(f"adapt takes a torch module, but got {shown(module)}")
    # Hook points, and where each is.
    named = _named(residual, norms, patterns, scores, points or {})
    spots: list[Spot] = []
    for name, place in named.items():
        place.within(module)
        if not name.endswith(".hook_scale") and not name.rpartition(".")[2].startswith("hook_"):
            raise InputError(f"a hook point is called like blocks.0.hook_mlp_out, not {name!r}")
        if hasattr(Adapted, first := name.partition(".")[0]) or first in RESERVED:
            raise InputError(
                f"the hook point {name} cannot be called so, as {first!r} means something else "
                "here: give norms={'ln_final': ...}, with names of your own"
            )
        spots.append(NormSpot(name, place) if name.endswith(".hook_scale") else Spot(name, place))
    # What the module is, the trial tells.
    parts = several(readout, "readout")
    for part in parts:
        Place.of(part).within(module)
    model = Adapted(module, encodings.named(encoding), spots, parts, call, task)
    settle(model, _example(model) if example is None else example.to(model.numbers))
    return model


def _named(
    residual: Sequence[Named],
    norms: Sequence[Named] | Mapping[str, Named],
    patterns: Sequence[Named],
    scores: Sequence[Named],
    points: Mapping[str, Named],
) -> dict[str, Place]:
    """Places by the names of their hook points."""
    # By layer.
    found = _stream(residual)
    n_blocks = len(found) // 2
    further: dict[str, Place] = {}
    for kind, given in (("pattern", patterns), ("attn_scores", scores)):
        places = several(given, kind)
        if found and places and len(places) != n_blocks:
            raise InputError(
                f"residual names {n_blocks} blocks, but there are {len(places)} places for "
                f"hook_{kind}: one a block is needed (without residual there may be any number)"
            )
        for i, place in enumerate(places):
            further[f"blocks.{i}.attn.hook_{kind}"] = Place.of(place)
    # By name.
    if not isinstance(norms, Mapping):
        norms = {Place.of(each).module: each for each in several(norms, "norms")}
    for name, place in norms.items():
        further[f"{name}.hook_scale"] = Place.of(place)
    for name, place in points.items():
        if name in found or name in further:
            raise InputError(f"{name} was named twice")
        further[name] = Place.of(place)
    return found | further


def _stream(residual: Sequence[Named]) -> dict[str, Place]:
    """Places of the residual stream by the names of their hook points."""
    places = [Place.of(each) for each in several(residual, "residual")]
    if len(places) == 1:
        raise InputError(
            "residual=[...] names the stream before the first block and after each: two places at "
            "least"
        )
    found: dict[str, Place] = {}
    for i, place in enumerate(places):
        if i:
            found[f"blocks.{i - 1}.hook_resid_post"] = place
        if i < len(places) - 1:
            found[f"blocks.{i}.hook_resid_pre"] = place
    return found


def _example(model: Adapted) -> Tensor:
    """Random tokens as wide as the first linear layer."""
    wide = next((m.in_features for m in model.module.modules() if isinstance(m, nn.Linear)), None)
    if wide is None:
        raise InputError(
            "the width of this module's tokens cannot be seen, because it has no nn.Linear: give "
            "example=tokens, (batch, token, d_in)"
        )
    encoding: Any = model.encoding
    shape = (N_PROMPTS, encoding.n_tokens(N_POINTS), wide)
    return torch.randn(shape, generator=generator(0, "adapt")).to(model.numbers)
