"""Steps of several runs of one shape: one after another, and as one batched computation."""

import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.measuring import Goal, Options, Row, ratio_row, take_turns
from icl_interp.products import fast
from icl_interp.training import together, trainer

RUNS, TURNS, STEPS = 5, 7, 3
GOAL = Goal(1.5, "at least")
# The recipe `affine` at several sizes: layers, width, heads and prompts a step.
SIZES = {"affine": (3, 64, 4, 64), "small": (2, 32, 2, 16), "tiny": (1, 8, 2, 8)}


def config(size: tuple[int, int, int, int], seed: int) -> trainer.RunConfig:
    """A run at full length of its prompts, which writes nothing while it is timed."""
    n_layers, width, n_heads, batch = size
    changes = {
        "model.n_layers": n_layers,
        "model.d_model": width,
        "model.n_heads": n_heads,
        "training.batch_size": batch,
        "training.curriculum.until": 0,
        "training.seed": seed,
    }
    return trainer.recipes.resolve("affine", changes)


def row(name: str, options: Options) -> Row:
    """How many times as many steps a second the runs take together."""
    n_runs = 2 if options.quick else RUNS
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        runs = []
        for seed in range(n_runs):
            asked = config(SIZES[name], seed)
            runs.append(held.enter_context(trainer.prepared(asked, folder / str(seed), None)))

        @fast()  # as `icl_interp.train` runs it
        def apart() -> None:
            for run in runs:
                run._advance()

        def batched() -> None:
            losses = together.backward(runs)
            for run, loss in zip(runs, losses, strict=True):
                run.update(loss)

        ways = {"apart": apart, "together": batched}
        repeats = 1 if options.quick else STEPS
        times = take_turns(ways, options.turns_or(TURNS), repeats=repeats)
    n_layers, width, _, batch = SIZES[name]
    return ratio_row(
        f"{name}: {n_layers} layers, width {width}, batch {batch}",
        times["apart"],
        times["together"],
        of=times["together"],
        note=f"times as many steps as apart, {n_runs} runs; seconds of a step of all, together",
        goal=GOAL,
    )


def run(options: Options) -> list[Row]:
    """A row a size."""
    names = ["tiny"] if options.quick else list(SIZES)
    return [row(name, options) for name in names]
