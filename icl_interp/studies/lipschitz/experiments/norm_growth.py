"""How fast |M| grows in training, by the Lipschitz constant L.

Tasks are of ReLU and cosine functions, inputs isotropic and others.

Units of softmax attention with M free are trained by Adam at a constant rate, so that what is seen
on the way is not the schedule. Adam bounds how far one step goes, so early in training large L can
hardly differ. |M| is the spectral norm, as the slides do not say which one they mean. Inputs that
are not isotropic lie on an ellipsoid, and functions read whitened inputs, as Lemma 1 asks: there
the best M is w Sigma^-1 with the w of the sphere.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from pandas import DataFrame

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

CLASSES, INPUTS = ("ReLU", "cosine"), ("isotropic", "not isotropic")
LIPSCHITZ = (0.1, 0.3, 1.0, 3.0, 10.0)
AT_SMOKE = (0.3, 3.0)
STEPS, EVERY = 600, 10  # of scale small; weights are kept at each of these
EARLY = 60  # a step of scale small early on
TRAINING = {
    "steps": STEPS,
    "learning_rate": 0.05,
    "warmup_steps": 0,
    "decay": "constant",
    "checkpoint_every": STEPS,
    "snapshots": tuple(range(0, STEPS + 1, EVERY)),
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
QUANTITIES = ("|M|", "w")
FASTER = at_least(
    "least ratio of the mean |M| in training between one L and the next smaller one", 1.1, 1.0
)
SIZES = {
    "smoke": models.UNIT_SIZES["smoke"],
    "small": "units of softmax attention, d = 3, n = 100, 600 steps of Adam at a constant rate of "
    "0.05",
    "paper": "units of softmax attention, d = 3, n = 100, 6,000 steps of Adam at a constant rate "
    "of 0.005 with batches of 1,024",
}


def _model(kind: str, inputs: str, lipschitz: float) -> models.VariedModel:
    recipe, words, changes = RECIPES[kind, inputs]
    scales = ("smoke", "small", "paper") if lipschitz in AT_SMOKE else ("small", "paper")
    label = f"{words}L = {lipschitz:g}, constant rate"
    return models.varied(recipe, label, 0, scales, TRAINING, lipschitz=lipschitz, **changes)


MODELS = {
    (kind, inputs, lipschitz): _model(kind, inputs, lipschitz)
    for kind, inputs in RECIPES
    for lipschitz in LIPSCHITZ
}


def run(setup: Setup) -> dict[str, Result]:
    """|M| and w by step, and where they end beside the best window."""
    paths = {}
    for key, model in MODELS.items():
        found = _path(setup.models[model.name]) if setup.has(model.name) else {}
        if found:
            paths[key] = found
    if not paths:
        return {}
    lipschitz = [value for value in LIPSCHITZ if any(key[2] == value for key in paths)]
    steps = sorted({step for path in paths.values() for step in path})
    values = np.full(
        (len(CLASSES), len(INPUTS), len(lipschitz), len(QUANTITIES), len(steps)), np.nan
    )
    for (kind, inputs, size), path in paths.items():
        at = CLASSES.index(kind), INPUTS.index(inputs), lipschitz.index(size)
        for i, step in enumerate(steps):
            values[(*at, slice(None), i)] = path.get(step, (np.nan, np.nan))
    axes = {
        "class": CLASSES,
        "inputs": INPUTS,
        "L": lipschitz,
        "quantity": QUANTITIES,
        "step": steps,
    }
    words = "|M|: spectral norm; w: mean of the diagonal of Σ^½ M Σ^½"
    rows = [
        _row(
            setup,
            key,
            setup.models[MODELS[key].name],
            {step: pair[0] for step, pair in path.items()},
        )
        for key, path in paths.items()
    ]
    return {
        "norms": make_curve(values, axes, note=words),
        "ends": table_of_rows(rows, note=f"{words}; {BEST}"),
    }


BEST = "best w: that of least loss by theory, and its 95 % Monte-Carlo interval"


def _path(checkpoint: Checkpoint) -> dict[int, tuple[float, float]]:
    """|M| and w at each step whose weights were kept."""
    task = models.task_of(checkpoint)
    return {
        step: (
            float(torch.linalg.matrix_norm(models.matrix_of(model), 2)),
            float(models.window_of(model, task).window),
        )
        for step, model in checkpoint.snapshots().items()
    }


def _row(
    setup: Setup, key: tuple[str, str, float], checkpoint: Checkpoint, norms: Mapping[int, float]
) -> dict[str, Any]:
    task, (kind, inputs, lipschitz) = models.task_of(checkpoint), key
    n, contexts = models.trained_length(checkpoint), 400 if setup.preset.name == "smoke" else None
    best = theory.optimal_window(
        lipschitz, task.noise_std, n, task.dim, task.link, task.frequency, contexts=contexts
    )
    end = models.window_of(checkpoint.model, task)
    last = max(norms)
    early = min(norms, key=lambda step: abs(step - EARLY / STEPS * last))
    return {
        "class": kind,
        "inputs": inputs,
        "L": lipschitz,
        "σ": task.noise_std,
        "|M| early": norms[early],
        "mean |M|": float(np.mean([norm for step, norm in norms.items() if step > 0])),
        "|M| at the end": norms[last],
        "w at the end": float(end.window),
        "off w I": float(end.deviation),
        "best w": float(best.window),
        "low": float(best.low),
        "high": float(best.high),
        "best |M|": float(
            best.window * torch.linalg.matrix_norm(torch.linalg.inv(sigma_of(task)), 2)
        ),
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
            if len(rows) > 1:
                lines += _states_setting(kind, inputs, sorted(rows, key=lambda row: row["L"]))
    return tuple(lines) or (note("No model is here, so nothing is measured."),)


def _states_setting(kind: str, inputs: str, rows: Sequence[Mapping[str, Any]]) -> list[Statement]:
    ratios = {(a["L"], b["L"]): b["mean |M|"] / a["mean |M|"] for a, b in pairwise(rows)}
    (below, above), least = min(ratios.items(), key=lambda pair: pair[1])
    where = f"{kind} tasks, inputs {inputs}"
    text = (
        f"{where}: the mean |M| over {rows[0]['last step']:,} steps of training is "
        f"{_listed(rows, 'mean |M|')}; the least ratio between neighbours is {least:.3g}, of L = "
        f"{above:g} over L = {below:g} (one run each; the slides: |M| grows faster with larger L, "
        "which they do not name)."
    )
    beside = (
        f"{where}: early, at step {rows[0]['early step']:,}, |M| is {_listed(rows, '|M| early')}. "
        f"Training ends at w = {_listed(rows, 'w at the end')}; the best window by theory is w = "
        f"{_listed(rows, 'best w')}."
    )
    return [statement(text, FASTER, least), note(beside)]


def _listed(rows: Sequence[Mapping[str, Any]], column: str) -> str:
    """A number at each L, in words."""
    return ", ".join(f"{row[column]:.2g} at L = {row['L']:g}" for row in rows)


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
