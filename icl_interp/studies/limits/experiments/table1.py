"""Table 1 of Naim & Asher (2025): errors with and without LayerNorm."""

from collections.abc import Sequence

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

BETTER = Criterion(
    (
        Condition(OVER_ALL, "error without / with LayerNorm", (0, LOWER), (HIGHER, INF)),
        *(Condition(f"sigma {sigma}", "", (0, LOWER)) for sigma in SIGMAS),
    ),
    COMPARABLE,
    terms="It is the mean over sigmas; to agree, the error must meet the bound at every sigma.",
)


def run_table1(setup: Setup) -> dict[str, Result]:
    """Errors of every run, and their means over the runs of an arm."""
    names = {arm: setup.among([model.name for model in models]) for arm, models in SEEDS.items()}
    each = setup.errors(
        [name for arm in names.values() for name in arm], polynomials(setup.preset, 1), SIGMAS
    )
    return {"errors": errors.table(errors.pooled(each, names))}


def ratios(results: Results) -> dict[str, Estimate]:
    """Error without over with a norm, by sigma and over all, with exact permutation intervals.

    The permutations are over runs; {} without both arms.
    """
    without, with_norm = (errors_by_sigma(results, SEEDS[arm]) for arm in (WITHOUT, WITH))
    if not without or not with_norm:
        return {}
    found = {f"sigma {s:g}": times(without[s], with_norm[s]) for s in without}
    found[OVER_ALL] = times(
        *(np.exp(np.log(list(arm.values())).mean(0)).tolist() for arm in (without, with_norm))
    )
    return {key: Estimate.of(key, interval) for key, interval in found.items()}


def compare_table1(results: Results) -> DataFrame | None:
    """The paper's two rows, and what its conclusion rests on: the ratio of the two."""
    rows = []
    published = {
        WITH: printed.errors("limits.table1", model="with_layernorm"),
        WITHOUT: printed.errors("limits.table1", model="without_layernorm"),
    }
    for name, paper in published.items():
        rows += errors.side_by_side(
            paper, errors.rows_of(results, "errors", predictor=name), quantity=name
        )
    found = {
        float(key.removeprefix("sigma ")): e
        for key, e in ratios(results).items()
        if key != OVER_ALL
    }
    paper = {sigma: published[WITHOUT][sigma] / published[WITH][sigma] for sigma in found}
    ours = [{"sigma": s, "error": e.value, "low": e.low, "high": e.high} for s, e in found.items()]
    rows += errors.side_by_side(paper, ours, quantity="without / with")
    note = (
        "ours: means over runs, intervals over functions; without / with: geometric means, exact "
        "intervals over runs"
    )
    return errors.as_table(rows, f"{printed.SOURCES['limits.table1']}; {note}")


def states_table1(results: Results) -> tuple[Statement, ...]:
    """Is a kind of training without a norm better? Arms of runs decide, and functions do not."""
    found = ratios(results)
    if not found:
        return (note("One of the two kinds of model is missing, so nothing is compared."),)
    arms = {arm: errors_by_sigma(results, models) for arm, models in SEEDS.items()}
    (zero,) = errors.rows_of(results, "errors", predictor="zero", sigma=SIGMAS[0])
    rates = [[error / zero["error"] for error in arm[SIGMAS[0]]] for arm in arms.values()]
    n = {arm: len(by_sigma[SIGMAS[0]]) for arm, by_sigma in arms.items()}
    clear = [sigma for sigma in SIGMAS if found[f"sigma {sigma}"].high < 1]
    first, last = (
        _ratio_text(found[f"sigma {sigma}"], arms[WITHOUT][sigma], arms[WITH][sigma])
        for sigma in (SIGMAS[0], SIGMAS[-1])
    )
    lines = [
        Statement(
            f"without LayerNorm ({n[WITHOUT]} runs against {n[WITH]}) the error is {first} at "
            f"sigma {SIGMAS[0]} and {last} at sigma {SIGMAS[-1]}. The interval lies below 1 at "
            f"{f'sigma {errors.sigmas_text(clear)}' if clear else 'no sigma'}; the paper's ratio "
            "does at each.",
            BETTER,
            {**found, **comparable(rates)},
        )
    ]
    whole = compare_table1(results)
    return (
        *lines,
        *(
            note(line)
            for name in (WITH, WITHOUT)
            for line in errors.in_numbers(whole, name, quantity=name)
        ),
    )


def _ratio_text(ratio: Estimate, without: Sequence[float], with_norm: Sequence[float]) -> str:
    p = permutation.p_value(np.log(without), np.log(with_norm))
    return f"×{ratio.value:.2g} [{ratio.low:.2g}, {ratio.high:.2g}] (exact p {p:.2g})"


TABLE1_EXPERIMENT = Experiment(
    "limits.table1",
    "Squared error with and without LayerNorm, as functions leave the training range",
    f"{PAPER}, section 5, Table 1",
    tuple(model for models in SEEDS.values() for model in models),
    run_table1,
    states_table1,
    compare_table1,
    settings=settings.SETTINGS["table1"],
)
