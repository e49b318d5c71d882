"""`icl-interp train` and `icl-interp sweep`."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from icl_interp.cli.arguments import EngineSettings, On, Out
from icl_interp.cli.root import end_with, say
from icl_interp.console import console
from icl_interp.errors import InputError
from icl_interp.options import output


def train(
    recipe: Annotated[str, typer.Argument(help="The name of a recipe, or a YAML file.")],
    changes: Annotated[
        list[str] | None, typer.Argument(help="Changes, such as training.steps=1000.")
    ] = None,
    out: Out = None,
    device: Annotated[str | None, typer.Option(help="Where to train.")] = None,
    scale: Annotated[
        str | None, typer.Option(help="smoke, small or paper: the recipe at another size.")
    ] = None,
    logs: Annotated[
        str | None, typer.Option(help="Metrics for another program: tensorboard, or wandb offline.")
    ] = None,
) -> None:
    """Train a model by a recipe. A run that was stopped continues exactly where it was."""
    from icl_interp.devices import checked_device
    from icl_interp.experiments import presets
    from icl_interp.training import logs as writing
    from icl_interp.training import ranks, recipes, trainer

    place = ranks.place()
    if place.size > 1 and out is None:
        raise InputError("processes of torchrun need one folder for all: name it with --out")
    with one_voice(place.is_first):
        if scale is None:
            config = recipes.resolve(recipe, changes or ())
        else:
            config = presets.config(recipe, scale, changes or ())
        checked_device(device)
        folder = output(out, Path(recipe).stem)
        with contextlib.ExitStack() as held:
            watch = None
            if logs is not None and place.is_first:
                watch = held.enter_context(writing.to(logs, folder, config))
            checkpoint = trainer.train(config, folder, device=device, watch=watch)
    if not place.is_first:
        return
    error = checkpoint.provenance["in_distribution"]
    say(
        f"in-distribution error {error['error']:.3g} [{error['low']:.3g}, {error['high']:.3g}], R2 "
        f"{error['r2']:.4f}"
    )
    from icl_interp.report import training  # plotly is not needed before

    page = training.write_page(checkpoint)
    drawn = training.plot(training.lines_of(checkpoint))
    if drawn:
        say(drawn)
    say(f"page: {page.resolve()}")
    say(f"run: {folder.resolve()}")


@contextlib.contextmanager
def one_voice(speaks: bool) -> Iterator[None]:
    """Of several processes that train one model only the first says what it says for all."""
    if speaks:
        yield
        return
    logging.root.setLevel(logging.ERROR)
    try:
        yield
    except InputError as error:
        raise typer.Exit(2) from error


def sweep(
    plan: Annotated[
        Path, typer.Argument(help="A YAML file with the keys recipe, set, over, cases and analyze.")
    ],
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
