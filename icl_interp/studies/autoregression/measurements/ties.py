"""What is read off the weights of a layer, beside what the model predicts.

They are compared after every scored state.

Each reading makes predictions of its own. They are compared with the model's at every length of the
prompt, since a claim on a layer covers them all, and beside that stands the model whose heads write
their means: `analyses.tie`.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.criterion import Estimate
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.analyses.tie import tie, tied
from icl_interp.interventions.base import intervene
from icl_interp.models.diagonal_unit import pairs
from icl_interp.models.transformer import HookedTransformer
from icl_interp.results import make_array
from icl_interp.studies.autoregression.measurements.distinct_heads import distinct
from icl_interp.studies.autoregression.measurements.unit import (
    as_real,
    complex_heads,
    heads,
    outputs,
    plain,
    positions,
    says,
    stored_heads,
    stored_positions,
)
from icl_interp.tasks.autoregressive import complex_states

REAL = "real heads"
COMPLEX = "pairs of heads"
Predicted = Float[Tensor, "batch point target"]


def at_every_point(lab: Lab, reading: Predicted) -> DataArray:
    """What `tie` keeps of a reading's predictions beside the model's.

    The array has axes (point, statistic, unit); points are the scored ones.
    """
    predicted = outputs(lab.model, lab, lab.few)
    with intervene(lab.model, lab.head_means):
        without = outputs(lab.model, lab, lab.few)
    points = range(lab.task.n_determining, lab.few.n_points)
    found = []
    for t in points:
        one = tie(lab, predicted[:, t], reading[:, t], without[:, t], lab.few)
        found.append(one)
    return _joined(found, "point", tuple(points))


def _joined(found: Sequence[DataArray], axis: str, values: Sequence[str | int]) -> DataArray:
    """Arrays with the same axes in one, along another axis that comes first."""
    axes: dict[str, Sequence[str | int]] = {axis: values}
    for name in found[0].dims:
        axes[str(name)] = tuple(found[0].indexes[name])
    numbers = np.stack([one.values for one in found])
    return make_array(numbers, axes)


def tied_everywhere(result: DataArray) -> dict[str, Estimate]:
    """What `TIED` asks for, at the worst points.

    They are where a reading explains least, and where the part is used least.
    """
    each = [result.sel(point=point) for point in result.indexes["point"]]
    worst = {}
    for quantity, statistic, largest in (("reading", "missed", True), ("used", "moved", False)):
        shares = [_share(one, statistic) for one in each]
        at = np.argmax(shares) if largest else np.argmin(shares)
        found = tied(each[int(at)])
        worst[quantity] = found[quantity]
    return worst


def _share(one: DataArray, statistic: str) -> float:
    """A squared change over the variance of predictions, on the sample."""
    means = one.mean("unit")
    firsts = [name for name in one.indexes["statistic"] if str(name).startswith("first")]
    second = means.sel(statistic="second")
    squares = means.sel(statistic=firsts).pipe(np.square)
    variance = float(second - squares.sum())
    change = float(means.sel(statistic=statistic))
    if variance <= 0:  # predictions that never vary
        return np.inf if change > 0 else 0.0
    return change / variance


def attention_alone(model: HookedTransformer) -> HookedTransformer:
    """The plain layer of attention on tokens as they are, with the model's heads.

    It has no norm, MLP or vectors of positions.

    Of a model that has such parts it says what heads would do without them.
    """
    weights = dict(model.state_dict())
    if model.shape.positional_embedding_type == "none":
        weights["embed.b_E"] = model.read_in_bias  # a vector that all positions share is a bias
    return plain(
        model,
        weights,
        attn_only=True,
        normalization_type=None,
        norm_position="pre",
        final_norm=None,
        read_in="learned",
        positional_embedding_type="none",
        embed_bound=None,
    )


@measurement("autoregression/the layer's weights")
def layer_tie(lab: Lab) -> DataArray:
    """Predictions of the plain layer with the model's weights, beside the model's."""
    layer = plain(lab.model)
    reading = outputs(layer, lab, lab.few)
    return at_every_point(lab, reading)


@measurement("autoregression/the heads' weights")
def heads_tie(lab: Lab) -> DataArray:
    """Predictions of the heads on tokens as they are, beside the model's."""
    alone = attention_alone(lab.model)
    reading = outputs(alone, lab, lab.few)
    return at_every_point(lab, reading)


@measurement("autoregression/diagonals of heads", version=2, needs=(heads, positions))
def diagonals_tie(lab: Lab, stored: DataArray, over_positions: DataArray) -> DataArray:
    """Predictions of complex diagonals and P, beside the model's: (heads, point, statistic, unit).

    Of all real heads, and of pairs that stand for one complex head each where the number of
    distinct ones is even.
    """
    real = stored_heads(stored)
    weights = stored_positions(over_positions)
    states = complex_states(lab.few.xs)
    readings = {REAL: real}
    different = distinct(real)
    if len(different.keys) % 2 == 0:
        chosen = complex_heads(different)
        readings[COMPLEX] = as_real(chosen)
    found = []
    for one in readings.values():
        predicted = pairs(says(one, weights, states))
        found.append(at_every_point(lab, predicted))
    return _joined(found, "heads", tuple(readings))
