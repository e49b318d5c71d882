"""`icl-interp claims` and `icl-interp explain`."""

from pathlib import Path
from typing import Annotated

import typer

from icl_interp.console import console


def claims(
    study: Annotated[str | None, typer.Option(help="The claims of this study only.")] = None,
    for_: Annotated[
        str | None,
        typer.Option("--for", help="A checkpoint; claims that do not apply to it say why."),
    ] = None,
) -> None:
    """List the claims, one line each."""
    from icl_interp import pipeline
    from icl_interp.report import terminal

    console().print(terminal.claims(pipeline.applying(for_, study)))


def explain(
    claim: Annotated[str, typer.Argument(help="The id of a claim, or a report to summarise.")],
    report: Annotated[
        Path | None,
        typer.Argument(help="A report's folder or report.json; its result is shown as well."),
    ] = None,
) -> None:
    """Explain a claim, also with a report's result; or sum up what a report says of a model."""
    from icl_interp import studies  # noqa: F401 registers the bundled claims
    from icl_interp.analyses import registry
    from icl_interp.report import terminal
    from icl_interp.report.report import Report

    if claim in registry.REGISTRY or not Path(claim).exists():
        asked = registry.REGISTRY.named(claim)
        said = terminal.claim(asked, Report.load(report)[claim] if report else None)
    else:
        said = terminal.explained(Report.load(Path(claim)))
    console().print(said)
