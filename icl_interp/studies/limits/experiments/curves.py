"""Figures 2, 3, 5 and 7 of Naim & Asher (2025): error rates against sigma, and the map over both sigmas."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp import evaluation
from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.bench import Bench
from icl_interp.experiments.errors import SIGMAS, decided, none_of
from icl_interp.experiments.scales import polynomials
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import Result, make_array
from icl_interp.studies.limits.claims.classes import ALIKE
from icl_interp.studies.limits.experiments import printed
from icl_interp.studies.limits.experiments.tables import (
    BY_DEGREE,
    MIXED,
    MIXED_ATTENTION,
    PAPER,
    by_degree,
    table2_models,
)
from icl_interp.tasks.functions import Polynomial

CURRICULUM = "degrees_123_curriculum"
GAUSSIAN = {1: "affine_gaussian", 2: "degree_2_gaussian", 3: "degree_3_gaussian"}
MAPPED = {"U(-1,1)": MIXED, "U(-5,5)": "degrees_135_u5"}
COMPARABLE = errors.at_most("error / error", ALIKE)  # the factor of the claims `degrees_alike` and `unseen_classes`
BETTER = errors.at_most("error / error", 1.0)
WIDE = "affine_wide"
WIDER_HELPS = 1.25  # an error that width makes smaller by less than this counts as not improved
MAP_CONTEXTS = 16  # prompts of each function in a cell of the map, which has a hundred cells


# ---- Figure 2: generalisation across degrees -----------------------------------------------------------------------


def run_figure2(bench: Bench) -> dict[str, Result]:
    """Table 2's models and the curriculum over degrees 1 to 3, on degrees 1 to 5."""
    return by_degree(bench, {degree: (*table2_models(degree), CURRICULUM) for degree in range(1, 6)})


def compare_rates(results: Results) -> DataFrame | None:
    """Error rates of the paper's Table 2, whose numbers its curves are: errors in units of the zero predictor's."""
    rows = []
    for degree in range(1, 6):
        zero = printed.errors("limits.table2", degree=str(degree), model="zero")
        for name, label in zip(table2_models(degree), (f"M{degree}", "M135", "M135AL"), strict=True):
            paper = printed.errors("limits.table2", degree=str(degree), model=label)
            rates = {sigma: value / zero[sigma] for sigma, value in paper.items()}
            ours = [
                {**row, "error": row["error_rate"], "low": row["rate_low"], "high": row["rate_high"]}
                for row in errors.rows_of(results, "errors", degree=degree, predictor=name)
            ]
            rows += errors.side_by_side(rates, ours, degree=degree, model=label)
    return errors.as_table(rows, f"{printed.SOURCES['limits.table2']}, divided by its zero predictor's; ours: r_eps")


def says_figure2(results: Results) -> tuple[str, ...]:
    """Unseen degrees: gaps (1, 3, 5) against the curriculum (1, 2, 3) and against models of that very degree."""
    lines = []
    for degree in (2, 4):
        own = _ratio(results, degree, MIXED, BY_DEGREE[degree])
        if own:
            value, low, high = own
            word = decided(COMPARABLE, Interval(value, low, high))
            lines.append(
                f"{word}on unseen degree {degree} M135's error at sigma 1 is {value:.2g} [{low:.2g}, {high:.2g}] times "
                f"that of the model trained on it (comparable: at most {ALIKE:g})."
            )
    gaps = _ratio(results, 4, MIXED, CURRICULUM)
    if gaps:
        value, low, high = gaps
        word = decided(BETTER, Interval(value, low, high))
        lines.append(
            f"{word}on degree 4, unseen by both, training with gaps (1, 3, 5) has {value:.2g} [{low:.2g}, {high:.2g}] "
            "times the error of the curriculum (1, 2, 3). Degree 4 lies inside the family of degree 5 and outside that "
            "of degree 3: this is no evidence for gaps as such."
        )
    lines += errors.in_numbers(compare_rates(results))
    return tuple(lines) or ("The models that would be compared are missing.",)


def _ratio(results: Results, degree: int, a: str, b: str, sigma: float = 1) -> tuple[float, float, float] | None:
    """error a / error b with its interval, in whichever order the pair is stored."""
    for x, y, sign in ((a, b, 1), (b, a, -1)):
        for row in errors.rows_of(results, "ratios", degree=degree, a=x, b=y, sigma=sigma):
            low, high = sorted((sign * row["low"], sign * row["high"]))
            return 10 ** (sign * row["log10 ratio"]), 10**low, 10**high
    return None


# ---- Figures 3 and 5: error rate against sigma ---------------------------------------------------------------------


def run_figure3(bench: Bench) -> dict[str, Result]:
    """M1 to M6, each on its own degree; at the paper's scale also M1 at twice the width."""
    results: dict[str, Result] = {"errors": _own_degrees(bench, BY_DEGREE, "uniform")}
    if bench.has(WIDE, BY_DEGREE[1]):
        matrix = bench.errors([WIDE, BY_DEGREE[1]], polynomials(bench.scale, 1), SIGMAS)
        results["width"] = errors.ratios(matrix, [(WIDE, BY_DEGREE[1])])
    return results


def run_figure5(bench: Bench) -> dict[str, Result]:
    """The same for inputs on N(0, 1) and coefficients on N(0, sigma^2)."""
    return {"errors": _own_degrees(bench, GAUSSIAN, "normal")}


def _own_degrees(bench: Bench, models: dict[int, str], law: str) -> DataFrame:
    tables = [
        errors.table(bench.errors([name], polynomials(bench.scale, degree, law), SIGMAS), degree=degree)
        for degree, name in models.items()
        if bench.has(name)
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


def says_rates(results: Results) -> tuple[str, ...]:
    """Are degrees alike, and does the error rate rise with sigma?"""
    stored = [row for row in errors.rows_of(results, "errors") if row["predictor"] not in ("least squares", "zero")]
    if not stored:
        return ("None of the models is at hand.",)
    curves: dict[str, dict[float, float]] = {}
    for row in stored:
        curves.setdefault(row["predictor"], {})[row["sigma"]] = row["error_rate"]
    first, last = SIGMAS[0], SIGMAS[-1]
    lines = [f"Error rates at sigma {first}: " + ", ".join(f"{k} {v[first]:.2g}" for k, v in curves.items()) + "."]
    if len(curves) > 1:
        printed_too = not curves.keys() & set(GAUSSIAN.values())
        for sigma in (first, last):
            factor = _factor([row for row in stored if row["sigma"] == sigma])
            lines.append(
                f"{decided(COMPARABLE, factor)}at sigma {sigma} the error rates of the degrees differ by a factor of "
                f'{factor.value:.2g} [{factor.low:.2g}, {factor.high:.2g}] ("roughly the same": at most {ALIKE:g}).'
                + (" The paper prints two decimals, all 0.0 there." if sigma == first and printed_too else "")
            )
    rising = [name for name, curve in curves.items() if all(np.diff([curve[s] for s in SIGMAS]) > 0)]
    word = decided(none_of("models whose error rate falls somewhere"), len(curves) - len(rising))
    lines.append(f"{word}the error rate rises with every step of sigma for {len(rising)} of {len(curves)} models.")
    lines += _width(results)
    lines += errors.in_numbers(compare_rates(results))
    worse = [name for name, curve in curves.items() if max(curve.values()) > 1]
    if worse:
        lines.append(f"Beyond the zero predictor (error rate above 1) somewhere up to sigma 10: {', '.join(worse)}.")
    return tuple(lines)


def _factor(rows: Sequence[Mapping[str, Any]]) -> Interval:
    """Largest over smallest error rate; the interval is what the intervals of all of them allow."""
    value, low, high = ([row[key] for row in rows] for key in ("error_rate", "rate_low", "rate_high"))
    return Interval(max(value) / min(value), max(1.0, max(low) / min(high)), max(high) / min(low))


def _width(results: Results) -> list[str]:
    """Section 5, footnote 3: "increasing model size from 22.5M to 38M parameters did not significantly improve"."""
    rows = [row for row in errors.rows_of(results, "width") if row["sigma"] > 1]
    if not rows:
        return []
    better = [row["sigma"] for row in rows if row["high"] < -np.log10(WIDER_HELPS)]
    word = decided(none_of("sigmas at which width helps"), len(better))
    where = f"at sigma {errors.sigmas_text(better)}" if better else "at no sigma from 2 to 10"
    return [f"{word}twice the width makes the error smaller by more than {WIDER_HELPS - 1:.0%} {where}."]


# ---- Figure 7: both sigmas -----------------------------------------------------------------------------------------


def run_figure7(bench: Bench) -> dict[str, Result]:
    """Squared error on degree 3 with inputs on U(-s, s) and coefficients on U(-t, t), for two training intervals."""
    task, n = polynomials(bench.scale, 3), min(MAP_CONTEXTS, bench.scale.n_contexts)
    maps: dict[str, Result] = {}
    for interval, name in MAPPED.items():
        if bench.has(name):
            maps[interval] = bench.keep("map, degree 3", [name], lambda name=name: _map(bench, name, task, n), n=n)
    return maps


def _map(bench: Bench, name: str, task: Polynomial, n_contexts: int) -> DataArray:
    """Mean squared error in each cell with its interval over functions."""
    each = evaluation.heatmap(
        bench.models[name], task, SIGMAS, n_functions=bench.scale.n_functions, n_contexts=n_contexts, seed=bench.seed
    )
    cells = [[bootstrap(lambda m: m, each.sel(inputs=i, functions=f).values) for f in SIGMAS] for i in SIGMAS]
    values = [[[getattr(cell, key) for cell in row] for row in cells] for key in ("value", "low", "high")]
    axes = {"statistic": ("error", "low", "high"), "inputs": SIGMAS, "functions": SIGMAS}
    return make_array(values, axes, note=f"{each.attrs['note']}; 95 % cluster bootstrap over functions")


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


def says_figure7(results: Results) -> tuple[str, ...]:
    """Which of the two sigmas costs more, and where the wider training interval wins."""
    maps = {interval: result for interval, result in results.items() if isinstance(result, DataArray)}
    lines = []
    for interval, result in maps.items():
        values = result.sel(statistic="error").values
        inputs, functions = np.log10(values[-1, 0] / values[0, 0]), np.log10(values[0, -1] / values[0, 0])
        best = [SIGMAS[i] for i in np.unravel_index(values.argmin(), values.shape)]
        lines.append(
            f"Trained on {interval}: from sigma 1 to 10 the error changes by {inputs:+.1f} decades with the inputs and "
            f"by {functions:+.1f} with the functions; least at inputs {best[0]}, "
            f"functions {best[1]}."
        )
    if len(maps) == 2:
        narrow, wide = (result.sel(statistic="error").values for result in maps.values())
        share = float((wide < narrow).mean())
        near = wide[0, 0] / narrow[0, 0]
        far = wide[-1, -1] / narrow[-1, -1]
        word = decided(BETTER, float(far), 1 / float(near))  # worse near, and better far out
        lines.append(
            f"{word}the wider training interval is less accurate at sigma 1 ({errors.plainly(near)} times the error) "
            f"and better in {share:.0%} of the cells (Observation 3)."
        )
    return tuple(lines) or ("Neither model is at hand.",)


FIGURE2_EXPERIMENT = Experiment(
    "limits.figure2",
    "Generalisation across degrees: one degree, gaps (1, 3, 5), attention only, curriculum (1, 2, 3)",
    f"{PAPER}, section 4.3, Figure 2",
    tuple(Model(name) for name in (*(BY_DEGREE[d] for d in range(1, 6)), MIXED, MIXED_ATTENTION, CURRICULUM)),
    run_figure2,
    says_figure2,
    compare_rates,
)
FIGURE3_EXPERIMENT = Experiment(
    "limits.figure3",
    "Error rate against sigma, a model for each degree",
    f"{PAPER}, section 5, Figure 3",
    (*(Model(name) for name in BY_DEGREE.values()), Model(WIDE, scales=("paper",))),
    run_figure3,
    says_rates,
    compare_rates,
)
FIGURE5_EXPERIMENT = Experiment(
    "limits.figure5",
    "Error rate against sigma for Gaussian inputs and coefficients",
    f"{PAPER}, appendix B, Figure 5",
    tuple(Model(name) for name in GAUSSIAN.values()),
    run_figure5,
    says_rates,
    compare_figure5,
)
FIGURE7_EXPERIMENT = Experiment(
    "limits.figure7",
    "Squared error over the sigmas of inputs and of functions, degree 3",
    f"{PAPER}, appendix E, Figure 7",
    tuple(Model(name) for name in MAPPED.values()),
    run_figure7,
    says_figure7,
    compare_figure7,
    sample=f"{{n_functions}} functions x at most {MAP_CONTEXTS} contexts of {{n_points}} points",
)
