"""The command line, thin: it parses, calls the library, and prints.

Heavy imports wait inside the commands.
Exit status: 0 done; 2 the input is wrong (one line on stderr, no traceback); 130 interrupted; 143
terminated, with the training saved and a line on stderr (`training.process.Terminated` passes
through here); anything else is a bug.
"""

import importlib.metadata
import logging
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import typer

from icl_interp import sources
from icl_interp.checkpoints import bundled
from icl_interp.errors import Formatter, InputError, printable
from icl_interp.options import formats, listed, main_file, output, task_asked

app = typer.Typer(
    name="icl-interp",
    help="Mechanistic interpretability of in-context learning: verdicts on published claims, on "
    "your own weights.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
Out = Annotated[
    Path | None,
    typer.Option(help="Where to write; by default a fresh folder under ./icl-interp-out."),
]
Source = Annotated[
    str, typer.Argument(help="A run folder, somebody else's checkpoint, or a bundled model's name.")
]
TaskFile = Annotated[
    Path | None,
    typer.Option(
        "--task", help="A YAML file: a recipe's section 'task', or Garg et al.'s config.yaml."
    ),
]
EncodingName = Annotated[
    str | None,
    typer.Option(
        "--encoding", help="interleaved, stacked, states, augmented or driven, if not known."
    ),
]
Heads = Annotated[
    int | None, typer.Option("--n-heads", help="Attention heads, if the weights do not tell.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--setting", help="What the weights do not tell, such as act_fn=relu; repeatable."
    ),
]
On = Annotated[str, typer.Option("--on", help="Where jobs run: local, ray or slurm.")]
EachOn = Annotated[
    str | None, typer.Option("--on", help="Make each a job, on: local, ray or slurm.")
]
EngineSettings = Annotated[
    list[str] | None,
    typer.Option("--engine", help="A setting of what --on names, as processes=2; repeatable."),
]
# BadParameter -> UsageError -> ClickException. Newer versions of typer carry a copy of click, older
# ones import it.
CLICK_ERROR: Any = typer.BadParameter.__mro__[2]


def _show_version(asked: bool) -> bool:
    if asked:
        _say(f"icl-interp {importlib.metadata.version('icl-interp')}")
        raise typer.Exit
    return asked


Version = Annotated[
    bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
]


@app.callback()
def whole(version: Version = False) -> None:
    """Mechanistic interpretability of in-context learning: verdicts on published claims."""


@app.command()
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
        str, typer.Option(help="html, json, png, svg, pdf: several with commas.")
    ] = "html,json",
    claims: Annotated[
        str | None, typer.Option(help="Ids of claims, with commas; all by default.")
    ] = None,
    n_prompts: Annotated[
        int | None,
        typer.Option(
            help="Number of prompts, 8 for each pair of functions; by default 1024 (large: 256)."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sample.")] = 0,
    companion: Annotated[
        list[str] | None,
        typer.Option(help="A matched model: one that differs in one respect; repeatable."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Where to run; it must support float64.")
    ] = None,
    control: Annotated[
        str | None,
        typer.Option(help="module.py:name of an untrained predictor, beside one without weights."),
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
    base = output(out, titles[names[0]] if len(names) == 1 else "compare")
    from icl_interp import pipeline
    from icl_interp.checkpoints import given
    from icl_interp.predictors import adapters, files
    from icl_interp.provenance import as_json, write_json
    from icl_interp.report import terminal
    from icl_interp.report.comparison import Comparison

    options = given.options(task, encoding, n_heads, setting)
    loaded = sources.all_opened(titles, options)
    reports, folders = [], [base / title if len(names) > 1 else base for title in titles.values()]
    beside = files.from_file(control) if control else None
    failed: dict[str, str] = {}
    if on:
        asked = {"claims": claims, "n_prompts": n_prompts, "seed": seed, "companion": companion}
        asked |= {"device": device, "control": control, "task": task, "encoding": encoding}
        asked |= {"n_heads": n_heads, "setting": setting, "format": ",".join({*wanted, "json"})}
        from icl_interp import batch

        reports, folders, failed = batch.analyzed(
            dict(zip(names, folders, strict=True)), asked, base, on, engine
        )
        loaded = []
    for checkpoint, folder in zip(loaded, folders, strict=False):
        outside = isinstance(checkpoint, adapters.Outside)
        report = pipeline.analyze(
            checkpoint,
            task=options["task"] if outside else None,
            control=beside,
            claims=chosen,
            n_prompts=n_prompts,
            seed=seed,
            companions=companion or (),
            device=device,
        )
        report.save(folder, wanted)  # one at a time: what is done is kept
        reports.append(report)
        if not json_ and (len(names) == 1 or verbose):
            terminal.console().print(terminal.screen(report, verbose))
    if json_:
        printed = [terminal.as_data(report) for report in reports]
        _say(as_json(printed[0] if len(names) == len(printed) == 1 else printed), end="")
    if len(reports) > 1:
        comparison = Comparison(tuple(reports))
        write_json(base / "comparison.json", comparison.to_dict())
        if not json_:
            terminal.console().print(comparison.screen())
    for folder in folders:
        _say(f"report: {main_file(folder, wanted)}", file=sys.stderr if json_ else sys.stdout)
    _end_with(failed)


@app.command()
def claims(
    study: Annotated[str | None, typer.Option(help="The claims of this study only.")] = None,
    for_: Annotated[
        str | None,
        typer.Option("--for", help="A checkpoint: those that do not apply to it say why."),
    ] = None,
) -> None:
    """List the claims, a line each."""
    from icl_interp import pipeline
    from icl_interp.report import terminal

    terminal.console().print(terminal.claims(pipeline.applying(for_, study)))


@app.command()
def explain(
    claim: Annotated[str, typer.Argument(help="The id of a claim, or a report to sum up.")],
    report: Annotated[
        Path | None,
        typer.Argument(help="A report's folder or report.json: its result is shown as well."),
    ] = None,
) -> None:
    """Explain a claim, with a report's result, or what the model of a report does."""
    from icl_interp import studies  # noqa: F401 registers the bundled claims
    from icl_interp.analyses import registry
    from icl_interp.report import terminal
    from icl_interp.report.report import Report

    if claim in registry.REGISTRY or not Path(claim).exists():
        asked = registry.REGISTRY.named(claim)
        said = terminal.claim(asked, Report.load(report)[claim] if report else None)
    else:
        said = terminal.explained(Report.load(Path(claim)))
    terminal.console().print(said)


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="The name of a recipe, or a YAML file.")],
    changes: Annotated[
        list[str] | None, typer.Argument(help="Changes, such as training.steps=1000.")
    ] = None,
    out: Out = None,
    device: Annotated[str | None, typer.Option(help="Where to train.")] = None,
) -> None:
    """Train a model by a recipe. A run that was stopped goes on where it was, exactly."""
    from icl_interp.devices import checked_device
    from icl_interp.training import recipes, trainer

    config = recipes.resolve(recipe, changes or ())
    checked_device(device)
    folder = output(out, Path(recipe).stem)
    checkpoint = trainer.train(config, folder, device=device)
    error = checkpoint.provenance["in_distribution"]
    _say(
        f"in-distribution error {error['error']:.3g} [{error['low']:.3g}, {error['high']:.3g}], R2 "
        f"{error['r2']:.4f}"
    )
    _say(f"run: {folder.resolve()}")


@app.command()
def sweep(
    plan: Annotated[Path, typer.Argument(help="A YAML file: recipe, set, over, cases, analyze.")],
    on: On = "local",
    engine: EngineSettings = None,
    out: Out = None,
) -> None:
    """Train and analyse many runs of a recipe. A sweep that was stopped goes on, with its --out."""
    from icl_interp import results
    from icl_interp.jobs import engine as jobs
    from icl_interp.report import terminal
    from icl_interp.sweep import outcome
    from icl_interp.sweep import plan as plans

    used = jobs.asked(on, engine or ())
    asked = plans.read(plan)
    folder = output(out, plan.stem)
    found = outcome.run(asked, folder, used, table=True)
    _say(results.text(found.table))
    if found.comparison:
        terminal.console().print(found.comparison.screen())
    _say(f"sweep: {(folder / 'sweep.html').resolve()}")
    _end_with(found.failed)


@app.command()
def evaluate(
    checkpoint: Source,
    functions: Annotated[int, typer.Option(help="Functions to evaluate on.")] = 100,
    contexts: Annotated[int, typer.Option(help="Prompts of each function.")] = 64,
    sigma: Annotated[
        float, typer.Option(help="Scale of the coefficients: 1 is in distribution.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the prompts.")] = 0,
    new_functions: Annotated[
        bool,
        typer.Option(
            "--new-functions", help="Functions outside the pool that the task has (its n_tasks)."
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
            help="Classical algorithms too: up to 1 s a prompt for Lasso, trees and networks.",
        ),
    ] = False,
    out: Out = None,
    task: TaskFile = None,
    encoding: EncodingName = None,
    n_heads: Heads = None,
    setting: Settings = None,
) -> None:
    """Measure the squared error on fresh prompts, beside the best reference and 0."""
    if not sources.exists(checkpoint):
        raise bundled.not_found(checkpoint)
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
    _say(results.text(table))
    _say(table.attrs["note"])
    if out:
        write_json(out / "evaluation.json", results.to_dict(table))
        _say(f"table: {out / 'evaluation.json'}")


@app.command()
def algorithm(
    checkpoint: Source,
    out: Out = None,
    functions: Annotated[
        int | None,
        typer.Option(help="Functions, half to tune rivals on.  [default: 1024 to 4096; few: 512]"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the prompts.")] = 0,
    separate: Annotated[
        list[str] | None,
        typer.Option(help="The name of a rival; give two, and prompts that tell them are run."),
    ] = None,
    task: TaskFile = None,
    encoding: EncodingName = None,
    n_heads: Heads = None,
    setting: Settings = None,
    json_: Annotated[
        bool, typer.Option("--json", help="Print all numbers as JSON on standard output.")
    ] = False,
) -> None:
    """Say which algorithm a model runs: rivals, what is excluded, what cannot be told apart."""
    if not sources.exists(checkpoint):
        raise bundled.not_found(checkpoint)
    pair = tuple(separate or ())
    if len(pair) not in (0, 2):
        raise InputError(f"--separate names two rivals, but got {len(pair)}: give it twice")
    title = next(iter(sources.titles([checkpoint]).values()))
    folder = output(out, f"algorithm-{title}")
    from icl_interp.algorithms import run
    from icl_interp.checkpoints import given
    from icl_interp.provenance import as_json

    options = given.options(task, encoding, n_heads, setting)
    loaded = sources.opened(checkpoint, options)
    asked = options["task"] if sources.is_predictor(checkpoint) else None
    report = run.algorithm(loaded, asked, n_functions=functions, seed=seed)
    if pair:
        report = report.separated(*pair)
    report.save(folder)
    _say(as_json(report.to_dict()) if json_ else str(report), end="" if json_ else "\n")
    where = f"report: {(folder / 'algorithm.html').resolve()}"
    _say(where, file=sys.stderr if json_ else sys.stdout)


@app.command()
def reproduce(
    ids: Annotated[
        list[str] | None,
        typer.Argument(help="Ids of experiments (--list shows them); all by default."),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the experiments and stop.")] = False,
    scale: Annotated[
        str, typer.Option(help="Preset: smoke (seconds), small (a CPU) or paper (a GPU).")
    ] = "small",
    out: Out = None,
    models: Annotated[
        list[Path] | None,
        typer.Option(help="A folder of run folders to take finished models from; repeatable."),
    ] = None,
    no_train: Annotated[
        bool,
        typer.Option(
            "--no-train", help="Use the models that are there, and say which are missing."
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the samples.")] = 0,
    variant: Annotated[
        str | None,
        typer.Option(help="Another form of the models, such as post_ln (limits); --list shows it."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="Where to train and to predict.")] = None,
    text: Annotated[
        Path | None, typer.Option(help="A text file, for experiments that read one.")
    ] = None,
    embedding: Annotated[
        Path | None,
        typer.Option(help="Of the text's tokens: a model's folder or file, or a .npy matrix."),
    ] = None,
    on: EachOn = None,
    engine: EngineSettings = None,
) -> None:
    """Reproduce the tables and figures of a paper.

    A run that was stopped goes on, with the same --out.
    """
    from icl_interp.experiments import base, presets

    if list_:
        _say("\n".join(base.listed()))
        return
    from icl_interp.reproduction import run

    # Before anything is trained or written.
    presets.named(scale)
    run.asked(ids or (), variant)
    others = {"--variant": variant, "--text": text, "--embedding": embedding}
    if on and (named := [option for option, value in others.items() if value]):
        raise InputError(
            f"--on runs experiments as they are: leave out {' and '.join(named)}, or leave out --on"
        )
    folder = output(out, "reproduce")
    failed: dict[str, str] = {}
    if on:
        from icl_interp import batch

        chosen = list(dict.fromkeys(ids or base.names()))
        asked = {"scale": scale, "models": models, "seed": seed, "device": device}
        made, failed = batch.reproduced(chosen, folder, asked, not no_train, on, engine)
    else:
        made = run.reproduce(
            ids or (),
            folder,
            scale=scale,
            models=models or (),
            train=not no_train,
            seed=seed,
            variant=variant,
            device=device,
            text=text,
            embedding=embedding,
        )
    for done in made:
        _say(f"\n{done.experiment.folder}: {done.experiment.title}")
        for line in (*done.setting, *done.says):
            _say(f"  {line}")
    _say(f"\nreproductions: {(folder / 'index.html').resolve()}")
    _end_with(failed)


@app.command()
def zoo() -> None:
    """List the bundled models."""
    from icl_interp.report import terminal

    _say(terminal.zoo())


@app.command()
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
            "--full", help="Also try verdicts on bundled models: edits, other samples. Hours."
        ),
    ] = False,
    power: Annotated[
        bool,
        typer.Option(
            "--power", help="How surely claims are judged on the way from false to true. An hour."
        ),
    ] = False,
    tools: Annotated[
        bool,
        typer.Option("--tools", help="What tools find of planted circuits. A quarter of an hour."),
    ] = False,
    processes: Annotated[
        int | None,
        typer.Option(
            help="With --full, --power, --tools: how many at a time.  [default: 1]", min=1
        ),
    ] = None,
    on: On = "local",
    engine: EngineSettings = None,
    study: Annotated[
        str | None, typer.Option(help="Of these studies only, with commas.  [default: all]")
    ] = None,
    out: Out = None,
) -> None:
    """Judge every claim on hand-built models whose answer is known, and show the results."""
    from icl_interp.testing import selfcheck as checks

    studies = checks.chosen(listed(study, "--study"), tools_only=tools and not (full or power))
    if full or power or tools:
        used = checks.engine(on, engine, processes)
        asked = {"full": full, "power": power, "tools": tools, "draws": draws, "seed": seed}
        right = True
        for text, kept in checks.made(studies, out, **asked, engine=used, watch=_on_stderr):
            _say(text)
            right = right and kept
        if not right:
            raise typer.Exit(1)
        return
    if processes is not None:
        raise InputError("--processes is for --full, --power and --tools: leave it out else")
    from icl_interp import results
    from icl_interp.experiments import calibration
    from icl_interp.provenance import write_json

    only = [one.name for each in studies for one in each.constructions]
    table = calibration.calibrate(3 if draws is None else draws, seed, only)
    _say(results.text(table))
    if out:
        write_json(out / "selfcheck.json", results.to_dict(table))
    _say("\n".join(checks.kept(studies)))
    right = sum(table["as expected"])
    _say(f"{right} of {sum(table['draws'])} verdicts as expected")
    if right < sum(table["draws"]):
        raise typer.Exit(1)


def _end_with(failed: Mapping[str, str]) -> None:
    """List jobs that failed, and then end with status 1."""
    for name, reason in failed.items():
        _say(f"failed: {name}: {reason}", file=sys.stderr)
    if failed:
        raise typer.Exit(1)


def _on_stderr(text: str) -> None:
    _say(text, file=sys.stderr)


def _say(text: str, file: Any = None, end: str = "\n") -> None:
    """Print text; all printing goes through here, so that names from files are escaped."""
    print(printable(text), file=file, end=end)


def _show_fault(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print the traceback of an error that nobody expected."""
    _say("".join(traceback.format_exception(kind, error, trace)), file=sys.stderr, end="")


def main() -> None:
    """Run the command line."""
    handler = logging.StreamHandler()
    handler.setFormatter(Formatter("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    sys.excepthook = _show_fault
    try:
        status = app(standalone_mode=False)
    except InputError as error:
        _stop(str(error))
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    except CLICK_ERROR as error:  # usage errors: typer would print a box of five lines
        _stop(f"{error.format_message()} (see icl-interp --help)")
    sys.exit(status if isinstance(status, int) else 0)


def _stop(message: str) -> None:
    _say(" ".join(message.split()), file=sys.stderr)
    sys.exit(2)
