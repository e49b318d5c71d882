"""`icl-interp complete`."""

from pathlib import Path
from typing import Annotated

import typer

from icl_interp import sources
from icl_interp.checkpoints import bundled
from icl_interp.cli.arguments import EngineSettings, On, Out
from icl_interp.cli.root import end_with, say
from icl_interp.console import console
from icl_interp.options import listed, main_file, output


def complete(
    run: Annotated[str, typer.Argument(help="A run folder, or a bundled model's name.")],
    beside: Annotated[
        Path | None, typer.Option(help="A folder of runs; those that match count as well.")
    ] = None,
    claims: Annotated[
        str | None,
        typer.Option(help="Ids of claims to decide, separated by commas; all by default."),
    ] = None,
    n_prompts: Annotated[int | None, typer.Option(help="As for analyze.")] = None,
    device: Annotated[str | None, typer.Option(help="Where to train and to analyse.")] = None,
    on: On = "local",
    engine: EngineSettings = None,
    out: Out = None,
) -> None:
    """Train the runs that the open claims on a run still need, and judge these claims again."""
    if not sources.exists(run):  # before torch is imported: a typo should not cost seconds
        raise bundled.not_found(run)
    from icl_interp import results
    from icl_interp.devices import checked_device
    from icl_interp.jobs import engine as jobs
    from icl_interp.sweep import complete as completing

    used = jobs.asked(on, engine or ())
    if on == "local":
        checked_device(device)
    folder = output(out, f"{Path(run).name}_complete")
    found = completing.complete(
        run,
        folder,
        used,
        beside=beside,
        claims=listed(claims, "--claims"),
        n_prompts=n_prompts,
        device=device,
        table=True,
    )
    say(f"runs trained for this: {len(found.trained)}, in {(folder / 'runs').resolve()}")
    if len(found.claims):
        say(results.text(found.claims, console().width))
    else:
        say("No claim waits for runs.")
    say(f"report: {main_file(folder / 'report', ['html', 'json'])}")
    end_with(found.failed)
