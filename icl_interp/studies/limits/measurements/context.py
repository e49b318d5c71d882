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
from icl_interp.studies.limits.measurements.far import each_context, power

# |x| in units of `Lab.x_unit`.
# A high norm: past every onset seen, and where no ratio of errors changes any more.
HIGH = (1e4, 1e5)
ERASED_AT = 1e4
INNER = np.array([0, 1])  # where the inner queries stand in `context/use`
# Where f still has to be what it is on the far grid, if that is far enough.
BEYOND = np.array([1e6, 1e8, 1e9, 1e10])
N_FOLDS = 8
ROUNDING = 1e-9  # of f: a spread below this is what float64 leaves, not what the model does


def _inner_and_high(lab: Lab) -> list[float]:
    """Two inner queries, and both directions of each of `HIGH`."""
    queries = list(lab.inner)
    for x in HIGH:
        size = x * lab.x_unit
        queries += [size, -size]
    return queries


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
    task = lab.task
    f = as_numbers(swept.f)
    truth = as_numbers(lab.truth(xs))
    at = places(xs, task.dim)
    mean = as_numbers(task.expected(at[None]))
    size = len(f) // lab.n_units
    # The guess without the context is made on the prompts of all other units.
    of_others = without_own(lab.by_unit(f))
    line = torch.from_numpy(of_others).repeat_interleave(size, 0)
    swapped = f.roll(size, 0)
    centred = f - f.mean(0)
    true = truth - truth.mean(0)
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
    values = [lab.by_unit(v) for v in statistics.values()]
    names = tuple(statistics)
    units = tuple(range(lab.n_units))
    axes = {"statistic": names, "unit": units, "x": tuple(xs)}
    note = f"query arm; inner queries first; {size} prompts a unit; float64"
    return make_curve(values, axes, note=note)


def _far_out(lab: Lab) -> Sweep:
    """Both directions of `ERASED_AT`."""
    out = ERASED_AT * lab.x_unit
    return lab.ask([out, -out])


@measurement("context/information", version=2, asks=_far_out)
def information(lab: Lab, swept: Swept) -> DataArray:
    """How well the function's coefficients predict f far out.

    Cross-validated least squares over units (no unit is in training and test at once) of f at +-1e4
    units on the coefficients and their products; the null is the same with coefficients permuted
    over units.
    """
    n_units = lab.n_units
    f = as_numbers(swept.f)
    draw = generator(lab.seed, "context/permutation")
    order = torch.randperm(n_units, generator=draw)
    parameters = lab.prompts.parameters
    # Units are permuted whole.
    by_unit = parameters.view(n_units, lab.unit_size, -1)
    permuted = by_unit[order].flatten(0, 1)
    unit = torch.arange(len(f)) // lab.unit_size
    rows = []
    for target in f.T:
        for inputs in (parameters, permuted):
            features = products(inputs, n_units)
            residual, total = held_out_errors(features, target, unit)
            rows.append(lab.by_unit(residual))
            rows.append(lab.by_unit(total))
    values = np.reshape(rows, (2, 2, 2, n_units))
    axes = {
        "direction": ("+", "-"),
        "inputs": ("coefficients", "permuted"),
        "statistic": ("residual", "total"),
        "unit": tuple(range(n_units)),
    }
    out = power(ERASED_AT * lab.x_unit)
    note = f"{N_FOLDS}-fold cross-validation over units, at |x| = {out}"
    return make_array(values, axes, note=note)


def _beyond(lab: Lab) -> list[Sweep]:
    """Both directions of `far/beyond`."""
    xs = lab.x_unit * BEYOND
    return [lab.ask(xs, prompts=lab.few), lab.ask(-xs, prompts=lab.few)]


@measurement("far/beyond", asks=_beyond)
def beyond(lab: Lab, both: Sequence[Swept]) -> DataArray:
    """f from 1e6 to 1e10 units in each direction, on two prompts of each unit: as `far.ends`."""
    return each_context(lab, both, BEYOND)


def far_out(used: DataArray, x_unit: float) -> list[np.ndarray]:
    """Where the queries of `HIGH` stand in `context/use`, both directions of each |x|.

    The inner ones are `INNER`.
    """
    sizes = np.abs(used["x"].values) / x_unit
    found = []
    for x in HIGH:
        is_there = np.isclose(sizes, x)
        found.append(np.flatnonzero(is_there))
    return found


def products(
    parameters: Float[Tensor, "batch parameter"], n_units: int
) -> Float[Tensor, "batch feature"]:
    """1, each coefficient, and each product of two if there are eight units for each feature.

    The products are left out where units are too few to fit them on.
    """
    n_parameters = parameters.shape[1]
    one = torch.ones_like(parameters[:, :1])
    first, second = torch.triu_indices(n_parameters, n_parameters)
    of_two = parameters[:, first] * parameters[:, second]
    features = torch.cat([one, parameters, of_two], 1)
    if 8 * features.shape[1] <= n_units:
        return features
    return features[:, : 1 + n_parameters]


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
    size = target.abs().max()
    target = target - target.mean()
    spread = target.std()
    target = target / spread if spread > ROUNDING * size else torch.zeros_like(target)
    residual = torch.empty_like(target)
    total = torch.empty_like(target)
    fold_of = unit % N_FOLDS
    for fold in range(N_FOLDS):
        test = fold_of == fold
        rest = ~test
        held_out = target[test]
        solved = torch.linalg.lstsq(features[rest], target[rest, None], driver="gelsd")
        fit = solved.solution[:, 0]
        missed = held_out - features[test] @ fit
        residual[test] = missed.square()
        from_mean = held_out - target[rest].mean()
        total[test] = from_mean.square()
    return residual, total
