"""Families of runs that differ in L, sigma and seed alone, and their learned windows.

A claim about how windows follow the task is about a kind of training, so it rests on many runs. For
two kinds the windows of all runs come with the package (`results/family.json`, made by
tools/measure_windows.py, which names the weights by their hash). The model at hand joins the family
that it is a member of: one of the same recipe, whose run may differ from theirs in L, the noise,
the seed and its length.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pandas import DataFrame
from xarray import DataArray

from icl_interp.analyses.facts import Facts, needs_training
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.checkpoints.config import RunConfig
from icl_interp.errors import shown
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.weights import weights_hash
from icl_interp.provenance import encode, read_json
from icl_interp.results import numbers_in, table_of_rows
from icl_interp.structured import of_schema
from icl_interp.studies.lipschitz.measurements.transfer_errors import on_unit_sphere
from icl_interp.studies.lipschitz.measurements.unit import (
    kernel,
    needs_unit,
    scores,
    task_in,
    task_of,
    whitened_kernel,
)
from icl_interp.theory import lipschitz as theory
from icl_interp.training import recipes

SCHEMA = "icl_interp.windows/1"
FILE = Path(__file__).parent.parent / "results" / "family.json"
UNIT = "softmax units"
LAYER = "layers with an MLP and norms"
# Of all runs: labelled examples, coordinates, functions.
N = 100
D = 3
LINK = "relu"
THIS = "this model"
BUNDLED = "comes with the package"
# Settings of a run that make it no other kind of training. That it is no shorter than the runs is
# asked apart.
FREE = {
    "task.lipschitz",
    "task.noise_std",
    "training.steps",
    "training.warmup_steps",
    "training.seed",
    "training.log_every",
    "training.checkpoint_every",
    "training.snapshots",
}
RECIPE = "recipe"
STEPS = "training.steps"


def family_in(cfg: HookedTransformerConfig) -> str | None:
    """The family that a layer of one softmax head belongs to, whatever its width."""
    if cfg.attn_only:
        return UNIT if cfg.normalization_type is None else None
    return LAYER if cfg.normalization_type == "LN" and cfg.norm_position == "pre" else None


def needs_family(facts: Facts) -> str | None:
    """Why a model is no member of a family that comes with the package."""
    if reason := needs_unit(facts):
        return reason
    task = task_in(facts)
    if task.link != LINK or task.n_points != N + 1 or task.dim != D or not on_unit_sphere(task):
        return (
            "The claim is about runs at several L and noises, which come with the package for "
            f"F_L^+ and {N} examples on the unit sphere in {D} dimensions; this model learned "
            "another task"
        )
    if family_in(facts.config) is None:
        return (
            f"The claim is about {UNIT} and {LAYER}, because runs of these come with the package; "
            "this model is neither"
        )
    return needs_training(facts)


@functools.cache
def families() -> dict[str, Any]:
    """The families that come with the package, by name: "runs" and "untrained" windows."""
    if not FILE.exists():
        return {}
    return of_schema(read_json(FILE), SCHEMA, FILE)["families"].facts()


def recipe_of(family: str) -> RunConfig:
    """How the runs of a family were trained."""
    known = families()[family]
    return recipes.resolve(known["recipe"], known["changes"])


def _settings(data: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Plain data as one level of names with dots."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        name = f"{before}{key}"
        found |= _settings(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return found


@measurement("lipschitz/kind of training")
def kind_of_training(lab: Lab) -> DataFrame:
    """How this model's run differs from the recipe of the runs in the package.

    The table has a row a setting.

    The first row names the recipe and the second the steps of training; "differs" is 1 where a
    setting makes another kind of training, or where the run is shorter than theirs.
    """
    kind = family_in(lab.model.cfg) or ""
    mine = _settings(encode(lab.config))
    other = _settings(encode(recipe_of(kind)))
    rows = [_setting(RECIPE, "", families()[kind]["recipe"], differs=False)]
    steps = mine.get(STEPS) or 0
    their_steps = other.get(STEPS) or 0
    rows.append(_setting(STEPS, str(steps), str(their_steps), differs=steps < their_steps))
    for name in sorted({*mine, *other} - FREE):
        value = mine.get(name)
        theirs = other.get(name)
        if value != theirs:
            rows.append(_setting(name, shown(value), shown(theirs), differs=True))
    note = "the runs: of the recipe, with the changes that results/family.json names"
    return table_of_rows(rows, note)


def _setting(name: str, mine: str, theirs: str, differs: bool) -> dict[str, Any]:
    return {"setting": name, "this model": mine, "the runs": theirs, "differs": int(differs)}


def window_of(table: DataFrame, matrices: DataArray) -> dict[str, float]:
    """w of a model, the mean eigenvalue of its M, and how much of the head's scores M explains.

    Args:
        table: of `scores`.
        matrices: of `kernel`.
    """
    found = theory.isotropy(whitened_kernel(matrices))
    fit = numbers_in(table)["fit"]
    return {"w": float(found.window), "deviation": float(found.deviation), "fit": fit}


@measurement("lipschitz/family", needs=(scores, kernel))
def family(lab: Lab, table: DataFrame, matrices: DataArray) -> DataFrame:
    """A row a run: L, the noise, the seed, the window w that it learned and the best one.

    This model comes last.
    """
    task = task_of(lab)
    own = window_of(table, matrices)
    name = family_in(lab.model.cfg)
    known = families().get(name or "", {"runs": []})
    weights = weights_hash(lab.model)
    rows = []
    for run in known["runs"]:
        row = {
            "run": run["name"],
            "numbers": BUNDLED,
            "L": float(run["lipschitz"]),
            "noise": float(run["noise"]),
            "seed": float(run["seed"]),
            "w": float(run["w"]),
            "best": float(run["best"]),
            "fit": float(run["fit"]),
            "weights": run["weights"][:12],
        }
        rows.append(row)
    best = theory.optimal_window(task.lipschitz, task.noise_std, N, D)
    of_this = {
        "run": THIS,
        "numbers": "measured here",
        "L": task.lipschitz,
        "noise": task.noise_std,
        "seed": float("nan"),
        "w": own["w"],
        "best": float(best.window),
        "fit": own["fit"],
        "weights": weights[:12],
    }
    rows.append(of_this)
    note = f"{name}; n = {N}, d = {D}, F_L^+; best: by scalar minimisation of the loss"
    return table_of_rows(rows, note)
