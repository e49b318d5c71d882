"""`icl-interp selfcheck`."""

from typing import Annotated

import typer

from icl_interp.cli.arguments import EngineSettings, On, Out
from icl_interp.cli.root import on_stderr, say
from icl_interp.console import console
from icl_interp.errors import InputError
from icl_interp.options import listed


def selfcheck(
    draws: Annotated[
        int | None,
        typer.Option(
            help="Draws of each hand-built model.  [default: 3; full: 200; power: 20; tools: 8]"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="First draw.")] = 0,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Also test verdicts on bundled models (edits, other samples). Takes hours.",
        ),
    ] = False,
    power: Annotated[
        bool,
        typer.Option(
            "--power",
            help="Measure how often claims are decided as models go from false to true. Takes an "
            "hour.",
        ),
    ] = False,
    tools: Annotated[
        bool,
        typer.Option(
            "--tools", help="Test what tools find of planted circuits. Takes a quarter of an hour."
        ),
    ] = False,
    processes: Annotated[
        int | None,
        typer.Option(
            help="With --full, --power or --tools: how many processes.  [default: 1]", min=1
        ),
    ] = None,
    on: On = "local",
    engine: EngineSettings = None,
    study: Annotated[
        str | None, typer.Option(help="Only these studies, separated by commas.  [default: all]")
    ] = None,
    out: Out = None,
) -> None:
    """Test the verdicts on hand-built models with known answers."""
    from icl_interp.testing import selfcheck as checks

    studies = checks.chosen(listed(study, "--study"), tools_only=tools and not (full or power))
    if full or power or tools:
        used = checks.engine(on, engine, processes)
        asked = {"full": full, "power": power, "tools": tools, "draws": draws, "seed": seed}
        right = True
        for text, kept in checks.made(studies, out, **asked, engine=used, watch=on_stderr):
            say(text)
            right = right and kept
        if not right:
            raise typer.Exit(1)
        return
    if processes is not None:
        raise InputError(
            "--processes is for --full, --power and --tools: leave it out without these"
        )
    from icl_interp import results
    from icl_interp.experiments import calibration
    from icl_interp.provenance import write_json

    # Every construction of the studies, a few draws each.
    only = [one.name for each in studies for one in each.constructions]
    table = calibration.calibrate(3 if draws is None else draws, seed, only)
    say(results.text(table, console().width))
    if out:
        write_json(out / "selfcheck.json", results.to_dict(table))
    # What the last long run found stands in the package.
    say("\n".join(checks.kept(studies)))
    right = sum(table["as expected"])
    say(f"{right} of {sum(table['draws'])} verdicts as expected")
    if right < sum(table["draws"]):
        raise typer.Exit(1)
