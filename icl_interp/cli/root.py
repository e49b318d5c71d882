"""The root of the command line: what all commands share, and how they print."""

import importlib.metadata
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from icl_interp.errors import printable

app = typer.Typer(
    name="icl-interp",
    help="Mechanistic interpretability of in-context learning: verdicts on published claims, on "
    "your own weights.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def say(text: str, file: Any = None, end: str = "\n") -> None:
    """Print text; all printing goes through here, so that names from files are escaped."""
    print(printable(text), file=file, end=end)


def on_stderr(text: str) -> None:
    """Print on standard error."""
    say(text, file=sys.stderr)


def end_with(failed: Mapping[str, str]) -> None:
    """List jobs that failed, and then end with status 1."""
    for name, reason in failed.items():
        say(f"failed: {name}: {reason}", file=sys.stderr)
    if failed:
        raise typer.Exit(1)


def _show_version(asked: bool) -> bool:
    if asked:
        say(f"icl-interp {importlib.metadata.version('icl-interp')}")
        raise typer.Exit
    return asked


Version = Annotated[
    bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
]


@app.callback()
def whole(version: Version = False) -> None:
    """Mechanistic interpretability of in-context learning: verdicts on published claims."""
