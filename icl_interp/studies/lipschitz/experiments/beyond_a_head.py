"""More than one softmax head: the windows of models that the slides leave to future work.

The slides end with models beyond one softmax head: several heads, more layers, MLPs, positions. One
small model of each kind is trained here on the functions of `lipschitz_relu`. The slides claim
nothing of such models, so nothing is judged: what is measured stands in notes.

Of every head its window w is read off its scores. A smoother of the labels, with the head's own
weights, is put in its place: it says whether the head does more than a head of a unit does.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, note
from icl_interp.resampling import bootstrap
from icl_interp.results import Result, table_of_rows
from icl_interp.studies.lipschitz.experiments import models, settings
from icl_interp.studies.lipschitz.measurements.head_windows import head_windows
from icl_interp.studies.lipschitz.measurements.heads import LABELS, NOTHING, smoother
from icl_interp.tasks.ridge import RidgeFunction
from icl_interp.theory import lipschitz as theory

KINDS = {
    "one head with an MLP": models.varied("lipschitz_relu_width_32"),
    "four heads": models.varied("lipschitz_relu_heads"),
    "two layers": models.varied("lipschitz_relu_layers"),
    "two layers with MLPs": models.varied("lipschitz_relu_mlp"),
    "one head with positions": models.varied("lipschitz_relu_positions"),
}
SIZES = {
    "smoke": "layers of width 32 on d = 3, n = 20, 20 steps: shows that it runs, and nothing else",
    "small": "layers of width 32 on d = 3, n = 100, 2,000 steps of Adam",
    "paper": "layers of width 32 on d = 3, n = 100, 20,000 steps of Adam with batches of 512",
}
SMOKE_CONTEXTS = 400  # of the Monte Carlo that finds the best window


def run(setup: Setup) -> dict[str, Result]:
    """The error of each model, the window of each head, and what a smoother leaves of it."""
    found: list[dict[str, Any]] = []
    windows: list[dict[str, Any]] = []
    stand_ins: list[dict[str, Any]] = []
    for kind, model in KINDS.items():
        name = model.name
        if not setup.has(name):
            continue
        task = models.task_of(setup.models[name])
        best = _best_window(setup, task)
        ratio = _error(setup, name, task, best)
        found.append({"model": kind, **ratio})

        # Heads are named "layer.head".
        by_head = setup.measure(name, head_windows)
        for head in by_head["head"].values:
            numbers = by_head.sel(head=head).to_series()
            row = {"model": kind, "head": str(head), **numbers, "best w": best}
            windows.append(row)
        changes = setup.measure(name, smoother)
        stand_ins += _stand_ins(kind, changes)
    if not found:
        return {}
    of_errors = "ratio: over the error of one head with the best w"
    of_windows = "w of the whitened M; fit: share of the scores that M explains"
    of_smoothers = (
        "squared change of the prediction without the head, over the variance of the values; left: "
        "share of it that a smoother of the labels leaves"
    )
    return {
        "errors": table_of_rows(found, note=of_errors),
        "windows": table_of_rows(windows, note=of_windows),
        "smoothers": table_of_rows(stand_ins, note=of_smoothers),
    }


def _best_window(setup: Setup, task: RidgeFunction) -> float:
    """w of the least loss of one head, by theory."""
    contexts = SMOKE_CONTEXTS if setup.preset.name == "smoke" else None
    n = task.n_points - 1
    best = theory.optimal_window(
        task.lipschitz, task.noise_std, n, task.dim, task.link, task.frequency, contexts=contexts
    )
    return float(best.window)


def _error(setup: Setup, name: str, task: RidgeFunction, best: float) -> dict[str, float]:
    """The error of a model, and its ratio to that of one head with the best window."""
    identity = torch.eye(task.dim, dtype=torch.float64)
    unit = models.KernelUnit(best * identity)
    own = models.query_errors(setup, name, task).values
    least = models.query_errors(setup, "unit", task, unit).values
    ratio = bootstrap(lambda a, b: a / b, own, least, positive=True)
    return {"error": float(own.mean()), "ratio": ratio.value, "low": ratio.low, "high": ratio.high}


def _stand_ins(kind: str, changes: DataArray) -> list[dict[str, Any]]:
    """What each head does, and what a smoother of the labels leaves of it."""
    rows = []
    means = changes.mean("unit")
    for head in means["head"].values:
        of_head = means.sel(head=head)
        nothing = float(of_head.sel({"stand-in": NOTHING}))
        smoothed = float(of_head.sel({"stand-in": LABELS}))
        left = smoothed / nothing if nothing > 0 else 0.0
        row = {"model": kind, "head": str(head), "without": nothing, "left": left}
        rows.append(row)
    return rows


def states(results: Results) -> tuple[Statement, ...]:
    """A note a model: the slides leave these models to future work and claim nothing."""
    rows = errors.rows_of(results, "errors")
    if not rows:
        return (note("No model is here, so nothing is measured."),)
    return tuple(_note_of(results, row) for row in rows)


def _note_of(results: Results, row: Mapping[str, Any]) -> Statement:
    kind = row["model"]
    heads = errors.rows_of(results, "windows", model=kind)
    kept = errors.rows_of(results, "smoothers", model=kind)
    windows = _by_head(heads, "w", ".3g")
    left = _by_head(kept, "left", ".2g")
    fits = [one["fit"] for one in heads]
    least_fit = 100 * min(fits)
    best = heads[0]["best w"]
    return note(
        f"{kind[0].upper()}{kind[1:]}: the error is {row['ratio']:.3g} [{row['low']:.3g}, "
        f"{row['high']:.3g}] times that of one head with the best window, w = {best:.3g}. Windows "
        f"of the heads: {windows}; M explains at least {least_fit:.3g} % of the variance of the "
        f"scores. A smoother of the labels leaves {left} of what a head does. The slides leave "
        "such models to future work."
    )


def _by_head(rows: Sequence[Mapping[str, Any]], column: str, digits: str) -> str:
    """A number a head, in words."""
    return ", ".join(f"{row[column]:{digits}} (head {row['head']})" for row in rows)


def compare(results: Results) -> DataFrame | None:
    """A row a head; the slides print no numbers."""
    rows = []
    for row in errors.rows_of(results, "errors"):
        heads = errors.rows_of(results, "windows", model=row["model"])
        for head in heads:
            rows.append({**head, "error / best head's": row["ratio"]})
    return errors.as_table(rows, "w: mean eigenvalue of whitened M; deviation: |M - w I| / |w|")


BEYOND_A_HEAD_EXPERIMENT = Experiment(
    "lipschitz.beyond_a_head",
    "Several heads, layers, MLPs and positions: windows of their heads",
    f"{models.SLIDES}: Future Work",
    tuple(KINDS.values()),
    run,
    states,
    compare,
    sample=models.SAMPLE,
    sizes=SIZES,
    settings=settings.SETTINGS["beyond_a_head"],
)
