"""`icl-interp train` and `icl-interp sweep`."""

from pathlib import Path
from typing import Annotated

import typer

from icl_interp.cli.arguments import EngineSettings, On, Out
from icl_interp.cli.root import end_with, say
from icl_interp.console import console
from icl_interp.options import output


def train(
    recipe: Annotated[str, typer.Argument(help="The name of a recipe, or a YAML file.")],
    changes: Annotated[
        list[str] | None, typer.Argument(help="Changes, such as training.steps=1000.")
    ] = None,
    out: Out = None,
    device: Annotated[str | None, typer.Option(help="Where to train.")] = None,
) -> None:
    """Train a model by a recipe. A run that was stopped goes on where it was, exactly."""
    from icl_interp.devices import checked_device
    from icl_interp.training import recipes, trainer

    config = recipes.resolve(recipe, changes or ())
    checked_device(device)
    folder = output(out, Path(recipe).stem)
    checkpoint = trainer.train(config, folder, device=device)
    error = checkpoint.provenance["in_distribution"]
    say(
        f"in-distribution error {error['error']:.3g} [{error['low']:.3g}, {error['high']:.3g}], R2 "
        f"{error['r2']:.4f}"
    )
    say(f"run: {folder.resolve()}")


def sweep(
    plan: Annotated[Path, typer.Argument(help="A YAML file: recipe, set, over, cases, analyze.")],
    on: On = "local",
    engine: EngineSettings = None,
    out: Out = None,
) -> None:
    """Train and analyse many runs of a recipe. A sweep that was stopped goes on, with its --out."""
    from icl_interp import results
    from icl_interp.jobs import engine as jobs
    from icl_interp.sweep import outcome
    from icl_interp.sweep import plan as plans

    used = jobs.asked(on, engine or ())
    asked = plans.read(plan)
    folder = output(out, plan.stem)
    found = outcome.run(asked, folder, used, table=True)
    say(results.text(found.table, console().width))
    if found.comparison:
        console().print(found.comparison.screen())
    say(f"sweep: {(folder / 'sweep.html').resolve()}")
    end_with(found.failed)
