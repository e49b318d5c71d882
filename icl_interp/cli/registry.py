"""`icl-interp registry`: add, judge, table, diff."""

from pathlib import Path
from typing import Annotated

import typer

from icl_interp.cli.root import on_stderr, say
from icl_interp.console import console

app = typer.Typer(
    name="registry",
    help="A registry of verdicts: claims on many checkpoints, judged again, with their error rate.",
    no_args_is_help=True,
)
Folder = Annotated[Path, typer.Option("--registry", help="The folder of the registry.")]
HERE = Path("registry")


def add(
    reports: Annotated[
        list[Path], typer.Argument(help="Folders of reports, or report.json files.")
    ],
    name: Annotated[
        str,
        typer.Option(
            help="What to call the checkpoint. If none is given, a checkpoint that does not come "
            "with the package is kept by the hash of its weights only."
        ),
    ] = "",
    registry: Folder = HERE,
) -> None:
    """Add the verdicts of reports, with what it takes to judge them again."""
    from icl_interp import studies  # noqa: F401 registers the bundled claims
    from icl_interp.errors import InputError
    from icl_interp.registry import folder, from_report
    from icl_interp.report.report import Report

    if name and len(reports) > 1:
        raise InputError("--name is for one report: add several one by one")
    failed = False
    for path in reports:
        # A report that cannot be read costs no other.
        try:
            entries, refused = from_report.entries_of(Report.load(path), name)
        except InputError as error:
            on_stderr(f"not added: {error}")
            failed = True
            continue
        for line in folder.add(registry, entries):
            say(line)
        for line in refused:
            on_stderr(f"{path}: {line}")
    if failed:
        raise typer.Exit(2)


def judge(
    write: Annotated[
        bool,
        typer.Option(
            "--write",
            help="Also write explained changes, and entries by today's version of a claim.",
        ),
    ] = False,
    registry: Folder = HERE,
) -> None:
    """Judge every entry again from what is stored; status 1 on a change that no line explains."""
    from icl_interp import studies  # noqa: F401 registers the bundled claims
    from icl_interp.registry import folder, judging

    outcome = judging.judge(folder.read(registry))
    for line in outcome.lines:
        say(line)
    if write:
        for line in judging.write(registry, outcome):
            say(line)
    if not outcome.right:
        say(
            f"{len(outcome.unexplained)} changes that no line of {registry / folder.CHANGES} "
            f"explains, and {len(outcome.problems)} problems"
        )
        raise typer.Exit(1)


def table(
    page: Annotated[
        Path | None, typer.Option(help="Also write the table to this file, as Markdown.")
    ] = None,
    registry: Folder = HERE,
) -> None:
    """Show claims beside checkpoints, those on which checkpoints disagree first."""
    from icl_interp.provenance import write_atomically
    from icl_interp.registry import folder
    from icl_interp.registry.table import Table

    found = folder.read(registry)
    made = Table.of(found)
    for line in made.lines(console().width):
        say(line)
    for problem in found.problems:
        on_stderr(f"left out: {problem}")
    if page:
        write_atomically(page, made.page())


def diff(
    before: Annotated[str, typer.Argument(help="A folder, or a revision of git.")],
    after: Annotated[
        str | None, typer.Argument(help="Another registry.  [default: the registry as it is]")
    ] = None,
    registry: Folder = HERE,
) -> None:
    """Show which cells differ between two registries, or two revisions of one."""
    from icl_interp import results
    from icl_interp.registry import folder
    from icl_interp.registry.table import differences

    sides = [folder.state(before, registry)]
    sides.append(folder.read(registry) if after is None else folder.state(after, registry))
    found = differences(*sides)
    say(results.text(found, console().width) if len(found) else "No cell differs.")
    for side in sides:
        for problem in side.problems:
            on_stderr(f"left out: {problem}")
