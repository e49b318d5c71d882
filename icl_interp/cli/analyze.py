"""`icl-interp analyze`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from icl_interp import progress, sources
from icl_interp.checkpoints import bundled
from icl_interp.cli.arguments import (
    EachOn,
    EncodingName,
    EngineSettings,
    Heads,
    Out,
    Settings,
    TaskFile,
)
from icl_interp.cli.root import end_with, say
from icl_interp.console import console
from icl_interp.errors import InputError
from icl_interp.options import formats, listed, main_file, output


def analyze(
    checkpoints: Annotated[
        list[str] | None,
        typer.Argument(
            help="Run folders, somebody else's checkpoints, names of bundled models, or predictors "
            f"as module.py:name; several are compared.  [default: {bundled.DEFAULT}]"
        ),
    ] = None,
    out: Out = None,
    format: Annotated[
        str, typer.Option(help="html, json, png, svg or pdf; separate several with commas.")
    ] = "html,json",
    claims: Annotated[
        str | None, typer.Option(help="Ids of claims, separated by commas; all by default.")
    ] = None,
    n_prompts: Annotated[
        int | None,
        typer.Option(
            help="Prompts to measure on, 8 for each pair of functions.  [default: 1024; for large "
            "models 256]"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sample.")] = 0,
    companion: Annotated[
        list[str] | None,
        typer.Option(help="A matched model, which differs in one respect; repeatable."),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option("--beside", help="A folder of runs; those that match are matched models."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Where to run; it must support float64.")
    ] = None,
    control: Annotated[
        str | None,
        typer.Option(
            help="module.py:name of an untrained predictor, to compare one without weights with."
        ),
    ] = None,
    task: TaskFile = None,
    encoding: EncodingName = None,
    n_heads: Heads = None,
    setting: Settings = None,
    on: EachOn = None,
    engine: EngineSettings = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print each claim's reason too.")
    ] = False,
    json_: Annotated[
        bool,
        typer.Option(
            "--json", help="Print the findings as JSON on standard output, and nothing else there."
        ),
    ] = False,
) -> None:
    """Judge published claims on a model, and write a report."""
    wanted = formats(format)
    chosen = listed(claims, "--claims")
    names = checkpoints or [bundled.DEFAULT]
    for name in names:  # before torch is imported: a typo should not cost seconds
        if not sources.exists(name):
            raise bundled.not_found(name)
    titles = sources.titles(names)
    several = len(names) > 1
    called = "compare" if several else titles[names[0]]
    base = output(out, called)
    folders = [base / title if several else base for title in titles.values()]
    from icl_interp.checkpoints import given
    from icl_interp.predictors import files
    from icl_interp.report import terminal

    # Wrong options are found before anything is measured.
    options = given.options(task, encoding, n_heads, setting)
    loaded = sources.all_opened(titles, options)
    beside = files.from_file(control) if control else None
    failed: dict[str, str] = {}
    if on:
        from icl_interp import batch

        # A job gets options as they were given, and opens its model itself.
        asked = {"claims": claims, "n_prompts": n_prompts, "seed": seed, "companion": companion}
        asked |= {"device": device, "control": control, "task": task, "encoding": encoding}
        asked |= {"n_heads": n_heads, "setting": setting, "format": ",".join({*wanted, "json"})}
        asked |= {"beside": runs}
        placed = dict(zip(names, folders, strict=True))
        reports, folders, failed = batch.analyzed(placed, asked, base, on, engine)
    else:
        settings = {"control": beside, "claims": chosen, "n_prompts": n_prompts, "seed": seed}
        settings |= {"device": device}
        reports = []
        with progress.Whole(len(loaded)) as whole:
            for checkpoint, folder in zip(loaded, folders, strict=True):
                matched = [*(companion or ()), *_matched(runs, checkpoint)]
                report = _analyzed(checkpoint, options["task"], settings | {"companions": matched})
                report.save(folder, wanted)  # one at a time: what is done is kept
                reports.append(report)
                whole.next()
        for report in reports:
            _show(report, json_, several, verbose)
    if json_:
        printed = [terminal.as_data(report) for report in reports]
        _show_data(printed[0] if len(names) == len(printed) == 1 else printed)
    if len(reports) > 1:
        _compare(reports, base, folders if "html" in wanted else [], json_)
    where = sys.stderr if json_ else sys.stdout
    for folder in folders:
        main = main_file(folder, wanted)
        say(f"report: {main}", file=where)
    page = base / "comparison.html"
    if len(reports) > 1 and page.exists():
        say(f"comparison: {page}", file=where)
    end_with(failed)


def _analyzed(checkpoint: Any, task: Any, settings: dict[str, Any]) -> Any:
    """The report on a model; a predictor from outside brings no task of its own."""
    from icl_interp import pipeline
    from icl_interp.predictors import adapters

    outside = isinstance(checkpoint, adapters.Outside)
    return pipeline.analyze(checkpoint, task=task if outside else None, **settings)


def _matched(runs: Path | None, checkpoint: Any) -> list[Path]:
    """The runs in a folder that match a model."""
    if runs is None:
        return []
    from icl_interp.checkpoints import companions
    from icl_interp.predictors import adapters
    from icl_interp.provenance import encode

    if isinstance(checkpoint, adapters.Outside):
        raise InputError(f"--beside is for models; {checkpoint.name} is seen from outside")
    return companions.within(runs, encode(checkpoint.config))


def _show(report: Any, json_: bool, several: bool, verbose: bool) -> None:
    """Print a report, unless JSON or a comparison says the same."""
    from icl_interp.report import terminal

    if not json_ and (verbose or not several):
        console().print(terminal.screen(report, verbose))


def _show_data(data: Any) -> None:
    from icl_interp.provenance import as_json

    say(as_json(data), end="")


def _compare(reports: list[Any], base: Path, pages: list[Path], json_: bool) -> None:
    """Write the comparison of several reports, and print it; `pages` are folders of their pages."""
    from icl_interp.report.comparison import Comparison

    comparison = Comparison(tuple(reports))
    comparison.save(base, pages)
    if not json_:
        console().print(comparison.screen())
