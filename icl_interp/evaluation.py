"""How well any predictor does on any task: squared error over scored points, with intervals over functions."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from icl_interp import baselines, resampling
from icl_interp.baselines import Predictor
from icl_interp.errors import InputError
from icl_interp.provenance import generator
from icl_interp.results import Table
from icl_interp.tasks.base import Task

CHUNK = 2048  # prompts at once: memory stays flat however many are asked for


def function_errors(
    predictors: dict[str, Predictor], task: Task, *, n_functions: int, n_contexts: int, seed: int, last: bool = False
) -> dict[str, np.ndarray]:
    """Mean squared error of each function, for several predictors on the same prompts.

    Points that the function is not determined by yet are not scored (Naim & Asher 2025, section 3.3: the first n + 1
    predictions are dropped), nor are points that one of the predictors leaves at NaN.

    Args:
        last: score the query only.

    Returns:
        An array `(n_functions,)` for each predictor; "second moment" holds the mean of y^2, for R^2.
    """
    scored = slice(task.n_points - 1 if last else task.n_determining, None)
    if task.n_points <= task.n_determining:
        raise InputError(
            f"prompts of {task.n_points} points leave none to score: {task.n_determining} points determine the function"
        )
    rows: dict[str, list[np.ndarray]] = {name: [] for name in [*predictors, "second moment"]}
    chunk = max(1, CHUNK // n_contexts)
    for start in range(0, n_functions, chunk):
        n = min(chunk, n_functions - start)
        prompts = task.sample(n, generator(seed, "evaluation", start), n_contexts=n_contexts, dtype=torch.float64)
        truth = prompts.ys[:, scored]
        errors = {
            name: (predictor.predict(prompts)[:, scored].double().cpu() - truth).square()
            for name, predictor in predictors.items()
        }
        # Where one makes no prediction nobody is scored: all rows are about the same points.
        unscored = torch.stack([error.isnan() for error in errors.values()]).any(0)
        errors["second moment"] = truth.square()
        for name, error in errors.items():
            per_prompt = error.masked_fill(unscored, torch.nan).nanmean(-1)
            rows[name].append(per_prompt.view(n, n_contexts).mean(-1).numpy())
    return {name: np.concatenate(parts) for name, parts in rows.items()}


def evaluate(
    predictor: Predictor | str | Path,
    task: Task | None = None,
    *,
    n_functions: int = 100,
    n_contexts: int = 64,
    seed: int = 0,
) -> Table:
    """Squared error of a predictor beside least squares and the zero predictor, on the same fresh prompts.

    Args:
        predictor: a checkpoint, its path or bundled name, or anything with `predict(prompts)`.
        task: what to evaluate on; a checkpoint's own by default.
        n_functions: functions; intervals come from resampling these.
        n_contexts: prompts of each function.
        seed: of the prompts.

    Returns:
        A row a predictor: error (mean squared), its 95 % interval, error_rate = error / |best - zero| (Naim & Asher
        2025, section 3.3), and r2 = 1 - error / mean(y^2).
    """
    if isinstance(predictor, (str, Path)):
        from icl_interp.checkpoints import store  # only here: a predictor need not be a checkpoint

        predictor = store.load(predictor)
    task = task or getattr(predictor, "task", None)
    if task is None:
        raise InputError("this predictor brings no task: pass task=, for example icl_interp.tasks.Polynomial(...)")
    references = {"least squares": baselines.LeastSquares(task), "zero": baselines.Zero()}
    errors = function_errors(
        {"model": predictor, **references}, task, n_functions=n_functions, n_contexts=n_contexts, seed=seed
    )
    second = errors.pop("second moment")
    intervals = {name: resampling.bootstrap(lambda m: m, values) for name, values in errors.items()}
    best, zero = intervals["least squares"].value, intervals["zero"].value
    return Table(
        {
            "predictor": list(intervals),
            "error": [i.value for i in intervals.values()],
            "low": [i.low for i in intervals.values()],
            "high": [i.high for i in intervals.values()],
            "error_rate": [i.value / abs(best - zero) for i in intervals.values()],
            "r2": [1 - i.value / float(second.mean()) for i in intervals.values()],
        },
        note=f"mean squared error over points {task.n_determining + 1}..{task.n_points} of {n_functions} functions x "
        f"{n_contexts} contexts, seed {seed}; 95 % cluster bootstrap over functions",
    )


def in_distribution(predictor: Predictor, task: Task) -> dict[str, Any]:
    """A checkpoint's error on fresh prompts of its own task, as it stands in provenance files."""
    table = evaluate(predictor, task, n_functions=256, n_contexts=8)
    row = table.row(predictor="model")
    references = {name: table.row(predictor=name)["error"] for name in ("least squares", "zero")}
    return {**{k: v for k, v in row.items() if k != "predictor"}, **references, "note": table.note}
