"""What each layer's stream says at the query: a linear read-out, fitted on other functions."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

PENALTY = 1e-4  # of ridge regression, in units of an example's share of a standardised column


def read_out(
    stream: Float[Tensor, "batch d_model"],
    values: Float[Tensor, "batch target"],
    asked: Float[Tensor, "other d_model"],
    penalty: float = PENALTY,
) -> Float[Tensor, "other target"]:
    """Values read off a stream by the affine map that fits them best on other prompts.

    Source: Alain & Bengio (2017), "Understanding intermediate layers using linear classifier
    probes"; of the value at the query, Fu, Chen, Jia & Sharan (2023), section 4.1.

    Args:
        stream: of the prompts that the read-out is fitted on.
        values: f(x_query) of these.
        asked: the stream of the prompts that it is read off.
        penalty: of the ridge regression; next to none makes it the same in all coordinates.
    """
    centre = stream.mean(0)
    spread = stream.std(0)
    spread = torch.where(spread > 1e-9 * spread.max(), spread, torch.inf)
    columns = (stream - centre) / spread
    middle = values.mean(0)
    identity = torch.eye(columns.shape[1], dtype=columns.dtype)
    gram = columns.T @ columns + penalty * len(columns) * identity
    weights = torch.linalg.solve(gram, columns.T @ (values - middle))
    return (asked - centre) / spread @ weights + middle


def by_layer(
    fitted_on: Sequence[Float[Tensor, "batch d_model"]],
    values: Float[Tensor, "batch target"],
    asked: Sequence[Float[Tensor, "other d_model"]],
) -> list[Float[Tensor, "other target"]]:
    """The read-out of every layer."""
    found = []
    for stream, others in zip(fitted_on, asked, strict=True):
        found.append(read_out(stream, values, others))
    return found
