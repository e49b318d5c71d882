"""`icl-interp reproduce`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from icl_interp.cli.arguments import EachOn, EngineSettings, Out
from icl_interp.cli.root import end_with, say
from icl_interp.console import console
from icl_interp.errors import InputError
from icl_interp.options import output


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
            "--no-train",
            help="Train nothing: use the models that are there, and say which are missing.",
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
        typer.Option(
            help="Embedding of the text's tokens: a model's folder or file, or a .npy matrix."
        ),
    ] = None,
    on: EachOn = None,
    engine: EngineSettings = None,
) -> None:
    """Reproduce the tables and figures of a paper.

    A run that was stopped goes on, with the same --out.
    """
    from icl_interp.experiments import base, presets
    from icl_interp.report import terminal

    if list_:
        console().print(terminal.experiments(base.listed()))
        return
    from icl_interp.reproduction import run

    # Before anything is trained or written.
    presets.named(scale)
    run.asked(ids or (), variant)
    if on:
        _refuse({"--variant": variant, "--text": text, "--embedding": embedding})
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
        experiment = done.experiment
        say("")
        say(f"{experiment.folder}: {experiment.title}")
        lines = (*done.setting, *done.says)
        for line in lines:
            say(f"  {line}")
    say(f"\nreproductions: {(folder / 'index.html').resolve()}")
    end_with(failed)


def _refuse(others: Mapping[str, object]) -> None:
    """Refuse options that jobs do not have."""
    named = [option for option, value in others.items() if value]
    if named:
        both = " and ".join(named)
        raise InputError(
            f"--on runs experiments as jobs without {both}: leave out {both}, or leave out --on"
        )
