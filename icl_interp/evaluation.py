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
from torch import Tensor
from xarray import DataArray

from icl_interp import resampling
from icl_interp.baselines import named, reference
from icl_interp.baselines.base import Predictor, Zero, predictions
from icl_interp.baselines.law import RELATIVE, LawMean, uninformed
from icl_interp.baselines.reference import NOTHING, REFERENCES
from icl_interp.baselines.scores import error_scores, explained
from icl_interp.checkpoints import store
from icl_interp.errors import InputError, unknown, whole
from icl_interp.models.tokens import Encoding
from icl_interp.predictors import adapters, checks
from icl_interp.predictors.conversion import as_predictor, described
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.resampling import Interval
from icl_interp.results import make_array, table_of_rows
from icl_interp.tasks.base import Scalable, Task

# Prompts drawn at once: memory stays flat however many are asked for. Draws depend on it.
CHUNK = 2048
# Prompts predicted at once. A model splits them further, to stay in the cache; of a small one, each
# call costs more than its prompts.
BATCH = 256
Arm = Literal["functions", "inputs", "both"]
SHOWN = ("error", "low", "high", "error_rate", "r2")  # of all scores, those that are shown
INTERVAL = "95 % studentised bootstrap over functions"
NO_BEST = "no least squares, because this task names no features in which its functions are linear"


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
        whole(self.n_functions, "n_functions", 1, 10**6)
        whole(self.n_contexts, "n_contexts", 1, 10**5)
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
        first = self.task.n_points - 1 if self.last else self.task.n_determining
        return slice(first, None)

    def __iter__(self) -> Iterator[Prompts]:
        """Whole functions, as many as fit in a chunk."""
        step = max(1, self.chunk // self.n_contexts)
        for start in range(0, self.n_functions, step):
            n = min(step, self.n_functions - start)
            stream = generator(self.seed, "evaluation", start)
            yield self.task.sample(n, stream, n_contexts=self.n_contexts, dtype=torch.float64)

    def __str__(self) -> str:
        first = self.scored.start + 1
        points = f"points {first}..{self.task.n_points}"
        prompts = f"{self.n_functions} functions x {self.n_contexts} contexts"
        return f"mean squared error over {points} of {prompts}, seed {self.seed}"


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
    task = sample.task
    scored_points = range(task.n_points)[sample.scored]
    predicted = torch.zeros(len(scored_points), dtype=torch.bool)
    squared = []
    for prompts in sample:
        truth = task.targets(prompts.parameters, prompts.xs) if at_values else prompts.ys
        missed = _predictions(predictor, prompts) - truth
        errors = missed[:, sample.scored].square().mean(-1)
        predicted |= ~errors.isnan().all(0)
        by_function = errors.unflatten(0, (-1, sample.n_contexts))
        squared.append(by_function.mean(1).numpy())
    return PointErrors(np.concatenate(squared), predicted.numpy())


def _predictions(predictor: Predictor, prompts: Prompts) -> Float[Tensor, "batch point target"]:
    """Predictions of all prompts, a batch after the other."""
    parts = []
    for start in range(0, len(prompts), BATCH):
        batch = prompts[start : start + BATCH]
        parts.append(predictions(predictor, batch))
    return torch.cat(parts)


def _reference(name: str, sample: Sample) -> PointErrors:
    """Errors of a reference: the same for all models, so they are computed once."""
    try:
        hash(sample)
    except TypeError:  # a task of the user's own that holds a list, say
        return _compute_reference(name, sample)
    return _kept_reference(name, sample)


def _compute_reference(name: str, sample: Sample) -> PointErrors:
    predictor = Zero() if name == NOTHING else REFERENCES[name](sample.task)
    return point_errors(predictor, sample)


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
    added: tuple[str, ...] = ()
    if references is True:
        added = reference.of_task(task)
    elif references:
        added = references

    found = {}
    for name, predictor in predictors.items():
        # A reference of the same name is computed once for all models.
        if name not in added:
            found[name] = point_errors(predictor, sample)
    for name in added:
        found[name] = _reference(name, sample)
    return _over_points(found)


def _over_points(found: Mapping[str, PointErrors]) -> dict[str, np.ndarray]:
    """Mean errors by function over the points that all predict; NaN where there is no such point.

    A model that reads stacked prompts predicts the query alone, for example.
    """
    predicted = [errors.predicted for errors in found.values()]
    scored = np.logical_and.reduce(predicted)
    any_scored = bool(scored.any())
    means = {}
    for name, errors in found.items():
        if any_scored:
            means[name] = errors.squared[:, scored].mean(1)
        else:
            means[name] = np.full(len(errors.squared), np.nan)
    return means


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
        predictor = store.load(predictor, task, encoding=encoding)
    task = task or getattr(predictor, "task", None)
    if not isinstance(task, Task):
        got = "this predictor brings no task" if task is None else f"{described(task)} is no task"
        raise InputError(f"{got}: pass task=, for example icl_interp.tasks.Polynomial(...)")
    predictor = as_predictor(predictor, task, encoding)
    sample = Sample(task, n_functions, n_contexts, seed, last)
    _check_no_leak(predictor, sample)

    # All predictors are scored at the same points, so they are evaluated in one call.
    compared: dict[str, Predictor] = {"model": predictor}
    if baselines:
        compared |= named.classical(task)
    errors = function_errors(
        compared,
        task,
        n_functions=n_functions,
        n_contexts=n_contexts,
        seed=seed,
        last=last,
        references=True,
    )
    rows = []
    for name in errors:
        scores = error_scores(errors, name)
        rows.append({"predictor": name, **_shown(scores)})
    return table_of_rows(rows, _note(sample, errors))


def _shown(scores: Mapping[str, float]) -> dict[str, float]:
    """The scores that tables and provenance files hold, as far as they are known."""
    return {name: scores[name] for name in SHOWN if name in scores}


def _check_no_leak(predictor: Predictor, sample: Sample) -> None:
    """Refuse what reads the label that it predicts: its error would say nothing."""
    # What an encoding shows a model, and what an estimator is fitted to, is known.
    if isinstance(predictor, store.Checkpoint):
        return
    if isinstance(predictor, adapters.Outside) and not predictor.reads_prompts:
        return
    checks.check_no_leak(predictor, next(iter(sample)))


def _note(sample: Sample, errors: Mapping[str, np.ndarray]) -> str:
    """What an evaluation was made on, and what its numbers are relative to."""
    says = f"{sample}; {INTERVAL}; {RELATIVE[uninformed(errors)]}"
    if not sample.task.has_features:
        says += f"; {NO_BEST}"
    return says + reference.note(sample.task)


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
    means = {name: float(errors[name].mean()) for name in reference.of_task(task)}
    return {
        **_shown(error_scores(errors, "model")),
        **means,
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
    own = errors["model"]
    nothing = errors[uninformed(errors)]
    found = explained("r2", own, nothing)

    # Under noise that is known, the best predictor explains what can be explained.
    best = errors.get(reference.BEST_UNDER_NOISE)
    if best is not None:
        best_share = float(best.mean()) / float(nothing.mean())
        found["best_r2"] = 1 - best_share
        return found | explained("learned", own, nothing, best)

    # Without noise everything can be explained, and the share is R^2.
    if not _has_noise(sample):
        for end in ("", "_low", "_high"):
            found[f"learned{end}"] = found[f"r2{end}"]
        return found

    # Else values are compared with values, which have no noise.
    at_values = {
        "model": point_errors(predictor, sample, at_values=True),
        LawMean.name: point_errors(LawMean(sample.task), sample, at_values=True),
    }
    own, nothing = _over_points(at_values).values()
    found |= explained("learned", own, nothing)
    found["noise_free"] = 1.0
    return found


def _has_noise(sample: Sample) -> bool:
    """Whether scored labels differ from the values of their functions in the first prompts."""
    prompts = next(iter(sample))
    values = sample.task.targets(prompts.parameters, prompts.xs)
    labels = prompts.ys[:, sample.scored]
    noise = labels - values[:, sample.scored]
    rounding = 1e-9 * labels.abs().amax()
    return bool(noise.abs().amax() > rounding)


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
    references = reference.of_task(task)  # the same ones at every sigma
    by_sigma = []
    for sigma in sigmas:
        factors = {}
        if arm in ("functions", "both"):
            factors["functions"] = float(sigma)
        if arm in ("inputs", "both"):
            factors["inputs"] = float(sigma)
        errors = function_errors(
            predictors,
            scalable.scaled(**factors),
            n_functions=n_functions,
            n_contexts=n_contexts,
            seed=seed,
            references=references,
        )
        by_sigma.append(errors)

    # From a dictionary for each sigma to an array (predictor, sigma, function).
    names = tuple(by_sigma[0])
    by_predictor = []
    for name in names:
        by_predictor.append([errors[name] for errors in by_sigma])
    axes = {
        "predictor": names,
        "sigma": tuple(map(float, sigmas)),
        "function": tuple(range(n_functions)),
    }
    sample = Sample(task, n_functions, n_contexts, seed)
    scaled = "functions and inputs" if arm == "both" else arm
    return make_array(by_predictor, axes, note=f"{sample}; sigma scales {scaled}")


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

    rows = []
    for of_inputs in sigmas:
        row = []
        for of_functions in sigmas:
            shifted_task = scalable.scaled(functions=of_functions, inputs=of_inputs)
            errors = function_errors(
                predictors, shifted_task, n_functions=n_functions, n_contexts=n_contexts, seed=seed
            )
            row.append(errors["model"])
        rows.append(row)

    axes = {
        "inputs": tuple(sigmas),
        "functions": tuple(sigmas),
        "function": tuple(range(n_functions)),
    }
    sample = Sample(task, n_functions, n_contexts, seed)
    return make_array(rows, axes, note=f"{sample}; inputs and functions scaled apart")


def _check(predictors: Mapping[str, Any], task: Task, sigmas: Sequence[float]) -> Scalable:
    """The task, if it can be shifted and no model was trained on shorter prompts only."""
    if not isinstance(task, Scalable):
        raise InputError(
            f"a shift scales functions and inputs, which a {type(task).__name__} task cannot"
        )
    positive = all(math.isfinite(sigma) and sigma > 0 for sigma in sigmas)
    if not len(sigmas) or not positive:
        raise InputError(f"sigmas must be positive numbers, at least one, but got {list(sigmas)}")
    for name, predictor in predictors.items():
        kind = REFERENCES.get(name)
        if kind and not isinstance(predictor, kind):
            raise InputError(
                f"{name!r} is the name of a reference that is added by itself: choose another one"
            )
        # Baselines bring a task for its features; only a checkpoint was trained on the one that it
        # brings.
        if not (hasattr(predictor, "model") and hasattr(predictor, "task")):
            continue
        trained = predictor.task.n_points
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
    names = errors.indexes["predictor"]
    references = set(REFERENCES).intersection(names)
    rows = []
    for name in names:
        for sigma in errors.indexes["sigma"]:
            at_sigma = {}
            for known in references | {name}:
                at_sigma[known] = errors.sel(predictor=known, sigma=sigma).values
            scores = error_scores(at_sigma, name)
            rows.append({"predictor": name, "sigma": sigma, **scores})
    relative = RELATIVE[uninformed(names)]
    return table_of_rows(rows, f"{errors.attrs['note']}; {INTERVAL}; {relative}")


def paired_ratio(errors: DataArray, a: str, b: str, sigma: float) -> Interval:
    """log10 of the ratio of two predictors' mean errors, paired by function.

    It is below 0 where `a` is the better predictor.
    """
    tiny = np.finfo(float).tiny  # in the place of errors of exactly 0

    def log_ratio(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.log10(np.maximum(x, tiny) / np.maximum(y, tiny))

    first = _errors_at(errors, a, sigma)
    second = _errors_at(errors, b, sigma)
    return resampling.bootstrap(log_ratio, first, second)


def _errors_at(errors: DataArray, predictor: str, sigma: float) -> np.ndarray:
    """Errors of one predictor at one sigma, by function."""
    place = {"predictor": predictor, "sigma": float(sigma)}
    for axis, value in place.items():
        if value not in errors.indexes[axis]:
            raise unknown(axis, value, map(str, errors.indexes[axis]))
    return errors.sel(place).values
