"""The residual stream: how long its vectors are, where they point on average, and how many directions they use."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.base import Hook, Positions, Probe
from icl_interp.reductions import Gram, Moments
from icl_interp.results import Result, make_array, make_curve


class ResidualStream(Probe):
    """Norms, mean vector and covariance spectrum of the stream, by depth and position kind.

    Depth counts the blocks that the stream has passed: 0 is `blocks.0.hook_resid_pre`, i + 1 is
    `blocks.{i}.hook_resid_post`. Positions of a kind are pooled, so what tells them apart (a learned position, say) is
    part of their covariance.

    Results, in units of the stream (variances: squared):
        norm: |h|, Matrix (depth, position, statistic), the statistics being "mean" and "std".
        mean: E h, Matrix (depth, position, d_model).
        mean_norm: |E h|, Matrix (depth, position).
        spectrum: eigenvalues of Cov h, largest first, Curve (depth, position, component).
        participation_ratio: (sum l)^2 / sum l^2 of these, Matrix (depth, position); NaN where nothing varies.
    """

    name: ClassVar[str] = "residual_stream"

    def hooks(self, model: HookedTransformer, positions: Positions) -> list[Hook]:
        """One before the first block and one after each."""
        names = ["blocks.0.hook_resid_pre", *(f"blocks.{i}.hook_resid_post" for i in range(model.cfg.n_layers))]
        self._positions = positions
        self._norms = [{kind: Moments() for kind in positions} for _ in names]
        self._vectors = [{kind: Gram() for kind in positions} for _ in names]
        return [(name, partial(self._read, depth)) for depth, name in enumerate(names)]

    def _read(self, depth: int, stream: Float[Tensor, "batch token d_model"], hook: object) -> None:
        for kind, places in self._positions.items():
            vectors = stream[:, list(places)].flatten(0, 1)
            # In float64: a norm squares, and 1e20 is within float32.
            self._norms[depth][kind].update(vectors.double().norm(dim=-1))
            self._vectors[depth][kind].update(vectors)

    def results(self) -> dict[str, Result]:
        """The five results."""
        grams = self._vectors
        axes = {"depth": tuple(range(len(grams))), "position": tuple(self._positions)}
        mean = _over(grams, lambda gram: gram.mean)
        note = "depth counts the blocks passed; the positions of a kind are pooled"
        return {
            "norm": make_array(
                _over(self._norms, lambda m: m.result), {**axes, "statistic": ("mean", "std")}, "stream", note
            ),
            "mean": make_array(mean, {**axes, "d_model": tuple(range(mean.shape[-1]))}, "stream", note),
            "mean_norm": make_array(np.linalg.norm(mean, axis=-1), axes, "stream", note),
            "spectrum": make_curve(
                _over(grams, lambda gram: gram.spectrum),
                {**axes, "component": tuple(range(1, mean.shape[-1] + 1))},
                "stream squared",
                note,
            ),
            "participation_ratio": make_array(
                _over(grams, lambda gram: gram.participation_ratio), axes, "directions", note
            ),
        }


def _over(states: list[dict[str, Any]], quantity: Callable[[Any], Tensor]) -> np.ndarray:
    """A quantity of every state as one array (depth, position, ...)."""
    return torch.stack([torch.stack([quantity(s) for s in kinds.values()]) for kinds in states]).cpu().numpy()
