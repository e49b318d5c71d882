"""The claim of `gradient_descent`: L layers do L steps, and L - 1 steps without one of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import (
    Condition,
    Criterion,
    Estimate,
    Found,
    Precondition,
    at_least,
    at_most,
)
from icl_interp.analyses.facts import Facts, needs_linear_functions
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.gradient_descent.measurements.distances import (
    DOWNHILL,
    FAMILIES,
    LABEL,
    OWN,
    RIVAL,
    SQUARED,
    WITHOUT,
    distances,
)

NEAR = 0.05
FAR = 0.10
# L steps are told from a rival, one step less or least squares, where they are so much nearer.
NEARER = 2.0
# Weights that carry out steps exactly run in float32: a smaller distance is rounding.
ROUNDING = 1e-6
# Of the mean squared label: predictions that vary less vary by rounding alone.
FAINT = 1e-6
DISTANCE = "distance"
WITHOUT_BLOCK = "without a block"
BESIDE_RIVALS = "beside rivals"
WITHOUT_UPHILL = "downhill only"
SPREAD = "spread"
QUOTE = Quote(
    "For a transformer with $L$ attention layers, we prove certain critical points of the training "
    "objective implement $L$ iterations of preconditioned gradient descent.",
    "Ahn, Cheng, Daneshmand & Sra (2023), abstract",
    'Von Oswald et al. (2023) say of trained transformers with self-attention alone that "either '
    "the models learned by GD and Transformers show great similarity or, remarkably, the weights "
    'found by optimization match the construction" (abstract). Neither work gives a threshold. '
    "Both are about linear attention. We test every transformer trained on linear regression, and "
    "set the thresholds beforehand, but for those on rivals and on steps that go up. Steps with a "
    "matrix each are not among those tried.",
)


def relative(squared: np.ndarray, own: np.ndarray, square: np.ndarray) -> np.ndarray:
    """D = E (f - g)^2 / Var f, not below `ROUNDING`.

    Predictions that do not vary are no steps of anything: they get 1, as the mean of f does.

    Args:
        squared: means of squared distances.
        own: means of predictions.
        square: means of squared predictions.

    >>> relative(np.array([0.2, 0.0]), np.zeros(2), np.array([2.0, 0.0])).tolist()
    [0.1, 1.0]
    """
    variance = square - own**2
    varies = variance > 0
    found = np.where(varies, squared / np.where(varies, variance, 1.0), 1.0)
    return np.maximum(found, ROUNDING)


def rows(result: DataArray, begins: str = "") -> list[str]:
    """Names of the comparisons that begin so; by default those of the whole model with L steps."""
    names = list(result.indexes["comparison"])
    if begins:
        return [name for name in names if name.startswith(begins)]
    return [name for name in names if not name.startswith((RIVAL, DOWNHILL, WITHOUT))]


def distance(result: DataArray, names: list[str], largest: bool = False) -> Interval:
    """The smallest D of some comparisons, or the largest, with its interval.

    Which comparison it is may differ from draw to draw.
    """
    squared, own = _numbers(result, names)
    chosen = np.max if largest else np.min

    def statistic(apart: np.ndarray, mean: np.ndarray, square: np.ndarray) -> np.ndarray:
        return chosen(relative(apart, mean, square), axis=-1)

    return bootstrap(statistic, squared, own, own**2, positive=True)


def beside_rivals(result: DataArray) -> Interval:
    """D to L steps that go down over the smallest D to a rival."""
    (steps,) = rows(result, DOWNHILL)
    squared, own = _numbers(result, [steps, *rows(result, RIVAL)])

    def statistic(apart: np.ndarray, mean: np.ndarray, square: np.ndarray) -> np.ndarray:
        found = relative(apart, mean, square)
        return found[..., 0] / found[..., 1:].min(-1)

    return bootstrap(statistic, squared, own, own**2, positive=True)


def _numbers(result: DataArray, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Squared distances and predictions, (unit, comparison); faint predictions are 0."""
    chosen = result.sel(comparison=names).transpose("unit", "comparison", "number")
    own = chosen.sel(number=OWN).values
    faint = own.var(0) < FAINT * chosen.sel(number=LABEL).values.mean(0)
    return chosen.sel(number=SQUARED).values, np.where(faint, 0.0, own)


def evidence(results: Results, facts: Facts) -> Mapping[str, Found]:
    """Spread of predictions, D to the nearest family, and what else the model may be."""
    result = results[distances]
    whole = result.isel(comparison=0)
    own = whole.sel(number=OWN).values
    label = whole.sel(number=LABEL).values
    found: dict[str, Found] = {
        SPREAD: float(own.var() / label.mean()),
        DISTANCE: distance(result, rows(result)),
        BESIDE_RIVALS: beside_rivals(result),
        WITHOUT_UPHILL: distance(result, rows(result, DOWNHILL)),
    }
    edited = rows(result, WITHOUT)
    if edited:
        found[WITHOUT_BLOCK] = distance(result, edited, largest=True)
    return found


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Which family is nearest, and D of each comparison."""
    result = results[distances]
    details = []
    for name in result.indexes["comparison"]:
        details.append(_detail(result, name))
    # Of families that tie it is the first, and simplest.
    best = min(details[: len(FAMILIES)], key=lambda row: round(row["D"], 6))
    caveat = f"The nearest is {best['comparison']}."
    left = [row for row in details if row["comparison"].startswith(WITHOUT)]
    if left:
        worst = max(left, key=lambda row: row["D"])
        caveat += f" The farthest is {worst['comparison']}, at {worst['D']:.2g}."
    return Remarks(
        scope="these weights, and prompts of the trained length in distribution; each family is "
        "tuned to the model on other functions",
        caveat=caveat,
        details=tuple(details),
    )


def _detail(result: DataArray, name: str) -> dict[str, Any]:
    one = distance(result, [name])
    return {"comparison": name, "D": one.value, "low": one.low, "high": one.high}


STEPS_CLAIM = Claim(
    id="gradient_descent.steps",
    kind="architecture",
    statement="The model's L layers do L steps of gradient descent.",
    denied="The model's L layers do something other than L steps of gradient descent.",
    question="algorithm",
    quote=QUOTE,
    reads="the prediction, whole and with each block at its mean",
    criterion=Criterion(
        (
            Condition(
                DISTANCE,
                "squared distance to L steps, over the variance of predictions",
                at_most(NEAR),
                at_least(FAR),
                unit="share",
                scale="log",
            ),
            Condition(
                WITHOUT_BLOCK,
                "largest squared distance to L - 1 steps, without a block",
                at_most(NEAR),
                unit="share",
                scale="log",
                optional=True,
            ),
            # Layers that share one step fit L steps too, and so may least squares on long prompts.
            Condition(
                BESIDE_RIVALS,
                "squared distance to L steps that go down, over that to a rival",
                at_most(1 / NEARER),
                unit="times",
                scale="log",
            ),
            Condition(
                WITHOUT_UPHILL,
                "squared distance to those steps without what goes up",
                at_most(NEAR),
                unit="share",
                scale="log",
            ),
        ),
        (
            Precondition(
                SPREAD,
                at_least(FAINT),
                "The variance of its predictions is only {value:.2g} of the mean squared label, "
                "so no steps can be seen.",
            ),
        ),
        terms="The steps are those of descent with one step size, of descent with one matrix for "
        "all steps and a size for each, or of GD++, whichever is nearest to the whole model. A "
        "block is taken out by replacing its outputs by their means. The rivals are one step "
        "less, and least squares. A step goes up along directions in which its matrix or size is "
        "below 0.",
    ),
    measurements=(distances,),
    control=(distances,),
    aspects=("depth", "single layer", "kind of task"),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_linear_functions,
    figures=("descent_distances",),
)
CLAIMS = (STEPS_CLAIM,)
