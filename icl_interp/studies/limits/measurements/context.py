"""What is left of the context far out: whether it helps, what it tells, and f beyond the grid.

What is left out, folded, permuted and swapped are whole units.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.probes.sweep import Sweep, Swept, places
from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.results import make_array, make_curve
from icl_interp.studies.limits.measurements.boundary import without_own
from icl_interp.studies.limits.measurements.far import power

# |x| in units of `Lab.x_unit`:
HIGH = (
    1e4,
    1e5,
)  # a high norm: past every onset seen, and where no ratio of errors changes any more
ERASED_AT = 1e4
INNER = np.array([0, 1])  # where the inner queries stand in `context/use`
BEYOND = np.array(
    [1e6, 1e8, 1e9, 1e10]
)  # where f still has to be what it is on the far grid, if that is far enough
N_FOLDS = 8
ROUNDING = 1e-9  # of f: a spread below this is what float64 leaves, not what the model does


def _inner_and_high(lab: Lab) -> list[float]:
    """Two inner queries, and both directions of each of `HIGH`."""
    return [*lab.inner, *(s * x * lab.x_unit for x in HIGH for s in (1, -1))]


@measurement("context/use", version=2, asks=lambda lab: lab.ask(_inner_and_high(lab)))
def use(lab: Lab, swept: Swept) -> DataArray:
    """Whether the context helps at inner queries and far out, each query the same for all prompts.

    Statistics, each a mean over the prompts of a unit: "squared error"; squared errors of guesses
    without the context, "law's mean" (E f over the law of functions) and "context-free" (f averaged
    over the prompts of all other units); "swapped", f before another unit's contexts; "change", the
    squared change of f by that swap; "size" and "f size", squares of the truth and of f; "f less
    law's mean", the square of that difference. Then moments for correlations, both curves less
    their means over all prompts: "f", "truth", "f squared", "truth squared", "product".
    """
    xs = _inner_and_high(lab)
    f = as_numbers(swept.f)
    truth = as_numbers(lab.truth(xs))
    mean = as_numbers(lab.task.expected(places(xs, lab.task.dim)[None]))
    size = len(f) // lab.n_units
    line = torch.from_numpy(without_own(lab.by_unit(f))).repeat_interleave(size, 0)
    swapped = f.roll(size, 0)
    centred, true = f - f.mean(0), truth - truth.mean(0)
    statistics = {
        "squared error": (f - truth).square(),
        "law's mean": (mean - truth).square(),
        "context-free": (line - truth).square(),
        "swapped": (swapped - truth).square(),
        "change": (swapped - f).square(),
        "size": truth.square(),
        "f size": f.square(),
        "f less law's mean": (f - mean).square(),
        "f": centred,
        "truth": true,
        "f squared": centred.square(),
        "truth squared": true.square(),
        "product": centred * true,
    }
    axes = {"statistic": tuple(statistics), "unit": tuple(range(lab.n_units)), "x": tuple(xs)}
    values = [lab.by_unit(v) for v in statistics.values()]
    return make_curve(
        values, axes, note=f"query arm; inner queries first; {size} prompts a unit; float64"
    )


@measurement(
    "context/information",
    version=2,
    asks=lambda lab: lab.ask([sign * ERASED_AT * lab.x_unit for sign in (1, -1)]),
)
def information(lab: Lab, swept: Swept) -> DataArray:
    """How well the function's coefficients predict f far out.

    Cross-validated least squares over units (no unit is in training and test at once) of f at +-1e4
    units on the coefficients and their products; the null is the same with coefficients permuted
    over units.
    """
    out = ERASED_AT * lab.x_unit
    f = as_numbers(swept.f)
    order = torch.randperm(lab.n_units, generator=generator(lab.seed, "context/permutation"))
    parameters = lab.prompts.parameters
    permuted = parameters.view(lab.n_units, lab.unit_size, -1)[order].flatten(0, 1)
    rows = []
    for target in f.T:
        for inputs in (parameters, permuted):
            residual, total = held_out_errors(
                products(inputs, lab.n_units), target, torch.arange(len(target)) // lab.unit_size
            )
            rows.append(np.stack([lab.by_unit(residual), lab.by_unit(total)]))
    values = np.reshape(rows, (2, 2, 2, lab.n_units))
    axes = {
        "direction": ("+", "-"),
        "inputs": ("coefficients", "permuted"),
        "statistic": ("residual", "total"),
        "unit": tuple(range(lab.n_units)),
    }
    return make_array(
        values, axes, note=f"{N_FOLDS}-fold cross-validation over units, at |x| = {power(out)}"
    )


def _beyond(lab: Lab) -> list[Sweep]:
    """Both directions of `far/beyond`."""
    xs = lab.x_unit * BEYOND
    return [lab.ask(xs, prompts=lab.few), lab.ask(-xs, prompts=lab.few)]


@measurement("far/beyond", asks=_beyond)
def beyond(lab: Lab, both: Sequence[Swept]) -> DataArray:
    """f from 1e6 to 1e10 units in each direction, on two prompts of each unit: as `far.ends`."""
    xs = lab.x_unit * BEYOND
    values = [as_numbers(one.f).T.reshape(len(xs), lab.n_units, -1).numpy() for one in both]
    axes = {
        "direction": ("+", "-"),
        "x": tuple(xs),
        "unit": tuple(range(lab.n_units)),
        "context": tuple(range(values[0].shape[-1])),
    }
    return make_array(values, axes, note="query arm; x is the magnitude; float64")


def far_out(used: DataArray, x_unit: float) -> list[np.ndarray]:
    """Where the queries of `HIGH` stand in `context/use`, both directions of each |x|.

    The inner ones are `INNER`.
    """
    sizes = np.abs(used["x"].values) / x_unit
    return [np.flatnonzero(np.isclose(sizes, x)) for x in HIGH]


def products(
    parameters: Float[Tensor, "batch parameter"], n_units: int
) -> Float[Tensor, "batch feature"]:
    """1, each coefficient, and each product of two if there are eight units for each feature.

    The products are left out where units are too few to fit them on.
    """
    one = torch.ones_like(parameters[:, :1])
    first, second = torch.triu_indices(parameters.shape[1], parameters.shape[1])
    features = torch.cat([one, parameters, parameters[:, first] * parameters[:, second]], 1)
    return features if 8 * features.shape[1] <= n_units else features[:, : 1 + parameters.shape[1]]


def held_out_errors(
    features: Float[Tensor, "batch feature"],
    target: Float[Tensor, " batch"],
    unit: Int[Tensor, " batch"],
) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
    """Squared error of the held-out prediction and of the held-out mean, for each prompt.

    Folds are of whole units.
    """
    # Relative to its spread: far out f may vary by 1e-4 only, and that is what is to be explained.
    # Rounding is not.
    size, target = target.abs().max(), target - target.mean()
    target = target / target.std() if target.std() > ROUNDING * size else torch.zeros_like(target)
    residual, total = torch.empty_like(target), torch.empty_like(target)
    for fold in range(N_FOLDS):
        test = unit % N_FOLDS == fold
        fit = torch.linalg.lstsq(features[~test], target[~test, None], driver="gelsd").solution[
            :, 0
        ]
        residual[test] = (target[test] - features[test] @ fit).square()
        total[test] = (target[test] - target[~test].mean()).square()
    return residual, total
