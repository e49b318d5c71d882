"""Edits of what sublayers, attention or MLP, write to the stream."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from jaxtyping import Float
from torch import Tensor

from icl_interp.interventions.base import Hook, Intervention, mean_activations, reference
from icl_interp.models.transformer import HookedTransformer


@dataclass(frozen=True)
class MeanOutputs(Intervention):
    """Replace what sublayers write to the stream by its mean over reference prompts, at each position.

    It keeps what a sublayer writes whatever the prompt, and removes what it tells about the prompt. For attention this
    is `AblateHeads` of all heads of a layer, since what a layer writes is linear in them.

    Attributes:
        means: by hook, `(token, d_model)`.
    """

    means: Mapping[str, Float[Tensor, "token d_model"]]

    @classmethod
    def measure(cls, model: HookedTransformer, tokens: Float[Tensor, "batch token d_in"], names: Sequence[str]) -> Self:
        """Means over these prompts, of the sublayers whose hooks are named."""
        return cls(mean_activations(model, tokens, names))

    def only(self, *names: str) -> Self:
        """Some of the sublayers measured."""
        return replace(self, means={name: self.means[name] for name in names})

    def at_query(self) -> Self:
        """The last position's means only."""
        return replace(self, means={name: mean[-1:] for name, mean in self.means.items()})

    def hooks(self, model: HookedTransformer) -> list[Hook]:
        """One a sublayer."""

        def put(mean: Tensor) -> Callable[..., Tensor]:
            return lambda t, hook: reference(mean, t)

        return [(name, put(mean)) for name, mean in self.means.items()]


def sublayers(model: HookedTransformer, kind: str | None = None, layer: int | None = None) -> list[str]:
    """Hooks of what sublayers write: of all, of one kind ("attn" or "mlp") or of one block.

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=2, d_model=8))
    >>> sublayers(model, "attn")
    ['blocks.0.hook_attn_out', 'blocks.1.hook_attn_out']
    """
    cfg = model.cfg
    there = {"attn": not cfg.mlp_only, "mlp": not cfg.attn_only}
    return [
        f"blocks.{i}.hook_{name}_out"
        for i in range(cfg.n_layers)
        if layer in (None, i)
        for name, exists in there.items()
        if exists and kind in (None, name)
    ]
