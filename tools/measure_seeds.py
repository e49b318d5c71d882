"""Measure every seed of the kinds of training that come with the package; claims about kinds rest on these numbers.

python tools/measure_seeds.py

It writes icl_interp/studies/limits/results/seeds.json, and takes about 15 minutes on one core.

Kinds with four seeds or more are measured whole. Of others, which can decide nothing, the error
rate alone is kept: it tells whether a run has learned its task. Of these, and of untrained models,
it is the error on fewer functions.
"""

from pathlib import Path

from icl_interp.checkpoints import bundled, companions, store
from icl_interp.checkpoints.companions import Role
from icl_interp.checkpoints.store import Checkpoint
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


def main() -> None:
    """Measure all kinds and write the file."""
    kinds = by_kind(runs())
    first = [alike[0] for alike in kinds.values()]
    kept = {
        kind: roles for kind, alike in kinds.items() if (roles := roles_of(alike[0], first) & ROLES)
    }
    whole = {kind for kind in kept if len(kinds[kind]) >= seeds.LEAST}
    widths = {half_width(kinds[kind][0].task) for kind in whole if "interval" in kept[kind]}
    sizes = sorted(a for a in widths if a is not None)
    sample, fewer, out = Sample(), Sample(more=1), {}
    for kind, roles in kept.items():
        asked = families(roles, kind in whole)
        numbers = {}
        for one in kinds[kind]:
            numbers[one.name] = measured(one, asked, sample if kind in whole else fewer, sizes)
            print(
                one.name,
                {key: float(f"{value:.3g}") for key, value in numbers[one.name].items()},
                flush=True,
            )
        config = encode(kinds[kind][0].config)
        recipe = Path(kinds[kind][0].provenance["recipe"]).stem
        fresh = (
            [seeds.untrained(kinds[kind][0], i) for i in range(N_UNTRAINED)]
            if kind in whole
            else []
        )
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
                    "numbers": numbers[one.name],
                }
                for one in kinds[kind]
            ],
            "untrained": [
                measured(one, seeds.untrained_families(asked), fewer, sizes) for one in fresh
            ],
        }
    used = {name: getattr(sample, name) for name in ("n_functions", "n_contexts", "seed", "more")}
    record = {
        "schema": seeds.SCHEMA,
        "command": "python tools/measure_seeds.py",
        "sample": used,
        "sizes": sizes,
        "environment": environment(),
        "kinds": out,
    }
    write_json(seeds.FILE, record)


if __name__ == "__main__":
    main()
