"""Edits of what sublayers, attention or MLP, write to the stream."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import unknown
from icl_interp.interventions.base import Hook, Intervention, mean_activations, reference
from icl_interp.models.hooked import HookedModel


@dataclass(frozen=True)
class MeanOutputs(Intervention):
    """Replace each sublayer's output by its mean over reference prompts, at each position.

    It keeps what a sublayer writes whatever the prompt, and removes what it tells about the prompt.
    For attention this is `AblateHeads` of all heads of a layer, since what a layer writes is linear
    in them.

    Assumes that the reference prompts are like those on which the model is to keep working, and as
    long.

    Source: Wang, Variengien, Conmy, Shlegeris & Steinhardt (2022), *Interpretability in the wild*,
    for mean ablation.

    Attributes:
        means: by hook, `(token, d_model)`.

    Raises:
        InputError: in a run, where prompts are longer than those that were measured.

    >>> import torch
    >>> from icl_interp import HookedTransformer, HookedTransformerConfig, intervene
    >>> from icl_interp.interventions import AblateHeads
    >>> config = HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2, init_std=1.0)
    >>> model = HookedTransformer(config).eval()
    >>> tokens = torch.linspace(-1, 1, 20).reshape(4, 5, 1)
    >>> with intervene(model, AblateHeads.measure(model, tokens, (0, 0), (0, 1))):
    ...     by_head = model(tokens)
    >>> with intervene(model, MeanOutputs.measure(model, tokens, sublayers(model, "attn"))):
    ...     torch.allclose(model(tokens), by_head, atol=1e-5)
    True
    """

    means: Mapping[str, Float[Tensor, "token d_model"]]

    @classmethod
    def measure(
        cls, model: HookedModel, tokens: Float[Tensor, "batch token d_in"], names: Sequence[str]
    ) -> Self:
        """The means over these prompts, for the sublayers whose hooks are named.

        `sublayers` lists the hooks.

        Raises:
            InputError: the model has no hook of a name, or there is no prompt.
        """
        return cls(mean_activations(model, tokens, names))

    def only(self, *names: str) -> Self:
        """Some of the sublayers measured.

        Raises:
            InputError: a sublayer was not measured.
        """
        for name in names:
            if name not in self.means:
                raise unknown("measured sublayer", name, self.means)
        return replace(self, means={name: self.means[name] for name in names})

    def at_query(self) -> Self:
        """The last position's means only."""
        return replace(self, means={name: mean[-1:] for name, mean in self.means.items()})

    def hooks(self, model: HookedModel) -> list[Hook]:
        """One a sublayer."""

        def put(mean: Tensor) -> Callable[..., Tensor]:
            return lambda t, hook: reference(mean, t)

        return [(name, put(mean)) for name, mean in self.means.items()]


def sublayers(model: HookedModel, kind: str | None = None, layer: int | None = None) -> list[str]:
    """Hooks of what sublayers write: of all, of one kind ("attn" or "mlp") or of one block.

    Those that a model does not have are left out: it may be attention or MLP only.

    Raises:
        InputError: another kind.

    >>> from icl_interp import HookedTransformer, HookedTransformerConfig
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=2, d_model=8))
    >>> sublayers(model, "attn")
    ['blocks.0.hook_attn_out', 'blocks.1.hook_attn_out']
    """
    if kind not in (None, "attn", "mlp"):
        raise unknown("kind of sublayer", kind, ("attn", "mlp"))
    return [
        f"blocks.{i}.hook_{name}_out"
        for i in range(model.cfg.n_layers)
        if layer in (None, i)
        for name in model.sublayer_kinds
        if kind in (None, name)
    ]
