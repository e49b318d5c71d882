"""Figure 7 of Naim & Asher (2025): the error over the sigmas of inputs and of functions."""

from collections.abc import Mapping
from functools import partial

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
from icl_interp.experiments.statements import Statement, note
from icl_interp.resampling import bootstrap
from icl_interp.results import Result, make_array
from icl_interp.studies.limits.experiments import settings
from icl_interp.studies.limits.experiments.printed import PAPER
from icl_interp.studies.limits.experiments.table2 import MIXED
from icl_interp.tasks.functions import Polynomial

MAPPED = {"U(-1,1)": MIXED, "U(-5,5)": "degrees_135_u5"}

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


# Sigmas of inputs and of functions that the table shows, of all in the map.
CORNERS = ((1, 1), (1, 10), (10, 1), (5, 5), (10, 10))


def run_figure7(setup: Setup) -> dict[str, Result]:
    """Squared error on degree 3 with inputs on U(-s, s) and coefficients on U(-t, t).

    It is measured for two training intervals.
    """
    task = polynomials(setup.preset, 3)
    n = min(MAP_CONTEXTS, setup.preset.n_contexts)
    maps: dict[str, Result] = {}
    for interval, name in MAPPED.items():
        if setup.has(name):
            measure = partial(_map, setup, name, task, n)
            maps[interval] = setup.keep("map, degree 3", [name], measure, n=n)
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
    shape = (len(SIGMAS), len(SIGMAS))
    error = np.empty(shape)
    low = np.empty(shape)
    high = np.empty(shape)
    for row, inputs in enumerate(SIGMAS):
        for column, functions in enumerate(SIGMAS):
            errors_of_cell = each.sel(inputs=inputs, functions=functions).values
            cell = bootstrap(lambda mean: mean, errors_of_cell)
            error[row, column] = cell.value
            low[row, column] = cell.low
            high[row, column] = cell.high
    axes = {"statistic": ("error", "low", "high"), "inputs": SIGMAS, "functions": SIGMAS}
    what = f"{each.attrs['note']}; 95 % cluster bootstrap over functions"
    return make_array(np.stack([error, low, high]), axes, note=what)


def compare_figure7(results: Results) -> DataFrame | None:
    """The corners of each map; the paper's colours come without numbers."""
    rows = []
    for interval, result in _maps(results).items():
        for inputs, functions in CORNERS:
            ours, low, high = result.sel(inputs=inputs, functions=functions).values
            row = {
                "trained on": interval,
                "sigma of inputs": inputs,
                "sigma of functions": functions,
                "ours": float(ours),
                "low": float(low),
                "high": float(high),
            }
            rows.append(row)
    return errors.as_table(rows, "mean squared error; the whole map is in results.json")


def _maps(results: Results) -> dict[str, DataArray]:
    """The maps among the results, by training interval."""
    maps = {}
    for interval, result in results.items():
        if isinstance(result, DataArray):
            maps[interval] = result
    return maps


def states_figure7(results: Results) -> tuple[Statement, ...]:
    """Which of the two sigmas costs more, and in how many cells the wider interval wins.

    The interval is that of training.
    """
    maps = _maps(results)
    lines = []
    for interval, result in maps.items():
        # The first axis is the sigma of inputs, the second that of functions.
        values = result.sel(statistic="error").values
        nearest = values[0, 0]
        inputs = np.log10(values[-1, 0] / nearest)
        functions = np.log10(values[0, -1] / nearest)
        row, column = np.unravel_index(values.argmin(), values.shape)
        text = (
            f"Trained on {interval}: from sigma 1 to 10 the error changes by {inputs:+.1f} decades "
            f"with the inputs and by {functions:+.1f} with the functions; least at inputs "
            f"{SIGMAS[row]}, functions {SIGMAS[column]}. On its own range R² is "
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
    _, _, end = interval.rpartition(",")
    a = int(end.rstrip(")"))
    powers = sum(a ** (2 * i) / (2 * i + 1) for i in range(4))
    size = a**2 / 3 * powers
    error = map_.sel(statistic="error", inputs=a, functions=a)
    return 1 - float(error.values) / size


def _reaches(maps: Mapping[str, DataArray]) -> list[Statement]:
    """The wider training interval against the narrower one, cell by cell.

    Cells whose intervals overlap are unclear.
    """
    narrow, wide = maps.values()
    better = _clearly_smaller(wide, narrow)
    worse = _clearly_smaller(narrow, wide)
    error = wide.sel(statistic="error").values
    error_of_narrow = narrow.sel(statistic="error").values
    total = error.size
    unclear = total - better - worse
    # What the rule asks for: the share of cells, and that both models have learned.
    share = REACHES_FURTHER.conditions[0].quantity
    learned = REACHES_FURTHER.preconditions[0].quantity
    r2 = min(r2_in_own_cell(result, interval) for interval, result in maps.items())
    evidence = {}
    evidence[share] = statements.share_of(share, better, unclear, total)
    evidence[learned] = Estimate.exactly(learned, r2)
    near = errors.plainly(error[0, 0] / error_of_narrow[0, 0])
    far = errors.plainly(error[-1, -1] / error_of_narrow[-1, -1])
    text = (
        f"the wider training interval is better in {better} of {total} cells, worse in {worse}, "
        f"and neither clearly in {unclear}, which count both ways; its error is "
        f"{near} times as large at sigma 1 of both, and {far} "
        "times at sigma 10 (Observation 3; one run of each)."
    )
    return [Statement(text, REACHES_FURTHER, evidence)]


def _clearly_smaller(one: DataArray, other: DataArray) -> int:
    """In how many cells the whole interval of one error lies below that of the other."""
    high = one.sel(statistic="high").values
    low = other.sel(statistic="low").values
    return int((high < low).sum())


FIGURE7_EXPERIMENT = Experiment(
    "limits.figure7",
    "Squared error over the sigmas of inputs and of functions, degree 3",
    f"{PAPER}, appendix E, Figure 7",
    (Model(MAPPED["U(-1,1)"]), Model(MAPPED["U(-5,5)"])),
    run_figure7,
    states_figure7,
    compare_figure7,
    sample=f"{{n_functions}} functions x at most {MAP_CONTEXTS} contexts of {{n_points}} points",
    settings=settings.SETTINGS["figure7"],
)
