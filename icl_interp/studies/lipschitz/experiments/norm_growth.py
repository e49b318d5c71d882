"""How fast |M| grows in training, by the Lipschitz constant L.

Tasks are of ReLU and cosine functions, inputs isotropic and others.

Units of softmax attention with M free are trained by Adam at a constant rate, so that what is seen
on the way is not the schedule. Adam bounds how far one step goes, so early in training large L can
hardly differ: after 600 steps cosines of L = 10 still lag behind. |M| is the spectral norm, as the
slides do not say which one they mean. Inputs that are not isotropic lie on an ellipsoid, and
functions read whitened inputs, as Lemma 1 asks: there the best M is w Sigma^-1 with the w of the
sphere. Each setting is trained from several seeds, of weights and prompts.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from pandas import DataFrame

from icl_interp.analyses.criterion import Estimate
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_least, note, statement
from icl_interp.results import Result, make_curve, table_of_rows
from icl_interp.studies.lipschitz.experiments import models, settings
from icl_interp.studies.lipschitz.measurements.unit import sigma_of
from icl_interp.tasks.vectors import Ellipsoid
from icl_interp.theory import lipschitz as theory

CLASSES = ("ReLU", "cosine")
INPUTS = ("isotropic", "not isotropic")
LIPSCHITZ = (0.1, 0.3, 1.0, 3.0, 10.0)
AT_SMOKE = (0.3, 3.0)
SEEDS = {"smoke": 1, "small": 4, "paper": 4}
STEPS = 3000  # of scale small
# Weights are kept at these steps, more often where |M| changes most.
KEPT_AT = (*range(0, 100, 10), *range(100, STEPS + 1, 50))
EARLY = 60  # a step of scale small early on
TRAINING = {
    "steps": STEPS,
    "learning_rate": 0.05,
    "warmup_steps": 0,
    "decay": "constant",
    "checkpoint_every": STEPS // 5,
    "snapshots": KEPT_AT,
}
RECIPES: Mapping[tuple[str, str], tuple[str, str, dict[str, Any]]] = {
    ("ReLU", "isotropic"): ("lipschitz_relu", "", {}),
    ("ReLU", "not isotropic"): ("lipschitz_relu_ellipsoid", "", {}),
    ("cosine", "isotropic"): ("lipschitz_cosine", "", {}),
    ("cosine", "not isotropic"): (
        "lipschitz_cosine",
        "ellipsoid, ",
        {"inputs": Ellipsoid((4.0, 1.0, 0.25))},
    ),
}
LEAST = "least ratio of the mean |M| in training between one L and the next smaller one"
FASTER = at_least(LEAST, 1.1, 1.0)
SIZES = {
    "smoke": models.UNIT_SIZES["smoke"],
    "small": "units of softmax attention, d = 3, n = 100, 3,000 steps of Adam at a constant rate "
    "of 0.05, four seeds",
    "paper": "units of softmax attention, d = 3, n = 100, 30,000 steps of Adam at a constant rate "
    "of 0.005 with batches of 1,024, four seeds",
}
Key = tuple[str, str, float, int]  # class, inputs, L, seed


def _model(kind: str, inputs: str, lipschitz: float, seed: int) -> models.VariedModel:
    recipe, words, changes = RECIPES[kind, inputs]
    scales = []
    for scale, count in SEEDS.items():
        if seed < count and (scale != "smoke" or lipschitz in AT_SMOKE):
            scales.append(scale)
    label = f"{words}L = {lipschitz:g}, constant rate"
    return models.varied(recipe, label, seed, scales, TRAINING, lipschitz=lipschitz, **changes)


# Seed by seed, so that a run that is cut off leaves whole families.
MODELS: dict[Key, models.VariedModel] = {
    (kind, inputs, lipschitz, seed): _model(kind, inputs, lipschitz, seed)
    for seed in range(max(SEEDS.values()))
    for kind, inputs in RECIPES
    for lipschitz in LIPSCHITZ
}


def run(setup: Setup) -> dict[str, Result]:
    """|M| by step, and where it and w end beside the best window."""
    paths = {}
    for key, model in MODELS.items():
        name = model.name
        if not setup.has(name):
            continue
        found = _path(setup.models[name])
        if found:
            paths[key] = found
    if not paths:
        return {}

    # Where each path goes in the array.
    _, _, all_sizes, all_seeds = zip(*paths, strict=True)
    lipschitz = sorted(set(all_sizes))
    seeds = sorted(set(all_seeds))
    steps = sorted(set().union(*paths.values()))
    axes = {"class": CLASSES, "inputs": INPUTS, "L": lipschitz, "seed": seeds, "step": steps}
    values = np.full(tuple(map(len, axes.values())), np.nan)
    for (kind, inputs, size, seed), path in paths.items():
        at = CLASSES.index(kind), INPUTS.index(inputs), lipschitz.index(size), seeds.index(seed)
        values[at] = [path.get(step, np.nan) for step in steps]

    rows = []
    for key, path in paths.items():
        name = MODELS[key].name
        rows.append(_row(setup, key, setup.models[name], path))
    words = "|M|: spectral norm"
    window = "w: mean of the diagonal of Σ^½ M Σ^½"
    return {
        "norms": make_curve(values, axes, note=words),
        "ends": table_of_rows(rows, note=f"{words}; {window}; {BEST}"),
    }


BEST = "best w: that of least loss by theory, and its 95 % Monte-Carlo interval"


def _path(checkpoint: Checkpoint) -> dict[int, float]:
    """|M| at each step whose weights were kept."""
    norms = {}
    for step, model in checkpoint.snapshots().items():
        matrix = models.matrix_of(model)
        norms[step] = float(torch.linalg.matrix_norm(matrix, 2))
    return norms


def mean_norm(norms: Mapping[int, float]) -> float:
    """The mean over the steps of training of a norm that is known at some of them.

    Between these it is taken as linear (the trapezoid rule).

    >>> mean_norm({0: 0.0, 10: 1.0, 20: 1.0})
    0.75
    """
    steps = sorted(norms)
    area = np.trapezoid([norms[step] for step in steps], steps)
    first = steps[0]
    last = steps[-1]
    return float(area) / (last - first)


def _row(
    setup: Setup, key: Key, checkpoint: Checkpoint, norms: Mapping[int, float]
) -> dict[str, Any]:
    task = models.task_of(checkpoint)
    kind, inputs, lipschitz, seed = key
    n = models.trained_length(checkpoint)
    contexts = 400 if setup.preset.name == "smoke" else None
    best = theory.optimal_window(
        lipschitz, task.noise_std, n, task.dim, task.link, task.frequency, contexts=contexts
    )
    end = models.window_of(checkpoint.model, task)
    inverse = torch.linalg.inv(sigma_of(task))
    best_norm = best.window * torch.linalg.matrix_norm(inverse, 2)
    last = max(norms)
    early = min(norms, key=lambda step: abs(step - EARLY / STEPS * last))
    return {
        "class": kind,
        "inputs": inputs,
        "L": lipschitz,
        "seed": seed,
        "σ": task.noise_std,
        "|M| early": norms[early],
        "mean |M|": mean_norm(norms),
        "|M| at the end": norms[last],
        "w at the end": float(end.window),
        "off w I": float(end.deviation),
        "best w": float(best.window),
        "low": float(best.low),
        "high": float(best.high),
        "best |M|": float(best_norm),
        "early step": early,
        "last step": last,
    }


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """Whether |M| grows faster with L in each of the four settings.

    What theory says of where |M| goes stands beside it.
    """
    lines = []
    for kind in CLASSES:
        for inputs in INPUTS:
            rows = errors.rows_of(results, "ends", **{"class": kind, "inputs": inputs})
            rows = sorted(rows, key=lambda row: row["L"])
            if rows and rows[0]["L"] < rows[-1]["L"]:
                lines += _states_setting(kind, inputs, rows)
    return tuple(lines) or (note("No model is here, so nothing is measured."),)


def _states_setting(kind: str, inputs: str, rows: Sequence[Mapping[str, Any]]) -> list[Statement]:
    ratios = neighbours(rows)
    least, (below, above) = least_of(ratios)
    # Where models are missing some ratios rest on fewer seeds.
    n_seeds = sorted(set(map(len, ratios.values())))
    seeds = "one run each"
    if n_seeds != [1]:
        seeds = f"{' to '.join(map(str, n_seeds))} seeds each"
    where = f"{kind} tasks, inputs {inputs}"
    first = rows[0]
    interval = f"[{least.low:.3g}, {least.high:.3g}]"
    text = (
        f"{where}: the mean |M| over {first['last step']:,} steps of training is "
        f"{_listed(rows, 'mean |M|')}; the least ratio between neighbours is {least.value:.3g} "
        f"{interval}, of L = {above:g} over L = {below:g} ({seeds}; the "
        "slides: |M| grows faster with larger L, which they do not name)."
    )
    beside = (
        f"{where}: early, at step {first['early step']:,}, |M| is {_listed(rows, '|M| early')}. "
        f"Training ends at w = {_listed(rows, 'w at the end')}; the best window by theory is w = "
        f"{_listed(rows, 'best w')}."
    )
    return [statement(text, FASTER, least), note(beside)]


def neighbours(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[float, float], tuple[float, ...]]:
    """The ratio of the mean |M| of each L and the next smaller one, seed by seed."""
    norms: dict[float, dict[int, float]] = defaultdict(dict)
    for row in rows:
        seed = row.get("seed", 0)
        norms[row["L"]][seed] = row["mean |M|"]
    ratios = {}
    for below, above in pairwise(sorted(norms)):
        smaller = norms[below]
        larger = norms[above]
        shared = sorted(smaller.keys() & larger.keys())
        ratios[below, above] = tuple(larger[seed] / smaller[seed] for seed in shared)
    return ratios


def least_of(
    ratios: Mapping[tuple[float, float], Sequence[float]],
) -> tuple[Estimate, tuple[float, float]]:
    """The least ratio with its interval over seeds, and between which L it is.

    Ratios are geometric means over seeds, with t intervals of their logarithms. The low end is the
    lowest of all ratios' 95 % intervals, as each of them must be large. The high end is the lowest
    of their intervals at 1 - 5 % / k (k ratios), as any of them may be the small one. One seed
    tells nothing of the spread, so nothing is decided.
    """
    found = {}
    for pair, each in ratios.items():
        value, low, _ = _mean_ratio(each, 0.05)
        _, _, high = _mean_ratio(each, 0.05 / len(ratios))
        found[pair] = value, low, high
    pair = min(found, key=lambda one: found[one][0])
    values, lows, highs = zip(*found.values(), strict=True)
    return Estimate(LEAST, min(values), min(lows), min(highs)), pair


def _mean_ratio(ratios: Sequence[float], error: float) -> tuple[float, float, float]:
    """The geometric mean and the ends of its t interval, which misses the truth this often."""
    from scipy.special import stdtrit  # only here: it loads slowly

    logs = np.log(ratios)
    n = len(logs)
    mean = float(np.mean(logs))
    value = math.exp(mean)
    if n < 2:
        return value, 0.0, math.inf
    quantile = stdtrit(n - 1, 1 - error / 2)
    spread = np.std(logs, ddof=1)
    half = float(quantile * spread) / n**0.5
    return value, math.exp(mean - half), math.exp(mean + half)


def _listed(rows: Sequence[Mapping[str, Any]], column: str) -> str:
    """A number at each L, in words: the mean over seeds."""
    numbers: dict[float, list[float]] = defaultdict(list)
    for row in rows:
        numbers[row["L"]].append(row[column])
    parts = []
    for size, each in numbers.items():
        mean = np.mean(each)
        parts.append(f"{mean:.2g} at L = {size:g}")
    return ", ".join(parts)


def compare(results: Results) -> DataFrame | None:
    """Norms and windows, unit by unit; the slides print no numbers."""
    found = results.get("ends")
    return found if isinstance(found, DataFrame) else None


NORM_GROWTH_EXPERIMENT = Experiment(
    "lipschitz.norm_growth",
    "|M| grows faster in training for larger L",
    f"{models.SLIDES}: Empirical Scaling of ||M|| with L",
    tuple(MODELS.values()),
    run,
    states,
    compare,
    sample="weights of the units, read off exactly",
    sizes=SIZES,
    settings=settings.SETTINGS["norm_growth"],
)
