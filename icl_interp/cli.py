"""The command line, thin: it parses, calls the library, and prints. Heavy imports wait inside the commands.

Exit status: 0 done; 2 the input is wrong (one line on stderr, no traceback); 130 interrupted; 143 terminated, with the
training saved and a line on stderr (`training.process.Terminated` passes through here); anything else is a bug.
"""

import datetime
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from icl_interp.checkpoints import bundled
from icl_interp.errors import InputError

if TYPE_CHECKING:
    from icl_interp.analyses.finding import Finding
    from icl_interp.report.report import Report

app = typer.Typer(
    name="icl-interp",
    help="Mechanistic interpretability of in-context learning: verdicts on published claims, on your own weights.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
Out = Annotated[Path | None, typer.Option(help="Where to write; by default a fresh folder under ./icl-interp-out.")]
Source = Annotated[str, typer.Argument(help="A run folder, somebody else's checkpoint, or a bundled model's name.")]
TaskFile = Annotated[
    Path | None, typer.Option("--task", help="A YAML file with a recipe's section 'task', for what brings no task.")
]
EncodingName = Annotated[
    str | None, typer.Option("--encoding", help="interleaved, stacked or states, where nothing else tells.")
]
Heads = Annotated[int | None, typer.Option("--n-heads", help="Attention heads, for weights that do not tell.")]
Settings = Annotated[
    list[str] | None, typer.Option("--setting", help="What else weights do not tell, such as act_fn=relu; repeatable.")
]
# BadParameter -> UsageError -> ClickException. Newer versions of typer carry a copy of click, older ones import it.
CLICK_ERROR: Any = typer.BadParameter.__mro__[2]
SIGMAS = (1e-9, 1e9)  # so that no square leaves the range of float32
REFERENCES = {"zero predictor": "zero", "least squares": "least squares"}  # beside the error: in words, as stored
MARKS = {"supported": "green", "contradicted": "red", "inconclusive": "yellow", "not_applicable": "bright_black"}


@app.command()
def analyze(
    checkpoint: Source = bundled.DEFAULT,
    out: Out = None,
    format: Annotated[str, typer.Option(help="html, json, png, svg, pdf: several with commas.")] = "html,json",
    claims: Annotated[str | None, typer.Option(help="Ids of claims, with commas; all by default.")] = None,
    n_prompts: Annotated[
        int | None, typer.Option(help="Sample size: 8 a pair of functions. By default 1024; of a large model 256.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sample.")] = 0,
    companion: Annotated[
        list[str] | None, typer.Option(help="A model that differs in one respect; repeatable.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Where to run; it must know float64.")] = None,
    task: TaskFile = None,
    encoding: EncodingName = None,
    n_heads: Heads = None,
    setting: Settings = None,
) -> None:
    """Put published claims to the test on a model, and write a report."""
    formats, chosen = _formats(format), _listed(claims, "--claims")
    if not _exists(checkpoint):  # before torch is imported: a typo should not cost seconds
        raise bundled.not_found(checkpoint)
    folder = _output(out, Path(checkpoint).name)
    from icl_interp import pipeline

    report = pipeline.analyze(
        checkpoint,
        claims=chosen,
        n_prompts=n_prompts,
        seed=seed,
        companions=companion or (),
        device=device,
        **_given(task, encoding, n_heads, setting),
    )
    _print_report(report)
    report.save(folder, formats)
    print(f"report: {_main_file(folder, formats)}")


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="The name of a recipe, or a YAML file.")],
    changes: Annotated[list[str] | None, typer.Argument(help="Changes, such as training.steps=1000.")] = None,
    out: Out = None,
    device: Annotated[str | None, typer.Option(help="Where to train.")] = None,
) -> None:
    """Train a model by a recipe. A run that was stopped goes on where it was, exactly."""
    from icl_interp.devices import checked_device
    from icl_interp.training import recipes, trainer

    config = recipes.resolve(recipe, changes or ())
    checked_device(device)
    folder = _output(out, Path(recipe).stem)
    checkpoint = trainer.train(config, folder, device=device)
    error = checkpoint.provenance["in_distribution"]
    print(f"in-distribution error {error['error']:.3g} [{error['low']:.3g}, {error['high']:.3g}], R2 {error['r2']:.4f}")
    print(f"run: {folder.resolve()}")


@app.command()
def evaluate(
    checkpoint: Source,
    functions: Annotated[int, typer.Option(help="Functions to evaluate on.")] = 100,
    contexts: Annotated[int, typer.Option(help="Prompts of each function.")] = 64,
    sigma: Annotated[float, typer.Option(help="Scale of the coefficients: 1 is in distribution.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the prompts.")] = 0,
    out: Out = None,
    task: TaskFile = None,
    encoding: EncodingName = None,
    n_heads: Heads = None,
    setting: Settings = None,
) -> None:
    """Squared error beside least squares and the zero predictor, on fresh prompts."""
    if not _exists(checkpoint):
        raise bundled.not_found(checkpoint)
    from icl_interp import evaluation, results
    from icl_interp.checkpoints import store
    from icl_interp.provenance import write_json
    from icl_interp.tasks.base import Scalable

    least, most = SIGMAS
    if not least <= sigma <= most:
        raise InputError(f"--sigma must be a number from {least:g} to {most:g}, but got {sigma:g}")
    loaded = store.load(checkpoint, **_given(task, encoding, n_heads, setting))
    asked = loaded.task
    if sigma != 1:
        if not isinstance(asked, Scalable):
            raise InputError(f"--sigma scales coefficients, which a {type(asked).__name__} task does not have")
        asked = asked.scaled(sigma)
    table = evaluation.evaluate(loaded, asked, n_functions=functions, n_contexts=contexts, seed=seed)
    print(results.text(table))
    print(table.attrs["note"])
    if out:
        write_json(out / "evaluation.json", results.to_dict(table))
        print(f"table: {out / 'evaluation.json'}")


@app.command()
def reproduce(
    ids: Annotated[
        list[str] | None, typer.Argument(help="Ids of experiments (--list shows them); all by default.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the experiments and stop.")] = False,
    scale: Annotated[str, typer.Option(help="smoke (seconds), small (a CPU) or paper (a GPU).")] = "small",
    out: Out = None,
    models: Annotated[
        list[Path] | None, typer.Option(help="A folder of run folders to take finished models from; repeatable.")
    ] = None,
    no_train: Annotated[
        bool, typer.Option("--no-train", help="Do with the models that are there, and say what is missing.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the samples.")] = 0,
    device: Annotated[str | None, typer.Option(help="Where to train and to predict.")] = None,
) -> None:
    """Do the tables and figures of a paper again. What was cut off goes on when asked for again with the same --out."""
    from icl_interp.experiments import base, scales

    if list_:
        for name in base.names():
            print(f"{name:18} {base.get(name).title}")
        return
    scales.named(scale)  # before anything is trained or written
    for name in ids or ():
        base.get(name)
    folder = _output(out, "reproduce")
    from icl_interp.reproduction import run

    for done in run.reproduce(
        ids or (), folder, scale=scale, models=models or (), train=not no_train, seed=seed, device=device
    ):
        print(f"\n{done.experiment.id}: {done.experiment.title}")
        for line in done.says:
            print(f"  {line}")
    print(f"\nreproductions: {(folder / 'index.html').resolve()}")


@app.command()
def zoo() -> None:
    """List the bundled models."""
    from icl_interp import results
    from icl_interp.report.page import task_words

    rows = [(name, bundled.config(name), bundled.provenance(name)) for name in bundled.names()]
    columns: dict[str, list[Any]] = {"name": [], "model": [], "task": [], "steps": [], "error": [], "R2": []}
    for name, config, origin in rows:
        model, error = config["model"], origin["in_distribution"]
        columns["name"].append(name)
        columns["model"].append(_model_words(model))
        columns["task"].append(task_words(config["task"]))
        columns["steps"].append(origin["step"])
        columns["error"].append(error["error"])
        columns["R2"].append(error["r2"])
    print(results.text(results.make_table(columns)))


@app.command()
def selfcheck(
    draws: Annotated[
        int | None, typer.Option(help="Random draws of each construction.  [default: 3; full: 200]")
    ] = None,
    seed: Annotated[int, typer.Option(help="First draw.")] = 0,
    full: Annotated[
        bool, typer.Option("--full", help="Try every verdict on bundled models as well: edits, other samples. Hours.")
    ] = False,
    processes: Annotated[int, typer.Option(help="With --full: how many work beside each other.", min=1)] = 1,
    out: Out = None,
) -> None:
    """Judge every claim on constructions of known truth, and show what its verdicts withstood."""
    if full:
        _full_selfcheck(draws, processes, out)
        return
    from icl_interp import results
    from icl_interp.experiments import calibration
    from icl_interp.provenance import write_json

    table = calibration.calibrate(3 if draws is None else draws, seed)
    print(results.text(table))
    if out:
        write_json(out / "selfcheck.json", results.to_dict(table))
    _show_batteries()
    wrong = sum(n - k for n, k in zip(table["draws"], table["as expected"], strict=True))
    print(f"{sum(table['draws']) - wrong} of {sum(table['draws'])} verdicts as expected")
    if wrong:
        raise typer.Exit(1)


def _show_batteries() -> None:
    """What verdicts withstood when the whole battery was last run."""
    from icl_interp.studies import STUDIES
    from icl_interp.testing import battery

    for study in STUDIES.values():
        found = battery.kept(study)
        if found:
            print(f"{study.name}, kept results of {battery.COMMAND}:")
            print("\n".join(f"  {line}" for line in (*found.summary(), *found.short())))


def _full_selfcheck(draws: int | None, processes: int, out: Path | None) -> None:
    """The battery of every study; parts and results go to a folder, where a run that was stopped goes on."""
    from icl_interp.provenance import write_json
    from icl_interp.studies import STUDIES
    from icl_interp.testing import battery

    if out is None:
        raise InputError("--full takes hours and keeps its parts as it goes: name a folder for them with --out")
    short = []
    for study in STUDIES.values():
        parts = out / study.name
        n_draws = battery.DRAWS if draws is None else draws
        found = battery.run(study, parts, n_draws=n_draws, processes=processes, watch=_on_stderr)
        write_json(parts / "battery.json", found.to_dict())
        short += found.short()
        print(f"{study.name}:")
        print("\n".join(f"  {line}" for line in (*found.summary(), *found.short())))
    if short:
        raise typer.Exit(1)


def _on_stderr(text: str) -> None:
    print(text, file=sys.stderr)


def main() -> None:
    """Run the command line."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
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
    print(" ".join(message.split()), file=sys.stderr)
    sys.exit(2)


def _exists(checkpoint: str) -> bool:
    try:
        return Path(checkpoint).exists() or checkpoint in bundled.names()
    except (OSError, ValueError):  # a name longer than the system's names, say
        return False


def _given(task: Path | None, encoding: str | None, n_heads: int | None, settings: list[str] | None) -> dict[str, Any]:
    """What the options say about a model, as `icl_interp.load` takes it."""
    from icl_interp.checkpoints import given

    return {
        "task": None if task is None else given.read_task(task),
        "encoding": encoding,
        "n_heads": n_heads,
        "settings": given.read_settings(settings or ()),
    }


def _formats(text: str) -> list[str]:
    from icl_interp.errors import unknown

    formats = _listed(text, "--format") or []
    for name in formats:
        if name not in ("html", "json", "png", "svg", "pdf"):
            raise unknown("format", name, ("html", "json", "png", "svg", "pdf"))
    return formats


def _listed(text: str | None, option: str) -> list[str] | None:
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    if text is not None and not parts:
        raise InputError(f"{option} is empty: name one or several, with commas between them, or leave the option out")
    return parts or None


def _output(out: Path | None, name: str) -> Path:
    """The output folder, checked before anything is computed for it, and made only when there is something to write."""
    if out is None:
        stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        out = Path("icl-interp-out") / f"{name}-{stamp}"
    nearest = out.absolute()
    while not nearest.exists():
        nearest = nearest.parent
    if not nearest.is_dir():
        raise InputError(f"cannot write to {out}: {nearest} is a file; choose another --out")
    if not os.access(nearest, os.W_OK):
        raise InputError(f"cannot write to {out}: no permission in {nearest}; choose another --out")
    return out


def _main_file(folder: Path, formats: list[str]) -> Path:
    name = next((f"report.{f}" for f in ("html", "json") if f in formats), "figures")
    return (folder / name).resolve()


def _model_words(model: dict[str, Any]) -> str:
    norm = f"{model['norm_position']}-{model['normalization_type']}" if model["normalization_type"] else "no norm"
    size = f"{model['n_layers']} x {model['d_model']}"
    if model["mlp_only"]:
        return f"{size}, {norm}, MLP only"
    heads = "1 head" if model["n_heads"] == 1 else f"{model['n_heads']} heads"
    parts = "attention only" if model["attn_only"] else "attention + MLP"
    return f"{size} x {heads}, {norm}, {model['score_fn']}, {parts}"


def _print_report(report: "Report") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from icl_interp.analyses import multiplicity

    error, config = report.model["in_distribution"], report.model["config"]
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    # Texts of a report are never markup: a folder may be called [red].
    console.print(Text.assemble("\n", (report.checkpoint["name"], "bold"), f": {_model_words(config)}"))
    known = [f"{name} {error[key]:.2g}" for name, key in REFERENCES.items() if error.get(key) is not None]
    interval = f"[{error['low']:.3g}, {error['high']:.3g}]"
    measured = f"in distribution: error {error['error']:.3g} {interval}, R2 {error['r2']:.4f}"
    console.print(Text(f"{measured}; {', '.join(known)}\n"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0))
    for title in ("verdict", "claim", "what decided", "why"):
        table.add_column(title, overflow="fold", no_wrap=title in ("verdict", "claim"))
    for finding in report.findings:
        verdict = Text(finding.verdict, style=MARKS[finding.verdict])
        table.add_row(verdict, Text(finding.id), Text(_decided(finding)), Text(finding.reason))
    console.print(table)
    console.print(Text(multiplicity.by_chance(report.findings)))


def _decided(finding: "Finding") -> str:
    """The quantity that the criterion read, which need not be the estimate."""
    e = finding.test or finding.estimate
    return f"{e.value:.3g} [{e.low:.3g}, {e.high:.3g}] {e.unit}".rstrip() + f"\n{e.name}" if e else ""
