"""Train families of runs over L, noise and seed, and measure the window that each learned.

python tools/measure_windows.py RUNS [RECIPE ...]

It writes icl_interp/studies/lipschitz/results/family.json.

RUNS is a folder that keeps the runs, each a job: called again, it makes what is missing. With
recipes named, their families alone are made, and the file keeps the others.
The 48 softmax units take about 12 minutes on one core, the 48 layers about 25.
"""

import itertools
import sys
from pathlib import Path
from typing import Any

from icl_interp import jobs
from icl_interp.analyses.lab import Lab
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.jobs import Engine, Job, part, results
from icl_interp.models import tokens
from icl_interp.models.transformer import HookedTransformer
from icl_interp.models.weights import weights_hash
from icl_interp.provenance import environment, write_json
from icl_interp.studies.lipschitz.measurements import window_family as measurements
from icl_interp.studies.lipschitz.measurements.unit import kernel, scores
from icl_interp.tasks.ridge import RidgeFunction
from icl_interp.theory import lipschitz as theory
from icl_interp.training import recipes
from icl_interp.training.trainer import train

LIPSCHITZ, NOISES, SEEDS = (0.3, 1.0, 3.0, 10.0), (0.3, 1.0, 3.0), (0, 1, 2, 3)
KINDS = {  # family: recipe, and what is changed in it
    measurements.UNIT: ("lipschitz_relu", ("training.steps=1000", "training.snapshots=[]")),
    measurements.LAYER: (
        "lipschitz_relu_width_32",
        ("training.steps=800", "training.warmup_steps=50"),
    ),
}


def window(model: HookedTransformer, one: Checkpoint) -> dict[str, float]:
    """The window of a model on the task of a run."""
    lab = Lab(model, one.task, one.encoding)
    return measurements.window_of(lab.measure(scores), lab.measure(kernel))


def run(
    folder: Path, recipe: str, changes: tuple[str, ...], cell: tuple[int, float, float]
) -> dict[str, Any]:
    """One run: trained where it is not at hand, then measured."""
    seed, noise, lipschitz = cell
    name = named(cell)
    own = (
        *changes,
        f"task.lipschitz={lipschitz}",
        f"task.noise_std={noise}",
        f"training.seed={seed}",
    )
    one = train(recipes.resolve(recipe, own), folder / recipe / name, progress=False)
    task = one.task
    assert isinstance(task, RidgeFunction)
    found = window(one.model, one)
    best = float(theory.optimal_window(lipschitz, noise, task.n_points - 1, task.dim).window)
    return {
        "name": name,
        "lipschitz": lipschitz,
        "noise": noise,
        "seed": seed,
        "run_id": one.provenance["run_id"],
        "weights": weights_hash(one.model),
        "command": f"icl-interp train {recipe} {' '.join(own)} --out FOLDER",
        **found,
        "best": best,
    }


def named(cell: tuple[int, float, float]) -> str:
    """The name of a run."""
    seed, noise, lipschitz = cell
    return f"lipschitz_{lipschitz:g}_noise_{noise:g}_seed_{seed}"


def fresh(recipe: str, changes: tuple[str, ...], seed: int) -> dict[str, Any]:
    """The window of the weights that runs of a seed start from: the same at every L and noise."""
    config = recipes.resolve(recipe, (*changes, f"training.seed={seed}"))
    model = HookedTransformer(config.model, seed=seed).eval()
    return {
        "seed": seed,
        **window(model, Checkpoint(model, config.task, tokens.named(config.encoding), config)),
    }


def main() -> None:
    """Train and measure the families that are asked for, and write the file."""
    folder, only = Path(sys.argv[1]), sys.argv[2:]
    families = dict(measurements.families())
    for kind, (recipe, changes) in KINDS.items():
        if only and recipe not in only:
            continue
        work = []
        for cell in itertools.product(SEEDS, NOISES, LIPSCHITZ):
            asked = {"folder": folder, "recipe": recipe, "changes": changes, "cell": cell}
            work.append(Job(named(cell), part(folder / recipe / "jobs", named(cell)), run, asked))
        families[kind] = {
            "recipe": recipe,
            "changes": list(changes),
            "runs": results(jobs.run(work, Engine("local"), table=True)),
            "untrained": [fresh(recipe, changes, seed) for seed in SEEDS],
        }
    record = {
        "schema": measurements.SCHEMA,
        "command": "python tools/measure_windows.py RUNS",
        "grid": {"lipschitz": LIPSCHITZ, "noise": NOISES, "seeds": SEEDS},
        "environment": environment(),
        "families": families,
    }
    write_json(measurements.FILE, record)


if __name__ == "__main__":
    main()
