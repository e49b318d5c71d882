"""Measure every seed of the kinds of training in the package, on which claims on kinds rest.

python tools/measure_seeds.py PARTS

It writes icl_interp/studies/limits/results/seeds.json, and takes about 15 minutes on one core.
PARTS is a folder that keeps the numbers of each model, a job: called again, it makes what is
missing. Another version of the code needs another folder.

Kinds with four seeds or more are measured whole. Of others, which can decide nothing, the error
rate alone is kept: it tells whether a run has learned its task. Of these, and of untrained models,
it is the error on fewer functions.
"""

import sys
from pathlib import Path
from typing import Any

from icl_interp import jobs
from icl_interp.checkpoints import bundled, companions, store
from icl_interp.checkpoints.companions import Role
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.jobs import Engine, Job, part, results
from icl_interp.models.weights import weights_hash
from icl_interp.provenance import encode, environment, write_json
from icl_interp.studies.limits.measurements import seeds
from icl_interp.studies.limits.measurements.shift import Sample, half_width, measured

N_UNTRAINED = 5
NORM, INTERVAL = {"no norm", "with norm"}, {"interval"}
ROLES = {*NORM, *INTERVAL, "attention only", "with MLP", "wider", "narrower"}


def runs() -> list[Checkpoint]:
    """The bundled models and the further seeds of their recipes."""
    further = sorted(path.parent for path in (bundled.ZOO / "seeds").glob("*/config.json"))
    return [store.load(name) for name in bundled.names()] + [
        store.load(folder) for folder in further
    ]


def by_kind(found: list[Checkpoint]) -> dict[str, list[Checkpoint]]:
    """Runs by their kind, each in the order of its seeds."""
    kinds: dict[str, list[Checkpoint]] = {}
    for one in found:
        kinds.setdefault(companions.kind_of(encode(one.config)), []).append(one)
    return {kind: sorted(alike, key=seed_of) for kind, alike in kinds.items()}


def seed_of(one: Checkpoint) -> int:
    """The seed that a run was trained from."""
    assert one.config.training  # of every run in the zoo
    return one.config.training.seed


def roles_of(one: Checkpoint, others: list[Checkpoint]) -> set[str]:
    """The kinds of role in which others stand beside a run."""
    found = (companions.relation(encode(one.config), encode(other.config)) for other in others)
    return {role.kind for role in found if isinstance(role, Role)}


def families(roles: set[str], whole: bool) -> tuple[str, ...]:
    """What claims ask of a kind that stands beside others in these roles."""
    if not whole:
        return ()
    wanted = {"functions": True, "inside": bool(NORM & roles), "intervals": bool(INTERVAL & roles)}
    return (
        *(name for name, asked in wanted.items() if asked),
        *(("onsets",) if INTERVAL & roles else ()),
    )


def numbers(name: str, untrained: int | None, **asked: Any) -> dict[str, float]:
    """What is measured of a run; of fresh weights for it, where their number is given."""
    one = store.load(name if name in bundled.names() else bundled.ZOO / "seeds" / name)
    return measured(one if untrained is None else seeds.untrained(one, untrained), **asked)


def job(parts: Path, name: str, untrained: int | None = None, **asked: Any) -> Job:
    """These numbers as a job."""
    said = name if untrained is None else f"{name}, untrained {untrained}"
    return Job(said, part(parts, said), numbers, {"name": name, "untrained": untrained, **asked})


def main() -> None:
    """Measure all kinds and write the file."""
    parts = Path(sys.argv[1])
    kinds = by_kind(runs())
    first = [alike[0] for alike in kinds.values()]
    kept = {
        kind: roles for kind, alike in kinds.items() if (roles := roles_of(alike[0], first) & ROLES)
    }
    whole = {kind for kind in kept if len(kinds[kind]) >= seeds.LEAST}
    widths = {half_width(kinds[kind][0].task) for kind in whole if "interval" in kept[kind]}
    sizes = sorted(a for a in widths if a is not None)
    sample, fewer = Sample(), Sample(more=1)
    # A job for each run, and for each model with fresh weights beside those of its kind.
    trained: dict[str, list[Job]] = {}
    fresh: dict[str, list[Job]] = {}
    for kind, roles in kept.items():
        asked = families(roles, kind in whole)
        full = {"families": asked, "sample": sample if kind in whole else fewer, "sizes": sizes}
        trained[kind] = [job(parts, one.name, **full) for one in kinds[kind]]
        less = {"families": seeds.untrained_families(asked), "sample": fewer, "sizes": sizes}
        n_fresh = N_UNTRAINED if kind in whole else 0
        fresh[kind] = [job(parts, kinds[kind][0].name, i, **less) for i in range(n_fresh)]
    every = [one for of_kind in (trained, fresh) for alike in of_kind.values() for one in alike]
    ends = jobs.run(every, Engine("local"), table=True)
    found = dict(zip([one.name for one in every], results(ends), strict=True))
    out = {}
    for kind in kept:
        config = encode(kinds[kind][0].config)
        recipe = Path(kinds[kind][0].provenance["recipe"]).stem
        out[kind] = {
            "recipe": recipe,
            "config": {**config, "training": companions.training_of(config)},
            "runs": [
                {
                    "name": one.name,
                    "seed": seed_of(one),
                    "run_id": one.provenance["run_id"],
                    "weights": weights_hash(one.model),
                    "command": f"icl-interp train {recipe} training.seed={seed_of(one)} --out "
                    "FOLDER",
                    "numbers": found[one.name],
                }
                for one in kinds[kind]
            ],
            "untrained": [found[one.name] for one in fresh[kind]],
        }
    used = {name: getattr(sample, name) for name in ("n_functions", "n_contexts", "seed", "more")}
    record = {
        "schema": seeds.SCHEMA,
        "command": "python tools/measure_seeds.py PARTS",
        "sample": used,
        "sizes": sizes,
        "environment": environment(),
        "kinds": out,
    }
    write_json(seeds.FILE, record)


if __name__ == "__main__":
    main()
