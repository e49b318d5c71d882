"""What training at the paper's size costs: seconds of a step at full length, and of a whole run."""

import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.measuring import Options, Row, timed
from icl_interp.checkpoints.config import Curriculum, RunConfig
from icl_interp.experiments import presets
from icl_interp.products import fast
from icl_interp.training import recipes, trainer

STEPS = 200
DAY = 86_400
# As the command line names them.
RUNS = {
    "train affine --scale paper": lambda: presets.config("affine", "paper"),
    "train affine_wide": lambda: recipes.resolve("affine_wide"),
}


def row(name: str, config: RunConfig, steps: int) -> Row:
    """Seconds of a step, the whole of its prompts posed; the first step is not counted."""
    training = config.training
    assert training is not None
    whole = replace(training, curriculum=Curriculum(config.task.n_points))
    config = replace(config, training=whole)
    with (
        tempfile.TemporaryDirectory() as folder,
        trainer.prepared(config, Path(folder) / "run", None) as run,
        fast(),
    ):
        run._advance()
        times = [timed(run._advance) for _ in range(steps)]
    seconds = [one.wall for one in times]
    median = statistics.median(seconds)
    return Row(
        what=f"{name}: {training.steps * median / DAY:.3g} days for {training.steps:,} steps",
        value=median,
        unit="s",
        low=min(seconds),
        high=max(seconds),
        turns=steps,
        note="of a step, prompts of full length; the curriculum's shorter ones take less",
    )


def run(options: Options) -> list[Row]:
    """A row a run."""
    if options.quick:
        return [row("train affine --scale smoke", presets.config("affine", "smoke"), 2)]
    return [row(name, make(), options.turns_or(STEPS)) for name, make in RUNS.items()]
