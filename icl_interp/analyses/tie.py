"""What is read off weights is judged only where it predicts as the model does, and is used.

A map, a window or a product of matrices may stand in a head that writes nothing, while a path
beside it makes the prediction. So each claim about weights shares two preconditions (`TIED`): the
reading's own predictions explain the model's, and the prediction moves when the part that was read
is replaced by its mean.
"""

import numpy as np
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.bench import Bench
from icl_interp.analyses.criterion import INF, Estimate, Precondition
from icl_interp.prompts import Prompts
from icl_interp.resampling import bootstrap, r_squared
from icl_interp.results import make_array

EXPLAINED = 0.99  # share of the model's predictions that a reading explains at least
# Share of the variance of predictions by which they move at least without the part that was read.
MOVED = 0.1

TIED = (
    Precondition(
        "reading",
        (EXPLAINED, INF),
        f"What is read off the weights explains {{value:.3g}} of the predictions ({EXPLAINED} "
        "needed), so something else makes them.",
    ),
    Precondition(
        "used",
        (MOVED, INF),
        "Without the part that was read, predictions move by only {value:.3g} of their variance "
        f"({MOVED} needed).",
    ),
)


def tie(
    bench: Bench,
    predicted: Float[Tensor, "batch target"],
    reading: Float[Tensor, "batch target"],
    without: Float[Tensor, "batch target"],
    prompts: "Prompts | None" = None,
) -> DataArray:
    """Means over each unit's prompts of what `tied` needs: (statistic, unit).

    Args:
        bench: whose units the prompts belong to.
        predicted: the model's predictions.
        reading: what the reading predicts for the same prompts.
        without: the model's predictions with the part that was read at its mean.
        prompts: whose predictions they are; those of the bench by default.
    """
    parts = (
        (predicted - reading).square().sum(1),
        (predicted - without).square().sum(1),
        predicted,
        predicted.square().sum(1),
    )
    rows = [bench.by_unit(part, prompts) for part in parts]
    missed, moved, first, second = rows
    table = np.column_stack([missed, moved, second, first]).T
    names = ("missed", "moved", "second", *(f"first {k}" for k in range(predicted.shape[1])))
    return make_array(table, {"statistic": names, "unit": tuple(range(len(missed)))})


def tied(result: DataArray) -> dict[str, Estimate]:
    """The quantities of `TIED`: how much of predictions a reading explains, how far they move.

    Both are relative to the variance of the model's predictions over the sample. Predictions that
    never vary are made by nothing: there no part counts as used.

    Args:
        result: what `tie` gave.

    >>> import torch
    >>> from icl_interp.analyses import Bench
    >>> bench = Bench.of("affine", n_prompts=256)
    >>> f = bench.predict(bench.prompts)[:, -1].double()
    >>> found = tied(tie(bench, f, 0.99 * f, torch.zeros_like(f)))
    >>> found["reading"].value > 0.9998, round(found["used"].value, 1)
    (True, 1.0)
    """
    missed, moved, second, *first = result.values

    def variance(square: np.ndarray, *means: np.ndarray) -> np.ndarray:
        return square - sum(mean**2 for mean in means)

    def explained(miss: np.ndarray, square: np.ndarray, *means: np.ndarray) -> np.ndarray:
        return r_squared(miss, variance(square, *means), empty=1.0)

    def share(move: np.ndarray, square: np.ndarray, *means: np.ndarray) -> np.ndarray:
        return 1 - r_squared(move, variance(square, *means), empty=1.0)

    return {
        "reading": Estimate.of(
            "share of predictions that the reading explains",
            bootstrap(explained, missed, second, *first),
        ),
        "used": Estimate.of(
            "movement without the part, over variance", bootstrap(share, moved, second, *first)
        ),
    }
