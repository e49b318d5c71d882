"""Kinds of training: runs that differ by their seed alone, and what each of them does.

The latter is measured in `measurements.shift`. A claim about a kind of training (without a norm,
attention only, on a wider interval) is about all runs of that kind, so the arms of a comparison are
runs of several seeds. For the kinds that come with the package the numbers of every seed come with
it, too (`results/seeds.json`, made by tools/measure_seeds.py, which names the weights by their
hash). Of a model of one's own, and of companions that are given, they are measured here, on the
same sample.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pandas import DataFrame

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.checkpoints import bundled as zoo
from icl_interp.checkpoints import store
from icl_interp.checkpoints.companions import kind_of, training_of
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.models.transformer import HookedTransformer
from icl_interp.models.weights import weights_hash
from icl_interp.provenance import encode, read_json, run_id
from icl_interp.results import table_of_rows
from icl_interp.structured import Stored, of_schema
from icl_interp.studies.limits.measurements.shift import RATE, Numbers, Sample, half_width, measured

SCHEMA = "icl_interp.seeds/1"
FILE = Path(__file__).parent.parent / "results" / "seeds.json"
LEAST = 4  # seeds of each arm: 3 against 3 can never decide (analyses.permutation)
N_FRESH = 4  # untrained models of a kind that are measured here
# Relative change of all weights together up to which a run is a copy of another, and no seed of its
# own.
COPY = 1e-3
OWN = "model"  # the arm that the analysed model belongs to
SEED = "another seed"
TRAINED, UNTRAINED = "trained", "untrained"
BUNDLED, HERE, NOWHERE = "comes with the package", "measured here", "not measured"


@dataclass(frozen=True)
class Kind:
    """A kind of training as it comes with the package: recipe, and numbers of each seed.

    Numbers of fresh weights are there, too.

    Attributes:
        recipe: its name.
        runs: a mapping a run: "name", "seed", "weights" (their hash), "run_id", "command",
            "numbers".
        untrained: numbers of models with fresh weights.
    """

    recipe: str
    runs: tuple[Mapping[str, Any], ...]
    untrained: tuple[Numbers, ...]


@dataclass(frozen=True)
class Run:
    """A run of an arm: where its numbers are from, or the model to measure."""

    name: str
    seed: int | None
    weights: str
    numbers: Numbers | None = None
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True)
class Arm:
    """All runs of one kind of training that are at hand.

    Attributes:
        name: `OWN`, or the role that they have beside the model.
        kind: names the kind (`companions.kind_of`).
        training: names how they were trained, but for the seed; "" where nothing tells.
        recipe: of a kind that comes with the package, else "".
        a: of U(-a, a), where inputs and functions come from one; else NaN.
        runs: trained.
        untrained: numbers of models with fresh weights, where they come with the package.
    """

    name: str
    kind: str
    training: str
    recipe: str
    a: float
    runs: tuple[Run, ...]
    untrained: tuple[Numbers, ...]

    @property
    def enough(self) -> bool:
        """Whether it has seeds enough to decide anything."""
        return len(self.runs) >= LEAST

    @property
    def decides(self) -> bool:
        """Whether it has seeds enough, of a training that is known."""
        return self.enough and bool(self.training)


@functools.cache
def _file() -> dict[str, Any]:
    return of_schema(read_json(FILE), SCHEMA, FILE).facts()


def sizes() -> tuple[float, ...]:
    """The half-widths of the intervals that runs which come with the package were tested on."""
    return tuple(_file()["sizes"])


@functools.cache
def kinds() -> dict[str, Kind]:
    """The kinds that come with the package, by what names them."""

    def numbers(data: Mapping[str, Any]) -> Numbers:
        return Stored(data, f"{FILE}: numbers").of(dict[str, float])

    return {
        name: Kind(
            data["recipe"],
            tuple({**run, "numbers": numbers(run["numbers"])} for run in data["runs"]),
            tuple(map(numbers, data["untrained"])),
        )
        for name, data in _file()["kinds"].items()
    }


# ---- the arms of a comparison --------------------------------------------------------------------


def arms(lab: Lab, roles: Sequence[str]) -> list[Arm]:
    """The model's own arm, and one for each role of these kinds in which a companion is at hand.

    A companion counts as a seed of the model's own arm only if everything but its seed is alike,
    training included.
    """
    own = Checkpoint(
        lab.single, lab.task, lab.encoding, lab.config, provenance={"name": "this model"}
    )
    groups: dict[str, list[Checkpoint]] = {OWN: [own]}
    for role, other in sorted(lab.companions.items(), key=lambda item: item[0].further):
        if role.kind == SEED:
            groups[OWN].append(other)
        elif role.kind in roles:
            groups.setdefault(str(role.first), []).append(other)
    return [_arm(name, runs) for name, runs in groups.items()]


def _arm(name: str, given: Sequence[Checkpoint]) -> Arm:
    run = encode(given[0].config)
    kind = kind_of(run)
    bundled = kinds().get(kind, Kind("", (), ()))
    found: dict[str, Run] = {}
    copied: set[str] = set()  # weights of the package's runs that were given, or copies of them
    for one in given:
        if kind_of(encode(one.config)) == kind:
            weights = weights_hash(one.model)
            source = _source(one, weights, bundled.runs)
            numbers = source["numbers"] if source and source["weights"] == weights else None
            seed = one.config.training.seed if one.config.training else None
            if weights not in found and (source is None or source["weights"] not in copied):
                found[weights] = Run(one.name, seed, weights, numbers, one)
            copied |= {source["weights"]} if source else set()
    # A seed is one run: other weights of the same seed (an edited model's, say) stand in its place,
    # and so do copies.
    taken = {run.seed for run in found.values()}
    others = [
        one for one in bundled.runs if one["seed"] not in taken and one["weights"] not in copied
    ]
    runs = [*found.values(), *map(_bundled, others)]
    a = half_width(given[0].task)
    training = training_of(run)
    return Arm(
        name,
        kind,
        run_id(training) if training else "",
        bundled.recipe,
        float("nan") if a is None else a,
        tuple(runs),
        bundled.untrained,
    )


def _source(
    one: Checkpoint, weights: str, runs: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """The run of the package that a run of its kind is, or is a copy of; None for other runs."""
    if known := next((run for run in runs if run["weights"] == weights), None):
        return known
    return next((run for run in runs if is_copy(one.model, _model_of(run["name"]))), None)


@functools.cache
def _model_of(name: str) -> HookedTransformer:
    """A run of the package, or a further seed of one of its recipes."""
    folder = zoo.folder(name)
    return store.load(folder if folder.exists() else zoo.ZOO / "seeds" / name).model


def is_copy(model: HookedTransformer, other: HookedTransformer) -> bool:
    """Whether two models' weights together differ by a relative change of at most `COPY`.

    Weights of two seeds are independent, so that they differ by as much as they are large.
    """
    mine, its = (
        {name: t.detach().double() for name, t in one.named_parameters()} for one in (model, other)
    )
    if {name: t.shape for name, t in mine.items()} != {name: t.shape for name, t in its.items()}:
        return False
    change = sum(float((mine[name] - its[name]).square().sum()) for name in mine)
    return change <= COPY**2 * sum(float(t.square().sum()) for t in its.values())


def _bundled(run: Mapping[str, Any]) -> Run:
    return Run(run["name"], run["seed"], run["weights"], run["numbers"])


# ---- measurements --------------------------------------------------------------------------------


def table(lab: Lab, roles: Sequence[str], families: Sequence[str]) -> DataFrame:
    """A row for each run of each arm: who it is, its error rate, and its numbers.

    Trained runs come first, then untrained ones. Where no second arm has seeds enough, or nothing
    tells how the model was trained, nothing could be decided: then nothing is measured, and numbers
    that do not come with the package are NaN. The package has the error rate alone of kinds with
    few seeds. Their runs are measured here if their weights are at hand, else they are "not
    measured".
    """
    found = arms(lab, roles)
    decidable = found[0].decides and any(arm.decides for arm in found[1:])
    bundled = any(_whole(run.numbers, families) for arm in found if arm.enough for run in arm.runs)
    sample = Sample() if bundled else Sample(n_functions=4 * lab.n_units, more=1)
    at = (
        sizes()
        if bundled
        else tuple(sorted({arm.a for arm in found if arm.enough and np.isfinite(arm.a)}))
    )
    rows, blank = [], untrained_families(families)
    for arm in found:
        measure = functools.partial(measured, sample=sample, sizes=at)
        for run in arm.runs:
            numbers, source = run.numbers, BUNDLED if _whole(run.numbers, families) else NOWHERE
            if source == NOWHERE and decidable and arm.enough and run.checkpoint:
                numbers, source = measure(run.checkpoint, families), HERE
            rows.append(_row(arm, TRAINED, run, numbers, source))
        if decidable and arm.enough:
            whole = all(_whole(numbers, blank) for numbers in arm.untrained)
            made = arm.untrained if whole else ()
            for i, numbers in enumerate(
                made or [measure(_fresh(arm, i), blank) for i in range(N_FRESH)]
            ):
                rows.append(
                    _row(arm, UNTRAINED, Run(f"fresh weights {i + 1}", None, ""), numbers, BUNDLED)
                )
    wanted = _columns(rows, families)
    note = (
        f"{sample.n_functions} functions x {sample.n_contexts} contexts, seed {sample.seed}, the "
        "same for all runs"
    )
    note += f"; {sample.more} times as many in distribution" if sample.more > 1 else ""
    return table_of_rows([{key: row.get(key, np.nan) for key in wanted} for row in rows], note)


def _whole(numbers: Numbers | None, families: Sequence[str]) -> bool:
    """Whether numbers hold those of every family, and not the error rate alone."""
    known = {key.split()[0] for key in numbers or {}}
    return bool(numbers) and all(PREFIXES[family][0] in known for family in families)


def _fresh(arm: Arm, i: int) -> Checkpoint:
    """An untrained model of the config of an arm's first run."""
    return untrained(next(run.checkpoint for run in arm.runs if run.checkpoint), i)


def untrained_families(families: Sequence[str]) -> tuple[str, ...]:
    """What is measured of untrained models: nobody asks them about scaled functions."""
    return tuple("own functions" if family == "functions" else family for family in families)


def untrained(one: Checkpoint, i: int) -> Checkpoint:
    """A model of the same config with fresh weights, numbered."""
    model = HookedTransformer(one.model.cfg, seed=1001 + i).eval()
    return Checkpoint(
        model, one.task, one.encoding, one.config, provenance={"name": f"fresh weights {i + 1}"}
    )


def _row(arm: Arm, training: str, run: Run, numbers: Numbers | None, source: str) -> dict[str, Any]:
    return {
        "arm": arm.name,
        "weights are": training,
        "run": run.name,
        "seed": float("nan") if run.seed is None else run.seed,
        "weights": run.weights[:12],
        "numbers": source,
        "kind": arm.kind,
        "training": arm.training,
        "recipe": arm.recipe,
        "a": arm.a,
        **(numbers or {}),
    }


PREFIXES = {
    "functions": ("functions",),
    "own functions": ("functions",),
    "inside": ("inside",),
    "intervals": ("both", "alone"),
    "onsets": ("onset",),
}


def _columns(rows: Sequence[Mapping[str, Any]], families: Sequence[str]) -> list[str]:
    """What tells a run, its error rate, and the numbers of the families that any run has."""
    prefixes = tuple(prefix for family in families for prefix in PREFIXES[family])
    keys = dict.fromkeys(key for row in rows for key in row)
    told = (
        "arm",
        "weights are",
        "run",
        "seed",
        "weights",
        "numbers",
        "kind",
        "training",
        "recipe",
        "a",
    )
    return [*told, RATE, *(key for key in keys if key.split()[0] in prefixes)]


@measurement("seeds/functions", version=2)
def functions(lab: Lab) -> DataFrame:
    """Errors on scaled functions, of the runs like the model and of those unlike in one respect.

    The latter are without a norm, without MLPs, or wider.
    """
    roles = ("no norm", "with norm", "attention only", "with MLP", "wider", "narrower")
    return table(lab, roles, ("functions",))


@measurement("seeds/inside", version=2)
def inside(lab: Lab) -> DataFrame:
    """Errors across the inputs' interval, of the runs like the model and with or without a norm."""
    return table(lab, ("no norm", "with norm"), ("inside",))


@measurement("seeds/intervals", version=2)
def intervals(lab: Lab) -> DataFrame:
    """Errors of runs trained on several U(-a, a) on each of these, and where outputs level off."""
    return table(
        lab,
        ("interval",),
        ("intervals", "onsets") if lab.config.model.normalization_type else ("intervals",),
    )
