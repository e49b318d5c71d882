"""How well a predictor does on a task: its squared error, with intervals over functions."""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float
from pandas import DataFrame
from torch import nn
from xarray import DataArray

from icl_interp import resampling
from icl_interp.baselines import named, reference
from icl_interp.baselines.base import Predictor, Zero, predictions
from icl_interp.baselines.law import RELATIVE, LawMean, uninformed
from icl_interp.baselines.reference import NOTHING, REFERENCES
from icl_interp.checkpoints.config import RunConfig
from icl_interp.errors import InputError, unknown, whole
from icl_interp.models.tokens import Encoding
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.resampling import Interval, r_squared
from icl_interp.results import make_array, table_of_rows
from icl_interp.tasks.base import Scalable, Task

# Prompts drawn at once: memory stays flat however many are asked for. Draws depend on it.
CHUNK = 2048
# Prompts predicted at once. A model splits them further, to stay in the cache; of a small one, each
# call costs more than its prompts.
BATCH = 256
Arm = Literal["functions", "inputs", "both"]


@dataclass(frozen=True)
class Sample:
    """The prompts of one evaluation, drawn anew for each predictor and the same for all."""

    task: Task
    n_functions: int
    n_contexts: int
    seed: int
    last: bool = False  # score the query only
    chunk: int = CHUNK

    def __post_init__(self) -> None:
        # A chunk holds all contexts of a function; errors are kept by function and point.
        for name, most in (("n_functions", 10**6), ("n_contexts", 10**5)):
            whole(getattr(self, name), name, 1, most)
        whole(self.seed, "seed", 0)
        if self.task.n_points <= self.task.n_determining:
            raise InputError(
                f"prompts of {self.task.n_points} points leave none to score: "
                f"{self.task.n_determining} points determine the function"
            )

    @property
    def scored(self) -> slice:
        """The first n + 1 predictions are dropped.

        They are guesses (Naim & Asher 2025, section 3.3).
        """
        return slice(self.task.n_points - 1 if self.last else self.task.n_determining, None)

    def __iter__(self) -> Iterator[Prompts]:
        """Whole functions, as many as fit in a chunk."""
        step = max(1, self.chunk // self.n_contexts)
        for start in range(0, self.n_functions, step):
            n = min(step, self.n_functions - start)
            stream = generator(self.seed, "evaluation", start)
            yield self.task.sample(n, stream, n_contexts=self.n_contexts, dtype=torch.float64)

    def __str__(self) -> str:
        first = self.task.n_points if self.last else self.task.n_determining + 1
        return (
            f"mean squared error over points {first}..{self.task.n_points} of {self.n_functions} "
            f"functions x {self.n_contexts} contexts, seed {self.seed}"
        )


class PointErrors(NamedTuple):
    """What one predictor makes of a sample.

    Attributes:
        squared: mean squared error at each scored point of each function.
        predicted: whether there is a prediction at the point in any prompt.
    """

    squared: Float[np.ndarray, "function point"]
    predicted: Bool[np.ndarray, " point"]


def point_errors(predictor: Predictor, sample: Sample, at_values: bool = False) -> PointErrors:
    """Squared errors of a predictor at the scored points.

    They are means over contexts and over the coordinates of a value.

    Args:
        predictor: what predicts.
        sample: the prompts.
        at_values: whether predictions are compared with the functions' values, not with labels,
            which may have noise.
    """
    parts, predicted = (
        [],
        torch.zeros(len(range(sample.task.n_points)[sample.scored]), dtype=torch.bool),
    )
    for prompts in sample:
        pieces = (prompts[i : i + BATCH] for i in range(0, len(prompts), BATCH))
        truth = sample.task.targets(prompts.parameters, prompts.xs) if at_values else prompts.ys
        predicted_all = torch.cat([predictions(predictor, piece) for piece in pieces])
        missed = (predicted_all - truth)[:, sample.scored]
        errors = missed.square().mean(-1)
        predicted |= ~errors.isnan().all(0)
        parts.append(errors.unflatten(0, (-1, sample.n_contexts)).mean(1).numpy())
    return PointErrors(np.concatenate(parts), predicted.numpy())


def _reference(name: str, sample: Sample) -> PointErrors:
    """Errors of a reference: the same for all models, so they are computed once."""
    try:
        hash(sample)
    except TypeError:  # a task of the user's own that holds a list, say
        return _compute_reference(name, sample)
    return _kept_reference(name, sample)


def _compute_reference(name: str, sample: Sample) -> PointErrors:
    return point_errors(Zero() if name == NOTHING else REFERENCES[name](sample.task), sample)


_kept_reference = functools.lru_cache(maxsize=128)(_compute_reference)


def function_errors(
    predictors: Mapping[str, Predictor],
    task: Task,
    *,
    n_functions: int,
    n_contexts: int,
    seed: int,
    last: bool = False,
    references: bool | tuple[str, ...] = False,
) -> dict[str, Float[np.ndarray, " function"]]:
    """Mean squared error of each function, for several predictors on the same prompts.

    Points that the function is not determined by yet are not scored, nor are points at which one of
    the predictors makes no prediction in any prompt (its encoding predicts the query only, say):
    all are scored at the same points. A NaN among predictions makes the error NaN.

    Args:
        predictors: by name.
        task: what is predicted.
        n_functions: functions of the sample.
        n_contexts: prompts of each function.
        seed: of the prompts.
        last: score the query only.
        references: add the errors of the references of `evaluate`, or of these; they are kept for
            the next call.

    Returns:
        An array `(n_functions,)` for each predictor.
    """
    sample = Sample(task, n_functions, n_contexts, seed, last, CHUNK)
    added = (reference.of_task(task) if references is True else references) or ()
    found = {name: point_errors(p, sample) for name, p in predictors.items() if name not in added}
    found |= {name: _reference(name, sample) for name in added}
    return _over_points(found)


def _over_points(found: Mapping[str, PointErrors]) -> dict[str, np.ndarray]:
    """Mean errors by function over the points that all predict; NaN where there is no such point.

    A model that reads stacked prompts predicts the query alone, for example.
    """
    scored = np.logical_and.reduce([errors.predicted for errors in found.values()])
    if not scored.any():
        return {name: np.full(len(errors.squared), np.nan) for name, errors in found.items()}
    return {name: errors.squared[:, scored].mean(1) for name, errors in found.items()}


def evaluate(
    predictor: Any,
    task: Task | None = None,
    *,
    n_functions: int = 100,
    n_contexts: int = 64,
    seed: int = 0,
    last: bool = False,
    encoding: Encoding | str | None = None,
    baselines: bool = False,
) -> DataFrame:
    """Squared error of a predictor beside the best reference and the zero predictor.

    All of them see the same fresh prompts.

    Args:
        predictor: a checkpoint, its path or bundled name, a model with TransformerLens' names, or
            anything with `predict(prompts)`, a function or an estimator of scikit-learn
            (`icl_interp.predictors`). A model runs with whatever `intervene` or hooks have attached
            to it.
        task: what to evaluate on; a checkpoint's own by default.
        n_functions: functions; intervals come from resampling these.
        n_contexts: prompts of each function.
        seed: of the prompts.
        last: score the query only.
        encoding: by name ("interleaved", ...), where neither the task nor a bare model's width
            tells.
        baselines: a row for each of `baselines.classical(task)` too; those of scikit-learn fit each
            point by itself.

    Returns:
        A row a predictor: error (mean squared, over the coordinates of a value too), its 95 %
        interval, error_rate = error / |best - zero| (Naim & Asher 2025, section 3.3), and
        r2 = 1 - error / error of the law's mean E[f(x)], so that a constant that is added to all
        values changes nothing. In a centred law that is 1 - error / mean(y^2); for others there is
        a row "law mean", or "mean value" where every function is one. The best is least squares,
        under noise ridge (`baselines.reference.BestRidge`). For a task without features there is
        none and no error_rate; the note says so. Where the best is no better than zero, error_rate
        is NaN.

    Raises:
        InputError: nothing that predicts, no task, an encoding or prompts that do not fit the
            model, or a predictor that reads the label that it predicts.
    """
    if isinstance(predictor, (str, Path)):
        from icl_interp.checkpoints import store  # only here: a predictor need not be a checkpoint

        predictor = store.load(predictor, task, encoding=encoding)
    task = task or getattr(predictor, "task", None)
    if not isinstance(task, Task):
        got = "this predictor brings no task" if task is None else f"{_named(task)} is no task"
        raise InputError(f"{got}: pass task=, for example icl_interp.tasks.Polynomial(...)")
    predictor = as_predictor(predictor, task, encoding)
    sample = Sample(task, n_functions, n_contexts, seed, last)
    _check_no_leak(predictor, sample)
    size = {"n_functions": n_functions, "n_contexts": n_contexts, "seed": seed}
    others = named.classical(task) if baselines else {}
    errors = function_errors(
        {"model": predictor, **others}, task, **size, last=last, references=True
    )
    rows = [{"predictor": name, **_row(errors, name)} for name in errors]
    shown = [
        key for key in ("predictor", "error", "low", "high", "error_rate", "r2") if key in rows[0]
    ]
    note = _note(sample, errors)
    return table_of_rows([{key: row[key] for key in shown} for row in rows], note)


def _check_no_leak(predictor: Predictor, sample: Sample) -> None:
    """Refuse what reads the label that it predicts: its error would say nothing."""
    from icl_interp.checkpoints import store  # only here: a predictor need not be a checkpoint
    from icl_interp.predictors import adapters, checks

    # What an encoding shows a model, and what an estimator is fitted to, is known.
    if isinstance(predictor, store.Checkpoint):
        return
    if isinstance(predictor, adapters.Outside) and not predictor.reads_prompts:
        return
    checks.check_no_leak(predictor, next(iter(sample)))


def _note(sample: Sample, errors: Mapping[str, np.ndarray]) -> str:
    """What an evaluation was made on, and what its numbers are relative to."""
    without_best = "" if sample.task.has_features else f"; {NO_BEST}"
    relative = RELATIVE[uninformed(errors)]
    return f"{sample}; {INTERVAL}; {relative}{without_best}{reference.note(sample.task)}"


INTERVAL = "95 % studentised bootstrap over functions"
NO_BEST = "no least squares, because this task names no features in which its functions are linear"


def as_predictor(predictor: Any, task: Task, encoding: Encoding | str | None = None) -> Predictor:
    """The predictor itself, or a bare model, a function or an estimator as one.

    Raises:
        InputError: neither, prompts that do not fit a model, or an encoding for what reads prompts
            by itself.
    """
    from icl_interp.checkpoints import (
        foreign,
        store,
    )  # only here: a predictor need not be a checkpoint
    from icl_interp.predictors import adapters

    if not hasattr(predictor, "predict") or hasattr(predictor, "fit"):
        predictor = adapters.recognised(predictor) or predictor
    predicts = isinstance(predictor, Predictor) and not isinstance(predictor, type)
    if predicts and encoding is None:
        if isinstance(predictor, store.Checkpoint):
            RunConfig(
                predictor.model.cfg, task, predictor.config.encoding
            )  # refuses prompts that do not fit
        return predictor
    if predicts:
        if isinstance(predictor, store.Checkpoint):
            return foreign.as_checkpoint(predictor.model, task, encoding)
        raise InputError(
            f"encoding= is for models; a {type(predictor).__name__} reads prompts by itself"
        )
    if not isinstance(predictor, nn.Module):
        raise InputError(
            "a predictor is a Checkpoint, its folder or bundled name, a model with "
            "TransformerLens' names, or an object with predict(prompts) -> (batch, point, target), "
            "a function (xs, ys, x_query) -> y_query, or an estimator of scikit-learn, "
            f"but got {_named(predictor)}"
        )
    return foreign.as_checkpoint(predictor, task, encoding)


def _named(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def _row(errors: Mapping[str, np.ndarray], name: str) -> dict[str, float]:
    """A predictor's error, error rate and R^2.

    All that vary with the sample are resampled together.
    """
    error = resampling.bootstrap(lambda mean: mean, errors[name], positive=True)
    row = {"error": error.value, "low": error.low, "high": error.high}
    if best := reference.best_of(errors):
        row |= dict.fromkeys(("error_rate", "rate_low", "rate_high"), math.nan)
        if errors[best].mean() < errors[NOTHING].mean():  # else it is no best
            three = errors[name], errors[best], errors[NOTHING]
            rate = resampling.bootstrap(
                lambda own, best, zero: own / np.abs(best - zero), *three, positive=True
            )
            row |= {"error_rate": rate.value, "rate_low": rate.low, "rate_high": rate.high}
    square = float(errors[uninformed(errors)].mean())
    return row | {
        "r2": 1 - error.value / square if square else math.nan
    }  # labels of 0 have no variance to explain


def in_distribution(predictor: Predictor, task: Task, n_contexts: int = 8) -> dict[str, Any]:
    """A checkpoint's error on fresh prompts of its own task, as it stands in provenance files.

    Returns:
        What `evaluate` says of it, the errors of the references, and how well it learned, each with
        its 95 % interval (`_low`, `_high`): "r2", and "learned", the share of what can be explained
        that it explains (`_learned`).
    """
    predictor = as_predictor(predictor, task)
    sample = Sample(task, 256, n_contexts, 0)
    errors = function_errors(
        {"model": predictor},
        task,
        n_functions=sample.n_functions,
        n_contexts=n_contexts,
        seed=sample.seed,
        references=True,
    )
    row = _row(errors, "model")
    found = {key: row[key] for key in ("error", "low", "high", "error_rate", "r2") if key in row}
    references = {name: float(errors[name].mean()) for name in reference.of_task(task)}
    return {
        **found,
        **references,
        **_learned(predictor, sample, errors),
        "note": _note(sample, errors),
    }


def _learned(
    predictor: Predictor, sample: Sample, errors: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """R^2, and the share of the explainable variance that a predictor explains, with intervals.

    Noise in labels can be explained by nobody. Where a best predictor under noise is known, the
    share is R^2 over that one's R^2 ("best_r2"). Where it is not, but labels are seen to differ
    from values, the share is the R^2 of the values ("noise_free" is then 1). Elsewhere it is R^2
    itself.
    """
    own, nothing = errors["model"], errors[uninformed(errors)]
    found = _share("r2", own, nothing)
    best = errors.get(reference.BEST_UNDER_NOISE)
    if best is not None:
        found["best_r2"] = 1 - float(best.mean()) / float(nothing.mean())
        return found | _share("learned", own, nothing, best)
    if not _has_noise(sample):
        return found | {key.replace("r2", "learned"): value for key, value in found.items()}
    who = {"model": predictor, LawMean.name: LawMean(sample.task)}
    at_values = {name: point_errors(one, sample, at_values=True) for name, one in who.items()}
    own, nothing = _over_points(at_values).values()
    return found | _share("learned", own, nothing) | {"noise_free": 1.0}


def _share(
    name: str, own: np.ndarray, nothing: np.ndarray, best: np.ndarray | None = None
) -> dict[str, float]:
    """Where errors lie between those without examples (0) and the best ones (1), with the interval.

    The interval is over functions.
    """
    best = np.zeros_like(own) if best is None else best

    def share(own: np.ndarray, nothing: np.ndarray, best: np.ndarray) -> np.ndarray:
        return r_squared(own - best, nothing - best, empty=math.nan)

    i = resampling.bootstrap(share, own, nothing, best)
    return {name: i.value, f"{name}_low": i.low, f"{name}_high": i.high}


def _has_noise(sample: Sample) -> bool:
    """Whether scored labels differ from the values of their functions in the first prompts."""
    prompts = next(iter(sample))
    values = sample.task.targets(prompts.parameters, prompts.xs)[:, sample.scored]
    labels = prompts.ys[:, sample.scored]
    return bool((labels - values).abs().amax() > 1e-9 * labels.abs().amax())


def shifted(
    predictors: Mapping[str, Any],
    task: Task,
    sigmas: Sequence[float],
    *,
    arm: Arm = "functions",
    n_functions: int = 100,
    n_contexts: int = 64,
    seed: int = 0,
) -> DataArray:
    """Errors under a shift: functions, inputs or both scaled by each of `sigmas`.

    The protocol of Naim & Asher (2025), section 3.3: N = 100 functions, N_b = 64 batches, one seed
    for all models, the first n + 1 predictions dropped. Draws are scaled and not drawn anew, so
    functions are paired over predictors, over sigmas and over separate calls.

    Errors are means over the scored points. Formula (3) of the paper divides their sum by N_p = 41,
    scored or not; what its tables hold seems to be the mean, too. Its reference f = 0 (Table 2,
    over ten sigmas) is .97, .97, .98, .98 and 1.00 times E f^2 for degrees 1 to 5, with a standard
    error of .023 that the degrees share. Sums of 41 - (n + 1) points over 41 would be .95 falling
    to .85: excluded. If 2 points are dropped at every degree, as (3) has it, sums over 41 would be
    .95 throughout, which these numbers do not exclude; a factor of 1.05 is what hangs on it.

    Args:
        predictors: by name; the references of `evaluate` are added.
        task: at sigma 1; prompts have its length, which no checkpoint among the predictors may be
            too short for.
        sigmas: factors of the coefficients, the inputs or both.
        arm: what sigma scales.
        n_functions: functions of the sample.
        n_contexts: prompts of each function.
        seed: of the prompts.

    Returns:
        Mean squared error of each function, (predictor, sigma, function).
    """
    if arm not in get_args(Arm):
        raise unknown("arm", arm, get_args(Arm))
    scalable = _check(predictors, task, sigmas)
    predictors = {name: as_predictor(predictor, task) for name, predictor in predictors.items()}
    columns, references = [], reference.of_task(task)  # the same ones at every sigma
    for sigma in sigmas:
        factors = {name: float(sigma) for name in ("functions", "inputs") if arm in (name, "both")}
        columns.append(
            function_errors(
                predictors,
                scalable.scaled(**factors),
                n_functions=n_functions,
                n_contexts=n_contexts,
                seed=seed,
                references=references,
            )
        )
    axes = {
        "predictor": tuple(columns[0]),
        "sigma": tuple(map(float, sigmas)),
        "function": tuple(range(n_functions)),
    }
    sample = Sample(task, n_functions, n_contexts, seed)
    note = f"{sample}; sigma scales {arm if arm != 'both' else 'functions and inputs'}"
    return make_array(
        [[column[name] for column in columns] for name in columns[0]], axes, note=note
    )


def heatmap(
    predictor: Any,
    task: Task,
    sigmas: Sequence[float],
    *,
    n_functions: int = 100,
    n_contexts: int = 64,
    seed: int = 0,
) -> DataArray:
    """Errors of one predictor with inputs and functions scaled separately.

    The axes are (inputs, functions, function).

    Source: Naim & Asher (2025), Figure 7.
    """
    scalable = _check({"model": predictor}, task, sigmas)
    predictors = {"model": as_predictor(predictor, task)}

    def errors(of: float, at: float) -> Float[np.ndarray, " function"]:
        shifted_task = scalable.scaled(functions=of, inputs=at)
        return function_errors(
            predictors, shifted_task, n_functions=n_functions, n_contexts=n_contexts, seed=seed
        )["model"]

    rows = [[errors(of, at) for of in sigmas] for at in sigmas]
    axes = {
        "inputs": tuple(sigmas),
        "functions": tuple(sigmas),
        "function": tuple(range(n_functions)),
    }
    return make_array(
        rows,
        axes,
        note=f"{Sample(task, n_functions, n_contexts, seed)}; inputs and functions scaled apart",
    )


def _check(predictors: Mapping[str, Any], task: Task, sigmas: Sequence[float]) -> Scalable:
    """The task, if it can be shifted and no model was trained on shorter prompts only."""
    if not isinstance(task, Scalable):
        raise InputError(
            f"a shift scales functions and inputs, which a {type(task).__name__} task cannot"
        )
    if not len(sigmas) or not all(math.isfinite(sigma) and sigma > 0 for sigma in sigmas):
        raise InputError(f"sigmas must be positive numbers, at least one, but got {list(sigmas)}")
    for name, predictor in predictors.items():
        kind = REFERENCES.get(name)
        if kind and not isinstance(predictor, kind):
            raise InputError(
                f"{name!r} is the name of a reference that is added by itself: choose another one"
            )
        # Baselines bring a task for its features, a checkpoint brings the one that it was trained
        # on.
        trained = (
            predictor.task.n_points
            if hasattr(predictor, "model") and hasattr(predictor, "task")
            else math.inf
        )
        if task.n_points > trained:
            raise InputError(
                f"{name!r} was trained on prompts of {trained} points, but the task has "
                f"{task.n_points}: pass task.with_points({trained})"
            )
    return task


def error_table(errors: DataArray) -> DataFrame:
    """The errors from `shifted` as a table with a row for each predictor and sigma.

    It holds epsilon_sigma and the error rate with their intervals, and R^2.

    error_rate = epsilon / |epsilon_best - epsilon_0|, where there is a best: 0 is as good as that,
    1 as bad as predicting 0 (Naim & Asher 2025, section 3.3). r2 = 1 - epsilon / epsilon of the
    law's mean, as in `evaluate`.
    """
    rows = []
    for name in errors.indexes["predictor"]:
        for sigma in errors.indexes["sigma"]:
            known = {name} | ({*REFERENCES} & {*errors.indexes["predictor"]})
            at_sigma = {p: errors.sel(predictor=p, sigma=sigma).values for p in known}
            rows.append({"predictor": name, "sigma": sigma, **_row(at_sigma, name)})
    relative = RELATIVE[uninformed(errors.indexes["predictor"])]
    return table_of_rows(rows, f"{errors.attrs['note']}; {INTERVAL}; {relative}")


def paired_ratio(errors: DataArray, a: str, b: str, sigma: float) -> Interval:
    """log10 of the ratio of two predictors' mean errors, paired by function.

    It is below 0 where `a` is the better predictor.
    """
    first, second = (_errors_at(errors, name, sigma) for name in (a, b))
    tiny = np.finfo(float).tiny  # errors of exactly 0
    return resampling.bootstrap(
        lambda x, y: np.log10(np.maximum(x, tiny) / np.maximum(y, tiny)), first, second
    )


def _errors_at(errors: DataArray, predictor: str, sigma: float) -> np.ndarray:
    """Errors of one predictor at one sigma, by function."""
    for axis, value in (("predictor", predictor), ("sigma", float(sigma))):
        if value not in errors.indexes[axis]:
            raise unknown(axis, value, map(str, errors.indexes[axis]))
    return errors.sel(predictor=predictor, sigma=float(sigma)).values
