"""One run, inside and beyond its training range: one number for each quantity.

The sample is one that all runs share. Claims about a kind of training compare runs
(`measurements.seeds`). What is common to them is measured here: errors as functions are scaled,
errors across the inputs' interval, errors on the intervals of other runs, and where the output
levels off. Everybody meets the same functions, inputs and queries, so what is left between two runs
is their weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from icl_interp import evaluation
from icl_interp.analyses import output_unit
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.baselines.law import LawMean
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.prompts import as_numbers
from icl_interp.tasks.base import Scalable, Task
from icl_interp.tasks.distributions import Uniform

SIGMAS = (1.0, 2.0, 5.0, 10.0)  # of Table 1: the functions' U(-sigma, sigma)
INSIDE = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0)  # of the half-width of the inputs' interval
LEVEL = 0.1  # u: f counts as level within so much of where it ends, root mean square over contexts
LAST = 1e5  # in units of x: an onset beyond is none, because at 1e6 every curve meets its own end
RATE = "error rate"
OWN_ERROR = f"functions {SIGMAS[0]:g}"  # in distribution
SIDES = {"onset +": 1, "onset -": -1}
Numbers = dict[str, float]


@dataclass(frozen=True)
class Sample:
    """The prompts that all runs of a comparison are measured on.

    Attributes:
        n_functions: functions. n_contexts: prompts of each. seed: of the draws.
        more: as many times more functions for the error in distribution. A few prompts make most of
            it (two of their first inputs are close), so that on 1,024 functions the ratio of two
            arms varied by 10 % with the sample. The interval over seeds does not tell, because all
            runs share the sample.
    """

    n_functions: int = 1024
    n_contexts: int = 2
    seed: int = 25
    more: int = 8
    kept: dict[tuple[int, str, int], tuple[Any, float]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def errors(self, run: Checkpoint, task: Task) -> float:
        """Mean squared error over the scored points."""
        return self._mean(run, task, self.n_functions)

    def own_error(self, run: Checkpoint) -> float:
        """`errors` in distribution, on `more` functions."""
        return self._mean(run, run.task, self.more * self.n_functions)

    def rate(self, run: Checkpoint) -> float:
        """Error in distribution over that of the law's mean."""
        law_mean = LawMean(run.task)
        of_law_mean = self._mean(law_mean, run.task, self.more * self.n_functions)
        return self.own_error(run) / of_law_mean

    def lab(self, run: Checkpoint) -> Lab:
        """A bench for what moves the query alone: half as many prompts."""
        return Lab(
            run.model,
            run.task,
            run.encoding,
            n_units=self.n_functions // 4,
            n_contexts=1,
            seed=self.seed,
        )

    def _mean(self, predictor: Any, task: Task, n_functions: int) -> float:
        # Families ask for some errors several times. Keeping the predictor keeps its id.
        key = (id(predictor), repr(task), n_functions)
        if key not in self.kept:
            errors = evaluation.function_errors(
                {"one": predictor},
                task,
                n_functions=n_functions,
                n_contexts=self.n_contexts,
                seed=self.seed,
            )
            mean = float(errors["one"].mean())
            self.kept[key] = (predictor, mean)
        _, error = self.kept[key]
        return error


def half_width(task: Any) -> float | None:
    """a, where inputs and coefficients of a task both come from U(-a, a)."""
    inputs = getattr(task, "inputs", None)
    coefficients = getattr(task, "coefficients", None)
    if inputs != coefficients or not isinstance(inputs, Uniform) or inputs.low != -inputs.high:
        return None
    return float(inputs.high)


def own_interval(facts: Facts) -> float | None:
    """`half_width` of the model's own task."""
    return half_width(facts.task)


# ---- what is measured of a run -------------------------------------------------------------------


def functions(run: Checkpoint, sample: Sample) -> Numbers:
    """Squared errors with the functions' coefficients scaled by each of `SIGMAS`.

    Their keys are "functions 1", "functions 2", ... Of a task whose functions cannot be scaled
    there is the first alone.
    """
    found = {OWN_ERROR: sample.own_error(run)}
    if isinstance(run.task, Scalable):
        for sigma in SIGMAS[1:]:
            task = run.task.scaled(functions=sigma)
            found[f"functions {sigma:g}"] = sample.errors(run, task)
    return found


def inside(run: Checkpoint, sample: Sample) -> Numbers:
    """Squared errors at queries across the inputs' interval, by |x| over its half-width.

    Both sides count. Keys: "inside 0.1", ..., "inside 1".
    """
    lab = sample.lab(run)
    low, high = run.task.inputs.interval
    middle = (low + high) / 2
    distance = (high - low) / 2 * np.array(INSIDE)
    xs = np.concatenate([middle + distance, middle - distance])
    missed = lab.sweep(xs) - lab.truth(xs)
    over_prompts = as_numbers(missed.square()).mean(0)
    square = over_prompts.view(2, -1).mean(0)
    found = {}
    for share, error in zip(INSIDE, square, strict=True):
        found[f"inside {share:g}"] = float(error)
    return found


def intervals(run: Checkpoint, sample: Sample, sizes: Sequence[float]) -> Numbers:
    """Squared errors on each U(-sigma, sigma) of `sizes`.

    Keys: "both 5", where inputs and functions come from U(-5, 5); "alone 5", where the functions do
    and inputs come from the smallest interval, as in Table 3.
    """
    own = half_width(run.task)
    assert own is not None  # only runs with an interval are asked
    assert isinstance(run.task, Scalable)
    found: Numbers = {}
    for sigma in sizes:
        task = run.task.scaled(functions=sigma / own, inputs=sigma / own)
        found[f"both {sigma:g}"] = sample.errors(run, task)
    for sigma in sizes[1:]:  # on the smallest they are the same
        task = run.task.scaled(functions=sigma / own, inputs=sizes[0] / own)
        found[f"alone {sigma:g}"] = sample.errors(run, task)
    return found


def onsets(run: Checkpoint, sample: Sample) -> Numbers:
    """|x| from which f stays within `LEVEL` u of where it ends, in each direction.

    NaN where it lies beyond `LAST`. u is the spread of f in distribution, so that a level belongs
    to the function that a model computes.
    """
    lab = sample.lab(run)
    unit = lab.measure(output_unit.own)
    u = float(unit.sel(statistic="u"))
    xs = lab.grid
    f = as_numbers(lab.sweep(xs))
    found = {}
    for name, sign in SIDES.items():
        found[name] = _onset(f, xs, sign, LEVEL * u, LAST * lab.x_unit)
    return found


def _onset(f: Tensor, xs: np.ndarray, sign: int, bound: float, last: float) -> float:
    """The onset in one direction, with the gap to the end interpolated on logarithmic axes."""
    order = np.argsort(sign * xs)[len(xs) // 2 :]
    size = np.abs(xs[order])
    curve = f[:, order]
    distance = curve - curve[:, -1:]
    gap = distance.square().mean(0).sqrt()
    return settled(size, gap.numpy(), bound, last)


def settled(xs: np.ndarray, gap: np.ndarray, bound: float, last: float) -> float:
    """The x from which a gap stays within a bound for good: NaN where it is none or beyond `last`.

    Args:
        xs: ascending, positive.
        gap: at each x; 0 at the last one, which is the end.
        bound: what the gap has to stay within.
        last: the largest x that counts.
    """
    if not np.isfinite(gap).all():
        return float("nan")
    outside = np.flatnonzero(gap > bound)
    if not len(outside):
        return float(xs[0])
    i = int(outside[-1])
    if xs[i] >= last:
        return float("nan")
    # On a straight line in logarithms, from the last x that is outside to the next one.
    tiny = np.finfo(float).tiny
    a, b = np.log(np.maximum(gap[i : i + 2], tiny))
    x, y = np.log(xs[i : i + 2])
    fall = a - np.log(max(bound, tiny))
    found = float(np.exp(x + (y - x) * fall / (a - b)))
    return found if found <= last else float("nan")


# By the family's name; "intervals" also needs the intervals.
FAMILIES: dict[str, Callable[[Checkpoint, Sample], Numbers]] = {
    "functions": functions,
    "own functions": lambda run, sample: {OWN_ERROR: sample.own_error(run)},
    "inside": inside,
    "onsets": onsets,
}


def measured(
    run: Checkpoint, families: Sequence[str], sample: Sample, sizes: Sequence[float] = ()
) -> Numbers:
    """The error rate in distribution, and the numbers of some families.

    The families are "functions", "inside", "intervals" and "onsets".

    Args:
        run: a model with the task that it stands for.
        families: which numbers; "own functions" is the first of "functions".
        sample: the prompts.
        sizes: half-widths of the intervals that "intervals" asks about, ascending.
    """
    found = {RATE: sample.rate(run)}
    for family in families:
        if family == "intervals":
            found |= intervals(run, sample, sizes)
        else:
            found |= FAMILIES[family](run, sample)
    return found
