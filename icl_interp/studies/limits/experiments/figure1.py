"""Figure 1 of Naim & Asher (2025): continuous functions, by a model trained on cubics."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pandas import DataFrame
from torch import Tensor

from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_least, note, statement
from icl_interp.resampling import bootstrap
from icl_interp.results import Result, table_of_rows
from icl_interp.studies.limits.experiments import queries, settings
from icl_interp.studies.limits.experiments.printed import PAPER
from icl_interp.tasks.distributions import Distribution, Normal, Uniform

CUBIC = "degree_3"
BEST = "least squares, degree 3"

# R2 from which a function counts as followed, and below which it does not.
FOLLOWED = 0.9

MISSED = 0.5

FOLLOWS = at_least("R2", FOLLOWED, MISSED)

SINGLE = "each function with {n_functions} contexts of {n_points} points"


@dataclass(frozen=True)
class Shown:
    """A function, where its inputs lie, and where it is asked."""

    f: Callable[[Tensor], Tensor]
    inputs: Distribution
    low: float
    high: float

    @property
    def xs(self) -> np.ndarray:
        """Queries: the interval, evenly."""
        return np.round(np.linspace(self.low, self.high, 61), 10)


SMOOTH = {
    "exp(x)": Shown(torch.exp, Uniform(0, 1), 0, 1),
    "sin(x)": Shown(torch.sin, Uniform(0, 1), 0, 1),
    "ln(1+x)": Shown(torch.log1p, Uniform(0, 1), 0, 1),
}


def run_figure1(setup: Setup) -> dict[str, Result]:
    """exp, sin and ln(1 + x) on [0, 1], asked of a model trained on polynomials of degree 3."""
    return follow(setup, SMOOTH)


def follow(setup: Setup, functions: Mapping[str, Shown]) -> dict[str, Result]:
    """Predictions, truth and errors of the model for each function, over its inputs."""
    if not setup.has(CUBIC):
        return {}
    model = setup.models[CUBIC]
    n = setup.preset.n_functions
    n_points = setup.preset.n_points
    curves: dict[str, Result] = {}
    tables = []
    for name, shown in functions.items():
        xs = shown.xs
        prompts = queries.contexts(shown.f, shown.inputs, n_points, n, setup.seed)
        truth = shown.f(torch.from_numpy(xs))
        # Beside the model stand what the same contexts allow, and what needs no context.
        found = {}
        found[CUBIC] = queries.sweep(model, prompts, xs)
        found[BEST] = queries.polynomial_fit(prompts, xs, 3)
        found["zero"] = torch.zeros(n, len(xs), dtype=torch.float64)
        law = law_words(shown.inputs)
        what = f"{n} contexts of {n_points - 1} pairs, inputs {law}"
        curves[name] = queries.summary(found[CUBIC], truth, xs, what)
        tables.append(_follow_table(name, found, truth, what))
    return {"errors": errors.joined(tables), **curves}


def law_words(law: Distribution) -> str:
    """As papers write it.

    >>> law_words(Uniform(-1, 1)), law_words(Normal(1))
    ('U(-1, 1)', 'N(0, 1)')
    """
    match law:
        case Uniform(low, high):
            return f"U({low:g}, {high:g})"
        case Normal(std, mean):
            return f"N({mean:g}, {std**2:g})"
        case _:
            return str(law)


def _follow_table(
    function: str, found: Mapping[str, Tensor], truth: Tensor, note: str
) -> DataFrame:
    """Squared error over the interval, with intervals over contexts, and R2.

    R2 is relative to the function's own variance.
    """
    variance = float(truth.var(unbiased=False))
    rows = []
    for name, f in found.items():
        squares = (f - truth).square().mean(-1)
        error = bootstrap(lambda mean: mean, squares.numpy())
        row: dict[str, Any] = {"function": function, "predictor": name}
        row["error"] = error.value
        row["low"] = error.low
        row["high"] = error.high
        # The largest error has the least R2.
        row["r2"] = 1 - error.value / variance
        row["r2 low"] = 1 - error.high / variance
        row["r2 high"] = 1 - error.low / variance
        rows.append(row)
    what = f"mean over the interval; {note}; 95 % bootstrap over contexts"
    return table_of_rows(rows, note=what)


def states_followed(results: Results) -> tuple[Statement, ...]:
    """Is each function followed, and how far from the best that its contexts allow?"""
    lines = []
    for row in errors.rows_of(results, "errors", predictor=CUBIC):
        name = row["function"]
        (best,) = errors.rows_of(results, "errors", function=name, predictor=BEST)
        text = (
            f"{name} is followed with R² {row['r2']:.3f} [{row['r2 low']:.3f}, "
            f"{row['r2 high']:.3f}], error {row['error']:.2g}; a cubic fitted to the same contexts "
            f"has {best['error']:.2g}."
        )
        r2 = errors.interval_of(row, "r2", "r2 low", "r2 high")
        lines.append(statement(text, FOLLOWS, r2))
    return tuple(lines) or (note(f"The model {CUBIC} is missing."),)


def compare_followed(results: Results) -> DataFrame | None:
    """Ours beside what the same contexts allow; the paper's plots come without numbers."""
    keys = ("function", "predictor", "error", "low", "high", "r2")
    rows = []
    for row in errors.rows_of(results, "errors"):
        rows.append({key: row[key] for key in keys})
    return errors.as_table(rows, "mean squared error over the interval, intervals over contexts")


FIGURE1_EXPERIMENT = Experiment(
    "limits.figure1",
    "Continuous functions: exp, sin and ln(1+x) by a model trained on polynomials of degree 3",
    f"{PAPER}, section 4.2, Figure 1",
    (Model(CUBIC),),
    run_figure1,
    states_followed,
    compare_followed,
    sample=SINGLE,
    settings=settings.SETTINGS["figure1"],
)
