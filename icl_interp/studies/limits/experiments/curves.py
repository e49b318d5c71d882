"""Figures 2, 3, 5 and 7 of Naim & Asher (2025): error rates by sigma, and the map over both."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp import evaluation
from icl_interp.analyses.claim import LEARNED_R2
from icl_interp.analyses.criterion import Estimate, Precondition
from icl_interp.experiments import errors, statements
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.errors import SIGMAS
from icl_interp.experiments.presets import polynomials
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_most, none_of, note, statement
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import Result, make_array
from icl_interp.studies.limits.claims.error_rates import ALIKE
from icl_interp.studies.limits.experiments import printed
from icl_interp.studies.limits.experiments.runs import HIGHER, LOWER, times
from icl_interp.studies.limits.experiments.tables import (
    BY_DEGREE,
    LABELS,
    MIXED,
    MIXED_ATTENTION,
    PAPER,
    by_degree,
    matrices,
    table2_models,
    table2_rates,
)
from icl_interp.tasks.functions import Polynomial

CURRICULUM = "degrees_123_curriculum"
GAUSSIAN = {1: "affine_gaussian", 2: "degree_2_gaussian", 3: "degree_3_gaussian"}
MAPPED = {"U(-1,1)": MIXED, "U(-5,5)": "degrees_135_u5"}
# Predicting 0 is alike on all degrees, and as good as itself: what says something are models that
# do better.
OWN_R2, RATE = "R2 of the model trained on the degree", "largest error rate"
COMPARABLE = at_most(  # the factor of the claims `degrees_alike` and `unseen_classes`
    "error / error",
    ALIKE,
    None,
    Precondition(
        OWN_R2,
        (LEARNED_R2, 1.0),
        "The model trained on it has R² {value:.2f} only: it has not learned.",
    ),
)
ALIKE_RATES = at_most(
    "error rate / error rate",
    ALIKE,
    None,
    Precondition(
        RATE,
        (0.0, 0.5),
        "The largest rate is {value:.2f}: where models come near predicting 0, all are alike.",
    ),
)
COMPARED = (1, 3, 10)  # sigmas at which degrees are compared
BETTER = at_most("error / error", LOWER, HIGHER)
RISES = none_of("models whose error rate falls somewhere")
WIDE = "affine_wide"
WIDER_HELPS = 1.25  # an error that width makes smaller by less than this counts as not improved
WIDTH = none_of("sigmas at which width helps")
MAP_CONTEXTS = 16  # prompts of each function in a cell of the map, which has a hundred cells
# Observation 3 (ii): wider training reaches further ("better generalization ability") and costs
# accuracy.
REACHES_FURTHER = statements.share(
    "share of cells in which the wider training interval is better",
    Precondition(
        "least R2 in the training range",
        (LEARNED_R2, 1.0),
        "In its own training range a model has R² {value:.2f} on this degree: it has not learned.",
    ),
)


# ---- Figure 2: generalisation across degrees -----------------------------------------------------


def run_figure2(setup: Setup) -> dict[str, Result]:
    """Table 2's models and the curriculum over degrees 1 to 3, on degrees 1 to 5."""
    models = {degree: (*table2_models(degree), CURRICULUM) for degree in range(1, 6)}
    return by_degree(setup, matrices(setup, models))


def compare_rates(results: Results) -> DataFrame | None:
    """Error rates beside the paper's Table 2, whose numbers the curves show.

    Errors are in units of the zero predictor's.
    """
    rows = []
    for degree in range(1, 6):
        for name, rates in table2_rates(degree).items():
            ours = [
                {
                    **row,
                    "error": row["error_rate"],
                    "low": row["rate_low"],
                    "high": row["rate_high"],
                }
                for row in errors.rows_of(results, "errors", degree=degree, predictor=name)
            ]
            rows += errors.side_by_side(
                rates, ours, degree=degree, model=LABELS.get(name, f"M{degree}")
            )
    return errors.as_table(
        rows, f"{printed.SOURCES['limits.table2']}, divided by its zero predictor's; ours: r_eps"
    )


def states_figure2(results: Results) -> tuple[Statement, ...]:
    """Unseen degrees: gaps (1, 3, 5) against the curriculum (1, 2, 3) and single-degree models.

    The latter are models of that very degree.
    """
    lines = []
    for degree in (2, 4):
        own = _ratio(results, degree, MIXED, BY_DEGREE[degree])
        if own:
            text = (
                f"on degree {degree}, which it never saw, M135's error at sigma 1 is {_times(own)} "
                "times that of the model trained on it (one run of each)."
            )
            (row,) = errors.rows_of(
                results, "errors", degree=degree, predictor=BY_DEGREE[degree], sigma=1
            )
            lines.append(statement(text, COMPARABLE, own, given={OWN_R2: row["r2"]}))
    gaps = _ratio(results, 4, MIXED, CURRICULUM)
    if gaps:
        rows = {
            name: errors.rows_of(results, "errors", degree=4, predictor=name, sigma=1)
            for name in (MIXED, CURRICULUM)
        }
        with_gaps, curriculum = ([row["error"] for row in found] for found in rows.values())
        text = (
            f"on degree 4, unseen by both, training with gaps (1, 3, 5) has {_times(gaps)} times "
            "the error of the curriculum (1, 2, 3), by functions; which training is better is a "
            "question about runs, and there is one of each. Degree 4 lies inside the family of "
            "degree 5 and outside that of degree 3: this is no evidence for gaps as such."
        )
        lines.append(statement(text, BETTER, times(with_gaps, curriculum)))
    lines += map(note, errors.in_numbers(compare_rates(results)))
    return tuple(lines) or (note("The models that would be compared are missing."),)


def _times(ratio: Interval) -> str:
    return f"{ratio.value:.2g} [{ratio.low:.2g}, {ratio.high:.2g}]"


def _ratio(results: Results, degree: int, a: str, b: str) -> Interval | None:
    """error a / error b at sigma 1 with its interval, in whichever order the pair is stored."""
    for x, y, sign in ((a, b, 1), (b, a, -1)):
        for row in errors.rows_of(results, "ratios", degree=degree, a=x, b=y, sigma=1):
            low, high = sorted((sign * row["low"], sign * row["high"]))
            return Interval(10 ** (sign * row["log10 ratio"]), 10**low, 10**high)
    return None


# ---- Figures 3 and 5: error rate against sigma ---------------------------------------------------


def run_figure3(setup: Setup) -> dict[str, Result]:
    """M1 to M6, each on its own degree; at the paper's scale also M1 at twice the width."""
    results: dict[str, Result] = {"errors": _own_degrees(setup, BY_DEGREE, "uniform")}
    if setup.has(WIDE, BY_DEGREE[1]):
        matrix = setup.errors([WIDE, BY_DEGREE[1]], polynomials(setup.preset, 1), SIGMAS)
        results["width"] = errors.ratios(matrix, [(WIDE, BY_DEGREE[1])])
    return results


def run_figure5(setup: Setup) -> dict[str, Result]:
    """The same for inputs on N(0, 1) and coefficients on N(0, sigma^2)."""
    return {"errors": _own_degrees(setup, GAUSSIAN, "normal")}


def _own_degrees(setup: Setup, models: dict[int, str], law: str) -> DataFrame:
    tables = [
        errors.table(
            setup.errors([name], polynomials(setup.preset, degree, law), SIGMAS), degree=degree
        )
        for degree, name in models.items()
        if setup.has(name)
    ]
    return errors.joined(tables)


def compare_figure5(results: Results) -> DataFrame | None:
    """Our error rates; the paper's curves come without numbers."""
    rows = [
        {
            "model": row["predictor"],
            "sigma": row["sigma"],
            "ours": row["error_rate"],
            "low": row["rate_low"],
            "high": row["rate_high"],
        }
        for row in errors.rows_of(results, "errors")
        if row["predictor"] not in ("least squares", "zero")
    ]
    return errors.as_table(rows, "error rate, a model for each degree on its own degree")


def states_rates(results: Results) -> tuple[Statement, ...]:
    """Are degrees alike, and does the error rate rise with sigma?

    Models that have not learned are left out.
    """
    stored = [
        row
        for row in errors.rows_of(results, "errors")
        if row["predictor"] not in ("least squares", "zero")
    ]
    if not stored:
        return (note("None of the models is at hand."),)
    curves: dict[str, dict[float, Mapping[str, Any]]] = {}
    for row in stored:
        curves.setdefault(row["predictor"], {})[row["sigma"]] = row
    first, last = SIGMAS[0], SIGMAS[-1]
    each = ", ".join(f"{name} {curve[first]['error_rate']:.2g}" for name, curve in curves.items())
    lines = [note(f"Error rates at sigma {first}: {each}.")]
    # At sigma 1 every model is on the law that it was trained on.
    learned = {name: curve for name, curve in curves.items() if curve[first]["r2"] > LEARNED_R2}
    if len(learned) < len(curves):
        left_out = ", ".join(
            f"{k} ({c[first]['r2']:.2f})" for k, c in curves.items() if k not in learned
        )
        lines.append(
            note(
                f"Left out of what follows, as R² at sigma {first} is not above {LEARNED_R2:g}: "
                f"{left_out}."
            )
        )
    if len(learned) > 1:
        printed_too = not learned.keys() & set(GAUSSIAN.values())
        for sigma in COMPARED:
            here = [curve[sigma] for curve in learned.values()]
            factor = _factor(here)
            text = (
                f"at sigma {sigma} the error rates of the degrees, one run of each, differ by a "
                f'factor of {_times(factor)} ("roughly the same").'
                + (
                    " The paper prints two decimals, all 0.0 there."
                    if sigma == first and printed_too
                    else ""
                )
            )
            largest = max(row["error_rate"] for row in here)
            lines.append(statement(text, ALIKE_RATES, factor, given={RATE: largest}))
    if learned:
        rises = [
            k for k, c in learned.items() if all(np.diff([c[s]["error_rate"] for s in SIGMAS]) > 0)
        ]
        text = (
            f"the error rate rises with every step of sigma for {len(rises)} of {len(learned)} "
            "models."
        )
        lines.append(statement(text, RISES, len(learned) - len(rises)))
    lines += _width(results)
    lines += map(note, errors.in_numbers(compare_rates(results)))
    worse = [
        name
        for name, curve in curves.items()
        if max(row["error_rate"] for row in curve.values()) > 1
    ]
    if worse:
        lines.append(
            note(
                f"Beyond the zero predictor (error rate above 1) somewhere up to sigma {last}: "
                f"{', '.join(worse)}."
            )
        )
    return tuple(lines)


def _factor(rows: Sequence[Mapping[str, Any]]) -> Interval:
    """Largest over smallest error rate; the interval is what the intervals of all of them allow."""
    value, low, high = (
        [row[key] for row in rows] for key in ("error_rate", "rate_low", "rate_high")
    )
    return Interval(max(value) / min(value), max(1.0, max(low) / min(high)), max(high) / min(low))


def _width(results: Results) -> list[Statement]:
    """Section 5, footnote 3, about the size of models.

    The paper: "increasing model size from 22.5M to 38M parameters did not significantly improve".
    """
    rows = [row for row in errors.rows_of(results, "width") if row["sigma"] > 1]
    if not rows:
        return []
    better = [row["sigma"] for row in rows if row["high"] < -np.log10(WIDER_HELPS)]
    where = f"at sigma {errors.sigmas_text(better)}" if better else "at no sigma from 2 to 10"
    text = (
        f"twice the width makes the error smaller by more than {WIDER_HELPS - 1:.0%} {where} (one "
        "run of each)."
    )
    return [statement(text, WIDTH, len(better))]


# ---- Figure 7: both sigmas -----------------------------------------------------------------------


def run_figure7(setup: Setup) -> dict[str, Result]:
    """Squared error on degree 3 with inputs on U(-s, s) and coefficients on U(-t, t).

    It is measured for two training intervals.
    """
    task, n = polynomials(setup.preset, 3), min(MAP_CONTEXTS, setup.preset.n_contexts)
    maps: dict[str, Result] = {}
    for interval, name in MAPPED.items():
        if setup.has(name):
            maps[interval] = setup.keep(
                "map, degree 3", [name], lambda name=name: _map(setup, name, task, n), n=n
            )
    return maps


def _map(setup: Setup, name: str, task: Polynomial, n_contexts: int) -> DataArray:
    """Mean squared error in each cell with its interval over functions."""
    each = evaluation.heatmap(
        setup.models[name],
        task,
        SIGMAS,
        n_functions=setup.preset.n_functions,
        n_contexts=n_contexts,
        seed=setup.seed,
    )
    cells = [
        [bootstrap(lambda m: m, each.sel(inputs=i, functions=f).values) for f in SIGMAS]
        for i in SIGMAS
    ]
    values = [
        [[getattr(cell, key) for cell in row] for row in cells] for key in ("value", "low", "high")
    ]
    axes = {"statistic": ("error", "low", "high"), "inputs": SIGMAS, "functions": SIGMAS}
    return make_array(
        values, axes, note=f"{each.attrs['note']}; 95 % cluster bootstrap over functions"
    )


def compare_figure7(results: Results) -> DataFrame | None:
    """The corners of each map; the paper's colours come without numbers."""
    rows = []
    for interval, result in results.items():
        if isinstance(result, DataArray):
            for i, f in ((1, 1), (1, 10), (10, 1), (5, 5), (10, 10)):
                ours, low, high = result.sel(inputs=i, functions=f).values
                rows.append(
                    {
                        "trained on": interval,
                        "sigma of inputs": i,
                        "sigma of functions": f,
                        "ours": float(ours),
                        "low": float(low),
                        "high": float(high),
                    }
                )
    return errors.as_table(rows, "mean squared error; the whole map is in results.json")


def states_figure7(results: Results) -> tuple[Statement, ...]:
    """Which of the two sigmas costs more, and in how many cells the wider interval wins.

    The interval is that of training.
    """
    maps = {
        interval: result for interval, result in results.items() if isinstance(result, DataArray)
    }
    lines = []
    for interval, result in maps.items():
        values = result.sel(statistic="error").values
        inputs, functions = (
            np.log10(values[-1, 0] / values[0, 0]),
            np.log10(values[0, -1] / values[0, 0]),
        )
        best = [SIGMAS[i] for i in np.unravel_index(values.argmin(), values.shape)]
        text = (
            f"Trained on {interval}: from sigma 1 to 10 the error changes by {inputs:+.1f} decades "
            f"with the inputs and by {functions:+.1f} with the functions; least at inputs "
            f"{best[0]}, functions {best[1]}. On its own range R² is "
            f"{r2_in_own_cell(result, interval):.2f}."
        )
        lines.append(note(text))
    if len(maps) == 2:
        lines += _reaches(maps)
    return tuple(lines) or (note("Neither model is at hand."),)


def r2_in_own_cell(map_: DataArray, interval: str) -> float:
    """R2 on degree 3 with inputs and functions drawn as in training on U(-a, a), from its error.

    The error is that of the cell. E f^2 = a^2 / 3 sum over i of a^(2 i) / (2 i + 1), for
    coefficients and inputs of U(-a, a).
    """
    a = int(interval.rpartition(",")[2].rstrip(")"))
    size = a**2 / 3 * sum(a ** (2 * i) / (2 * i + 1) for i in range(4))
    return 1 - float(map_.sel(statistic="error", inputs=a, functions=a).values) / size


def _reaches(maps: Mapping[str, DataArray]) -> list[Statement]:
    """The wider training interval against the narrower one, cell by cell.

    Cells whose intervals overlap are unclear.
    """
    narrow, wide = (
        {k: result.sel(statistic=k).values for k in ("error", "low", "high")}
        for result in maps.values()
    )
    better, worse = (int((a["high"] < b["low"]).sum()) for a, b in ((wide, narrow), (narrow, wide)))
    total = narrow["error"].size
    r2 = min(r2_in_own_cell(result, interval) for interval, result in maps.items())
    share, learned = (
        rule.quantity for rule in (REACHES_FURTHER.conditions[0], REACHES_FURTHER.preconditions[0])
    )
    unclear = total - better - worse
    evidence = {
        share: statements.share_of(share, better, unclear, total),
        learned: Estimate.exactly(learned, r2),
    }
    near, far = (wide["error"][i, i] / narrow["error"][i, i] for i in (0, -1))
    text = (
        f"the wider training interval is better in {better} of {total} cells, worse in {worse} and "
        f"in {unclear}, which count both ways, not clearly either; its error is "
        f"{errors.plainly(near)} times as large at sigma 1 of both, and {errors.plainly(far)} "
        "times at sigma 10 (Observation 3; one run of each)."
    )
    return [Statement(text, REACHES_FURTHER, evidence)]


FIGURE2_EXPERIMENT = Experiment(
    "limits.figure2",
    "Generalisation across degrees: one degree, gaps (1, 3, 5), attention only, curriculum (1, 2, "
    "3)",
    f"{PAPER}, section 4.3, Figure 2",
    tuple(
        Model(name)
        for name in (*(BY_DEGREE[d] for d in range(1, 6)), MIXED, MIXED_ATTENTION, CURRICULUM)
    ),
    run_figure2,
    states_figure2,
    compare_rates,
)
FIGURE3_EXPERIMENT = Experiment(
    "limits.figure3",
    "Error rate against sigma, a model for each degree",
    f"{PAPER}, section 5, Figure 3",
    (*(Model(name) for name in BY_DEGREE.values()), Model(WIDE, scales=("paper",))),
    run_figure3,
    states_rates,
    compare_rates,
)
FIGURE5_EXPERIMENT = Experiment(
    "limits.figure5",
    "Error rate against sigma for Gaussian inputs and coefficients",
    f"{PAPER}, appendix B, Figure 5",
    tuple(Model(name) for name in GAUSSIAN.values()),
    run_figure5,
    states_rates,
    compare_figure5,
)
FIGURE7_EXPERIMENT = Experiment(
    "limits.figure7",
    "Squared error over the sigmas of inputs and of functions, degree 3",
    f"{PAPER}, appendix E, Figure 7",
    tuple(Model(name) for name in MAPPED.values()),
    run_figure7,
    states_figure7,
    compare_figure7,
    sample=f"{{n_functions}} functions x at most {MAP_CONTEXTS} contexts of {{n_points}} points",
)
