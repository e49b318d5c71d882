"""The program: all commands, and how a run of it ends."""

import logging
import sys
import traceback
from types import TracebackType
from typing import Any

import typer

from icl_interp import threads
from icl_interp.cli import (
    analyze,
    claims,
    complete,
    evaluate,
    registry,
    reproduce,
    selfcheck,
    train,
    zoo,
)
from icl_interp.cli.root import app, say
from icl_interp.cli.shared import with_shared
from icl_interp.errors import Formatter, InputError

# In the order in which the help lists them.
COMMANDS = (
    analyze.analyze,
    claims.claims,
    claims.explain,
    train.train,
    train.sweep,
    complete.complete,
    evaluate.evaluate,
    evaluate.algorithm,
    reproduce.reproduce,
    zoo.zoo,
    selfcheck.selfcheck,
)
for command in COMMANDS:
    app.command()(with_shared(command))
for command in (registry.add, registry.judge, registry.table, registry.diff):
    registry.app.command()(with_shared(command))
app.add_typer(registry.app)
# BadParameter -> UsageError -> ClickException. Newer versions of typer carry a copy of click, older
# ones import it.
CLICK_ERROR: Any = typer.BadParameter.__mro__[2]


def _show_fault(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print the traceback of an error that nobody expected."""
    say("".join(traceback.format_exception(kind, error, trace)), file=sys.stderr, end="")


def main() -> None:
    """Run the command line."""
    threads.wait_passively()
    # Before a command says otherwise (--log-level, --quiet).
    handler = logging.StreamHandler()
    handler.setFormatter(Formatter("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    sys.excepthook = _show_fault
    try:
        status = app(standalone_mode=False, prog_name="icl-interp")
    except InputError as error:
        _stop(str(error))
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    except CLICK_ERROR as error:  # usage errors: typer would print a box of five lines
        _stop(f"{error.format_message()} (see icl-interp --help)")
    sys.exit(status if isinstance(status, int) else 0)


def _stop(message: str) -> None:
    said = " ".join(message.split())
    say(f"Error: {said}", file=sys.stderr)
    sys.exit(2)
