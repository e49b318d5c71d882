"""The claims of `robustness`: under a shift of the prompts a model is as good as least squares.

Garg et al. (2022) say so of most shifts, Hill, Eyre & Creager (2025) deny it. A claim asks one
shift, so that a report says on which of them these weights side with whom.
"""

import functools
from collections.abc import Mapping, Sequence
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
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.robustness.measurements.shifts import (
    DRAWN_FUNCTIONS,
    DRAWN_INPUTS,
    FUNCTIONS,
    INPUTS,
    INSIDE,
    LEAST_SQUARES,
    MODEL,
    NOISE,
    NOISY,
    ZERO,
    needs_shifts,
    needs_silence,
    shifts,
)
from icl_interp.tasks.regression import LinearRegression

# What a model may miss beside what least squares misses: so much of the error of predicting 0. A
# model counts as having learned its task where it misses a tenth in distribution, twice as much.
ALLOWED = 0.05
AS_GOOD = 2.0
WORSE = 4.0
# Of the bar: a smaller error is as good as none. Weights that carry out an algorithm exactly run in
# float32, and rounding gives up to a hundredth of this.
EXACT = 1e-3
# Of the labels' mean square, without noise: noise that is smaller is hardly a shift.
VISIBLE = 0.01
ADDED = "added noise"
OVER_ZERO = "error / error of predicting 0"
TERMS = (
    "Errors are mean squares at the query, against the function without noise. The bar is the "
    f"error of least squares on the same prompts plus {ALLOWED:.0%} of that of predicting 0."
)
QUOTE = Quote(
    "In fact, in-context learning is possible even under two forms of distribution shift: (i) "
    "between the training data of the Transformer and inference-time prompts, and (ii) between the "
    "in-context examples and the query input during inference.",
    "Garg et al. (2022), abstract; the shifts are those of section 4",
    'Hill, Eyre & Creager (2025) deny it: transformers "fail to generalize after shifts in the '
    "prompt distribution, a behaviour that is inconsistent with the notion of transformers "
    'implementing algorithms such as OLS" (abstract). Neither work gives a threshold. We test one '
    "shift at a time, at the trained length, and set the bar beforehand. How large noise must be "
    "to count was set later.",
)  # fmt: skip


def over_bar(own: np.ndarray, best: np.ndarray, zero: np.ndarray) -> Interval:
    """An error over the bar: least squares' error and `ALLOWED` of that of predicting 0.

    Args:
        own: mean squared errors of a model by unit, on prompts that all three share.
        best: those of least squares.
        zero: those of predicting 0.

    >>> round(over_bar(np.full(40, 0.2), np.zeros(40), np.ones(40)).value, 9)
    4.0
    """

    def statistic(e: np.ndarray, of_best: np.ndarray, of_zero: np.ndarray) -> np.ndarray:
        return np.maximum(e / (of_best + ALLOWED * of_zero), EXACT)

    return bootstrap(statistic, own, best, zero, positive=True)


def relative_to_bar(result: DataArray, shift: str) -> Interval:
    """The model's error over the bar under one shift."""
    here = result.sel(shift=shift)
    own = here.sel(who=MODEL).values
    best = here.sel(who=LEAST_SQUARES).values
    zero = here.sel(who=ZERO).values
    return over_bar(own, best, zero)


def evidence(results: Results, facts: Facts, asked: Sequence[str]) -> Mapping[str, Found]:
    """The model's error over the bar under each shift that a claim asks."""
    result = results[shifts]
    found = {}
    for shift in asked:
        found[shift] = relative_to_bar(result, shift)
    if NOISY in asked:
        found[ADDED] = added_noise(result, facts)
    return found


def added_noise(result: DataArray, facts: Facts) -> float:
    """Variance of the noise that training had not, over the mean square of f(x)."""
    assert isinstance(facts.task, LinearRegression)
    square = float(result.sel(shift=NOISY, who=ZERO).mean())
    return (NOISE**2 - facts.task.noise_std**2) / square


def remarks(
    results: Results, facts: Facts, found: Mapping[str, Estimate], asked: Sequence[str]
) -> Remarks:
    """The errors over that of predicting 0, in distribution and under each shift."""
    result = results[shifts]
    rows = []
    for shift in (INSIDE, *asked):
        rows.append(row_of(result, shift))
    # The shift under which the model is farthest from the bar stands in the sentence.
    worst = max(asked, key=lambda shift: found[shift].value)
    there = rows[1 + list(asked).index(worst)]
    return Remarks(
        estimate=found[worst],
        scope="these weights, prompts of the trained length, and these shifts only; directions "
        "and one factor are drawn with the sample",
        caveat=f"Under the shift {worst} the error is {there[OVER_ZERO]:.3g} of that of "
        f"predicting 0 (least squares: {there[LEAST_SQUARES]:.2g}), and in distribution "
        f"{rows[0][OVER_ZERO]:.3g}.",
        details=tuple(rows),
    )


def row_of(result: DataArray, shift: str) -> dict[str, Any]:
    """Mean errors under a shift, as shares of the error of predicting 0."""
    means = result.sel(shift=shift).mean("unit")
    zero = float(means.sel(who=ZERO))
    return {
        "shift": shift,
        OVER_ZERO: share_of(means.sel(who=MODEL), zero),
        LEAST_SQUARES: share_of(means.sel(who=LEAST_SQUARES), zero),
    }


def share_of(error: DataArray, zero: float) -> float:
    """An error as a share of that of predicting 0; 0 where it is rounding."""
    share = float(error) / zero
    return share if not share < ALLOWED * EXACT else 0.0


NOISE_IS_SEEN = (
    Precondition(
        ADDED,
        at_least(VISIBLE),
        f"Noise of standard deviation {NOISE:g} adds {{value:.2g}} of the mean square of f(x) to "
        f"what training had ({VISIBLE:g} needed): that is hardly a shift.",
    ),
)


def _asking(where: str, *asked: str) -> dict[str, Any]:
    """What a claim says, and how it is judged.

    Args:
        where: what is true of prompts under its shifts.
        asked: the shifts.
    """
    conditions = []
    for shift in asked:
        name = f"error over the bar of least squares, {shift}"
        good = at_most(AS_GOOD)
        worse = at_least(WORSE)
        conditions.append(Condition(shift, name, good, worse, unit="times", scale="log"))
    return {
        "statement": f"Where {where}, the model is as good as least squares.",
        "denied": f"Where {where}, the model is worse than least squares.",
        "kind": "learning",
        "question": "functions",
        "quote": QUOTE,
        "reads": "outputs",
        "criterion": Criterion(tuple(conditions), NOISE_IS_SEEN if NOISY in asked else (), TERMS),
        "measurements": (shifts,),
        "control": (shifts,),
        "aspects": ("kind of task",),
        "evidence": functools.partial(evidence, asked=asked),
        "remarks": functools.partial(remarks, asked=asked),
        "excluded": needs_silence if NOISY in asked else needs_shifts,
        "figures": ("shift_errors",),
    }


QUADRANTS_CLAIM = Claim(
    id="robustness.shift_quadrants",
    **_asking("all examples of a prompt have inputs with the same signs", "quadrants"),
)
HALF_SUBSPACE_CLAIM = Claim(
    id="robustness.shift_half_subspace",
    **_asking("inputs fill only half of their dimensions", "half-subspace"),
)
SKEWED_CLAIM = Claim(
    id="robustness.shift_skewed", **_asking("inputs vary mostly along a few directions", "skewed")
)
INPUTS_CLAIM = Claim(
    id="robustness.shift_inputs", **_asking("inputs are larger or smaller", *INPUTS, DRAWN_INPUTS)
)
FUNCTIONS_CLAIM = Claim(
    id="robustness.shift_functions",
    **_asking("functions are larger or smaller", *FUNCTIONS, DRAWN_FUNCTIONS),
)
NOISE_CLAIM = Claim(id="robustness.shift_noise", **_asking("labels are noisy", NOISY))
CLAIMS = (
    QUADRANTS_CLAIM,
    HALF_SUBSPACE_CLAIM,
    SKEWED_CLAIM,
    INPUTS_CLAIM,
    FUNCTIONS_CLAIM,
    NOISE_CLAIM,
)
