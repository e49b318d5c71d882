"""A circuit: some heads and MLPs that do the work of a model while all others give their means."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.circuits.runs import Run
from icl_interp.errors import InputError
from icl_interp.interventions.attention import AblateHeads
from icl_interp.interventions.base import Intervention, first_block
from icl_interp.interventions.edges import PutEdges
from icl_interp.interventions.outputs import MeanOutputs, sublayers
from icl_interp.interventions.patching import hooks_of
from icl_interp.models.hooked import HookedModel
from icl_interp.models.transformer import chunks, model_in, tokens_in
from icl_interp.products import fast
from icl_interp.prompts import Prompts, as_numbers

Edge = tuple[str, str]
NO_EDGES: tuple[Edge, ...] = ()
KEPT = 2**28  # bytes of streams that are kept of one run


@dataclass(frozen=True)
class Circuit:
    """Parts that keep the error within a tolerance, and how good they are, on fresh prompts.

    Errors are squared errors at the query over that of predicting 0. Intervals are at 95 %, and
    functions are resampled.

    Attributes:
        parts: heads ("head 0.2") and MLPs ("MLP 1") that stay; the others give their means.
        edges: (writer, reader) between these, the read-in and the read-out, that stay; empty where
            they were not asked for or are not defined.
        n_untried: how many of these edges no run tried to leave out alone, since the search had
            come to the end of its runs.
        tolerance: by how much the error may rise.
        summary: "value", "low" and "high" of the error of the model, of the circuit and of no part
            at all, of faithfulness, of the mean completeness gap, and, where edges were asked for,
            of the error with these edges alone. Faithfulness is the share of what all parts gain
            that the circuit gains.
        minimality: a row a part: by how much the error of the circuit rises without it.
        completeness: a row a set of parts that are removed from the circuit and from the model:
            both errors, and the gap between them.
        random: errors of random sets of as many heads and MLPs.
        p: the share of these sets that are as good as the circuit, itself counted among them.
    """

    parts: tuple[str, ...]
    edges: tuple[Edge, ...]
    n_untried: int
    tolerance: float
    summary: pd.DataFrame
    minimality: pd.DataFrame
    completeness: pd.DataFrame
    random: DataArray
    p: float

    def __contains__(self, part: str) -> bool:
        return part in self.parts


@dataclass(frozen=True)
class _Removed:
    """Runs of all prompts without some parts."""

    parts: frozenset[str]
    runs: list[Run]


@dataclass
class Ablated:
    """A model on some prompts, with parts and edges at their means.

    Attributes:
        model: what runs.
        tokens: of prompts.
        truth: at the query of each.
        heads: means of what heads make.
        mlps: means of what MLPs write.
        means: by writer, for edges: `(1, token, d_model)`.
    """

    model: HookedModel
    tokens: Float[Tensor, "batch token d_in"]
    truth: Float[Tensor, " batch"]
    heads: AblateHeads | None
    mlps: MeanOutputs | None
    means: dict[str, Tensor] = field(default_factory=dict)
    _known: dict[Any, Tensor] = field(default_factory=dict)
    _last: "_Removed | None" = None
    _start: "_Removed | None" = None

    @classmethod
    def measure(cls, checkpoint: Any, prompts: Prompts) -> "Ablated":
        """Means over these prompts.

        Raises:
            InputError: values that are vectors.
        """
        model = model_in(checkpoint)
        tokens = tokens_in(prompts, checkpoint)
        truth = as_numbers(prompts.ys)[:, -1].double()
        heads = None
        mlps = None
        if "attn" in model.sublayer_kinds:
            hooks_of("z", model)  # refuses by name what nobody named
            layers = range(model.cfg.n_layers)
            every = [(i, h) for i in layers for h in range(model.cfg.n_heads)]
            heads = AblateHeads.measure(model, tokens, *every)
        if "mlp" in model.sublayer_kinds:
            hooks_of("mlp_out", model)
            mlps = MeanOutputs.measure(model, tokens, sublayers(model, "mlp"))
        return cls(model, tokens, truth, heads, mlps)

    def on(self, checkpoint: Any, prompts: Prompts) -> "Ablated":
        """The same means on other prompts."""
        tokens = tokens_in(prompts, checkpoint)
        truth = as_numbers(prompts.ys)[:, -1].double()
        return Ablated(self.model, tokens, truth, self.heads, self.mlps, self.means)

    @property
    def parts(self) -> tuple[str, ...]:
        """Heads and MLPs, in the order of layers."""
        found: list[str] = []
        for i in range(self.model.cfg.n_layers):
            if self.heads is not None:
                found += [f"head {i}.{h}" for h in range(self.model.cfg.n_heads)]
            if self.mlps is not None:
                found.append(f"MLP {i}")
        return tuple(found)

    @property
    def zero(self) -> float:
        """The squared error of predicting 0."""
        return float(self.truth.square().mean())

    def without(
        self, removed: Collection[str], edges: Collection[Edge] = NO_EDGES
    ) -> Float[Tensor, " batch"]:
        """Squared error of each prompt over that of predicting 0, parts and edges at their means.

        Raises:
            InputError: an error that is not finite.
        """
        key = (frozenset(removed), frozenset(edges))
        if key not in self._known:
            self._known[key] = self._errors(removed, edges)
        return self._known[key]

    def begin_at(self, removed: Collection[str]) -> None:
        """Let further runs begin where they differ from the run without these parts.

        What they find stays the same. It saves time where many sets differ from one in late layers.
        """
        if self._last is None or self._last.parts != frozenset(removed):
            self._errors(removed, NO_EDGES)
        self._start = self._last

    @fast()
    def _errors(self, removed: Collection[str], edges: Collection[Edge]) -> Tensor:
        edits = self._edits(removed)
        if edges:
            # An edge takes what its writer writes in the same run, so all writers have to run.
            edits.append(PutEdges(sorted(edges), self.means))
            runs = self._whole(edits, keep=False)
        elif self._start is None:
            runs = self._whole(edits, keep=self._streams_are_small)
        else:
            differing = self._start.parts ^ frozenset(removed)
            block = min(map(_block, differing), default=0)
            runs = [one.again(block, *edits) for one in self._start.runs]
        if not edges:
            self._last = _Removed(frozenset(removed), runs)
        out = torch.cat([one.out[:, 0].double().cpu() for one in runs])
        errors = (out - self.truth).square() / self.zero
        if not errors.isfinite().all():
            raise InputError("errors of a circuit must be finite, but some are NaN or inf")
        return errors

    def _whole(self, edits: Sequence[Intervention], keep: bool) -> list[Run]:
        """Runs of all prompts, some at a time."""
        runs = []
        for rows in chunks(self.model, len(self.tokens), self.tokens.shape[1]):
            runs.append(Run.of(self.model, self.tokens[rows], *edits, keep=keep))
        return runs

    @property
    def _streams_are_small(self) -> bool:
        if first_block(self.model, ()) < 0:  # none are kept
            return True
        n_prompts, n_tokens, _ = self.tokens.shape
        cfg = self.model.cfg
        numbers = n_prompts * n_tokens * cfg.d_model * cfg.n_layers
        return numbers * self.tokens.element_size() <= KEPT

    def _edits(self, removed: Collection[str]) -> list[Intervention]:
        heads = []
        mlps = []
        for name in removed:
            kind, place = name.split()
            if kind == "head":
                layer, head = map(int, place.split("."))
                heads.append((layer, head))
            else:
                mlps.append(f"blocks.{place}.hook_mlp_out")
        edits: list[Intervention] = []
        if heads and self.heads is not None:
            edits.append(self.heads.only(*sorted(heads)))
        if mlps and self.mlps is not None:
            edits.append(self.mlps.only(*sorted(mlps)))
        return edits


def _block(part: str) -> int:
    """The block of a head ("head 0.2") or of an MLP ("MLP 1")."""
    return int(part.split()[1].partition(".")[0])
