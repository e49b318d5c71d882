"""Swaps of what stands at a place for that of other prompts, and what a trained model must pass.

Source: Geiger, Wu, Lu, Rozner, Kreiss, Icard, Goodman & Potts (2022), *Inducing causal structure
for interpretable neural networks* (interchange intervention training); Gupta, Arcuschin, Kwa &
Garriga-Alonso (2024), *InterpBench* (places without a variable must have no effect).
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.interventions.base import Intervention, intervene
from icl_interp.interventions.edges import PutEdges, edges_of, writers
from icl_interp.interventions.put import PutActivations, PutHeadOutputs
from icl_interp.models.hooks import HookPoint
from icl_interp.models.parts import READ_IN
from icl_interp.models.tokens import Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.influence import ExampleInfluence
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.testing.planted.base import Edge, checkpoint_of
from icl_interp.testing.planted.plans import Plan, named

N_JUDGED = 1024  # pairs of prompts
N_ROWS = 64  # prompts whose hat rows are compared
CLOSE = 0.01  # of a variance
EXPLAINED = 0.99
MOVES = 0.05  # what one head of a cancelling pair moves at least, of the variance of the answer
ENCODING = Stacked()


class Clean(NamedTuple):
    """A run on whole prompts.

    Attributes:
        out: predictions at the query.
        written: by writer, what it writes.
        streams: after each layer, at the query.
        patterns: of each layer, at the query: (batch, head, example).
    """

    out: Float[Tensor, " batch"]
    written: dict[str, Float[Tensor, "batch token d_model"]]
    streams: list[Float[Tensor, "batch d_model"]]
    patterns: list[Float[Tensor, "batch head example"]]


def clean(model: HookedTransformer, tokens: Float[Tensor, "batch token d_in"]) -> Clean:
    """A run with what its parts write; gradients flow through all of it."""
    kept: dict[str, Tensor] = {}

    def keep(activation: Tensor, hook: HookPoint) -> None:
        assert hook.name is not None
        kept[hook.name] = activation

    parts = writers(model)
    layers = range(model.cfg.n_layers)
    streams = [f"blocks.{i}.hook_resid_post" for i in layers]
    patterns = [f"blocks.{i}.attn.hook_pattern" for i in layers]
    names = {*(part.hook for part in parts.values()), *streams, *patterns}
    with model.hooks([(name, keep) for name in sorted(names)]):
        out = model(tokens)[:, -1, 0]
    return Clean(
        out,
        {name: part.of(kept[part.hook]) for name, part in parts.items()},
        [kept[name][:, -1] for name in streams],
        [kept[name][:, :, -1] for name in patterns],
    )


def with_edges(
    model: HookedTransformer, tokens: Tensor, edges: Collection[Edge], values: Mapping[str, Tensor]
) -> Float[Tensor, " batch"]:
    """Predictions at the query where some edges carry what was written on other prompts."""
    with intervene(model, PutEdges(sorted(edges), values)):
        return model(tokens)[:, -1, 0]


def edges_at(model: HookedTransformer, place: Collection[str]) -> list[Edge]:
    """The edges of a place: all that leave a part, that from the read-in to a reader, or itself."""
    found = []
    for edge in edges_of(model):
        writer, reader = edge
        if writer in place or named(edge) in place or (writer == READ_IN and reader in place):
            found.append(edge)
    return found


def unplanned(model: HookedTransformer, plan: Plan) -> list[Edge]:
    """Edges without a part in the plan."""
    planned = plan.every_edge()
    return [edge for edge in edges_of(model) if edge not in planned]


# ---- what is measured ----------------------------------------------------------------------------


class Judged(NamedTuple):
    """A model on pairs of prompts: a prompt, and another one that activations are swapped in from.

    Attributes:
        model: in float64.
        plan: that it is to follow.
        prompts: that it answers.
        others: as many.
        own: its run on the first.
        other: its run on the others.
    """

    model: HookedTransformer
    plan: Plan
    prompts: Prompts
    others: Prompts
    own: Clean
    other: Clean

    @property
    def tokens(self) -> Float[Tensor, "batch token d_in"]:
        """Of the prompts that it answers."""
        return ENCODING.encode(self.prompts)

    @property
    def size(self) -> float:
        """Variance of the answer."""
        return float(self.plan.answer(self.prompts).var())

    def out(self, *edits: Intervention) -> Float[Tensor, " batch"]:
        """Predictions under interventions."""
        with torch.no_grad(), intervene(self.model, *edits):
            return self.model(self.tokens)[:, -1, 0]


def judged(model: HookedTransformer, plan: Plan, n: int = N_JUDGED, seed: int = 0) -> Judged:
    """A model on fresh pairs of prompts."""
    draw = generator(seed, "planted/judged")
    prompts = plan.task.sample(n, draw).double()
    others = plan.task.sample(n, draw).double()
    model = model.double().eval()
    with torch.no_grad():
        own = clean(model, ENCODING.encode(prompts))
        other = clean(model, ENCODING.encode(others))
    return Judged(model, plan, prompts, others, own, other)


def swapped_parts(found: Judged, names: Collection[str]) -> list[Intervention]:
    """Interventions that give parts what they make of the other prompts, at all tokens."""
    edits: list[Intervention] = []
    others = ENCODING.encode(found.others)
    n_tokens = others.shape[1]
    for name in sorted(names):
        kind, place = name.split()
        if kind == "MLP":
            hook = f"blocks.{place}.hook_mlp_out"
            edits.append(PutActivations.measure(found.model, others, [hook]))
            continue
        layer, head = map(int, place.split("."))
        hook = f"blocks.{layer}.attn.hook_z"
        z = PutActivations.measure(found.model, others, [hook]).values[hook]
        heads = [head] * n_tokens
        edits.append(PutHeadOutputs(layer, heads, z[:, :, head], range(n_tokens)))
    return edits


def at_place(found: Judged, place: frozenset[str]) -> Float[Tensor, " batch"]:
    """Predictions where what stands at a place is of the other prompts.

    Parts are swapped at `hook_z` and `hook_mlp_out`, readers by their edge from the read-in.
    """
    parts = place & set(writers(found.model))
    edits = swapped_parts(found, parts)
    if pairs := edges_at(found.model, place - parts):
        edits.append(PutEdges(pairs, found.other.written))
    return found.out(*edits)


def explained(found: Judged, place: frozenset[str]) -> float:
    """Share of the variance of the plan's answer after a swap that the model's own explains."""
    wanted = found.plan.answer(found.prompts, found.others, place)
    gap = at_place(found, place) - wanted
    return float(1 - gap.square().mean() / wanted.var())


def effects(found: Judged) -> Iterator[tuple[str, float]]:
    """What swaps at places without a variable do: mean squared change over the answer's variance.

    Parts one by one, edges one by one, and all of these edges together.
    """
    planned = {term.head for term in found.plan.terms} | {found.plan.mlp}
    edits: dict[str, list[Intervention]] = {}
    for part in writers(found.model):
        if part != READ_IN and part not in planned:
            edits[part] = swapped_parts(found, [part])
    edges = unplanned(found.model, found.plan)
    for edge in edges:
        edits[named(edge)] = [PutEdges([edge], found.other.written)]
    edits["all edges"] = [PutEdges(edges, found.other.written)]
    for name, some in edits.items():
        change = found.out(*some) - found.own.out
        yield name, float(change.square().mean()) / found.size


def hat_gap(found: Judged) -> float:
    """Squared distance of the model's hat rows, by derivatives, from the plan's, of their size."""
    if found.plan.bend is not None:
        return 0.0
    some = found.prompts[:N_ROWS]
    checkpoint = checkpoint_of(found.model, found.plan.task, ENCODING)
    rows = ExampleInfluence.measure(checkpoint, some, inputs=False).weights.values
    wanted = found.plan.hat(some).numpy()
    return float(((rows - wanted) ** 2).sum() / (wanted**2).sum())


def decoy(found: Judged) -> dict[str, float]:
    """What the decoy does: how far copies attend otherwise, how well a shortcut can be read."""
    plan = found.plan
    numbers = {}
    for copy, original in plan.copies.items():
        gap = _pattern(found, copy) - _pattern(found, original)
        numbers[copy] = float(gap.abs().sum(-1).mean() / 2)
    if plan.shortcut is not None:
        numbers[plan.shortcut] = 1 - _readable(found.own.streams[0], plan.answer(found.prompts))
    for head in sorted(plan.cancel):
        change = found.out(*swapped_parts(found, [head])) - found.own.out
        numbers[head] = float(change.square().mean()) / found.size
    return numbers


def _pattern(found: Judged, head: str) -> Float[Tensor, "batch example"]:
    """Where the query attends to."""
    layer, place = map(int, head.split()[1].split("."))
    return found.own.patterns[layer][:, place, :-1]


def _readable(stream: Float[Tensor, "batch d_model"], answer: Float[Tensor, " batch"]) -> float:
    """R2 of the best linear reader of the answer, on these prompts."""
    reader = torch.cat([stream, torch.ones_like(stream[:, :1])], 1)
    solution = torch.linalg.lstsq(reader, answer[:, None]).solution
    gap = (reader @ solution)[:, 0] - answer
    return float(1 - gap.square().mean() / answer.var())


class Passed(NamedTuple):
    """What a model came to in the tests that it must pass.

    Attributes:
        error: squared distance of its predictions from the plan's, of their variance.
        interchange: by place of the plan, the share of the variance that is explained after a swap.
        effects: of swaps elsewhere.
        hat: distance of hat rows.
        decoy: by head.
    """

    error: float
    interchange: dict[str, float]
    effects: dict[str, float]
    hat: float
    decoy: dict[str, float]

    def faults(self, plan: Plan) -> list[str]:
        """What is out of bounds; nothing for a model that follows the plan."""
        found = []
        for name, value in (("error", self.error), ("hat", self.hat)):
            if not value <= CLOSE:
                found.append(name)
        for place, share in self.interchange.items():
            if not share >= EXPLAINED:
                found.append(f"interchange at {place}")
        for place, effect in self.effects.items():
            if not effect <= CLOSE:
                found.append(f"effect of {place}")
        for head, value in self.decoy.items():
            right = value >= MOVES if head in plan.cancel else value <= CLOSE
            if not right:
                found.append(f"decoy {head}")
        return found


def passed(found: Judged) -> Passed:
    """The tests of a model."""
    answer = found.plan.answer(found.prompts)
    error = float((found.own.out - answer).square().mean()) / found.size
    interchange = {}
    for place in found.plan.places:
        interchange[" and ".join(sorted(place))] = explained(found, place)
    return Passed(error, interchange, dict(effects(found)), hat_gap(found), decoy(found))
