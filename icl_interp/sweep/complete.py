"""Trains what the open claims of a model wait for, and judges them again.

A claim about a kind of training compares several runs of the model's own kind with several of
another one (`Claim.beside`, `Claim.seeds`). What of these is not at hand is trained here, each run
from the model's own config, and the model is then analysed beside all of them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pandas import DataFrame

from icl_interp import pipeline
from icl_interp.analyses import registry
from icl_interp.analyses.claim import Claim
from icl_interp.checkpoints import bundled, companions, store
from icl_interp.checkpoints.companions import Role
from icl_interp.checkpoints.config import RunConfig, parse
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError, logger
from icl_interp.jobs import engine as jobs
from icl_interp.jobs.engine import HERE, Engine
from icl_interp.jobs.job import Job, claim_folder
from icl_interp.provenance import encode, read_json, run_id
from icl_interp.report.report import Report
from icl_interp.results import make_table
from icl_interp.sweep.outcome import trained
from icl_interp.training import recipes

log = logger(__name__)
OWN = "another seed"  # a run of the model's own kind
OPEN = ("inconclusive", "not_applicable")


@dataclass(frozen=True)
class Wanted:
    """A run that open claims wait for.

    Attributes:
        name: of its folder.
        config: the whole of it.
        claims: ids of those that wait for it.
    """

    name: str
    config: RunConfig
    claims: tuple[str, ...]


@dataclass(frozen=True)
class Completion:
    """What came of it.

    Attributes:
        report: on the model, beside all runs.
        claims: a row a claim that waited: "claim", and its verdict "before" and "after".
        trained: names of the runs that were made, or that the folder held already.
        failed: runs that were not made, with the reason of each.
    """

    report: Report
    claims: DataFrame
    trained: tuple[str, ...]
    failed: Mapping[str, str]


def complete(
    source: Any,
    out: Path,
    engine: Engine = HERE,
    *,
    beside: Path | None = None,
    claims: Sequence[str] | None = None,
    n_prompts: int | None = None,
    device: str | None = None,
    watch: Callable[[str], object] | None = None,
    table: bool = False,
) -> Completion:
    """Train the runs that open claims on a model wait for, and analyse it beside them.

    Called again after an interruption it goes on: no run is trained twice.

    Args:
        source: a run, as `analyze` takes it; its config tells how it was trained.
        out: gets `runs/` and `jobs/` with a folder for each run, and `report/`.
        engine: where runs are trained.
        beside: a folder of runs, of which those that match count as well.
        claims: ids of the claims that are to be closed; all that wait by default.
        n_prompts: size of the sample of both analyses, as of `analyze`.
        device: where runs are trained and the model is analysed.
        watch: is told the name of each run as it ends.
        table: show a live table.

    Raises:
        InputError: the run does not tell how it was trained, or the folder holds what another run
            waits for.
    """
    loaded = store.load(source)
    if loaded.config.training is None:
        raise InputError(
            f"{loaded.name} does not say how it was trained (its config has no section training), "
            "so nothing can be trained like it"
        )
    claim_folder(out, {"completes": run_id(loaded.config)})
    found = companions.within(beside, encode(loaded.config)) if beside else []
    settings = {"n_prompts": n_prompts, "device": device, "progress": False}

    # Which claims are open for want of runs, and which runs those are.
    chosen = None if claims is None else list(claims)
    asked = [claim.id for claim in registry.select(chosen) if claim.beside]
    before = pipeline.analyze(loaded, claims=asked, companions=found, **settings)
    work = []
    for one in wanted(loaded, open_claims(before), found):
        arguments = {
            "config": encode(one.config),
            "folder": out / "runs" / one.name,
            "report": out / "runs" / one.name,
            "asked": None,
            "device": device,
        }
        gpus = 0 if device in (None, "cpu") else 1
        work.append(Job(one.name, out / "jobs" / one.name, trained, arguments, gpus))

    # They are made; those that fail are named, and the others count.
    ends = jobs.run(work, engine, watch=watch, table=table)
    failed = {}
    made = []
    for end in ends:
        if end.state == "done":
            made.append(end.job.name)
        else:
            failed[end.job.name] = end.reason
    folders = [*found, *(out / "runs" / name for name in made)]
    report = pipeline.analyze(loaded, claims=chosen, companions=folders, **settings)
    report.save(out / "report", ("html", "json"))
    return Completion(report, _verdicts(before, report), tuple(made), failed)


def open_claims(report: Report) -> list[Claim]:
    """The claims of a report that are open, and would apply with matched models beside the model.

    A claim that does not apply because there are none waits for them too.
    """
    facts = report.facts
    found = []
    for finding in report.findings:
        (claim,) = registry.select((finding.id,))
        if not claim.beside or finding.verdict not in OPEN:
            continue
        there = dict.fromkeys(map(Role, claim.beside), "") | dict(facts.companions)
        if claim.applies(replace(facts, companions=there)):
            found.append(claim)
    return found


def wanted(loaded: Checkpoint, claims: Sequence[Claim], found: Iterable[Path] = ()) -> list[Wanted]:
    """The runs that claims wait for, each once: those of the model's own kind first.

    Where some runs of a kind are at hand, the others are made like these.

    Args:
        loaded: the model.
        claims: that are open.
        found: folders of runs that are at hand, beside those of the package.
    """
    run = encode(loaded.config)
    at_hand = _at_hand(run, found)
    every: dict[tuple[str, int], Wanted] = {}
    for claim in claims:
        for kind in (OWN, *claim.beside):
            held = at_hand.get(kind, {})
            like = next(iter(held.values()), None) or _changed(loaded.config, kind)
            if like is None:
                continue
            # The first seeds that no run at hand has.
            fresh = sorted(set(range(claim.seeds + len(held))) - set(held))
            for seed in fresh[: max(claim.seeds - len(held), 0)]:
                one = every.get((kind, seed))
                config = recipes.resolve(like, {"training.seed": seed})
                name = f"seed_{seed}" if kind == OWN else f"{kind.replace(' ', '_')}_seed_{seed}"
                ids = (*one.claims, claim.id) if one else (claim.id,)
                every[kind, seed] = Wanted(name, config, ids)
    return [every[key] for key in sorted(every, key=lambda key: key[0] != OWN)]


def _changed(config: RunConfig, kind: str) -> RunConfig | None:
    """The config of a matched run of a kind; None where there can be none."""
    changes = companions.changes(kind, encode(config))
    if changes is None:
        return None
    try:
        return recipes.resolve(config, changes)
    except InputError as error:  # an architecture that allows no such change
        log.info("no run can be made %s: %s", kind, error)
        return None


def _at_hand(run: Mapping[str, Any], found: Iterable[Path]) -> dict[str, dict[int, RunConfig]]:
    """The largest group of runs alike but for their seed, by seed, of each kind that matches."""
    files = [path / "config.json" for path in found]
    for part in ("models", "seeds"):
        files += sorted((bundled.ZOO / part).glob("*/config.json"))
    groups: dict[tuple[str, str], dict[int, RunConfig]] = {}
    mine = companions.kind_of(run)
    for other in (run, *map(read_json, files)):
        group = companions.kind_of(other)
        role = companions.relation(run, other)
        training = other.get("training") or {}
        if group == mine:
            kind = OWN
        elif role is None or role.kind == OWN:
            continue  # its seed is another one, and so is its training
        else:
            kind = role.kind
        if "seed" in training:
            groups.setdefault((kind, group), {})[training["seed"]] = parse(other)
    largest: dict[str, dict[int, RunConfig]] = {}
    for (kind, _), group in groups.items():
        if len(group) > len(largest.get(kind, {})):
            largest[kind] = group
    return largest


def _verdicts(before: Report, after: Report) -> DataFrame:
    """What became of the claims that waited."""
    columns: dict[str, list[Any]] = {"claim": [], "before": [], "after": []}
    for claim in open_claims(before):
        columns["claim"].append(claim.id)
        columns["before"].append(before[claim.id].verdict)
        columns["after"].append(after[claim.id].verdict)
    return make_table(columns, note="claims that waited for runs")
