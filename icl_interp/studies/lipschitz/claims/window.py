"""The claim of `lipschitz` on the width of the learned window: it minimises the loss."""

import math
from collections.abc import Mapping
from typing import Any

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
from icl_interp.analyses.tie import TIED, tied
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import numbers_in
from icl_interp.studies.lipschitz.measurements.prediction import tied_window
from icl_interp.studies.lipschitz.measurements.unit import (
    fit_of,
    functions_of,
    kernel,
    needs_all_directions,
    scores,
    scores_by_function,
    task_in,
    whitened_kernel,
)
from icl_interp.studies.lipschitz.measurements.window_losses import (
    BEST,
    FLAT,
    MODEL,
    matrix_losses,
    optimum,
    window_loss,
)
from icl_interp.theory import lipschitz as theory

CLOSE = 1.5  # factor between w and w*: within
OFF = 2.0  # beyond
CHEAP = 0.05  # loss above the least, relative to it
DEAR = 0.2
FITS = 0.9  # share of the head's scores that x_i^T M x_q has to explain
# Share of the R2 of the best window from which a model counts as one that uses its examples.
LEARNED = 0.5
SEEN = 0.01  # share of the scores' variance from which what the head sees of labels is said
ASKEW = 0.25  # |M - w I| / w of whitened M from which it is said that w is only a mean
LARGEST = 1e6  # of factors; also that of a window that points away from the query
SMALLEST = 1e-3  # R2 that the best window must have for a share of it to mean something

LEARNED_ENOUGH = Precondition(
    "learned",
    at_least(LEARNED),
    f"The model's in-distribution R2 is only {{value:.2g}} of that of the best window ({LEARNED:g} "
    "needed).",
)
IS_KERNEL = Precondition(
    "fit",
    at_least(FITS),
    "No matrix M describes the head's window: x_i^T M x_q explains only {value:.2g} of the "
    f"variance of its scores ({FITS:g} needed).",
)

CRITERION = Criterion(
    (
        Condition(
            "factor",
            "factor between the sharpness w and the one with the least loss, w*",
            at_most(CLOSE, least=1.0),
            at_least(OFF),
            scale="log",
        ),
        Condition(
            "excess",
            "loss of the learned matrix above the least loss, relative to the latter",
            at_most(CHEAP),
            at_least(DEAR),
            unit="share",
        ),
    ),
    (LEARNED_ENOUGH, IS_KERNEL, *TIED),
    terms="The sharpness w is the mean eigenvalue of the whitened query-key matrix M: a large w "
    f"makes a narrow window. Any w whose loss is within {100 * FLAT:g} % of the least one counts "
    "as w*.",
)


# ---- what other claims use as well ---------------------------------------------------------------


def width(results: Results, facts: Facts) -> float:
    """w, the mean eigenvalue of whitened M.

    Of even functions it has no sign, because their loss does not depend on it.
    """
    shape = theory.isotropy(whitened_kernel(results[kernel]))
    window = float(shape.window)
    functions = functions_of(task_in(facts))
    return abs(window) if functions.even else window


def excess(result: DataArray, matrix: str, over: str = BEST) -> Interval:
    """The loss of a matrix above that of another, relative to the latter.

    Groups of contexts are resampled.
    """
    return bootstrap(
        lambda a, b: a / b - 1, result.sel(matrix=matrix).values, result.sel(matrix=over).values
    )


def share_learned(results: Results, facts: Facts) -> Estimate:
    """The model's R2 in distribution over that of the best window.

    It is 0 where the best window has no R2 to speak of. The number stands without an interval: the
    gate only tells models that use their examples from those that do not.
    """
    label_variance = facts.error / max(1 - facts.r2, 1e-300)
    attainable = 1 - numbers_in(results[optimum])["loss"] / label_variance
    share = facts.r2 / attainable if attainable > SMALLEST else 0.0
    return Estimate.exactly("R2 over that of the best window", share)


def gates(results: Results, facts: Facts) -> dict[str, Estimate]:
    """What `LEARNED_ENOUGH`, `IS_KERNEL` and `TIED` ask for."""
    return {
        "learned": share_learned(results, facts),
        "fit": fit_of(results[scores_by_function]),
        **tied(results[tied_window]),
    }


def never_asked(facts: Facts) -> None:
    """None: for claims whose criterion asks whether the model has learned.

    With label noise no R2 needs to reach 0.9.
    """


def percent(share: float) -> str:
    """A share in percent, with two digits; rounding errors are 0.

    >>> percent(0.0123), percent(1.5), percent(-2e-16)
    ('1.2', '150', '0')
    """
    value = 100 * share
    if abs(value) < 1e-6:
        return "0"
    if abs(value) < 99.5:
        return f"{value:.2g}"
    return f"{value:.0f}"


# ---- the claim -----------------------------------------------------------------------------------


def factor(window: float, low: float, best: float, high: float) -> Interval:
    """The factor between a window and the best one, whichever is the larger.

    The best one may lie anywhere between low and high.
    """

    def between(one: float) -> float:
        if window > 0 and 0 < one < math.inf:
            return min(max(window / one, one / window), LARGEST)
        return LARGEST

    value = between(best)
    ends = between(low), between(high)
    least = 1.0 if low <= window <= high else min(ends)
    return Interval(value, least, max(value, *ends))


def factor_of(results: Results, own: Results, facts: Facts) -> Interval:
    """The factor of a model (or its randomly initialised control), with what is known of w*."""
    found = numbers_in(results[optimum])
    low = min(found["low"], found["flat low"])
    high = max(found["high"], found["flat high"])
    return factor(width(own, facts), low, found["w*"], high)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How far the window is from the best one, and what that costs."""
    return {
        "factor": factor_of(results, results, facts),
        "excess": excess(results[matrix_losses], MODEL),
        **gates(results, facts),
    }


def askew(results: Results) -> float:
    """How far whitened M is from w I, relative to w."""
    return float(theory.isotropy(whitened_kernel(results[kernel])).deviation)


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """In which direction the window is off, and in what it is no window of one width."""
    window = width(results, facts)
    rest = askew(results)
    labels = numbers_in(results[scores])["labels"]
    if window <= 0:
        caveat = "The window points away from the query, so far examples have the largest weights."
    elif rest > ASKEW:
        caveat = (
            f"In some directions the sharpness differs by {percent(rest)} % from w, which is their "
            "mean."
        )
    elif labels > SEEN:
        caveat = (
            f"The head also looks at labels ({percent(labels)} % of its scores' variance), which "
            "no window does."
        )
    else:
        times = window / numbers_in(results[optimum])["w*"]
        above = percent(found["excess"].value)
        caveat = (
            f"The sharpness w is {times:.3g} times w*, and the loss is {above} % above the least."
        )
    return Remarks(
        scope="these weights, this task's L, sigma, n and d, for which the theorem's orders of "
        "size say nothing; the loss is that of equation (2) with the model's M",
        caveat=caveat,
        details=tuple(_rows(results, facts)),
    )


def _rows(results: Results, facts: Facts) -> list[dict[str, Any]]:
    task = task_in(facts)
    numbers = {
        "w": width(results, facts),
        "L": task.lipschitz,
        "sigma": task.noise_std,
        "n": task.n_points - 1,
        "d": task.dim,
        "the model's own mean squared error": facts.error,
        "share of the scores' variance that labels have": numbers_in(results[scores])["labels"],
        "|M - w I| / |w|, whitened": askew(results),
        **numbers_in(results[optimum]),
    }
    losses = results[matrix_losses].mean("group")
    for name in losses.indexes["matrix"]:
        numbers[f"loss of {name}"] = float(losses.sel(matrix=name))
    rows = []
    for name, value in numbers.items():
        rows.append({"number": name, "value": value})
    return rows


OPTIMAL_WINDOW_CLAIM = Claim(
    id="lipschitz.optimal_window",
    question="attention",
    statement="The attention window has the width that minimises the loss.",
    denied="The attention window is not the one that minimises the loss.",
    quote=Quote(
        "For sufficiently large n, the minimizer of the of the pretraining population loss induced "
        "by D(F_L^+) is M* = w_KQ I_d where Ω((nL²/σ²)^(1/d)) < w_KQ < O((nL²/σ²)^(2/d))",
        "Collins et al. (2024), slides by A. Mokhtari, 'Results Part I: Softmax Attention Adapts "
        "Attention Window to Lipschitzness', Theorem 2",
        "The theorem is about the minimiser of the loss, and bounds it by orders of size for "
        "large n. These say nothing at one n. So we compute the minimiser w* itself for the "
        "task's own L, σ, n and d, by scalar minimisation, and ask whether training reached it. "
        "We also allow other classes of functions than F_L^+.",
    ),
    kind="learning",
    reads="weights and scores of the head",
    criterion=CRITERION,
    measurements=(
        scores,
        scores_by_function,
        kernel,
        tied_window,
        optimum,
        window_loss,
        matrix_losses,
    ),
    control=(kernel, matrix_losses),
    of_control=("factor", "excess"),
    about_weights=True,
    aspects=("single layer", "single head", "kind of task"),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_all_directions,
    learned=never_asked,
    figures=("lipschitz_window",),
)
