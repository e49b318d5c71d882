"""How well any predictor does on any task: squared error over scored points, with intervals over functions."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from icl_interp import resampling
from icl_interp.baselines.base import Predictor, Zero
from icl_interp.baselines.regression import LeastSquares
from icl_interp.errors import InputError
from icl_interp.provenance import generator
from icl_interp.resampling import Interval
from icl_interp.results import Matrix, Table
from icl_interp.tasks.base import Task

CHUNK = 2048  # prompts at once: memory stays flat however many are asked for
Arm = Literal["functions", "inputs", "both"]


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
    references = {"least squares": LeastSquares(task), "zero": Zero()}
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


def shifted(
    predictors: Mapping[str, Predictor],
    task: Task,
    sigmas: Sequence[float],
    *,
    arm: Arm = "functions",
    n_functions: int = 100,
    n_contexts: int = 64,
    seed: int = 0,
) -> Matrix:
    """Errors under a shift: functions, inputs or both scaled by each of `sigmas`.

    The protocol of Naim & Asher (2025), section 3.3: N = 100 functions, N_b = 64 batches, one seed for all models.
    Draws are scaled and not drawn anew, so functions are paired over predictors, over sigmas and over separate calls.
    Errors are means over the scored points. The paper's formula (3) divides their sum by N_p, scored or not, but its
    own reference f = 0 does not: .46 for degree 1 at sigma 1, where E f^2 = 4/9 and 39/41 of it would be .42.

    Args:
        predictors: by name; "least squares" and "zero" are added.
        task: at sigma 1; prompts have its length.
        sigmas: factors of the coefficients, the inputs or both.

    Returns:
        Mean squared error of each function, (predictor, sigma, function).
    """
    if not hasattr(task, "scaled"):
        raise InputError(f"a shift scales functions and inputs, which a {type(task).__name__} task cannot")
    columns = []
    for sigma in sigmas:
        factors = {name: float(sigma) for name in ("functions", "inputs") if arm in (name, "both")}
        columns.append(_errors(predictors, task.scaled(**factors), n_functions, n_contexts, seed))
    axes = {"predictor": tuple(columns[0]), "sigma": tuple(map(float, sigmas)), "function": tuple(range(n_functions))}
    note = (
        f"mean squared error over points {task.n_determining + 1}..{task.n_points}, {n_contexts} contexts a function, "
        f"seed {seed}; sigma scales {arm if arm != 'both' else 'functions and inputs'}"
    )
    return Matrix([[column[name] for column in columns] for name in columns[0]], axes, note=note)


def heatmap(
    predictor: Predictor,
    task: Task,
    sigmas: Sequence[float],
    *,
    n_functions: int = 100,
    n_contexts: int = 64,
    seed: int = 0,
) -> Matrix:
    """Errors of one predictor with inputs and functions scaled apart: (inputs, functions, function).

    Source: Naim & Asher (2025), Figure 7, whose two axes are the diagonal of this one: D_I = D_F = U(-sigma, sigma).
    """
    rows = [
        [
            function_errors(
                {"model": predictor}, task.scaled(functions=of, inputs=at), n_functions=n_functions,
                n_contexts=n_contexts, seed=seed,
            )["model"]
            for of in sigmas
        ]
        for at in sigmas
    ]  # fmt: skip
    axes = {"inputs": tuple(sigmas), "functions": tuple(sigmas), "function": tuple(range(n_functions))}
    return Matrix(rows, axes, note=f"mean squared error, {n_contexts} contexts a function, seed {seed}")


def _errors(
    predictors: Mapping[str, Predictor], task: Task, n_functions: int, n_contexts: int, seed: int
) -> dict[str, np.ndarray]:
    """Errors of each function: the predictors', least squares' and zero's."""
    references = {"least squares": LeastSquares(task), "zero": Zero()}
    errors = function_errors(
        {**predictors, **references}, task, n_functions=n_functions, n_contexts=n_contexts, seed=seed
    )
    errors.pop("second moment")
    return errors


def error_table(errors: Matrix) -> Table:
    """`shifted`'s errors as rows of predictor and sigma: epsilon_sigma with its interval, and the error rate.

    error_rate = epsilon / |epsilon_LS - epsilon_0|: 0 is as good as least squares, 1 as bad as predicting 0 (Naim &
    Asher 2025, section 3.3).
    """
    columns: dict[str, list[Any]] = {key: [] for key in ("predictor", "sigma", "error", "low", "high", "error_rate")}
    for name in errors.axes["predictor"]:
        for sigma in errors.axes["sigma"]:
            found = resampling.bootstrap(lambda mean: mean, errors.at(predictor=name, sigma=sigma))
            best, zero = (errors.at(predictor=p, sigma=sigma).mean() for p in ("least squares", "zero"))
            row = (name, sigma, found.value, found.low, found.high, found.value / abs(best - zero))
            for key, value in zip(columns, row, strict=True):
                columns[key].append(value)
    return Table(columns, note=errors.note + "; 95 % cluster bootstrap over functions")


def paired_ratio(errors: Matrix, a: str, b: str, sigma: float) -> Interval:
    """log10 of the ratio of two predictors' mean errors, paired by function: below 0 where `a` is the better one."""
    first, second = (errors.at(predictor=name, sigma=float(sigma)) for name in (a, b))
    return resampling.bootstrap(lambda x, y: np.log10(x / y), first, second)
