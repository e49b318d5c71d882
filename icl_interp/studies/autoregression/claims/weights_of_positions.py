"""What the claims on weights of positions share: the model's error, and how it rises."""

import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.criterion import INF, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import bootstrap
from icl_interp.studies.autoregression.measurements.lengths import worst
from icl_interp.studies.autoregression.measurements.position_weights import INTACT
from icl_interp.studies.autoregression.measurements.unit import positions

HARMLESS, HARMFUL = 0.05, 0.2  # rise of the normalised error
LEARNED = 0.1  # normalised error up to which a model counts as one that predicts the next state
ERROR = "error / squared length of the next state"

PREDICTS = Precondition(
    "error",
    (-INF, LEARNED),
    "The model hardly predicts the next state: its error is {value:.2g} of that state's squared "
    f"length (at most {LEARNED:g} allowed).",
)


def rise(result: DataArray, arm: str, name: str, smallest: bool = False) -> Estimate:
    """The normalised error in an arm less that of the model.

    The state is the one after which it is largest, or with `smallest` smallest.
    """
    cut, own = (result.sel(arm=one).values for one in (arm, INTACT))
    return worst(name, lambda a, b: a - b, cut, own, smallest=smallest)[0]


def error(result: DataArray) -> Estimate:
    """The normalised error of the model as it is.

    R^2 is no gate: for small angles one fixed rotation predicts well.
    """
    return Estimate.of(
        "error over the squared length of the next state",
        bootstrap(lambda e: e.mean(-1), result.sel(arm=INTACT).values),
    )


def never_asked(facts: Facts) -> None:
    """The criterion asks whether the model predicts the next state."""


def matrix(results: Results) -> Float[Tensor, "query key"]:
    """Stored P."""
    return torch.from_numpy(results[positions].values.copy())


def mean_errors(result: DataArray) -> dict[str, float]:
    """The mean normalised error under each intervention."""
    return {str(arm): float(result.sel(arm=arm).values.mean()) for arm in result.indexes["arm"]}


def error_rows(means: dict[str, float]) -> tuple[dict[str, str | float], ...]:
    """A row of the details for each of `mean_errors`."""
    return tuple({"weights": arm, ERROR: value} for arm, value in means.items())
