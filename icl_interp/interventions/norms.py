"""Edits of norms: their scales fixed, or a norm put where there is none."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, real, several, unknown
from icl_interp.interventions.base import Hook, Intervention, mean_activations, reference
from icl_interp.models.hooked import HookedModel
from icl_interp.models.transformer import model_in


@dataclass(frozen=True)
class FreezeNorms(Intervention):
    """Divide by fixed scales instead of the input's own: the norm becomes an affine map.

    Assumes that the scales are those of inputs on which the model is to keep working: the
    in-distribution ones.

    Attributes:
        scales: for each norm, the scale at each position, `(token, 1)`. Or one scale for each
            prompt, `(prompt, 1, 1)`, at every position alike: the intervention then serves runs of
            exactly these prompts.

    Raises:
        InputError: in a run, where prompts are longer than those that were measured, or (with a
            scale for each prompt) their number is another.

    The mean over a single prompt is its own scale, so that prompt keeps its output:

    >>> import torch
    >>> from icl_interp import HookedTransformer, HookedTransformerConfig, intervene
    >>> config = HookedTransformerConfig(n_layers=1, d_model=8, init_std=1.0)
    >>> model = HookedTransformer(config).eval()
    >>> tokens = torch.linspace(-1, 1, 5)[None, :, None]
    >>> before = model(tokens)
    >>> with intervene(model, FreezeNorms.measure(model, tokens)):
    ...     torch.allclose(model(tokens), before, atol=1e-5)
    True
    """

    scales: Mapping[str, Float[Tensor, "token 1"] | Float[Tensor, "prompt 1 1"]]

    @classmethod
    def measure(
        cls,
        model: HookedModel,
        tokens: Float[Tensor, "batch token d_in"],
        norms: Sequence[str] | None = None,
    ) -> Self:
        """Scales at their mean over prompts, for all norms or for the named ones.

        Names are "blocks.0.ln1", ..., "ln_final".

        Raises:
            InputError: the model has no norm of that name, none at all that divides by a scale, or
                there is no prompt.
        """
        its = model_in(model)
        named = () if norms is None else several(norms, "norms")
        for name in named:
            if name not in its.norms:
                raise unknown("norm", name, its.norms)
        wanted = list(named or its.norms)
        if not wanted:
            raise InputError(f"{its.cfg.no_scale} to freeze")
        means = mean_activations(model, tokens, [f"{name}.hook_scale" for name in wanted])
        return cls({name: means[f"{name}.hook_scale"] for name in wanted})

    def at_query(self) -> Self:
        """The last position's scales only."""
        scales = {name: scale[..., -1:, :] for name, scale in self.scales.items()}
        return replace(self, scales=scales)

    def scaled(self, factor: float, *norms: str) -> Self:
        """The same with scales multiplied by a number: a norm frozen at other scales.

        Args:
            factor: above 0.
            norms: which; all by default.

        Raises:
            InputError: a factor that is not above 0, or a norm that was not measured.

        Twice the last scale is half the prediction, where there are no biases:

        >>> from icl_interp import HookedTransformer, HookedTransformerConfig, intervene
        >>> config = HookedTransformerConfig(n_layers=1, d_model=8, init_std=1.0)
        >>> model = HookedTransformer(config).eval()
        >>> tokens = torch.linspace(-1, 1, 5)[None, :, None]
        >>> frozen = FreezeNorms.measure(model, tokens, ["ln_final"])
        >>> with intervene(model, frozen.scaled(2.0)):
        ...     halved = model(tokens)
        >>> torch.allclose(2 * halved, model(tokens), atol=1e-5)
        True
        """
        real(factor, "a factor of scales", 0, above=True)
        chosen = norms or tuple(self.scales)
        scales = dict(self.scales)
        for norm in chosen:
            if norm not in scales:
                raise unknown("measured norm", norm, scales)
            scales[norm] = factor * scales[norm]
        return replace(self, scales=scales)

    def only(self, *norms: str) -> Self:
        """Some of the norms measured only.

        Raises:
            InputError: a norm was not measured.
        """
        scales = {}
        for name in norms:
            if name not in self.scales:
                raise unknown("measured norm", name, self.scales)
            scales[name] = self.scales[name]
        return replace(self, scales=scales)

    def hooks(self, model: HookedModel) -> list[Hook]:
        """One at every norm's scale."""
        hooks: list[Hook] = []
        for name, scale in self.scales.items():
            freeze = reference if scale.ndim == 2 else _of_each
            hooks.append((f"{name}.hook_scale", partial(_replaced, freeze, scale)))
        return hooks


def _replaced(freeze: Callable[..., Tensor], scale: Tensor, t: Tensor, hook: object) -> Tensor:
    return freeze(scale, t)


def _of_each(scales: Float[Tensor, "prompt 1 1"], t: Float[Tensor, "batch token 1"]) -> Tensor:
    """`reference` where every prompt has its own scale."""
    if len(scales) != len(t):
        raise InputError(
            f"these are the scales of {len(scales)} prompts, but {len(t)} are run at once: run "
            "exactly these prompts"
        )
    return scales.to(t).expand_as(t)


@dataclass(frozen=True)
class InsertNorm(Intervention):
    """Normalise a vector of the stream at a place where the model does not.

    The vector is centred and divided by its standard deviation.

    Assumes that what reads the stream there can live with unit variance: a test of what a norm
    alone brings about.

    Attributes:
        hook: where, for example "blocks.2.hook_resid_post"; its activation is
            `(batch, token, d_model)`.
        eps: added to the variance under the root.

    The length of what comes there no longer matters. Here eps is 0 and the stream is 7 times as
    long:

    >>> import torch
    >>> from icl_interp import HookedTransformer, HookedTransformerConfig, intervene
    >>> config = HookedTransformerConfig(n_layers=1, d_model=8, normalization_type=None)
    >>> model = HookedTransformer(config).eval()
    >>> tokens, hook = torch.linspace(-1, 1, 5)[None, :, None], "blocks.0.hook_resid_pre"
    >>> with intervene(model, InsertNorm(hook, eps=0.0)):
    ...     once = model(tokens)
    >>> longer = [(hook, lambda t, hook: 7 * t)]
    >>> with model.hooks(longer), intervene(model, InsertNorm(hook, eps=0.0)):
    ...     torch.allclose(model(tokens), once, atol=1e-5)
    True
    """

    hook: str
    eps: float = 1e-5

    def hooks(self, model: HookedModel) -> list[Hook]:
        """One, at `hook`."""
        return [(self.hook, self._normalise)]

    def _normalise(self, x: Tensor, hook: object) -> Tensor:
        return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=self.eps)
