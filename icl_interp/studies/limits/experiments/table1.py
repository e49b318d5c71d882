"""Table 1 of Naim & Asher (2025): errors with and without LayerNorm."""

from collections.abc import Mapping, Sequence

import numpy as np
from pandas import DataFrame

from icl_interp.analyses import permutation
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.errors import SIGMAS
from icl_interp.experiments.presets import polynomials
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, note
from icl_interp.results import Result
from icl_interp.studies.limits.experiments import printed, settings
from icl_interp.studies.limits.experiments.printed import PAPER
from icl_interp.studies.limits.experiments.runs import (
    COMPARABLE,
    HIGHER,
    LOWER,
    comparable,
    errors_by_sigma,
    seeds,
    times,
)

WITH = "with LN"

WITHOUT = "without LN"

SEEDS = {WITH: seeds("affine"), WITHOUT: seeds("affine_no_ln")}

OVER_ALL = "mean over sigmas"

AT_EACH_SIGMA = [Condition(f"sigma {sigma}", "", (0, LOWER)) for sigma in SIGMAS]


BETTER = Criterion(
    (
        Condition(OVER_ALL, "error without / with LayerNorm", (0, LOWER), (HIGHER, INF)),
        *AT_EACH_SIGMA,
    ),
    COMPARABLE,
    terms="It is the mean over sigmas; to agree, the error must meet the bound at every sigma.",
)


def run_table1(setup: Setup) -> dict[str, Result]:
    """Errors of every run, and their means over the runs of an arm."""
    names = {}
    every = []
    for arm, models in SEEDS.items():
        names[arm] = setup.among([model.name for model in models])
        every += names[arm]
    task = polynomials(setup.preset, 1)
    each = setup.errors(every, task, SIGMAS)
    pooled = errors.pooled(each, names)
    return {"errors": errors.table(pooled)}


def ratios(results: Results) -> dict[str, Estimate]:
    """Error without over with a norm, by sigma and over all, with exact permutation intervals.

    The permutations are over runs; {} without both arms.
    """
    without = errors_by_sigma(results, SEEDS[WITHOUT])
    with_norm = errors_by_sigma(results, SEEDS[WITH])
    if not without or not with_norm:
        return {}
    found = {}
    for sigma in without:
        key = f"sigma {sigma:g}"
        ratio = times(without[sigma], with_norm[sigma])
        found[key] = Estimate.of(key, ratio)
    ratio = times(_over_sigmas(without), _over_sigmas(with_norm))
    found[OVER_ALL] = Estimate.of(OVER_ALL, ratio)
    return found


def _over_sigmas(arm: Mapping[float, Sequence[float]]) -> list[float]:
    """Each run's geometric mean error over all sigmas."""
    logs = np.log(list(arm.values()))
    means = np.exp(logs.mean(0))
    return means.tolist()


def compare_table1(results: Results) -> DataFrame | None:
    """The paper's two rows, and what its conclusion rests on: the ratio of the two."""
    with_norm = printed.errors("limits.table1", model="with_layernorm")
    without = printed.errors("limits.table1", model="without_layernorm")
    rows = []
    for name, paper in ((WITH, with_norm), (WITHOUT, without)):
        ours = errors.rows_of(results, "errors", predictor=name)
        rows += errors.side_by_side(paper, ours, quantity=name)
    # The ratio of the two rows, in the paper and here.
    paper = {}
    ours = []
    for key, ratio in ratios(results).items():
        if key == OVER_ALL:
            continue
        sigma = float(key.removeprefix("sigma "))
        paper[sigma] = without[sigma] / with_norm[sigma]
        row = {"sigma": sigma, "error": ratio.value, "low": ratio.low, "high": ratio.high}
        ours.append(row)
    rows += errors.side_by_side(paper, ours, quantity="without / with")
    what = (
        "ours: means over runs, intervals over functions; without / with: geometric means, exact "
        "intervals over runs"
    )
    return errors.as_table(rows, f"{printed.SOURCES['limits.table1']}; {what}")


def states_table1(results: Results) -> tuple[Statement, ...]:
    """Is a kind of training without a norm better? Arms of runs decide, and functions do not."""
    found = ratios(results)
    if not found:
        return (note("One of the two kinds of model is missing, so nothing is compared."),)
    nearest = SIGMAS[0]
    farthest = SIGMAS[-1]
    # The errors of each run, by sigma.
    with_norm = errors_by_sigma(results, SEEDS[WITH])
    without = errors_by_sigma(results, SEEDS[WITHOUT])
    # Error rates in distribution say whether the arms may be compared.
    (zero,) = errors.rows_of(results, "errors", predictor="zero", sigma=nearest)
    rates = []
    for arm in (with_norm, without):
        rates.append([error / zero["error"] for error in arm[nearest]])
    # The two ends in words, and where the ratio is clearly below 1.
    first = _ratio_text(found[f"sigma {nearest}"], without[nearest], with_norm[nearest])
    last = _ratio_text(found[f"sigma {farthest}"], without[farthest], with_norm[farthest])
    clear = [sigma for sigma in SIGMAS if found[f"sigma {sigma}"].high < 1]
    where = f"sigma {errors.sigmas_text(clear)}" if clear else "no sigma"
    n_without = len(without[nearest])
    n_with = len(with_norm[nearest])
    text = (
        f"without LayerNorm ({n_without} runs against {n_with}) the error is {first} at "
        f"sigma {nearest} and {last} at sigma {farthest}. The interval lies below 1 at "
        f"{where}; the paper's ratio does at each."
    )
    lines = [Statement(text, BETTER, found | comparable(rates))]
    whole = compare_table1(results)
    for name in (WITH, WITHOUT):
        numbers = errors.in_numbers(whole, name, quantity=name)
        lines += map(note, numbers)
    return tuple(lines)


def _ratio_text(ratio: Estimate, without: Sequence[float], with_norm: Sequence[float]) -> str:
    """A ratio with its interval and the p value of no difference."""
    p = permutation.p_value(np.log(without), np.log(with_norm))
    return f"×{ratio.value:.2g} [{ratio.low:.2g}, {ratio.high:.2g}] (exact p {p:.2g})"


TABLE1_EXPERIMENT = Experiment(
    "limits.table1",
    "Squared error with and without LayerNorm, as functions leave the training range",
    f"{PAPER}, section 5, Table 1",
    (*SEEDS[WITH], *SEEDS[WITHOUT]),
    run_table1,
    states_table1,
    compare_table1,
    settings=settings.SETTINGS["table1"],
)
