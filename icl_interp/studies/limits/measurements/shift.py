"""One run, inside and beyond its training range: one number a quantity, on a sample that all runs share.

Claims about a kind of training compare runs (`measurements.seeds`). What is common to them is
measured here: errors as functions are scaled, errors across the inputs' interval, errors on the
intervals of other runs, and where the output levels off. Everybody meets the same functions, inputs
and queries, so what is left between two runs is their weights.
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
        return self.own_error(run) / self._mean(
            LawMean(run.task), run.task, self.more * self.n_functions
        )

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
        key = id(predictor), repr(task), n_functions
        if (
            key not in self.kept
        ):  # families ask for some errors several times; keeping the predictor keeps its id
            errors = evaluation.function_errors(
                {"one": predictor},
                task,
                n_functions=n_functions,
                n_contexts=self.n_contexts,
                seed=self.seed,
            )
            self.kept[key] = predictor, float(errors["one"].mean())
        return self.kept[key][1]


def half_width(task: Any) -> float | None:
    """a, where inputs and coefficients of a task both come from U(-a, a)."""
    inputs, coefficients = getattr(task, "inputs", None), getattr(task, "coefficients", None)
    if inputs != coefficients or not isinstance(inputs, Uniform) or inputs.low != -inputs.high:
        return None
    return float(inputs.high)


def own_interval(facts: Facts) -> float | None:
    """`half_width` of the model's own task."""
    return half_width(facts.task)


# ---- what is measured of a run -------------------------------------------------------------------


def functions(run: Checkpoint, sample: Sample) -> Numbers:
    """Squared errors with the functions' coefficients scaled by each of `SIGMAS`: "functions 1", "functions 2", ...

    Of a task whose functions cannot be scaled there is the first alone.
    """
    found = {OWN_ERROR: sample.own_error(run)}
    if isinstance(run.task, Scalable):
        found |= {
            f"functions {s:g}": sample.errors(run, run.task.scaled(functions=s)) for s in SIGMAS[1:]
        }
    return found


def inside(run: Checkpoint, sample: Sample) -> Numbers:
    """Squared errors at queries across the inputs' interval, by |x| over its half-width; both sides count.

    Keys: "inside 0.1", ..., "inside 1".
    """
    lab = sample.lab(run)
    low, high = run.task.inputs.interval
    middle, half = (low + high) / 2, (high - low) / 2
    xs = np.concatenate([middle + half * np.array(INSIDE), middle - half * np.array(INSIDE)])
    square = as_numbers((lab.sweep(xs) - lab.truth(xs)).square()).mean(0).view(2, -1).mean(0)
    return {f"inside {share:g}": float(error) for share, error in zip(INSIDE, square, strict=True)}


def intervals(run: Checkpoint, sample: Sample, sizes: Sequence[float]) -> Numbers:
    """Squared errors on each U(-sigma, sigma) of `sizes`.

    Keys: "both 5", where inputs and functions come from U(-5, 5); "alone 5", where the functions do
    and inputs come from the smallest interval, as in Table 3.
    """
    own = half_width(run.task)
    assert own is not None  # only runs with an interval are asked
    assert isinstance(run.task, Scalable)
    found: Numbers = {}
    for s in sizes:
        found[f"both {s:g}"] = sample.errors(
            run, run.task.scaled(functions=s / own, inputs=s / own)
        )
    for s in sizes[1:]:  # on the smallest they are the same
        found[f"alone {s:g}"] = sample.errors(
            run, run.task.scaled(functions=s / own, inputs=sizes[0] / own)
        )
    return found


def onsets(run: Checkpoint, sample: Sample) -> Numbers:
    """|x| from which f stays within `LEVEL` u of where it ends, in each direction; NaN where it lies beyond `LAST`.

    u is the spread of f in distribution, so that a level belongs to the function that a model
    computes.
    """
    lab = sample.lab(run)
    u = float(lab.measure(output_unit.own).sel(statistic="u"))
    f, xs = as_numbers(lab.sweep(lab.grid)), lab.grid
    return {name: _onset(f, xs, sign, LEVEL * u, LAST * lab.x_unit) for name, sign in SIDES.items()}


def _onset(f: Tensor, xs: np.ndarray, sign: int, bound: float, last: float) -> float:
    """The onset in one direction, with the gap to the end interpolated on logarithmic axes."""
    order = np.argsort(sign * xs)[len(xs) // 2 :]
    size, curve = np.abs(xs[order]), f[:, order]
    gap = (curve - curve[:, -1:]).square().mean(0).sqrt().numpy()
    return settled(size, gap, bound, last)


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
    tiny = np.finfo(float).tiny
    (a, b), (x, y) = np.log(np.maximum(gap[i : i + 2], tiny)), np.log(xs[i : i + 2])
    found = float(np.exp(x + (y - x) * (a - np.log(max(bound, tiny))) / (a - b)))
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
    """The error rate in distribution, and the numbers of some families ("functions", "inside", "intervals", "onsets").

    Args:
        run: a model with the task that it stands for.
        families: which numbers; "own functions" is the first of "functions".
        sample: the prompts.
        sizes: half-widths of the intervals that "intervals" asks about, ascending.
    """
    found = {RATE: sample.rate(run)}
    for family in families:
        found |= (
            intervals(run, sample, sizes)
            if family == "intervals"
            else FAMILIES[family](run, sample)
        )
    return found
