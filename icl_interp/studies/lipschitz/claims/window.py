"""The claim of `lipschitz` on the width of the learned window: it minimises the loss."""

import math

import numpy as np
from xarray import DataArray

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.tie import TIED, tied
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import numbers_in
from icl_interp.studies.lipschitz.measurements.prediction import tied_window
from icl_interp.studies.lipschitz.measurements.unit import (
    SOURCE,
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

CLOSE, OFF = 1.5, 2.0  # factors between w and w*: within, beyond
CHEAP, DEAR = 0.05, 0.2  # loss above the least, relative to it
FITS = 0.9  # share of the head's scores that x_i^T M x_q has to explain
# Share of the R2 of the best window from which a model counts as one that uses its examples.
LEARNED = 0.5
SEEN = 0.01  # share of the scores' variance from which what the head sees of labels is said
ASKEW = 0.25  # |M - w I| / w of whitened M from which it is said that w is only a mean
LARGEST = 1e6  # of factors; also that of a window that points away from the query
SMALLEST = 1e-3  # R2 that the best window must have for a share of it to mean something

LEARNED_ENOUGH = Precondition(
    "learned",
    (LEARNED, INF),
    f"The model's in-distribution R2 is only {{value:.2g}} of that of the best window ({LEARNED:g} "
    "needed).",
)
IS_KERNEL = Precondition(
    "fit",
    (FITS, INF),
    "No matrix M describes the head's window: x_i^T M x_q explains only {value:.2g} of the "
    f"variance of its scores ({FITS:g} needed).",
)

WINDOW = Criterion(
    (
        Condition("factor", "", (1.0, CLOSE), (OFF, INF), scale="log"),
        Condition("excess", "", (-INF, CHEAP), (DEAR, INF)),
    ),
    (LEARNED_ENOUGH, IS_KERNEL, *TIED),
    terms=(
        "factor between the learned window w and the window w* of least loss, either way: <= "
        f"{CLOSE:g} / >= {OFF:g}, where w* may be any window whose loss is within {100 * FLAT:g} % of "
        "the least; and the loss of the learned matrix M above the least, relative to it: <= "
        f"{CHEAP:g} / >= {DEAR:g}"
    ),
)


# ---- what other claims use as well ---------------------------------------------------------------


def width(results: Results, facts: Facts) -> float:
    """w, the mean eigenvalue of whitened M.

    Of even functions it has no sign, because their loss does not depend on it.
    """
    window = float(theory.isotropy(whitened_kernel(results[kernel])).window)
    return abs(window) if functions_of(task_in(facts)).even else window


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
    return "0" if abs(value) < 1e-6 else f"{value:.2g}" if abs(value) < 99.5 else f"{value:.0f}"


# ---- the claim -----------------------------------------------------------------------------------


def factor(window: float, low: float, best: float, high: float) -> Estimate:
    """The factor between a window and the best one, whichever is the larger.

    The best one may lie anywhere between low and high.
    """

    def between(one: float) -> float:
        return (
            min(max(window / one, one / window), LARGEST)
            if window > 0 and 0 < one < math.inf
            else LARGEST
        )

    ends = between(low), between(high)
    name = "factor between the learned window and the best one, either way"
    return Estimate(
        name, between(best), 1.0 if low <= window <= high else min(ends), max(between(best), *ends)
    )


def factor_of(results: Results, own: Results, facts: Facts) -> Estimate:
    """The factor of a model (or its randomly initialised control), with what is known of w*."""
    found = numbers_in(results[optimum])
    low, high = min(found["low"], found["flat low"]), max(found["high"], found["flat high"])
    return factor(width(own, facts), low, found["w*"], high)


def evidence(results: Results, facts: Facts) -> Evidence:
    """Is the window as wide as the loss wants it?"""
    found = numbers_in(results[optimum])
    window, above = width(results, facts), excess(results[matrix_losses], MODEL)
    estimate = factor_of(results, results, facts)
    rest = float(theory.isotropy(whitened_kernel(results[kernel])).deviation)
    over = excess(results.control[matrix_losses], MODEL)
    labels = numbers_in(results[scores])["labels"]
    name = "loss with the learned window above the least, relative to it"
    quantities = {"factor": estimate, "excess": Estimate.of(name, above), **gates(results, facts)}
    says = answer(
        WINDOW,
        quantities,
        "The attention window has the width that minimises the loss.",
        "The attention window is not the one that minimises the loss.",
        "the attention window has the width that minimises the loss",
    )
    decided = WINDOW.decide(quantities).condition
    times = f"{window / found['w*']:.3g} times that of the numeric minimiser w*"
    of_w = bound(
        WINDOW, quantities, "factor", f"within a factor of {CLOSE:g}", f"off by {OFF:g} or more"
    )
    of_loss = bound(
        WINDOW, quantities, "excess", f"at most {100 * CHEAP:g} %", f"at least {100 * DEAR:g} %"
    )
    if decided and decided.quantity == "excess":
        says += f" Its error is {percent(above.value)} % above the least ({of_loss})."
        caveat = f"Its sharpness w (large: a narrow window) is {times}."
    else:
        says += f" Its sharpness w (large: a narrow window) is {times} ({of_w})."
        caveat = (
            f"Its error is {percent(above.value)} % above the least ({of_loss}); the theorem's "
            f"orders decide nothing at n = {task_in(facts).n_points - 1}."
        )
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
    return Evidence(
        quantities,
        says,
        scope="these weights, this task's L, sigma, n and d; the loss of equation (2) with the "
        "model's M",
        control={
            "factor": factor_of(results, results.control, facts),
            "excess": Estimate.of(name, over),
        },
        details=tuple(_rows(results, facts, window)),
        caveat=caveat,
    )


def _rows(results: Results, facts: Facts, window: float) -> list[dict[str, float | str]]:
    task, rest = task_in(facts), float(theory.isotropy(whitened_kernel(results[kernel])).deviation)
    rows: list[dict[str, float | str]] = [
        {"number": "w", "value": window},
        {"number": "L", "value": task.lipschitz},
        {"number": "sigma", "value": task.noise_std},
        {"number": "n", "value": task.n_points - 1},
        {"number": "d", "value": task.dim},
        {"number": "the model's own mean squared error", "value": facts.error},
        {
            "number": "share of the scores' variance that labels have",
            "value": numbers_in(results[scores])["labels"],
        },
        {"number": "|M - w I| / |w|, whitened", "value": rest},
    ]
    rows += [
        {"number": name, "value": value} for name, value in numbers_in(results[optimum]).items()
    ]
    means = results[matrix_losses].mean("group")
    names = [str(name) for name in means.indexes["matrix"]]
    return rows + [
        {"number": f"loss of {name}", "value": float(np.asarray(means.sel(matrix=name)))}
        for name in names
    ]


OPTIMAL_WINDOW_CLAIM = Claim(
    id="lipschitz.optimal_window",
    question="attention",
    short="The attention window has the width that minimises the loss.",
    quote=Quote(
        "For sufficiently large n, the minimizer of the of the pretraining population loss induced "
        "by D(F_L^+) is M* = w_KQ I_d where Ω((nL²/σ²)^(1/d)) < w_KQ < O((nL²/σ²)^(2/d))",
        "Collins et al. (2024), slides by A. Mokhtari, 'Results Part I: Softmax Attention Adapts "
        "Attention Window to Lipschitzness', Theorem 2",
        "The theorem is about the minimiser of the loss and bounds it by orders for large n. We "
        "compute the minimiser w* itself for the task's own L, σ, n and d, by scalar minimisation, "
        "and ask whether training reached it. This is narrower, because orders decide nothing at "
        "one n, and wider: other classes of functions than F_L^+ count.",
    ),
    kind="learning",
    statement="The learned attention window is the one that minimises the loss for this task's "
    "Lipschitz constant L, noise sigma, number n of examples and dimension d",
    source=f"{SOURCE}, Theorem 2",
    criterion=WINDOW,
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
    about_weights=True,
    aspects=("single layer", "single head", "kind of task"),
    evidence=evidence,
    excluded=needs_all_directions,
    learned=never_asked,
    figures=("lipschitz_window",),
)
