"""`icl-interp evaluate` and `icl-interp algorithm`."""

from typing import Annotated

import typer

from icl_interp import sources
from icl_interp.checkpoints import bundled
from icl_interp.cli.arguments import EncodingName, Heads, Out, Settings, Source, TaskFile
from icl_interp.cli.root import on_stderr, say
from icl_interp.console import console
from icl_interp.errors import InputError
from icl_interp.options import output, task_asked


def evaluate(
    checkpoint: Source,
    functions: Annotated[int, typer.Option(help="Functions to evaluate on.")] = 100,
    contexts: Annotated[int, typer.Option(help="Prompts of each function.")] = 64,
    sigma: Annotated[
        float, typer.Option(help="Factor on the coefficients; 1 is in distribution.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the prompts.")] = 0,
    new_functions: Annotated[
        bool,
        typer.Option(
            "--new-functions",
            help="Draw new functions instead of those of the task's pool (n_tasks).",
        ),
    ] = False,
    shift: Annotated[
        str | None,
        typer.Option(
            help="Other prompts than in training: quadrants, orthogonal, half-subspace, skewed, "
            "x*1/3, x*1/2, x*2, x*3, y*1/3, y*1/2, y*2, y*3 or noisy."
        ),
    ] = None,
    baselines: Annotated[
        bool,
        typer.Option(
            "--baselines",
            help="Compare with classical algorithms; Lasso, trees and networks take up to 1 s a "
            "prompt.",
        ),
    ] = False,
    out: Out = None,
    task: TaskFile = None,
    encoding: EncodingName = None,
    n_heads: Heads = None,
    setting: Settings = None,
) -> None:
    """Measure the squared error on fresh prompts, and that of the best reference and of 0."""
    if not sources.exists(checkpoint):
        raise bundled.not_found(checkpoint)
    from rich.text import Text

    from icl_interp import evaluation, results
    from icl_interp.checkpoints import given
    from icl_interp.provenance import write_json

    options = given.options(task, encoding, n_heads, setting)
    loaded = sources.opened(checkpoint, options)
    own = getattr(loaded, "task", None) or options["task"]
    asked = task_asked(own, sigma, new_functions, shift)
    table = evaluation.evaluate(
        loaded, asked, n_functions=functions, n_contexts=contexts, seed=seed, baselines=baselines
    )
    say(results.text(table, console().width))
    console().print(Text(table.attrs["note"]))
    if out:
        file = out / "evaluation.json"
        write_json(file, results.to_dict(table))
        say(f"table: {file}")


def algorithm(
    checkpoint: Source,
    out: Out = None,
    functions: Annotated[
        int | None,
        typer.Option(
            help="Functions; rivals are tuned on half of them.  [default: 1024 to 4096; few: 512]"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the prompts.")] = 0,
    separate: Annotated[
        list[str] | None,
        typer.Option(help="The name of a rival. Give two: prompts that tell them apart are run."),
    ] = None,
    task: TaskFile = None,
    encoding: EncodingName = None,
    n_heads: Heads = None,
    setting: Settings = None,
    json_: Annotated[
        bool, typer.Option("--json", help="Print all numbers as JSON on standard output.")
    ] = False,
) -> None:
    """Say which algorithms a model may run: which are excluded, and which cannot be told apart."""
    if not sources.exists(checkpoint):
        raise bundled.not_found(checkpoint)
    # Names and folders are checked before torch is imported.
    pair = tuple(separate or ())
    if len(pair) not in (0, 2):
        raise InputError(f"--separate names two rivals, but got {len(pair)}: give it twice")
    title = next(iter(sources.titles([checkpoint]).values()))
    folder = output(out, f"algorithm-{title}")
    from icl_interp.algorithms import run
    from icl_interp.checkpoints import given
    from icl_interp.provenance import as_json

    options = given.options(task, encoding, n_heads, setting)
    # A predictor from outside brings no task of its own.
    loaded = sources.opened(checkpoint, options)
    asked = options["task"] if sources.is_predictor(checkpoint) else None
    report = run.algorithm(loaded, asked, n_functions=functions, seed=seed)
    if pair:
        report = report.separated(*pair)
    report.save(folder)
    page = folder / "algorithm.html"
    where = f"report: {page.resolve()}"
    if json_:
        say(as_json(report.to_dict()), end="")
        on_stderr(where)
    else:
        say(str(report))
        say(where)
