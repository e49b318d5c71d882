"""Direct attribution: how much of the prediction each head, each MLP and the read-in write."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.models.layers import Norm
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.base import Hook, Positions, Probe, at_places
from icl_interp.reductions import Gram
from icl_interp.results import Result, make_array


def directions(model: HookedTransformer) -> Float[Tensor, "d_model d_out"]:
    """D with prediction = stream D / scale + a constant: the final norm's centring and gain, then the read-out.

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=8, init_std=1.0))
    >>> out, cache = model.run_with_cache(torch.linspace(-1, 1, 5)[None, :, None])
    >>> by_hand = cache["blocks.0.hook_resid_post"].double() @ directions(model) / cache["ln_final.hook_scale"]
    >>> bool((by_hand - out).abs().max() < 1e-5)  # a fresh model has no biases, so the constant is 0
    True
    """
    out = model.unembed.W_U.detach().double()
    norm = getattr(model, "ln_final", None)
    if isinstance(norm, Norm):
        out = out if norm.w is None else norm.w.detach().double()[:, None] * out
        out = out - out.mean(0) if norm.centred else out
    return out


class DirectAttribution(Probe):
    """Shares of the prediction's variance that heads, MLPs and the read-in write straight into the read-out.

    With the final norm's scale held at what it is, the prediction is a sum: of what each head writes, each MLP, the
    read-in with the positions, and a constant (biases). The share of a part is its covariance with the prediction,
    divided by the prediction's variance, over prompts: shares add up to 1. A share below 0 or above 1 belongs to parts
    that cancel. What a part does through later layers counts as theirs: to see it, ablate (`AblateHeads`).

    Source: Elhage et al. (2021), "A mathematical framework for transformer circuits": direct logit attribution, here
    with a number as the output.

    Results, without units; NaN where the prediction does not vary:
        head: Matrix (layer, head, position, target); none in a model without attention.
        mlp: Matrix (layer, position, target); none in a model without MLPs.
        read_in: Matrix (position, target).

    Raises:
        InputError: a model whose prediction is no sum of parts: a post-norm one, or one with tanh for norms (raised by
            `probe` and `observe`).

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> from icl_interp.probes.runner import probe
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=2, d_model=8, n_heads=2, init_std=1.0))
    >>> results = probe(model, torch.randn(32, 6, 1), [DirectAttribution()])
    >>> round(sum(float(share.sel(position="query").sum()) for share in results.values()), 6)
    1.0
    """

    name: ClassVar[str] = "direct_attribution"

    def refusal(self, model: HookedTransformer) -> str | None:
        """Only where the stream is a sum and the read-out linear in it."""
        if model.cfg.normalization_type and model.cfg.norm_position == "post":
            return "a post-norm model's stream is no sum of what its parts write"
        if model.cfg.normalization_type == "Tanh":
            return "a tanh is not linear in the stream, so the prediction is no sum of parts"
        return None

    def hooks(self, model: HookedTransformer, positions: Positions) -> list[Hook]:
        """What every part writes, and the final norm's scale where there is one."""
        cfg, self._positions = model.cfg, positions
        self._read_out = directions(model)
        # What each head's z becomes in the prediction, a matrix (d_head, d_out) a head.
        self._through = {} if cfg.mlp_only else {i: block.attn.W_O for i, block in enumerate(model.blocks)}
        self._shape = (cfg.n_layers, 0 if cfg.mlp_only else cfg.n_heads, 0 if cfg.attn_only else 1, cfg.d_out)
        self._written: list[Tensor] = []
        self._seen = {kind: [Gram() for _ in range(cfg.d_out)] for kind in positions}
        hooks: list[Hook] = [("blocks.0.hook_resid_pre", self._from_stream)]
        for i in range(cfg.n_layers):
            if not cfg.mlp_only:
                hooks.append((f"blocks.{i}.attn.hook_z", partial(self._from_heads, i)))
            if not cfg.attn_only:
                hooks.append((f"blocks.{i}.hook_mlp_out", self._from_stream))
        scaled = hasattr(model, "ln_final")
        last = "ln_final.hook_scale" if scaled else f"blocks.{cfg.n_layers - 1}.hook_resid_post"
        return [*hooks, (last, partial(self._close, scaled))]

    def _from_stream(self, t: Float[Tensor, "batch token d_model"], hook: object) -> None:
        self._written.append((t.double() @ self._read_out)[:, :, None])

    def _from_heads(self, layer: int, z: Float[Tensor, "batch token head d_head"], hook: object) -> None:
        through = self._through[layer].detach().double() @ self._read_out
        self._written.append(torch.einsum("bthe,heo->btho", z.double(), through))

    def _close(self, scaled: bool, t: Float[Tensor, "batch token *rest"], hook: object) -> None:
        """All parts are known: each prompt's, and their sum as the last one, (batch, token, part, target)."""
        parts = torch.cat(self._written, 2)
        self._written = []
        if scaled:
            parts = parts / t.double()[..., None]
        parts = torch.cat([parts, parts.sum(2, keepdim=True)], 2)
        for kind, places in self._positions.items():
            here = at_places(parts, places)  # a mean of its own for each place: shares are over prompts
            for target, seen in enumerate(self._seen[kind]):
                seen.update(here[..., target])

    def results(self) -> dict[str, Result]:
        """The shares."""
        n_layers, n_heads, n_mlps, d_out = self._shape
        covariance = torch.stack([torch.stack([g.covariance for g in grams]) for grams in self._seen.values()])
        shares = (covariance[..., :-1, -1] / covariance[..., -1:, -1]).movedim(-1, 0).cpu()  # (part, position, target)
        by_layer = shares[1:].unflatten(0, (n_layers, n_heads + n_mlps)) if n_layers else shares[1:]
        axes = {"position": tuple(self._positions), "target": tuple(range(d_out))}
        note = "share of the prediction's variance, over prompts; the final norm's scale is held; shares add up to 1"
        found: dict[str, Result] = {"read_in": make_array(shares[0].numpy(), axes, "", note)}
        layers: dict[str, Sequence[int]] = {"layer": range(n_layers)}
        if n_heads:
            heads = {**layers, "head": range(n_heads), **axes}
            found["head"] = make_array(by_layer[:, :n_heads].numpy(), heads, "", note)
        if n_mlps:
            found["mlp"] = make_array(by_layer[:, n_heads].numpy(), {**layers, **axes}, "", note)
        return found
