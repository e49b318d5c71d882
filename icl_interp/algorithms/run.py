"""The one call, `algorithm`: a model, rivals tuned on half of the functions, judged on the rest."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.adapters.adapted import Adapted
from icl_interp.algorithms import designs
from icl_interp.algorithms.distances import (
    NEGLIGIBLE,
    Distances,
    distances,
    further,
    hat_distances,
    sample,
)
from icl_interp.algorithms.report import AlgorithmReport
from icl_interp.algorithms.rivals import Rival, rivals
from icl_interp.algorithms.subject import Subject, hat_rows_of, said_by
from icl_interp.baselines.base import Predictor
from icl_interp.checkpoints import foreign, store
from icl_interp.errors import InputError, logger, whole
from icl_interp.models.tokens import Encoding
from icl_interp.predictors import adapters
from icl_interp.probes import read_outs
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.results import make_array, table_of_rows
from icl_interp.tasks.base import Task

FEWEST, MOST = 512, 2048  # functions of a half
FEW = 256  # ... of a large model, and of a predictor without weights, which may fit for each prompt
N_HAT = 128  # functions whose hat rows are compared
N_SIDE = 256  # ... that distances by length and by layer are over
MOST_DESIGNS = 3  # rivals that are told from the nearest one by prompts of their own
STATISTICS = ("value", "low", "high")
log = logger(__name__)

Queries = Float[Tensor, "batch target"]


def algorithm(
    checkpoint: Any,
    task: Task | None = None,
    *,
    n_functions: int | None = None,
    seed: int = 0,
    encoding: Encoding | str | None = None,
    n_heads: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> AlgorithmReport:
    """Which algorithm a model runs, as far as a sample can tell.

    Rivals (descent with some numbers of steps, Newton's iteration, conjugate gradients, ridge
    regression, Bayes predictors, kernels, neighbours, ...) get the parameters with which they are
    nearest to the model on half of the functions. On the other half their distance from it is
    measured, D(f, g) = E (f - g)^2 / Var f, with intervals that hold for all rivals at once. A
    rival is excluded where it is further from the model than the nearest one, beyond chance; the
    others cannot be told apart by this sample, and prompts are searched for that can.

    Args:
        checkpoint: what `icl_interp.analyze` takes: a model in any form, or a predictor.
        task: for what brings none; it replaces a checkpoint's own.
        n_functions: of both halves together, one prompt each; by default 1,024 to 4,096, more for
            more features, and 512 for large models and predictors without weights.
        seed: of the prompts.
        encoding: as for `load`.
        n_heads: as for `load`.
        settings: as for `load`.

    Raises:
        InputError: no model or predictor, no task, one function only, predictions that are not
            finite or do not vary.

    >>> import icl_interp
    >>> from icl_interp.models.constructed import descent
    >>> task = icl_interp.tasks.LinearRegression(n_dims=2, n_points=9)
    >>> report = icl_interp.algorithm(descent(9, (0.4, 0.4), 2), task, encoding="stacked")
    >>> report.nearest.startswith("descent, 2 steps"), bool(report.distance["least squares"] > 0.05)
    (True, True)
    """
    started = time.perf_counter()
    subject, task = _opened(checkpoint, task, encoding, n_heads, settings)
    half = _half(subject, task, n_functions)
    seed = whole(seed, "seed", 0)
    draw = generator(seed, "algorithms/functions")
    prompts = task.sample(2 * half, draw, dtype=torch.float64)
    tuning, judging = prompts[:half], prompts[half:]
    notes = _notes(subject, task)

    # Rivals are tuned on the first half, and all that follows is about the second.
    own = subject.answers(judging)
    known, said, left_out = _tuned(rivals(task, subject.n_layers), subject, tuning, judging)
    notes += left_out
    queries = _at(said, -1)
    taken = sample(own, queries)
    found = distances(taken)
    nearest = int(np.nanargmin(found.value))
    more = further(taken, nearest)
    hats = _hats(subject, known, judging[:N_HAT], notes)
    rows = _rows(known, found, more, hats)
    few = {name: each[:N_SIDE] for name, each in said.items()}
    by_length = _by_length(subject, judging[:N_SIDE], few)
    by_layer = _by_layer(subject, task, tuning, judging[:N_SIDE], own[:N_SIDE], few)

    # What the sample cannot tell from the nearest rival gets prompts that can.
    names = list(known)
    separate = _separator(subject, task, known, seed)
    tried = []
    for row in sorted(rows, key=_distance):
        name = row["rival"]
        tied = not row["excluded"] and name != names[nearest]
        if tied and len(tried) < MOST_DESIGNS:
            tried.append(separate(names[nearest], name))
    return AlgorithmReport(
        name=subject.name,
        table=table_of_rows(sorted(rows, key=_distance), _how(half, seed)),
        by_length=by_length,
        by_layer=by_layer,
        designs=tuple(tried),
        error=_relative_error(own, task, judging),
        notes=tuple(notes),
        seconds=time.perf_counter() - started,
        separate=separate,
    )


def _distance(row: Mapping[str, Any]) -> float:
    return float(row["D"])


def _at(said: Mapping[str, Tensor], point: int) -> list[Queries]:
    """What rivals say at one point."""
    return [each[:, point] for each in said.values()]


def _opened(
    checkpoint: Any,
    task: Task | None,
    encoding: Encoding | str | None,
    n_heads: int | None,
    settings: Mapping[str, Any] | None,
) -> tuple[Subject, Task]:
    """The model or predictor, and its task."""
    outside = adapters.recognised(checkpoint)
    if outside is not None:
        adapted = checkpoint if isinstance(checkpoint, Adapted) else None
        if task is None and adapted is not None:
            task = adapted.task
        if not isinstance(task, Task):
            raise InputError(
                "a predictor brings no task: pass task=, for example LinearRegression(...)"
            )
        return Subject(outside, outside.name, adapted=adapted), _checked(task)
    foreign.check_intact(checkpoint, "algorithm")
    loaded = store.load(checkpoint, task, encoding=encoding, n_heads=n_heads, settings=settings)
    return Subject(loaded, loaded.name, loaded), _checked(loaded.task)


def _checked(task: Task) -> Task:
    if task.single_function:
        raise InputError(
            "every prompt of this task has the same function, which a model can keep in its "
            "weights: no algorithm can be told from such prompts; pass a task= with many functions"
        )
    if task.autoregressive:
        raise InputError(
            f"values of a {type(task).__name__} are its next inputs, for which there are no rivals "
            "here: the study autoregression has the algorithms of paths"
        )
    return task


def _half(subject: Subject, task: Task, n_functions: int | None) -> int:
    """Functions of a half: more where more numbers are fitted."""
    if n_functions is not None:
        return whole(n_functions, "n_functions", 64, 10**5) // 2
    if subject.is_large or not subject.has_weights:
        return FEW
    return int(np.clip(4 * task.n_determining**2, FEWEST, MOST))


def _notes(subject: Subject, task: Task) -> list[str]:
    """What is left out, or to be known, in a line each."""
    found = []
    if not task.has_features:
        found.append("functions are linear in no fixed features: regressions are on the inputs")
    if not subject.has_weights:
        found.append("a predictor without weights: hat rows and layers are left out")
    elif subject.n_layers is None:
        found.append("nobody named the stream, residual=[...] of adapt: layers are left out")
    if subject.has_weights and task.n_targets > 1:
        found.append("values are vectors: hat rows are left out")
    if subject.one_length:
        found.append("the model predicts the last point alone: shorter prompts may be new to it")
    return found


def _tuned(
    all_rivals: list[Rival], subject: Subject, tuning: Prompts, judging: Prompts
) -> tuple[dict[str, tuple[Rival, Predictor]], dict[str, Tensor], list[str]]:
    """Tuned rivals with their predictions at every point; and which are left out, why."""
    # A rival that cannot be tuned, or overflows, is left out with its reason.
    answers = subject.answers(tuning)
    known: dict[str, tuple[Rival, Predictor]] = {}
    said: dict[str, Tensor] = {}
    left_out = []
    for rival in all_rivals:
        try:
            predictor = rival.tune(tuning, answers)
            predicted = said_by(predictor, judging)
        except InputError as error:
            left_out.append(f"{rival.name} is left out: {error}")
            continue
        if not bool(torch.isfinite(predicted).all()):
            left_out.append(f"{rival.name} is left out: its predictions are not finite")
            continue
        known[rival.name] = rival, predictor
        said[rival.name] = predicted
    return known, said, left_out


def _hats(
    subject: Subject,
    known: Mapping[str, tuple[Rival, Predictor]],
    prompts: Prompts,
    notes: list[str],
) -> Distances | None:
    """Distances of hat rows; None where there are none."""
    if not subject.has_weights or prompts.n_targets > 1:
        return None
    own = subject.hat_rows(prompts)
    theirs = [hat_rows_of(predictor, prompts, one.linear) for one, predictor in known.values()]
    try:
        return hat_distances(own, theirs)
    except InputError as error:
        notes.append(f"hat rows are left out: {error}")
        return None


def _rows(
    known: Mapping[str, tuple[Rival, Predictor]],
    found: Distances,
    more: Distances,
    hats: Distances | None,
) -> list[dict[str, Any]]:
    rows = []
    for i, (name, (rival, _)) in enumerate(known.items()):
        row: dict[str, Any] = {
            "rival": name,
            "D": found.value[i],
            "low": found.low[i],
            "high": found.high[i],
            "further by": more.value[i],
            "further, low": more.low[i],
            "excluded": bool(more.low[i] > 0 and more.value[i] > NEGLIGIBLE),
            "tuned": rival.tuned,
        }
        if hats is not None:
            row |= {"hat": hats.value[i], "hat, low": hats.low[i], "hat, high": hats.high[i]}
        rows.append(row)
    return rows


def _by_length(subject: Subject, prompts: Prompts, said: Mapping[str, Tensor]) -> DataArray:
    """D by number of examples, in units of the variance at that number."""
    columns = []
    kept = []
    for n in _lengths(prompts):
        own = subject.answers(prompts.first(n + 1))
        if float(own.var(0).sum()) <= 1e-20:
            continue
        kept.append(n)
        taken = sample(own, _at(said, n))
        columns.append(distances(taken))
    note = "D by number of examples, in units of the model's variance there; 95 % simultaneous"
    return _array(columns, {"examples": kept, "rival": list(said)}, note)


def _lengths(prompts: Prompts) -> list[int]:
    """Some numbers of examples, evenly spread on a logarithmic scale."""
    n = prompts.n_points - 1
    return sorted({int(k) for k in np.unique(np.geomspace(1, n, 6).round())})


def _by_layer(
    subject: Subject,
    task: Task,
    tuning: Prompts,
    judging: Prompts,
    own: Queries,
    said: Mapping[str, Tensor],
) -> DataArray | None:
    """D of what each layer's stream says; None for a predictor without layers."""
    if subject.n_layers is None:
        return None
    values = task.targets(tuning.parameters, tuning.xs)[:, -1]
    read = read_outs.by_layer(subject.streams(tuning), values, subject.streams(judging))
    queries = _at(said, -1)
    columns = []
    for each in read:
        taken = sample(each, queries, unit=own)
        columns.append(distances(taken))
    axes = {"depth": list(range(len(read))), "rival": list(said)}
    return _array(
        columns,
        axes,
        "D of a linear read-out of f(x) from the stream, fitted on the other half, in units of the "
        "variance of the model's prediction",
    )


def _array(columns: list[Distances], axes: dict[str, list[Any]], note: str) -> DataArray:
    values = np.array([np.stack(column, -1) for column in columns])
    return make_array(values, {**axes, "statistic": STATISTICS}, "variance", note)


def _separator(
    subject: Subject, task: Task, known: Mapping[str, tuple[Rival, Predictor]], seed: int
) -> Any:
    """A function of two names of rivals: the design that tells them apart, run."""
    predictors = {name: predictor for name, (_, predictor) in known.items()}

    def separate(first: str, second: str) -> dict[str, Any]:
        return designs.run(subject, task, predictors, (first, second), seed)

    return separate


def _relative_error(own: Queries, task: Task, prompts: Prompts) -> float:
    """Squared error at the query over that of predicting 0."""
    values = task.targets(prompts.parameters, prompts.xs)[:, -1]
    return float((own - values).square().mean() / values.square().mean())


def _how(half: int, seed: int) -> str:
    return (
        f"D = E (f - g)^2 / Var f at the query of {half} functions, rivals tuned on {half} others, "
        f"seed {seed}; 95 % intervals that hold for all rivals at once"
    )
