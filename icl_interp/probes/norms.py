"""Normalisation scales: what every norm divides by, by position kind."""

from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.models.hooked import HookedModel
from icl_interp.probes.base import Hook, Positions, Probe
from icl_interp.probes.by_kind import ByKind
from icl_interp.results import Result, make_array


class LayerNormScale(Probe):
    """The scale sigma = sqrt(mean_i (h_i - mean h)^2 + eps) that each norm divides by.

    It is given for each norm and position kind.

    For root-mean-square norms sigma = sqrt(mean_i h_i^2 + eps). Under an intervention: the scale in
    use. Source: Ba, Kiros & Hinton (2016), equation (3).

    As one input x grows, the elasticity E_sigma = d log sigma / d log |x| tells what a norm does:
    about 0 where it ignores |x|, 1 where it divides |x| out. A plateau that LayerNorm causes needs
    an E_sigma of 1 somewhere; in a post-norm model the last norm shows 0 while an earlier one
    saturates, so look at all. `probe(..., queries=xs)` measures the scales along x.

    Args:
        per_prompt: keep a value for each prompt instead of mean, standard deviation and extremes.

    Results, in units of the residual stream:
        scale: Matrix (norm, position, statistic), the statistics being "mean", "std", "min" and
            "max", or with `per_prompt` (norm, position, prompt).

    Raises:
        InputError: a model without a norm that divides by a scale (raised by `probe` and
            `observe`).

    Without positions the first norm sees a token x as the vector x W (a fresh model has no biases):

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> from icl_interp.models.transformer import HookedTransformer
    >>> from icl_interp.probes.runner import probe
    >>> config = HookedTransformerConfig(n_layers=1, d_model=8, positional_embedding_type="none")
    >>> model = HookedTransformer(config)
    >>> results = probe(model, torch.full((4, 6, 1), 3.0), [LayerNormScale()])
    >>> scale = results["layernorm_scale.scale"]
    >>> stream = 3.0 * model.embed.W_E[0].detach()
    >>> sigma = float((stream.var(correction=0) + config.eps).sqrt())
    >>> found = scale.sel(norm="blocks.0.ln1", position="query", statistic="mean")
    >>> abs(float(found) - sigma) < 1e-6
    True
    """

    name: ClassVar[str] = "layernorm_scale"

    def __init__(self, per_prompt: bool = False) -> None:
        self.per_prompt = per_prompt

    def refusal(self, model: HookedModel) -> str | None:
        """Models without a norm that divides by a scale."""
        return model.cfg.no_scale

    def hooks(self, model: HookedModel, positions: Positions) -> list[Hook]:
        """One at every norm's scale."""
        self._norms, self._positions = tuple(model.norms), positions
        self._kept = {
            norm: ByKind(positions, self.per_prompt, extremes=True) for norm in self._norms
        }
        return [(f"{norm}.hook_scale", partial(self._read, norm)) for norm in self._norms]

    def _read(self, norm: str, scale: Float[Tensor, "batch token 1"], hook: object) -> None:
        self._kept[norm].update(scale[..., 0])

    def results(self) -> dict[str, Result]:
        """The scales."""
        kept = list(self._kept.values())
        axes = {"norm": self._norms, "position": tuple(self._positions), **kept[0].axis()}
        return {
            "scale": make_array(
                torch.stack([each.result for each in kept]).cpu().numpy(), axes, "stream"
            )
        }
