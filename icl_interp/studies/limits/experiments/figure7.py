"""Figure 7 of Naim & Asher (2025): the error over the sigmas of inputs and of functions."""

from collections.abc import Mapping

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
        f"the wider training interval is better in {better} of {total} cells, worse in {worse}, "
        f"and neither clearly in {unclear}, which count both ways; its error is "
        f"{errors.plainly(near)} times as large at sigma 1 of both, and {errors.plainly(far)} "
        "times at sigma 10 (Observation 3; one run of each)."
    )
    return [Statement(text, REACHES_FURTHER, evidence)]


FIGURE7_EXPERIMENT = Experiment(
    "limits.figure7",
    "Squared error over the sigmas of inputs and of functions, degree 3",
    f"{PAPER}, appendix E, Figure 7",
    tuple(Model(name) for name in MAPPED.values()),
    run_figure7,
    states_figure7,
    compare_figure7,
    sample=f"{{n_functions}} functions x at most {MAP_CONTEXTS} contexts of {{n_points}} points",
    settings=settings.SETTINGS["figure7"],
)
