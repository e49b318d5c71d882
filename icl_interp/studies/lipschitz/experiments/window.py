"""The window figure, for functions of three Lipschitz constants.

It shows functions, attention against distance, and error against n.

Top: functions along a great circle through the query, beside the label noise. Middle: what trained
units pay to a key by its distance from the query, and the window of least loss. Bottom: the error
of every unit on prompts of n examples; a unit is read off and asked at lengths that it was not
trained on, which a softmax over the examples allows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from pandas import DataFrame
from torch import Tensor
from xarray import DataArray

from icl_interp.checkpoints.store import Checkpoint
from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_least, at_most, note, statement
from icl_interp.probes.record import Activations
from icl_interp.probes.runner import probe
from icl_interp.prompts import Prompts
from icl_interp.provenance import encode, generator
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import Result, make_array, make_curve, table_of_rows
from icl_interp.studies.lipschitz.experiments import models, settings
from icl_interp.tasks.ridge import RidgeFunction
from icl_interp.theory import lipschitz as theory

UNITS = models.RELU_UNITS
LENGTHS = {
    "smoke": (5, 20),
    "small": (5, 10, 20, 50, 100, 200, 500),
    "paper": (5, 10, 20, 50, 100, 200, 500, 1000),
}
BEST = "best window at each n"
# Shown: functions of each L, and places on the circle.
FUNCTIONS = 5
ANGLES = 97
DISTANCES = np.linspace(0.0, 2.0, 21)  # edges of the bins of |x_i - x_q|
FEW = 20  # keys of a bin below which it is left out

SEES_DISTANCE = at_least(
    "share of the variance of log attention within a prompt that -|x_i - x_q|² explains", 0.95, 0.8
)
AT_BEST = at_most("factor between the measured window and that of least loss", 1.15, 1.5)
NARROWER = at_least("w of each unit over that of the unit trained at the next smaller L", 1.5, 1.0)
OWN_IS_BEST = at_least("error of another unit / error of the unit trained at this L", 1.02, 1.0)


def run(setup: Setup) -> dict[str, Result]:
    """The three rows of the figure, and the windows."""
    names = {lipschitz: model.name for lipschitz, model in UNITS.items() if setup.has(model.name)}
    if not names:
        return {}
    tasks = {}
    matrices = {}
    seen = {}
    windows = []
    for lipschitz, name in names.items():
        checkpoint = setup.models[name]
        task = models.task_of(checkpoint)
        matrix = models.matrix_of(checkpoint.model)
        attention = _attention(setup, name, task)
        tasks[lipschitz] = task
        matrices[lipschitz] = matrix
        seen[lipschitz] = attention
        windows.append(_window(setup, lipschitz, task, matrix, attention))
    sizes = tuple(names)
    results: dict[str, Result] = {}

    # The top row: functions on a great circle.
    task = tasks[sizes[0]]
    n = task.n_points - 1
    where = f"F_L⁺, d = {task.dim}, σ = {task.noise_std:g}"
    angles = np.linspace(-math.pi, math.pi, ANGLES)
    functions = np.stack([_functions(setup, task, angles) for task in tasks.values()])
    axes = {"L": sizes, "function": range(FUNCTIONS), "angle": angles}
    words = f"{where}: f(x) - f(x_q) on a great circle through the query x_q"
    results["functions"] = make_curve(functions, axes, note=words)

    # The middle row: attention by distance, and the windows.
    profiles = np.stack([_profile(attention, n) for attention in seen.values()])
    centres = (DISTANCES[1:] + DISTANCES[:-1]) / 2
    axes = {"L": sizes, "statistic": ("mean", "low", "high"), "distance": centres}
    words = (
        f"{where}: n times the attention to a key, by its distance from the query; low, high: 10 % "
        "and 90 %"
    )
    results["attention"] = make_curve(profiles, axes, note=words)
    words = f"{where}, n = {n}; best: least loss by theory"
    results["windows"] = table_of_rows(windows, note=words)

    # The bottom row: errors by length.
    results["errors"], results["paired"] = _errors(setup, tasks, matrices)
    return results


# ---- attention -----------------------------------------------------------------------------------


def _attention(setup: Setup, name: str, task: RidgeFunction) -> DataArray:
    """Attention of the query to each example and their distance, (prompt, what, example).

    Attention is as the model runs.
    """

    def compute() -> DataArray:
        checkpoint = setup.models[name]
        found = []
        for prompts in models.batches(setup, task, "attention"):
            pattern = _pattern(checkpoint, prompts)
            steps = prompts.xs[:, :-1] - prompts.xs[:, -1:]
            apart = torch.linalg.vector_norm(steps, dim=-1)
            found.append(torch.stack([pattern, apart], 1))
            if sum(map(len, found)) >= KEPT:
                break
        values = torch.cat(found)[:KEPT].numpy()
        n_prompts, _, n_examples = values.shape
        axes = {
            "prompt": range(n_prompts),
            "what": ("attention", "distance"),
            "example": range(n_examples),
        }
        return make_array(values, axes)

    found = setup.keep("lipschitz: attention by distance", [name], compute, task=encode(task))
    assert isinstance(found, DataArray)
    return found


KEPT = 400  # prompts


def _pattern(checkpoint: Checkpoint, prompts: Prompts) -> Float[Tensor, "prompt example"]:
    """What the query pays to each labelled example."""
    hook = "blocks.0.attn.hook_pattern"
    seen = Activations([hook], keep=lambda pattern: pattern[:, 0, -1, :-1])
    probe(checkpoint, prompts, [seen])
    return seen.recorded[hook].double()


def _profile(seen: DataArray, n: int) -> Float[np.ndarray, "statistic distance"]:
    """n times the attention in bins of distance: mean, 10 % and 90 %."""
    weights = seen.sel(what="attention").values.ravel()
    apart = seen.sel(what="distance").values.ravel()
    places = np.digitize(apart, DISTANCES) - 1
    n_bins = len(DISTANCES) - 1
    out = np.full((3, n_bins), np.nan)
    for i in range(n_bins):
        inside = n * weights[places == i]
        if len(inside) >= FEW:
            low, high = np.quantile(inside, (0.1, 0.9))
            out[:, i] = inside.mean(), low, high
    return out


def _window(
    setup: Setup,
    lipschitz: float,
    task: RidgeFunction,
    matrix: Float[Tensor, "dim dim"],
    seen: DataArray,
) -> dict[str, Any]:
    """w from the slope of log attention on -|x_i - x_q|^2 / 2 within prompts.

    M's own w and the best w stand beside it.
    """
    weights = seen.sel(what="attention").values
    distances = seen.sel(what="distance").values
    log = np.log(weights)
    log = log - log.mean(1, keepdims=True)
    near = -(distances**2) / 2
    near = near - near.mean(1, keepdims=True)

    # Moments of each prompt, of which slope and explained share are made.
    both = (near * log).mean(1)
    of_near = (near * near).mean(1)
    of_log = (log * log).mean(1)
    w = bootstrap(lambda xy, xx: xy / xx, both, of_near)
    explained = bootstrap(lambda xy, xx, yy: xy**2 / (xx * yy), both, of_near, of_log)
    row: dict[str, Any] = {"L": lipschitz}
    for key, interval in (("w", w), ("explained", explained)):
        row[key] = interval.value
        row[f"{key}, low"] = interval.low
        row[f"{key}, high"] = interval.high

    best = theory.optimal_window(
        lipschitz,
        task.noise_std,
        task.n_points - 1,
        task.dim,
        task.link,
        task.frequency,
        contexts=_contexts(setup),
    )
    row["w of M"] = float(theory.isotropy(matrix).window)
    row["best w"] = float(best.window)
    row["best w, low"] = float(best.low)
    row["best w, high"] = float(best.high)
    row["half-weight angle"] = _degrees(w.value)
    row["best angle"] = _degrees(row["best w"])
    keys = theory.effective_sample_size(torch.from_numpy(np.array(weights)))
    row["keys"] = float(keys.mean())
    return row


def _contexts(setup: Setup) -> int | None:
    """Of theory's Monte Carlo; None for its own number."""
    return 400 if setup.preset.name == "smoke" else None


def _degrees(w: float) -> float:
    """The angle at which a key has half the weight of a key at the query."""
    return math.degrees(float(theory.half_weight_angle(max(w, 0.0))))


# ---- functions and errors ------------------------------------------------------------------------


def _functions(
    setup: Setup, task: RidgeFunction, angles: Float[np.ndarray, " angle"]
) -> Float[np.ndarray, "function angle"]:
    """f(x) - f(x_q) along a great circle, for functions drawn alike at every L.

    The functions at one L are those at another times the ratio of the two.
    """
    numbers = generator(setup.seed, "lipschitz/functions shown")
    parameters = task.sample_parameters(FUNCTIONS, numbers, torch.float64)
    circle = torch.zeros(ANGLES, task.dim, dtype=torch.float64)
    circle[:, 0] = torch.from_numpy(np.cos(angles))
    circle[:, 1] = torch.from_numpy(np.sin(angles))
    query = circle[ANGLES // 2][None]
    values = task.targets(parameters, circle.expand(FUNCTIONS, -1, -1))[..., 0]
    at_query = task.targets(parameters, query.expand(FUNCTIONS, 1, -1))[..., 0]
    return (values - at_query).numpy()


def _errors(
    setup: Setup, tasks: Mapping[float, RidgeFunction], matrices: Mapping[float, Tensor]
) -> tuple[DataArray, DataFrame]:
    """Error by n on the task of each L, and paired quotients of errors.

    Errors are of every unit, and of the best window at that n.
    """
    lengths = LENGTHS[setup.preset.name]
    sizes = tuple(tasks)
    values = np.zeros((len(sizes), len(sizes) + 1, 3, len(lengths)))
    rows = []
    for i, (lipschitz, task) in enumerate(tasks.items()):
        noise = task.noise_std
        for k, n in enumerate(lengths):
            # Errors of all units on the same prompts, by block.
            asked = replace(task, n_points=n + 1)
            blocks = {}
            for j, (unit, matrix) in enumerate(matrices.items()):
                predictor = models.KernelUnit(matrix)
                found = models.query_errors(setup, "unit", asked, predictor)
                blocks[unit] = np.asarray(found.values)
                error = bootstrap(lambda mean: mean, blocks[unit], positive=True)
                values[i, j, :, k] = error.value, error.low, error.high
            table = theory.loss_table(n, task.dim, contexts=_contexts(setup))
            best = theory.table_optimum(table, lipschitz, noise)
            least = best.risk
            values[i, -1, :, k] = float(least)

            # Each unit against the one that was trained at this L, and what theory says of it.
            own = blocks[lipschitz]
            for unit, matrix in matrices.items():
                ratio = bootstrap(lambda a, b: a / b, blocks[unit], own, positive=True)
                window = theory.isotropy(matrix).window
                w = window.clamp(table.windows[0], table.windows[-1])
                loss = theory.window_loss(table, w, lipschitz, noise).value
                row = {
                    "L": lipschitz,
                    "unit": unit,
                    "n": n,
                    "ratio": ratio.value,
                    "low": ratio.low,
                    "high": ratio.high,
                    "best w": float(best.window),
                    "times least": float(loss / least),
                }
                rows.append(row)
    axes = {
        "L": sizes,
        "unit": (*(f"trained at L = {size:g}" for size in sizes), BEST),
        "statistic": ("mean", "low", "high"),
        "n": lengths,
    }
    note = "squared error at the query; 95 % bootstrap over blocks of prompts"
    words = (
        "error of a unit over that of the unit trained at this L, on the same prompts; by theory: "
        "best w at this n, and what the unit's w costs there in units of the least loss"
    )
    return make_curve(values, axes, note=note), table_of_rows(rows, note=words)


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """That attention falls with distance, that the window is the best one, and its worth.

    The window narrows with L.
    """
    rows = sorted(errors.rows_of(results, "windows"), key=lambda row: row["L"])
    if not rows:
        return (note("No model is here, so nothing is measured."),)
    explained = []
    shares = []
    windows = []
    for row in rows:
        size = row["L"]
        at = f"at L = {size:g}"
        share = errors.interval_of(row, "explained", "explained, low", "explained, high")
        explained.append(share)
        shares.append(f"{share.value:.3g} {at}")
        w = row["w"]
        low = row["w, low"]
        high = row["w, high"]
        wanted = row["best w"]
        windows.append(f"w = {w:.3g} [{low:.3g}, {high:.3g}] {at}, best {wanted:.3g}")
    nearer = (
        "attention is larger for keys closer to the query, and distance alone decides it: the "
        "share of the variance of log attention that -|x_i - x_q|² explains within a prompt is "
        f"{'; '.join(shares)} (one run at each L)."
    )
    best = f"units adapt to the window that each L asks for: {'; '.join(windows)}."
    # The statements, in the order of the figure.
    lines = []
    lines.append(statement(nearer, SEES_DISTANCE, *explained))
    factors = map(_factor, rows)
    lines.append(statement(best, AT_BEST, *factors))
    if len(rows) > 1:
        lines.append(_states_narrower(rows))
    return (*lines, *_states_errors(results, rows))


def _factor(row: Mapping[str, Any]) -> Interval:
    """By what factor two windows differ, whichever is the larger.

    The interval has the least and the largest factor that the windows' intervals allow.
    """
    value = abs(_log_ratio(row["w"], row["best w"]))
    low = _log_ratio(row["w, low"], row["best w, high"])
    high = _log_ratio(row["w, high"], row["best w, low"])
    most = max(abs(low), abs(high))
    least = min(abs(low), abs(high))
    if low <= 0 <= high:
        least = 0.0
    return Interval(math.exp(value), math.exp(least), math.exp(most))


def _log_ratio(w: float, best: float) -> float:
    return math.log(max(w, 1e-9) / best)


def _states_narrower(rows: Sequence[Mapping[str, Any]]) -> Statement:
    quotients = []
    for before, row in pairwise(rows):
        value = row["w"] / before["w"]
        low = row["w, low"] / before["w, high"]
        high = row["w, high"] / before["w, low"]
        quotients.append(Interval(value, low, high))
    listed = "; ".join(
        f"at L = {row['L']:g} a key at {row['half-weight angle']:.0f}° has half the weight of one "
        f"at the query, and the window holds {row['keys']:.2g} keys"
        for row in rows
    )
    text = f"attention windows are narrower for larger L: {listed}."
    return statement(text, NARROWER, *quotients)


def _states_errors(results: Results, rows: Sequence[Mapping[str, Any]]) -> list[Statement]:
    """Each unit is the best of them where it was trained.

    A statement is on what the best window does as n grows.
    """
    paired = errors.rows_of(results, "paired")
    lines = []
    for row in rows:
        size = row["L"]
        mine = [pair for pair in paired if pair["L"] == size]
        n = _trained_at([pair["n"] for pair in mine])
        # The other units at this length, and the own one at all lengths.
        ratios = []
        parts = []
        own = []
        for pair in mine:
            if pair["unit"] == size:
                own.append(pair)
            elif pair["n"] == n:
                ratios.append(errors.interval_of(pair, "ratio"))
                parts.append(f"trained at L = {pair['unit']:g}: {_ratio(pair)}")
        if ratios:
            text = (
                f"on L = {size:g} with n = {n} the unit trained there errs least; the errors "
                f"of the others are larger by a factor: {'; '.join(parts)}."
            )
            lines.append(statement(text, OWN_IS_BEST, *ratios))
        if len(own) > 1:
            own.sort(key=lambda pair: pair["n"])
            lines.append(note(_says_lengths(size, own)))
    return lines


def _says_lengths(lipschitz: float, own: Sequence[Mapping[str, Any]]) -> str:
    first = own[0]
    last = own[-1]
    return (
        f"L = {lipschitz:g}: from n = {first['n']} to {last['n']} the best window goes from w = "
        f"{first['best w']:.3g} to {last['best w']:.3g}, while a unit keeps the one that it was "
        f"trained for: by theory its loss there is {first['times least']:.3g} and "
        f"{last['times least']:.3g} times the least."
    )


def _ratio(row: Mapping[str, Any]) -> str:
    return f"{row['ratio']:.3g} [{row['low']:.3g}, {row['high']:.3g}]"


def _trained_at(lengths: Sequence[int]) -> int:
    """The measured length that units were trained at.

    It is 100, or the longest that there is below it.
    """
    return max((n for n in lengths if n <= 100), default=0)


def compare(results: Results) -> DataFrame | None:
    """Windows, measured and best; the slides print no numbers."""
    found = results.get("windows")
    return found if isinstance(found, DataFrame) else None


WINDOW_EXPERIMENT = Experiment(
    "lipschitz.window",
    "Attention windows for three Lipschitz constants",
    f"{models.SLIDES}: ICL estimator intuition (figure of three rows), Observations 1 and 2",
    tuple(UNITS.values()),
    run,
    states,
    compare,
    sample=models.SAMPLE,
    sizes=models.UNIT_SIZES,
    settings=settings.SETTINGS["window"],
)
