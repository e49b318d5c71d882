"""The attention pattern: its mean over prompts and its variation, for every head."""

from functools import partial
from operator import itemgetter
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.models.hooked import HookedModel
from icl_interp.probes.base import Hook, Positions, Probe
from icl_interp.reductions import Moments
from icl_interp.results import Result, make_array


class AttentionPattern(Probe):
    """Attention weight of every token on every token, for each head.

    It is given as mean and standard deviation over prompts.

    Prompts of one task show the same kind of thing at the same place, so means over prompts tell
    which places a head looks at. They do not tell what it looks for: a head that finds the nearest
    neighbour, wherever that stands, has an even mean pattern (`AttentionEntropy` tells the two
    apart). A head that looks at places alone has no deviation.

    Args:
        last: only the row of the last token, the query of a prompt.

    Results:
        weight: the mean, Matrix (layer, head, query, key). "query" and "key" count the tokens of a
            prompt from 0; of alternative last tokens "query" holds their kinds.
        std: the standard deviation, likewise. The mean square of a weight is weight^2 + std^2.

    Raises:
        InputError: a model without attention (raised by `probe` and `observe`).

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> from icl_interp.models.transformer import HookedTransformer
    >>> from icl_interp.probes.runner import probe
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=2, d_model=8, n_heads=2))
    >>> results = probe(model, torch.randn(4, 6, 1), [AttentionPattern()])
    >>> weight = results["attention_pattern.weight"]
    >>> weight.sizes["query"], bool(abs(weight.sum("key") - 1).max() < 1e-6)
    (6, True)
    >>> std = results["attention_pattern.std"]
    >>> float(std.sel(query=0).max())  # the first token sees itself only
    0.0
    """

    name: ClassVar[str] = "attention_pattern"

    def __init__(self, last: bool = False) -> None:
        self.last = last

    def refusal(self, model: HookedModel) -> str | None:
        """Models without attention."""
        return "this model has no attention" if model.cfg.mlp_only else None

    def hooks(self, model: HookedModel, positions: Positions) -> list[Hook]:
        """The pattern of every layer."""
        rows = []
        for kind, places in positions.items():
            for place in places:
                # Alternative last tokens stand at one place of the prompt: what tells them apart
                # is their kind, a number.
                name = kind if isinstance(kind, float) else place
                rows.append((place, name))
        rows.sort(key=itemgetter(0))
        if self.last:
            rows = rows[-1:]
        self._places = list(map(itemgetter(0), rows))
        self._names = list(map(itemgetter(1), rows))
        self._heads = range(model.cfg.n_heads)
        self._seen: list[Moments] = []
        hooks: list[Hook] = []
        for layer in range(model.cfg.n_layers):
            self._seen.append(Moments())
            hooks.append((f"blocks.{layer}.attn.hook_pattern", partial(self._read, layer)))
        return hooks

    def _read(
        self, layer: int, pattern: Float[Tensor, "batch head query key"], hook: object
    ) -> None:
        self._seen[layer].update(pattern[:, :, self._places])

    def results(self) -> dict[str, Result]:
        """The mean weights and their deviations."""
        of_layers = torch.stack([seen.result for seen in self._seen])
        moments = of_layers.cpu().numpy()
        axes = {
            "layer": range(len(self._seen)),
            "head": self._heads,
            "query": self._names,
            "key": range(moments.shape[-2]),
        }
        mean = make_array(moments[..., 0], axes, "", "mean over prompts")
        std = make_array(moments[..., 1], axes, "", "standard deviation over prompts")
        return {"weight": mean, "std": std}
