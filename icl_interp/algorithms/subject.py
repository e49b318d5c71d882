"""What is asked of a model or a predictor: predictions, hat rows, and the stream at the query."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.adapters.adapted import Adapted
from icl_interp.analyses.facts import is_large
from icl_interp.baselines.base import Predictor, predictions
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError
from icl_interp.models.hooked import HookedModel
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import chunks
from icl_interp.probes.influence import ExampleInfluence
from icl_interp.probes.readers import projected
from icl_interp.probes.residual import depths
from icl_interp.prompts import Prompts

ROWS = 256  # prompts that predictors are shown at once, so that memory stays flat
STEP = 1e-4  # of a label, for differences


@dataclass(frozen=True, eq=False)
class Subject:
    """The model or predictor whose algorithm is asked for.

    Attributes:
        source: with `predict`.
        checkpoint: None for an adapted module, and for a predictor without weights.
        adapted: the module, where one was adapted.
    """

    source: Predictor
    name: str
    checkpoint: Checkpoint | None = None
    adapted: Adapted | None = None

    @property
    def has_weights(self) -> bool:
        """Whether it is a model, whose prediction can be asked for its derivatives at low cost."""
        return self.checkpoint is not None or self.adapted is not None

    @property
    def n_layers(self) -> int | None:
        """Blocks; None where there are none, or nobody named the stream between them."""
        if self.checkpoint is not None:
            return self.checkpoint.model.cfg.n_layers
        if self.adapted is None or set(depths(self.adapted)) - set(self.adapted.hook_dict):
            return None
        return self.adapted.cfg.n_layers

    @property
    def is_large(self) -> bool:
        """Whether a smaller sample is asked for."""
        model = self.checkpoint.model if self.checkpoint else self.adapted
        return model is not None and is_large(model)

    @property
    def one_length(self) -> bool:
        """Whether training scores the last point alone: shorter prompts are then new to it."""
        if self.checkpoint is None:
            return False
        encoding = self.checkpoint.encoding
        _, points = encoding.read_at(9, self.checkpoint.model.cfg.attention_dir)
        return len(points) == 1

    def answers(self, prompts: Prompts) -> Float[Tensor, "batch target"]:
        """Predictions at the queries, in float64.

        Raises:
            InputError: a prediction is not finite.
        """
        parts = []
        for start in range(0, len(prompts), ROWS):
            end = start + ROWS
            some = prompts[start:end]
            found = predictions(self.source, some)
            parts.append(found[:, -1])
        out = torch.cat(parts)
        if not bool(torch.isfinite(out).all()):
            raise InputError(f"{self.name} gives a prediction that is not finite")
        return out

    def hat_rows(self, prompts: Prompts) -> Float[Tensor, "batch example"]:
        """Derivatives of the prediction with respect to each example's label, where it is a number.

        The model is run in float64.
        """
        source = self.checkpoint or self.adapted
        assert source is not None
        found = ExampleInfluence.measure(source, prompts, inputs=False)
        return torch.from_numpy(found.weights.values.copy())

    def streams(self, prompts: Prompts) -> list[Float[Tensor, "batch d_model"]]:
        """The residual stream at the query before the first block, and after each.

        What nothing reads of it later is 0 in a model without norms. Of an adapted module nobody
        says what is read, so its stream stays as it is.
        """
        if self.checkpoint is None:
            assert self.adapted is not None
            return _at_query(self.adapted, self.adapted.encoding, prompts)
        model = self.checkpoint.model
        return projected(model, _at_query(model, self.checkpoint.encoding, prompts))


def _at_query(
    model: HookedModel, encoding: Encoding, prompts: Prompts
) -> list[Float[Tensor, "batch d_model"]]:
    """The stream at the query at each depth, in float64."""
    names = depths(model)
    tokens = encoding.encode(prompts).to(model.numbers)
    found: list[list[Tensor]] = [[] for _ in names]
    for rows in chunks(model, len(prompts), tokens.shape[1]):
        with torch.no_grad():
            _, cache = model.run_with_cache(tokens[rows], names_filter=names)
        for kept, name in zip(found, names, strict=True):
            kept.append(cache[name][:, -1].double().cpu())
    return [torch.cat(kept) for kept in found]


def said_by(predictor: Predictor, prompts: Prompts) -> Float[Tensor, "batch point target"]:
    """A rival's predictions at every point, some prompts at a time."""
    parts = []
    for start in range(0, len(prompts), ROWS):
        end = start + ROWS
        some = prompts[start:end]
        parts.append(predictor.predict(some))
    return torch.cat(parts)


def hat_rows_of(predictor: Any, prompts: Prompts, linear: bool) -> Float[Tensor, "batch example"]:
    """Derivatives of a rival's prediction with respect to each example's label.

    Where predictions are affine in labels, labels that are vectors (example i has the i-th unit
    vector) give all of them at once. Elsewhere they are central differences.
    """
    prompts = prompts.double()
    n = prompts.n_points - 1
    units = torch.eye(n + 1, n, dtype=torch.float64)
    if linear:
        ys = units.expand(len(prompts), -1, -1)
        nothing = torch.zeros_like(ys)
        at_units = predictor.predict(replace(prompts, ys=ys))
        at_zero = predictor.predict(replace(prompts, ys=nothing))
        difference = at_units - at_zero
        return difference[:, -1]
    # One label at a time is moved up and down.
    size = STEP * float(prompts.ys.std())
    columns = []
    for i in range(n):
        change = size * units[:, i, None]
        up = said_by(predictor, replace(prompts, ys=prompts.ys + change))
        down = said_by(predictor, replace(prompts, ys=prompts.ys - change))
        columns.append((up - down)[:, -1, 0] / (2 * size))
    return torch.stack(columns, 1)
