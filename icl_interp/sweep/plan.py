"""Which runs a sweep makes: a recipe, what is set in it, and what is varied over."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from icl_interp.checkpoints.config import RunConfig
from icl_interp.errors import InputError, shown, unknown
from icl_interp.jobs.job import part
from icl_interp.plain_yaml import read_yaml
from icl_interp.provenance import canonical, run_id
from icl_interp.training import recipes

KEYS = ("recipe", "set", "over", "cases", "analyze", "device", "together")
ANALYZE = ("claims", "n_prompts", "seed")
MOST = 10_000  # runs of a sweep


@dataclass(frozen=True)
class Run:
    """One run of a sweep.

    Attributes:
        name: of its folder, made of what it changes.
        changes: what differs from the other runs, by dotted key of the recipe.
        config: the whole of it.
    """

    name: str
    changes: dict[str, Any]
    config: RunConfig


@dataclass(frozen=True)
class Plan:
    """A sweep.

    Attributes:
        recipe: the name or file of the recipe.
        runs: in the order of the file; the last key of a grid varies fastest.
        analyze: settings of `icl_interp.analyze`; None where runs are trained only.
        device: where runs are trained; one that is named takes a GPU of the engine.
        together: how many runs of one shape are trained as one job, at most.
    """

    recipe: str
    runs: tuple[Run, ...]
    analyze: Mapping[str, Any] | None = field(default_factory=dict)
    device: str | None = None
    together: int = 1


def read(file: str | Path) -> Plan:
    """The sweep of a YAML file.

    `recipe` names a recipe. `set` changes keys of it, `over` is a grid (a list of values for each
    key), and `cases` is a list of changes that go together. Each case is run over the whole grid.
    `analyze` holds settings of the analyses (claims, n_prompts, seed), or false. With `together`,
    so many runs that differ in their seed or learning rate alone are trained at once
    (`training.together`).

    Raises:
        InputError: unknown keys, values that a recipe refuses, or two runs that are the same.
    """
    where = str(file)
    data = _mapping(read_yaml(Path(file)), where)
    for key in data:
        if key not in KEYS:
            raise unknown(f"key in {where}", key, KEYS)
    # What the file says.
    recipe = data.get("recipe")
    if not isinstance(recipe, str):
        raise InputError(f"{where} must name a recipe, as in 'recipe: affine'")
    settings = data.get("analyze", {})
    if settings is not False:
        for key in _mapping(settings, f"analyze in {where}"):
            if key not in ANALYZE:
                raise unknown(f"key in analyze in {where}", key, ANALYZE)
    together = data.get("together", 1)
    if type(together) is not int or together < 1:
        raise InputError(
            f"together in {where} must be a whole number from 1 up, but got {shown(together)}"
        )
    # The runs, all of them before the first is made.
    runs: list[Run] = []
    for changes in changed(data, where):
        config = recipes.resolve(recipe, {**_mapping(data.get("set", {}), where), **changes})
        runs.append(Run(named(changes), changes, config))
    _check_different(runs, where)
    asked = None if settings is False else settings
    return Plan(recipe, tuple(runs), asked, data.get("device"), together)


def changed(data: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    """What each run changes.

    >>> list(changed({"over": {"a": [1, 2]}, "cases": [{"b": 0}, {"b": 5}]}, "x"))
    [{'b': 0, 'a': 1}, {'b': 0, 'a': 2}, {'b': 5, 'a': 1}, {'b': 5, 'a': 2}]
    """
    grid = _mapping(data.get("over", {}), f"over in {where}")
    count = 1
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise InputError(
                f"over.{key} in {where} must be a list of values, but got {shown(values)}"
            )
        count *= len(values)
    cases = data.get("cases", [{}])
    if not isinstance(cases, list) or not cases:
        raise InputError(f"cases in {where} must be a list of changes, but got {shown(cases)}")
    if count * len(cases) > MOST:
        raise InputError(
            f"{where} asks for {count * len(cases):,} runs, but at most {MOST:,} are allowed: "
            "split it"
        )
    for case in cases:
        for values in itertools.product(*grid.values()):
            yield {**_mapping(case, f"a case in {where}"), **dict(zip(grid, values, strict=True))}


def named(changes: Mapping[str, Any]) -> str:
    """The name of a run: its changes, keys without their sections where that tells them apart.

    >>> named({"training.seed": 1, "model.normalization_type": None})
    'seed=1, normalization_type=null'
    """
    last = [key.rpartition(".")[2] for key in changes]
    said = []
    for key, short, value in zip(changes, last, changes.values(), strict=True):
        shown_value = value if isinstance(value, str) else canonical(value)
        said.append(f"{short if last.count(short) == 1 else key}={shown_value}")
    return part(Path(), ", ".join(said) or "run").name.removesuffix(".part")


def _check_different(runs: list[Run], where: str) -> None:
    """Refuse runs that share a config or a name."""
    seen: dict[str, str] = {}
    for run in runs:
        # The identity of a config leaves out what a run only records.
        for key in (run_id(run.config), f"name {run.name}"):
            if key in seen:
                raise InputError(f"{where} asks for the same run twice: {seen[key]} and {run.name}")
            seen[key] = run.name


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{where} must be a mapping of keys to values, but got {shown(value)}")
    return value
