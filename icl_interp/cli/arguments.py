"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

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
        "--encoding",
        help="interleaved, stacked, states, augmented or driven, if the file does not say it.",
    ),
]
Heads = Annotated[
    int | None,
    typer.Option("--n-heads", help="Number of attention heads, if the file does not say it."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--setting",
        help="A setting that cannot be read off the weights, such as act_fn=relu; repeatable.",
    ),
]
On = Annotated[str, typer.Option("--on", help="Where jobs run: local, ray or slurm.")]
EachOn = Annotated[
    str | None, typer.Option("--on", help="Run each as a job, on local, ray or slurm.")
]
EngineSettings = Annotated[
    list[str] | None,
    typer.Option("--engine", help="A setting of what --on names, such as processes=2; repeatable."),
]
