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
FUNCTIONS, ANGLES = 5, 97  # shown: functions of each L, and places on the circle
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
    tasks = {lipschitz: models.task_of(setup.models[name]) for lipschitz, name in names.items()}
    matrices = {
        lipschitz: models.matrix_of(setup.models[name].model) for lipschitz, name in names.items()
    }
    seen = {
        lipschitz: _attention(setup, names[lipschitz], task) for lipschitz, task in tasks.items()
    }
    windows = [
        _window(setup, lipschitz, tasks[lipschitz], matrices[lipschitz], seen[lipschitz])
        for lipschitz in names
    ]
    sizes = tuple(names)
    angles = np.linspace(-math.pi, math.pi, ANGLES)
    functions = np.stack([_functions(setup, task, angles) for task in tasks.values()])
    task = next(iter(tasks.values()))
    where = f"F_L⁺, d = {task.dim}, σ = {task.noise_std:g}"
    results: dict[str, Result] = {
        "functions": make_curve(
            functions,
            {"L": sizes, "function": range(FUNCTIONS), "angle": angles},
            note=f"{where}: f(x) - f(x_q) on a great circle through the query x_q",
        ),
        "attention": make_curve(
            np.stack([_profile(seen[lipschitz], task.n_points - 1) for lipschitz in names]),
            {
                "L": sizes,
                "statistic": ("mean", "low", "high"),
                "distance": (DISTANCES[1:] + DISTANCES[:-1]) / 2,
            },
            note=f"{where}: n times the attention to a key, by its distance from the query; low, "
            "high: 10 % and 90 %",
        ),
        "windows": table_of_rows(
            windows, note=f"{where}, n = {task.n_points - 1}; best: least loss by theory"
        ),
    }
    curve, paired = _errors(setup, tasks, matrices)
    return {**results, "errors": curve, "paired": paired}


# ---- attention -----------------------------------------------------------------------------------


def _attention(setup: Setup, name: str, task: RidgeFunction) -> DataArray:
    """Attention of the query to each example and their distance, (prompt, what, example).

    Attention is as the model runs.
    """

    def compute() -> DataArray:
        checkpoint, found = setup.models[name], []
        for prompts in models.batches(setup, task, "attention"):
            pattern = _pattern(checkpoint, prompts)
            apart = torch.linalg.vector_norm(prompts.xs[:, :-1] - prompts.xs[:, -1:], dim=-1)
            found.append(torch.stack([pattern, apart], 1))
            if sum(map(len, found)) >= KEPT:
                break
        values = torch.cat(found)[:KEPT].numpy()
        axes = {
            "prompt": range(len(values)),
            "what": ("attention", "distance"),
            "example": range(values.shape[2]),
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
    weights, apart = (seen.sel(what=what).values.ravel() for what in ("attention", "distance"))
    places = np.digitize(apart, DISTANCES) - 1
    out = np.full((3, len(DISTANCES) - 1), np.nan)
    for i in range(len(DISTANCES) - 1):
        inside = n * weights[places == i]
        if len(inside) >= FEW:
            out[:, i] = inside.mean(), *np.quantile(inside, (0.1, 0.9))
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
    log, near = (
        np.log(seen.sel(what="attention").values),
        -(seen.sel(what="distance").values ** 2) / 2,
    )
    log, near = (values - values.mean(1, keepdims=True) for values in (log, near))
    products = [
        (a * b).mean(1) for a, b in ((near, log), (near, near), (log, log))
    ]  # a number a prompt
    w = bootstrap(lambda xy, xx: xy / xx, *products[:2])
    explained = bootstrap(lambda xy, xx, yy: xy**2 / (xx * yy), *products)
    n, contexts = task.n_points - 1, 400 if setup.preset.name == "smoke" else None
    best = theory.optimal_window(
        lipschitz, task.noise_std, n, task.dim, task.link, task.frequency, contexts=contexts
    )
    weights = torch.from_numpy(np.array(seen.sel(what="attention").values))
    found: dict[str, Any] = {"L": lipschitz}
    for key, i in (("w", w), ("explained", explained)):
        found |= {key: i.value, f"{key}, low": i.low, f"{key}, high": i.high}
    return {
        **found,
        "w of M": float(theory.isotropy(matrix).window),
        "best w": float(best.window),
        "best w, low": float(best.low),
        "best w, high": float(best.high),
        "half-weight angle": _degrees(w.value),
        "best angle": _degrees(float(best.window)),
        "keys": float(theory.effective_sample_size(weights).mean()),
    }


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
    circle[:, 0], circle[:, 1] = torch.from_numpy(np.cos(angles)), torch.from_numpy(np.sin(angles))
    values = task.targets(parameters, circle.expand(FUNCTIONS, -1, -1))[..., 0]
    at_query = task.targets(parameters, circle[ANGLES // 2][None].expand(FUNCTIONS, 1, -1))[..., 0]
    return (values - at_query).numpy()


def _errors(
    setup: Setup, tasks: Mapping[float, RidgeFunction], matrices: Mapping[float, Tensor]
) -> tuple[DataArray, DataFrame]:
    """Error by n on the task of each L, and paired quotients of errors.

    Errors are of every unit, and of the best window at that n.
    """
    lengths, sizes = LENGTHS[setup.preset.name], tuple(tasks)
    values = np.zeros((len(sizes), len(sizes) + 1, 3, len(lengths)))
    rows = []
    for i, (lipschitz, task) in enumerate(tasks.items()):
        for k, n in enumerate(lengths):
            asked = replace(task, n_points=n + 1)
            blocks = {
                unit: np.asarray(
                    models.query_errors(setup, "unit", asked, models.KernelUnit(matrix)).values
                )
                for unit, matrix in matrices.items()
            }
            for j, found in enumerate(blocks.values()):
                error = bootstrap(lambda mean: mean, found, positive=True)
                values[i, j, :, k] = error.value, error.low, error.high
            contexts = 400 if setup.preset.name == "smoke" else None
            table = theory.loss_table(n, task.dim, contexts=contexts)
            best = theory.table_optimum(table, lipschitz, task.noise_std)
            values[i, -1, :, k] = float(best.risk)
            for unit, found in blocks.items():
                ratio = bootstrap(lambda a, b: a / b, found, blocks[lipschitz], positive=True)
                row = {
                    "L": lipschitz,
                    "unit": unit,
                    "n": n,
                    "ratio": ratio.value,
                    "low": ratio.low,
                    "high": ratio.high,
                }
                w = theory.isotropy(matrices[unit]).window.clamp(
                    table.windows[0], table.windows[-1]
                )
                times = theory.window_loss(table, w, lipschitz, task.noise_std).value / best.risk
                rows.append({**row, "best w": float(best.window), "times least": float(times)})
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
    shares = "; ".join(f"{row['explained']:.3g} at L = {row['L']:g}" for row in rows)
    nearer = (
        "attention is larger for keys closer to the query, and distance alone decides it: the "
        "share of the variance of log attention that -|x_i - x_q|² explains within a prompt is "
        f"{shares} (one run at each L)."
    )
    listed = "; ".join(
        (
            f"w = {row['w']:.3g} [{row['w, low']:.3g}, {row['w, high']:.3g}] at L = {row['L']:g}, "
            f"best {row['best w']:.3g}"
        )
        for row in rows
    )
    best = f"units adapt to the window that each L asks for: {listed}."
    explained = [
        errors.interval_of(row, "explained", "explained, low", "explained, high") for row in rows
    ]
    lines = [
        statement(nearer, SEES_DISTANCE, *explained),
        statement(best, AT_BEST, *map(_factor, rows)),
    ]
    if len(rows) > 1:
        lines.append(_states_narrower(rows))
    return (*lines, *_states_errors(results, rows))


def _factor(row: Mapping[str, Any]) -> Interval:
    """By what factor two windows differ, whichever is the larger.

    The interval has the least and the largest factor that the windows' intervals allow.
    """
    value, low, high = (
        math.log(max(row[a], 1e-9) / row[b])
        for a, b in (("w", "best w"), ("w, low", "best w, high"), ("w, high", "best w, low"))
    )
    least = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    return Interval(math.exp(abs(value)), math.exp(least), math.exp(max(abs(low), abs(high))))


def _states_narrower(rows: Sequence[Mapping[str, Any]]) -> Statement:
    quotients = [
        Interval(b["w"] / a["w"], b["w, low"] / a["w, high"], b["w, high"] / a["w, low"])
        for a, b in pairwise(rows)
    ]
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
    paired, lines = errors.rows_of(results, "paired"), []
    for row in rows:
        mine = [r for r in paired if r["L"] == row["L"]]
        n = _trained_at([r["n"] for r in mine])
        others = [r for r in mine if r["n"] == n and r["unit"] != row["L"]]
        if others:
            listed = "; ".join(f"trained at L = {r['unit']:g}: {_ratio(r)}" for r in others)
            text = (
                f"on L = {row['L']:g} with n = {n} the unit trained there errs least; the errors "
                f"of the others are larger by a factor: {listed}."
            )
            lines.append(
                statement(text, OWN_IS_BEST, *(errors.interval_of(r, "ratio") for r in others))
            )
        own = sorted((r for r in mine if r["unit"] == row["L"]), key=lambda r: r["n"])
        if len(own) > 1:
            lines.append(note(_says_lengths(row["L"], own)))
    return lines


def _says_lengths(lipschitz: float, own: Sequence[Mapping[str, Any]]) -> str:
    first, last = own[0], own[-1]
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
