"""Options that every command has: how much it says beside its results."""

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Annotated, Any

import typer

from icl_interp import progress
from icl_interp.errors import unknown

LEVELS = ("debug", "info", "warning", "error")
Quiet = Annotated[
    bool, typer.Option("--quiet", help="Results and errors only: no progress bar, no warning.")
]
LogLevel = Annotated[
    str, typer.Option("--log-level", help="What is logged: debug, info, warning or error.")
]


def with_shared(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of all."""

    @functools.wraps(command)
    def run(*, quiet: bool, log_level: str, **given: Any) -> None:
        _begin(quiet, log_level)
        command(**given)

    signature = inspect.signature(command)
    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter("quiet", keyword, default=False, annotation=Quiet),
        inspect.Parameter("log_level", keyword, default="warning", annotation=LogLevel),
    ]
    # Typer reads options off the signature and the annotations.
    parameters = [*signature.parameters.values(), *added]
    vars(run)["__signature__"] = signature.replace(parameters=parameters)
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _begin(quiet: bool, log_level: str) -> None:
    """Set what is logged, and whether bars are shown."""
    if log_level not in LEVELS:
        raise unknown("log level", log_level, LEVELS)
    level = "error" if quiet else log_level
    logging.root.setLevel(level.upper())
    progress.show(not quiet)
