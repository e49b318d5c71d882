"""Kinds of training: runs that differ by their seed alone, and what each of them does.

The latter is measured in `measurements.shift`. A claim about a kind of training (without a norm,
attention only, on a wider interval) is about all runs of that kind, so the arms of a comparison are
runs of several seeds. For the kinds that come with the package the numbers of every seed come with
it, too (`results/seeds.json`, made by tools/measure_seeds.py, which names the weights by their
hash). Of a model of one's own, and of companions that are given, they are measured here, on the
same sample.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
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
TRAINED = "trained"
UNTRAINED = "untrained"
# Where numbers are from.
BUNDLED = "comes with the package"
HERE = "measured here"
NOWHERE = "not measured"


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
    data = read_json(FILE)
    return of_schema(data, SCHEMA, FILE).facts()


def sizes() -> tuple[float, ...]:
    """The half-widths of the intervals that runs which come with the package were tested on."""
    return tuple(_file()["sizes"])


@functools.cache
def kinds() -> dict[str, Kind]:
    """The kinds that come with the package, by what names them."""

    def numbers(data: Mapping[str, Any]) -> Numbers:
        return Stored(data, f"{FILE}: numbers").of(dict[str, float])

    found = {}
    for name, data in _file()["kinds"].items():
        runs = []
        for run in data["runs"]:
            checked = numbers(run["numbers"])
            runs.append({**run, "numbers": checked})
        untrained = map(numbers, data["untrained"])
        found[name] = Kind(data["recipe"], tuple(runs), tuple(untrained))
    return found


# ---- the arms of a comparison --------------------------------------------------------------------


def arms(lab: Lab, roles: Sequence[str]) -> list[Arm]:
    """The model's own arm, and one for each role of these kinds in which a companion is at hand.

    A companion counts as a seed of the model's own arm only if everything but its seed is alike,
    training included.
    """
    provenance = {"name": "this model"}
    own = Checkpoint(lab.single, lab.task, lab.encoding, lab.config, provenance=provenance)
    groups: dict[str, list[Checkpoint]] = {OWN: [own]}
    companions = sorted(lab.companions.items(), key=lambda item: item[0].further)
    for role, other in companions:
        if role.kind == SEED:
            groups[OWN].append(other)
        elif role.kind in roles:
            groups.setdefault(str(role.first), []).append(other)
    found = []
    for name, runs in groups.items():
        found.append(_arm(name, runs))
    return found


def _arm(name: str, given: Sequence[Checkpoint]) -> Arm:
    first = given[0]
    config = encode(first.config)
    kind = kind_of(config)
    bundled = kinds().get(kind, Kind("", (), ()))
    found: dict[str, Run] = {}
    copied: set[str] = set()  # weights of the package's runs that were given, or copies of them
    for one in given:
        if kind_of(encode(one.config)) != kind:
            continue
        weights = weights_hash(one.model)
        source = _source(one, weights, bundled.runs)
        is_new = weights not in found
        numbers = None
        if source:
            original = source["weights"]
            is_new = is_new and original not in copied
            copied.add(original)
            if original == weights:
                numbers = source["numbers"]
        if is_new:
            training = one.config.training
            seed = training.seed if training else None
            found[weights] = Run(one.name, seed, weights, numbers, one)

    # A seed is one run: other weights of the same seed (an edited model's, say) stand in its place,
    # and so do copies.
    runs = list(found.values())
    taken = {run.seed for run in runs}
    for one in bundled.runs:
        if one["seed"] not in taken and one["weights"] not in copied:
            runs.append(Run(one["name"], one["seed"], one["weights"], one["numbers"]))
    a = half_width(first.task)
    if a is None:
        a = float("nan")
    how_trained = training_of(config)
    training_id = run_id(how_trained) if how_trained else ""
    return Arm(name, kind, training_id, bundled.recipe, a, tuple(runs), bundled.untrained)


def _source(
    one: Checkpoint, weights: str, runs: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """The run of the package that a run of its kind is, or is a copy of; None for other runs."""
    for run in runs:
        if run["weights"] == weights:
            return run
    for run in runs:
        if is_copy(one.model, _model_of(run["name"])):
            return run
    return None


@functools.cache
def _model_of(name: str) -> HookedTransformer:
    """A run of the package, or a further seed of one of its recipes."""
    folder = zoo.folder(name)
    if not folder.exists():
        folder = zoo.ZOO / "seeds" / name
    return store.load(folder).model


def is_copy(model: HookedTransformer, other: HookedTransformer) -> bool:
    """Whether two models' weights together differ by a relative change of at most `COPY`.

    Weights of two seeds are independent, so that they differ by as much as they are large.
    """
    mine = dict(model.named_parameters())
    its = dict(other.named_parameters())
    if mine.keys() != its.keys():
        return False
    change = 0.0
    size = 0.0
    for name, parameter in mine.items():
        if parameter.shape != its[name].shape:
            return False
        a = parameter.detach().double()
        b = its[name].detach().double()
        change += float((a - b).square().sum())
        size += float(b.square().sum())
    return change <= COPY**2 * size


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
    compared = [arm for arm in found if arm.enough]

    bundled = any(_has_bundled(arm, families) for arm in compared)

    # What is measured here is measured like the package's numbers, where it has any.
    sample = Sample() if bundled else Sample(n_functions=4 * lab.n_units, more=1)
    widths = sizes() if bundled else _widths(compared)
    measure = functools.partial(measured, sample=sample, sizes=widths)

    rows = []
    for arm in found:
        is_measured = decidable and arm.enough
        for run in arm.runs:
            numbers = run.numbers
            source = BUNDLED if _whole(numbers, families) else NOWHERE
            if source == NOWHERE and is_measured and run.checkpoint:
                numbers = measure(run.checkpoint, families)
                source = HERE
            rows.append(_row(arm, TRAINED, run, numbers, source))
        if is_measured:
            of_untrained, source = _numbers_of_untrained(arm, families, measure)
            for i, numbers in enumerate(of_untrained):
                run = Run(f"fresh weights {i + 1}", None, "")
                rows.append(_row(arm, UNTRAINED, run, numbers, source))
    wanted = _columns(rows, families)
    whole_rows = []
    for row in rows:
        whole_rows.append({key: row.get(key, np.nan) for key in wanted})
    note = (
        f"{sample.n_functions} functions x {sample.n_contexts} contexts, seed {sample.seed}, the "
        "same for all runs"
    )
    if sample.more > 1:
        note += f"; {sample.more} times as many in distribution"
    return table_of_rows(whole_rows, note)


def _widths(compared: Sequence[Arm]) -> tuple[float, ...]:
    """The half-widths of these arms' intervals, ascending."""
    found = {arm.a for arm in compared if np.isfinite(arm.a)}
    return tuple(sorted(found))


def _has_bundled(arm: Arm, families: Sequence[str]) -> bool:
    """Whether numbers of any of its runs come with the package."""
    return any(_whole(run.numbers, families) for run in arm.runs)


def _whole(numbers: Numbers | None, families: Sequence[str]) -> bool:
    """Whether numbers hold those of every family, and not the error rate alone."""
    if not numbers:
        return False
    known = {key.split()[0] for key in numbers}
    wanted = {PREFIXES[family][0] for family in families}
    return wanted <= known


def _numbers_of_untrained(
    arm: Arm, families: Sequence[str], measure: Callable[..., Numbers]
) -> tuple[list[Numbers], str]:
    """Of models with fresh weights: those of the package, else measured here; and which it is."""
    blank = untrained_families(families)
    known = list(arm.untrained)
    if known and all(_whole(numbers, blank) for numbers in known):
        return known, BUNDLED
    return [measure(_fresh(arm, i), blank) for i in range(N_FRESH)], HERE


def _fresh(arm: Arm, i: int) -> Checkpoint:
    """An untrained model of the config of an arm's first run."""
    given = next(run.checkpoint for run in arm.runs if run.checkpoint)
    return untrained(given, i)


def untrained_families(families: Sequence[str]) -> tuple[str, ...]:
    """What is measured of untrained models: nobody asks them about scaled functions."""
    found = []
    for family in families:
        found.append("own functions" if family == "functions" else family)
    return tuple(found)


def untrained(one: Checkpoint, i: int) -> Checkpoint:
    """A model of the same config with fresh weights, numbered."""
    model = HookedTransformer(one.model.cfg, seed=1001 + i).eval()
    provenance = {"name": f"fresh weights {i + 1}"}
    return Checkpoint(model, one.task, one.encoding, one.config, provenance=provenance)


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
    prefixes = []
    for family in families:
        prefixes += PREFIXES[family]
    numbers = []
    for row in rows:
        for key in row:
            if key.split()[0] in prefixes and key not in numbers:
                numbers.append(key)
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
    return [*told, RATE, *numbers]


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
    families = ["intervals"]
    if lab.config.model.normalization_type:
        families.append("onsets")
    return table(lab, ("interval",), families)
