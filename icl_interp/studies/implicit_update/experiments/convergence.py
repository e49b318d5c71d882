"""The size of steps by the number of examples, as trained, untrained, and with foreign labels.

Dherin et al. (2025) show that the mean size of the steps of the implicit weights falls to nearly 0.
Their model is one block without norms; ours are the last blocks of bundled models.
"""

from pathlib import Path

import numpy as np
from xarray import DataArray

from icl_interp.analyses.criterion import Criterion
from icl_interp.analyses.lab import Lab
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.errors import rows_of
from icl_interp.experiments.presets import of_regression
from icl_interp.experiments.settings import read
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, note, statement
from icl_interp.results import Result, table_of_rows
from icl_interp.studies.implicit_update.claims import steps as learning
from icl_interp.studies.implicit_update.measurements.updates import FOREIGN, SIZE, steps

SOURCE = (
    "Dherin et al. (2025), the size of steps by the number of examples (Figure 3 or 4 by accounts "
    "of others; the figure itself could not be seen)"
)
RECIPES = ("softmax_fixed_20", "softmax_random_20")
UNTRAINED = "untrained"
SIZES = {
    "smoke": "2 layers of 100 steps: shows that it runs, and nothing else",
    "small": "3 layers of 4 heads, linear regression in 4 dimensions, 20 examples",
    "paper": "12 layers of 8 heads, linear regression in 20 dimensions, 100 examples",
}
FALLS = Criterion(learning.VANISH_CLAIM.criterion.conditions[:1])


def run(setup: Setup) -> dict[str, Result]:
    """Sizes by model, labels and number of examples, and slopes."""
    sizes = []
    slopes = []
    # Each model as trained and untrained, with its own labels and with foreign ones.
    for name in setup.among(RECIPES):
        for who in (name, UNTRAINED):
            result = _measured(setup, name, who)
            for number in (SIZE, FOREIGN):
                row = {"model": name, "weights": who, "labels": number}
                found = learning.falling(result, number)
                slopes.append(row | {"value": found.value, "low": found.low, "high": found.high})
                squares = (result.sel(number=number) ** 2).mean("unit")
                for n, square in zip(squares["examples"].values, squares.values, strict=True):
                    sizes.append({**row, "examples": int(n), "size": float(np.sqrt(square))})
    if not sizes:
        return {}
    words = "root mean square size of a step, in hidden units weighed by their effect"
    tables: dict[str, Result] = {"sizes": table_of_rows(sizes, note=words)}
    tables["slopes"] = table_of_rows(slopes, note="slope of log size in log number of examples")
    return tables


def _measured(setup: Setup, name: str, who: str) -> DataArray:
    """Of a model, or of an untrained one of its shape."""
    if who == name:
        return setup.measure(name, steps)

    def compute() -> DataArray:
        one = setup.models[name]
        lab = Lab(one.model, one.task, one.encoding, seed=setup.seed)
        return lab.control.measure(steps)

    found = setup.keep(f"{steps.name}, untrained", [name], compute, version=steps.version)
    assert isinstance(found, DataArray)
    return found


def states(results: Results) -> tuple[Statement, ...]:
    """The slope of each model, and notes on foreign labels and untrained weights."""
    lines = []
    for row in rows_of(results, "slopes"):
        words = (
            f"{row['model']}, {'untrained' if row['weights'] == UNTRAINED else 'as trained'}, "
            f"{row['labels']}: the slope is {row['value']:.2f}."
        )
        counts = row["weights"] != UNTRAINED and row["labels"] == SIZE
        lines.append(statement(words, FALLS, row["low"], row["high"]) if counts else note(words))
    return tuple(lines)


CONVERGENCE_EXPERIMENT = Experiment(
    "implicit_update.convergence",
    "The size of steps of the implicit weights by the number of examples",
    SOURCE,
    tuple(Model(name, scaled=of_regression) for name in RECIPES),
    run,
    states,
    sample="128 functions, a prompt of each",
    sizes=SIZES,
    settings=read(Path(__file__).with_name("settings.json"))["convergence"],
)
