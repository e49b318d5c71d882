"""Runs of a model that differ from some block on only: they share what comes before it."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.interventions.base import Intervention, first_block, intervene
from icl_interp.models.hooked import HookedModel

AGREES = 1e-4  # of the largest prediction: how far a run that begins at a block may be off


@dataclass(frozen=True)
class Run:
    """A run on some prompts, and the streams where others begin that differ later only.

    A run from block 8 of 12 on takes a third of the time of a whole one. Models with a forward pass
    of their own, and adapted modules, have no such way in: of these every run is whole.

    Attributes:
        model: what ran.
        tokens: of the prompts.
        out: predictions at the query.
        streams: by block, what enters it; of the first block there is none.

    What a run from a block on predicts is what a whole one predicts:

    >>> from icl_interp import HookedTransformer, HookedTransformerConfig
    >>> from icl_interp.interventions import SwapPattern
    >>> config = HookedTransformerConfig(n_layers=3, d_model=8, n_heads=2, init_std=1.0)
    >>> model = HookedTransformer(config).eval()
    >>> tokens = torch.linspace(-1, 1, 10).reshape(2, 5, 1)
    >>> edit, start = SwapPattern("uniform", ((2, 0),)), Run.of(model, tokens)
    >>> again = start.again(2, edit)
    >>> sorted(start.streams), torch.allclose(again.out, Run.of(model, tokens, edit).out, atol=1e-5)
    ([1, 2], True)
    """

    model: HookedModel
    tokens: Float[Tensor, "batch token d_in"]
    out: Float[Tensor, "batch d_out"]
    streams: Mapping[int, Float[Tensor, "batch token d_model"]]

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        model: HookedModel,
        tokens: Float[Tensor, "batch token d_in"],
        *edits: Intervention,
        keep: bool = True,
    ) -> Self:
        """A whole run under some interventions.

        Args:
            model: what runs.
            tokens: of the prompts.
            edits: the interventions; they act on each block alone, whatever ran before.
            keep: whether other runs are to begin at its streams, which take memory.
        """
        if not keep or first_block(model, ()) < 0:
            with intervene(model, *edits):
                return cls(model, tokens, model(tokens)[:, -1], {})
        found = cls._kept(model, tokens, *edits)
        last = model.cfg.n_layers - 1
        if last not in found.streams:
            return found
        # A model whose runs do not agree with each other is asked for whole ones.
        with intervene(model, *edits):
            again = model.resume(found.streams[last], last)[:, -1]
        largest = float(found.out.abs().max())
        if torch.allclose(again, found.out, rtol=0, atol=AGREES * largest):
            return found
        return replace(found, streams={})

    @classmethod
    def _kept(cls, model: HookedModel, tokens: Tensor, *edits: Intervention) -> Self:
        """A whole run whose streams are kept."""
        streams: dict[int, Tensor] = {}
        with intervene(model, *edits), _entering(model, 1, streams):
            out = model(tokens)[:, -1]
        return cls(model, tokens, out, streams)

    @torch.no_grad()
    def again(self, block: int, *edits: Intervention) -> "Run":
        """Another run on the same prompts.

        Args:
            block: the first one that differs from this run.
            edits: interventions, with those of this run where they are to hold still.
        """
        if not self.streams:
            return Run.of(self.model, self.tokens, *edits, keep=False)
        if block not in self.streams:
            return Run._kept(self.model, self.tokens, *edits)
        # What enters earlier blocks stays, and what enters later ones is kept anew.
        streams = dict(self.streams)
        with intervene(self.model, *edits), _entering(self.model, block + 1, streams):
            out = self.model.resume(self.streams[block], block)[:, -1]
        return Run(self.model, self.tokens, out, streams)


def _entering(model: HookedModel, first: int, streams: dict[int, Tensor]) -> AbstractContextManager:
    """A context that keeps what enters blocks, from one block on, after everybody's edits."""

    def look(block: int) -> Callable[[Tensor, object], None]:
        def keep(stream: Tensor, hook: object) -> None:
            streams[block] = stream

        return keep

    hooks = []
    for block in range(first, model.cfg.n_layers):
        hooks.append((f"blocks.{block - 1}.hook_resid_post", look(block)))
    return model.hooks(fwd_hooks=hooks)
