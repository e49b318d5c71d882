"""How far predictions move without a part or an edge, as gradients expect: no run for each."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.circuits.attribution import gradients
from icl_interp.circuits.nodes import Ablated, Edge
from icl_interp.interventions.base import mean_activations
from icl_interp.interventions.edges import readers, writers, written
from icl_interp.models.transformer import chunks


@dataclass(frozen=True)
class Expected:
    """How far each prediction moves without a part or an edge, as gradients expect.

    Attributes:
        gap: predictions less the truth, of the intact model.
        moves: by part or edge.
    """

    gap: Float[Tensor, " batch"]
    moves: dict[Any, Float[Tensor, " batch"]]

    def rises(self) -> dict[Any, float]:
        """By how much the squared error rises without each."""
        found = {}
        for name, moved in self.moves.items():
            found[name] = self._rise(moved)
        return found

    def _rise(self, moved: Tensor) -> float:
        further = self.gap + moved
        return float((further.square() - self.gap.square()).mean())

    def cancelling(self, kept: Sequence[Any]) -> list[tuple[Any, Any]]:
        """Pairs of which each does harm to leave, and both less than either: most likely first.

        Of each part only the best partner is named.

        >>> gap, moved = torch.zeros(2), torch.tensor([1.0, -1.0])
        >>> Expected(gap, {"a": moved, "b": -moved, "c": moved / 2}).cancelling(["a", "b", "c"])
        [('a', 'b')]
        """
        alone = self.rises()
        place = {name: i for i, name in enumerate(kept)}
        best: dict[tuple[Any, Any], float] = {}
        for one in kept:
            rises = {}
            for other in kept:
                if other != one:
                    rises[other] = self._rise(self.moves[one] + self.moves[other])
            partner = min(rises, key=rises.__getitem__, default=None)
            if partner is None or rises[partner] >= min(alone[one], alone[partner]):
                continue
            first, second = sorted((one, partner), key=place.__getitem__)
            best[first, second] = rises[partner]
        return sorted(best, key=best.__getitem__)


class _Found:
    """What is found of some prompts at a time."""

    def __init__(self) -> None:
        self.gaps: list[Tensor] = []
        self.moves: dict[Any, list[Tensor]] = defaultdict(list)

    def of_all(self) -> Expected:
        """Of all prompts together."""
        moves = {}
        for name, parts in self.moves.items():
            moves[name] = torch.cat(parts).double().cpu()
        return Expected(torch.cat(self.gaps), moves)


def expected_moves(search: Ablated) -> Expected:
    """What gradients expect without each part."""
    # Where each part writes: a hook, and which head there.
    model = search.model
    names: dict[str, tuple[str, int | None]] = {}
    for part in search.parts:
        kind, place = part.split()
        if kind == "head":
            layer, head = place.split(".")
            names[part] = (f"blocks.{layer}.attn.hook_z", int(head))
        else:
            names[part] = (f"blocks.{place}.hook_mlp_out", None)
    hooks = list(dict.fromkeys(hook for hook, _ in names.values()))
    means = mean_activations(model, search.tokens, hooks)
    # How far each prediction moves if a part gives its mean, some prompts at a time.
    found = _Found()
    for rows in chunks(model, len(search.tokens), search.tokens.shape[1]):
        out, cache = model.run_with_cache(
            search.tokens[rows],
            names_filter=hooks,
            incl_bwd=True,
            number=lambda out: out[:, -1, 0].sum(),
        )
        found.gaps.append(out[:, -1, 0].double().cpu() - search.truth[rows])
        for part, (hook, head) in names.items():
            product = cache[f"{hook}_grad"] * (means[hook] - cache[hook])
            own = product if head is None else product[:, :, head]
            found.moves[part].append(own.sum((1, 2)))
    return found.of_all()


def expected_moves_of_edges(search: Ablated, inside: Sequence[Edge]) -> Expected:
    """What gradients expect without each edge.

    The means of all writers are kept in `search.means`.
    """
    model = search.model
    sources = writers(model)
    hooks = list(dict.fromkeys(part.hook for part in sources.values()))
    means = mean_activations(model, search.tokens, hooks)
    for name, part in sources.items():
        search.means[name] = part.of(means[part.hook][None])
    # Gradients of the intact model, some prompts at a time.
    targets = readers(model)
    found = _Found()
    for rows in chunks(model, len(search.tokens), search.tokens.shape[1]):
        tokens = search.tokens[rows]
        values = written(model, tokens)
        slopes = gradients(model, tokens)
        with torch.no_grad():
            found.gaps.append(model(tokens)[:, -1, 0].double().cpu() - search.truth[rows])
        for writer, reader in inside:
            target = targets[reader]
            change = search.means[writer] - values[writer]
            product = change * target.of(slopes[target.hook])
            found.moves[writer, reader].append(product.sum((1, 2)))
    return found.of_all()
