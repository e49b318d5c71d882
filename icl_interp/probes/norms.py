"""Normalisation scales: what every norm divides by, by position and as the last query's input grows."""

import copy
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.errors import InputError
from icl_interp.models import tokens as encodings
from icl_interp.models.hooks import HookPoint
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.base import Hook, ModelWithEncoding, Positions, Probe, Source, prompts_of, resolve
from icl_interp.prompts import Prompts
from icl_interp.reductions import Extremes, Moments
from icl_interp.results import Result, make_array, make_curve

SIGNS = (-1, 1)
# Of log |x|: small enough that a central difference is exact to 1e-7, large enough for float64 not to round it away.
LOG_STEP = 1e-4


class LayerNormScale(Probe):
    """What every norm divides by: sigma = sqrt(mean_i (h_i - mean h)^2 + eps), for each norm and position kind.

    For root-mean-square norms sigma = sqrt(mean_i h_i^2 + eps). Under an intervention: the scale in use.
    Source: Ba, Kiros & Hinton (2016), equation (3).

    Results, in units of the residual stream:
        scale: Matrix (norm, position, statistic), the statistics being "mean", "std", "min" and "max".
    """

    name: ClassVar[str] = "layernorm_scale"

    def refusal(self, model: HookedTransformer) -> str | None:
        """Models without a norm that divides by a scale."""
        return model.cfg.no_scale

    def hooks(self, model: HookedTransformer, positions: Positions) -> list[Hook]:
        """One at every norm's scale."""
        self._positions = positions
        self._moments = {(norm, kind): Moments() for norm in model.norms for kind in positions}
        self._extremes = {key: Extremes() for key in self._moments}
        return [(f"{norm}.hook_scale", partial(self._read, norm)) for norm in model.norms]

    def _read(self, norm: str, scale: Float[Tensor, "batch token 1"], hook: object) -> None:
        for kind, places in self._positions.items():
            values = scale[:, list(places)].flatten()
            self._moments[norm, kind].update(values)
            self._extremes[norm, kind].update(values)

    def results(self) -> dict[str, Result]:
        """The scales."""
        norms = tuple(dict.fromkeys(norm for norm, _ in self._moments))
        values = [
            torch.stack([*moments.result, extremes.minimum, extremes.maximum])
            for moments, extremes in zip(self._moments.values(), self._extremes.values(), strict=True)
        ]
        axes = {"norm": norms, "position": tuple(self._positions), "statistic": ("mean", "std", "min", "max")}
        shape = tuple(len(coordinates) for coordinates in axes.values())
        return {"scale": make_array(torch.stack(values).view(shape).cpu().numpy(), axes, "stream")}


def layernorm_scale_by_magnitude(
    model: HookedTransformer | ModelWithEncoding,
    prompts: Source,
    magnitudes: Sequence[float],
    encoding: Encoding | None = None,
    batch_size: int = 64,
) -> dict[str, DataArray]:
    """Every norm's scale at the last query as that query's input goes far, its context staying as it is.

    The query is s m u: sign s, magnitude m, and u the direction of the prompt's own query (1 for scalar inputs). Its
    elasticity E_sigma = d log sigma / d log |x| tells what a norm does there: about 0 where it ignores |x|, 1 where it
    divides |x| out. A plateau that LayerNorm causes needs an E_sigma of 1 somewhere; in a post-norm model the last norm
    shows 0 while an earlier one saturates, so look at all. Measured on a float64 copy, by a central difference of
    1e-4 in log |x|. Causal models compute each context once.

    Args:
        model: a model, or anything that has one and its encoding, such as a checkpoint.
        prompts: prompts with their queries, or a stream of them; memory does not grow with their number.
        magnitudes: |x|, above 0.
        encoding: how prompts become tokens; by default the checkpoint's, else told from the model's `d_in`.
        batch_size: prompts at once.

    Returns:
        Curves (norm, sign, statistic, magnitude), statistics ("mean", "std") over prompts:
        "scale" in units of the stream, and "elasticity" without unit.

    Raises:
        InputError: a model without norms, magnitudes that are not positive, tokens instead of prompts, a query of 0
            with several coordinates (it has no direction).
    """
    model, encoding = resolve(model, encoding)
    if model.cfg.no_scale:
        raise InputError(model.cfg.no_scale)
    sizes = torch.tensor(list(magnitudes), dtype=torch.float64)
    if not len(sizes) or not (sizes.isfinite() & (sizes > 0)).all():
        raise InputError(f"magnitudes must be positive numbers, but got {list(magnitudes)}")
    model = copy.deepcopy(model).double()
    # (sign, magnitude, step): at each point the value itself and one step to either side of it.
    steps = torch.tensor([0.0, -LOG_STEP, LOG_STEP], dtype=torch.float64).exp()
    factors = torch.tensor(SIGNS, dtype=torch.float64)[:, None, None] * sizes[:, None] * steps
    levels, elasticities = Moments(), Moments()
    for piece in prompts_of(prompts, batch_size):
        if not isinstance(piece, Prompts):
            raise InputError("this needs Prompts, not tokens: it changes the inputs of their queries")
        chosen = encoding or encodings.infer(model.cfg.d_in, piece.xs.shape[-1])
        scales = _scales(model, piece.double(), chosen, factors.flatten())
        scales = scales.unflatten(-1, factors.shape)
        levels.update(scales[..., 0])
        elasticities.update((scales[..., 2] / scales[..., 1]).log() / (2 * LOG_STEP))
    if not levels.count.any():
        raise InputError("there are no prompts to probe: the stream is empty")
    axes = {"norm": tuple(model.norms), "sign": SIGNS, "statistic": ("mean", "std"), "magnitude": tuple(sizes.tolist())}
    note = f"at the last query, over {int(levels.count.max())} prompts; the context stays as it is"
    return {
        name: make_curve(moments.result.movedim(-1, 2).cpu().numpy(), axes, unit, note)
        for name, moments, unit in (("scale", levels, "stream"), ("elasticity", elasticities, ""))
    }


@torch.no_grad()
def _scales(
    model: HookedTransformer, prompts: Prompts, encoding: Encoding, factors: Float[Tensor, " point"]
) -> Float[Tensor, "batch norm point"]:
    """Every norm's scale at the last query, that query's direction times each factor."""
    queries = factors[:, None] * _direction(prompts.xs[:, -1])[:, None]
    tokens = encoding.encode(prompts).to(model.unembed.W_U)
    alternatives = encoding.encode_queries(queries).to(tokens)
    scales: dict[str, list[Tensor]] = {norm: [] for norm in model.norms}

    def read(norm: str, scale: Tensor, hook: HookPoint) -> None:
        scales[norm].append(scale[..., 0])

    context, last = tokens[:, :-1], tokens.shape[1] - 1
    memory = model.remember(context) if last and model.cfg.attention_dir == "causal" else None
    with model.hooks(fwd_hooks=[(f"{norm}.hook_scale", partial(read, norm)) for norm in scales]):
        if memory is not None:
            model.after(memory, alternatives, last)
        else:
            # A bidirectional context reacts to the query, so every alternative is a prompt of its own.
            for i in range(len(factors)):
                model(torch.cat([context, alternatives[:, i : i + 1]], 1))
    if memory is not None:
        return torch.stack([parts[0] for parts in scales.values()], 1)
    return torch.stack([torch.stack([part[:, -1] for part in parts], -1) for parts in scales.values()], 1)


def _direction(x: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch dim"]:
    if x.shape[-1] == 1:
        return torch.ones_like(x)
    length = x.norm(dim=-1, keepdim=True)
    if not length.all():
        raise InputError("a query of 0 has no direction to grow in: give prompts with other queries")
    return x / length
