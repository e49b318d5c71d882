"""The command line of the benchmarks.

python -m benchmarks [NAME ...] [--list] [--threads N] [--turns N] [--quick] [--out FILE]
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from benchmarks import output
from benchmarks.measuring import Options
from icl_interp.errors import InputError, unknown

# Light: the modules import torch when they are asked to run.
ABOUT = {
    "product": "products of activations and weights, against those of torch",
    "train_step": "a training step, against torch's fused attention and GPT2Model",
    "together": "steps of five runs of one shape, one after another and as one computation",
    "paper": "training steps at the paper's size, and at the largest, with what whole runs take",
    "evaluation": "the evaluation of a model, against the forward passes that it needs",
    "probes": "the default probes, together and each alone, against forward passes and cached "
    "activations",
    "tools": "patching, influence of examples, learned probes, roles of heads and a circuit",
    "report": "the default report of a large model, and of a bundled one, from a cold start",
    "jobs": "64 jobs on two processes, against their work over the processes",
    "busy": "forward passes of a large model alone and beside busy processes, by how threads wait",
    "large": "verdicts and intervals of models, analysed as if they were small and as if they were "
    "large",
}


class Parser(argparse.ArgumentParser):
    """One that says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (python -m benchmarks --help lists the options)")


def counted(text: str) -> int:
    """A whole number from 1 up."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 up, but got {text!r}")
    return int(text)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options, with every benchmark where none is named.

    Raises:
        InputError: an unknown option or name.
    """
    parser = Parser(
        prog="python -m benchmarks", description="Measure what the package costs, beside its goals."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="benchmarks to run; all by default"
    )
    parser.add_argument("--list", action="store_true", help="the benchmarks, a line each")
    parser.add_argument(
        "--threads", type=counted, metavar="N", help="threads of torch; by default its own number"
    )
    parser.add_argument(
        "--turns", type=counted, metavar="N", help="turns of each variant; by default each its own"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="the smallest sizes: a trial, whose numbers mean nothing",
    )
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        help="what `large` analyses: a name, or a run's folder",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write JSON")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in ABOUT:
            raise unknown("benchmark", name, ABOUT)
    if options.model and options.names != ["large"]:
        raise InputError(
            "--model says what `large` analyses: python -m benchmarks large --model MODEL"
        )
    options.names = list(dict.fromkeys(options.names)) or list(ABOUT)
    return options


def measure(options: argparse.Namespace) -> None:
    """Run benchmarks one after the other; print each when it is done, and write all so far."""
    import torch

    from icl_interp.provenance import write_json

    if options.threads:
        torch.set_num_threads(options.threads)
    console, asked = output.console(), Options(options.turns, options.quick, tuple(options.model))
    done: list[dict[str, Any]] = []
    found = {
        "environment": output.environment(torch.get_num_threads()),
        "quick": asked.quick,
        "benchmarks": done,
    }
    if options.out:
        write_json(
            options.out, found
        )  # before anything is measured: a file that can't be written should cost nothing
    console.print(
        ", ".join(
            f"{key} {value}" for key, value in found["environment"].items() if value is not None
        )
    )
    for name in options.names:
        print(f"measuring {name}: {ABOUT[name]}", file=sys.stderr)
        rows = importlib.import_module(f"benchmarks.{name}").run(asked)
        done.append({"name": name, "rows": [row.to_dict(judge=not asked.quick) for row in rows]})
        title = f"{name}: {ABOUT[name]}" + (
            " (a trial: the numbers mean nothing)" if asked.quick else ""
        )
        output.show(console, title, rows, judge=not asked.quick)
        if options.out:
            write_json(options.out, found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say; the exit status is 0 (done), 2 (wrong input) or 130 (stopped)."""
    try:
        options = parsed(arguments)
        if options.list:
            for name, about in ABOUT.items():
                print(f"{name:12} {about}")
        else:
            measure(options)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
