"""The residual stream: lengths of its vectors, their directions, and the prediction it holds."""

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.models.hooked import HookedModel
from icl_interp.models.layers import Norm, TanhNorm
from icl_interp.probes.base import Hook, Positions, Probe, at_places
from icl_interp.probes.by_kind import ByKind
from icl_interp.reductions import Gram
from icl_interp.results import Result, make_array, make_curve


def depths(model: HookedModel) -> list[str]:
    """Hooks of the stream after 0, 1, ..., all blocks.

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> from icl_interp.models.transformer import HookedTransformer
    >>> depths(HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=8)))
    ['blocks.0.hook_resid_pre', 'blocks.0.hook_resid_post']
    """
    names = ["blocks.0.hook_resid_pre"]
    for layer in range(model.cfg.n_layers):
        names.append(f"blocks.{layer}.hook_resid_post")
    return names


def normed(
    model: HookedModel, stream: Float[Tensor, "*batch d_model"]
) -> Float[Tensor, "*batch d_model"]:
    """The stream as the read-out would see it: through the final norm.

    A post-norm model has none, and the read-out of an adapted module holds its own.
    """
    final = getattr(model, "ln_final", None)
    return final(stream) if isinstance(final, (Norm, TanhNorm)) else stream


def logit_lens(
    model: HookedModel, stream: Float[Tensor, "*batch d_model"]
) -> Float[Tensor, "*batch d_out"]:
    """The prediction that the stream holds: the read-out if the remaining blocks wrote nothing.

    A post-norm model has no final norm, and its stream is read as it is. Interventions on the final
    norm act here too.

    Source: nostalgebraist (2020), "interpreting GPT: the logit lens"; for functions of numbers,
    Naim & Asher (2025), appendix F.

    After all blocks it is the model's own prediction:

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> from icl_interp.models.transformer import HookedTransformer
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=2, d_model=8, init_std=1.0))
    >>> out, cache = model.run_with_cache(torch.linspace(-1, 1, 5)[None, :, None])
    >>> bool((logit_lens(model, cache[depths(model)[-1]]) - out).abs().max() < 1e-5)
    True
    """
    return model.unembed(normed(model, stream))


class LogitLens(Probe):
    """The prediction that the stream holds after 0, 1, ..., all blocks, by `logit_lens`.

    It is given by depth and position kind.

    Source: nostalgebraist (2020), "interpreting GPT: the logit lens".

    Args:
        per_prompt: keep a value for each prompt instead of mean and standard deviation.

    Results, in units of y:
        prediction: Matrix (depth, position, target, statistic), or with `per_prompt` (depth,
            position, target, prompt).

    After all blocks it is the prediction:

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> from icl_interp.models.transformer import HookedTransformer
    >>> from icl_interp.probes.runner import probe
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=2, d_model=8))
    >>> tokens = torch.randn(4, 6, 1)
    >>> lens = probe(model, tokens, [LogitLens(per_prompt=True)])["logit_lens.prediction"]
    >>> last = torch.from_numpy(lens.sel(depth=2, position="query", target=0).values)
    >>> torch.allclose(last, model(tokens)[:, -1, 0].double(), atol=1e-6)
    True
    """

    name: ClassVar[str] = "logit_lens"

    def __init__(self, per_prompt: bool = False) -> None:
        self.per_prompt = per_prompt

    def refusal(self, model: HookedModel) -> str | None:
        """Adapted modules of which nobody named the read-out."""
        if hasattr(model, "unembed"):
            return None
        return "nobody named the read-out of this adapted module: readout=[...]"

    def hooks(self, model: HookedModel, positions: Positions) -> list[Hook]:
        """One before the first block and one after each."""
        self._model = model
        self._positions = positions
        self._kept: list[ByKind] = []
        hooks: list[Hook] = []
        for depth, name in enumerate(depths(model)):
            self._kept.append(ByKind(positions, self.per_prompt))
            hooks.append((name, partial(self._read, depth)))
        return hooks

    def _read(self, depth: int, stream: Float[Tensor, "batch token d_model"], hook: object) -> None:
        self._kept[depth].update(logit_lens(self._model, stream))

    def results(self) -> dict[str, Result]:
        """The predictions."""
        values = _of_depths(self._kept)
        axes = {
            "depth": range(len(self._kept)),
            "position": tuple(self._positions),
            "target": range(values.shape[2]),
            **self._kept[0].axis(),
        }
        return {"prediction": make_array(values, axes, "y", "depth counts the blocks passed")}


class ResidualStream(Probe):
    """Norms, mean vector and covariance spectrum of the stream, by depth and position kind.

    Depth counts the blocks that the stream has passed: 0 is `blocks.0.hook_resid_pre`, i + 1 is
    `blocks.{i}.hook_resid_post`. Positions of a kind are pooled, so what tells them apart (a
    learned position, say) is part of their covariance.

    Results, in units of the stream (variances: squared):
        norm: |h|, Matrix (depth, position, statistic), the statistics being "mean" and "std".
        mean: E h, Matrix (depth, position, d_model).
        mean_norm: |E h|, Matrix (depth, position).
        spectrum: eigenvalues of Cov h, largest first, Curve (depth, position, component).
        participation_ratio: (sum l)^2 / sum l^2 (NaN: no variance), Matrix (depth, position).

    Source: of the participation ratio, Abbott, Rajan & Sompolinsky (2011), "Interactions between
    intrinsic and stimulus-evoked activity in recurrent neural networks".

    Where inputs are numbers and there are no positions, the stream starts on a line:

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> from icl_interp.models.transformer import HookedTransformer
    >>> from icl_interp.probes.runner import probe
    >>> config = HookedTransformerConfig(n_layers=1, d_model=8, positional_embedding_type="none")
    >>> results = probe(HookedTransformer(config), torch.randn(4, 6, 1), [ResidualStream()])
    >>> ratio = results["residual_stream.participation_ratio"]
    >>> round(float(ratio.sel(depth=0, position="token")), 5)
    1.0
    """

    name: ClassVar[str] = "residual_stream"

    def hooks(self, model: HookedModel, positions: Positions) -> list[Hook]:
        """One before the first block and one after each."""
        self._positions = positions
        self._norms: list[ByKind] = []
        self._vectors: list[dict[Any, Gram]] = []
        hooks: list[Hook] = []
        for depth, name in enumerate(depths(model)):
            self._norms.append(ByKind(positions))
            self._vectors.append({kind: Gram() for kind in positions})
            hooks.append((name, partial(self._read, depth)))
        return hooks

    def _read(self, depth: int, stream: Float[Tensor, "batch token d_model"], hook: object) -> None:
        # In float64: a norm squares, and 1e20 is within float32.
        norms = torch.linalg.vector_norm(stream, dim=-1, dtype=torch.float64)
        self._norms[depth].update(norms)
        for kind, places in self._positions.items():
            vectors = at_places(stream, places).flatten(0, 1)
            self._vectors[depth][kind].update(vectors)

    def results(self) -> dict[str, Result]:
        """The five results."""
        norms = _of_depths(self._norms)
        mean = self._over(attrgetter("mean"))
        spectrum = self._over(attrgetter("spectrum"))
        ratio = self._over(attrgetter("participation_ratio"))
        width = mean.shape[-1]
        # Each result has these axes first.
        axes = {"depth": range(len(self._vectors)), "position": tuple(self._positions)}
        of_norms = axes | self._norms[0].axis()
        of_vectors = axes | {"d_model": range(width)}
        of_spectrum = axes | {"component": range(1, width + 1)}
        note = "depth counts the blocks passed; the positions of a kind are pooled"
        return {
            "norm": make_array(norms, of_norms, "stream", note),
            "mean": make_array(mean, of_vectors, "stream", note),
            "mean_norm": make_array(np.linalg.norm(mean, axis=-1), axes, "stream", note),
            "spectrum": make_curve(spectrum, of_spectrum, "stream squared", note),
            "participation_ratio": make_array(ratio, axes, "directions", note),
        }

    def _over(self, quantity: Callable[[Gram], Tensor]) -> np.ndarray:
        """A quantity of the vectors of every depth and kind, (depth, position, ...)."""
        rows = []
        for kinds in self._vectors:
            rows.append(torch.stack(list(map(quantity, kinds.values()))))
        return torch.stack(rows).cpu().numpy()


def _of_depths(kept: list[ByKind]) -> np.ndarray:
    """The statistics of every depth as one array (depth, position, ...)."""
    return torch.stack([one.result for one in kept]).cpu().numpy()
