"""The page of what the four works hold: a row each, what stands for it here, and how to run it."""

import csv
import importlib
from pathlib import Path
from typing import NamedTuple

from catalogue import in_markdown

from icl_interp.analyses import REGISTRY
from icl_interp.checkpoints import bundled
from icl_interp.errors import InputError
from icl_interp.experiments import base
from icl_interp.studies import STUDIES
from icl_interp.training import recipes

TABLE = Path(__file__).with_name("coverage.csv")
STATES = {
    "whole": "all of it is here",
    "partly": "a part is missing, and the row says which",
    "different": "it is here in another form, and the row says which",
    "missing": "it is not here",
}


class Row(NamedTuple):
    """One system, statement, figure or setting of a work.

    Attributes:
        item: what it is, with its place in the work.
        state: one of `STATES`.
        by: names of what stands for it: experiments, claims, recipes, functions.
        note: what is missing or different, or what to know.
    """

    study: str
    item: str
    state: str
    by: tuple[str, ...]
    note: str


def rows() -> list[Row]:
    """All rows, in the order of the works."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return [
            Row(one["study"], one["item"], one["state"], tuple(one["by"].split()), one["note"])
            for one in csv.DictReader(file)
        ]


def command(name: str) -> str:
    """How to run or read what has this name.

    Raises:
        InputError: nothing is registered under it.
    """
    if name in base.EXPERIMENTS:
        return f"icl-interp reproduce {name}"
    if name in REGISTRY:
        return f"icl-interp explain {name}"
    if name.startswith("icl_interp."):
        _found(name)
        return name
    recipes.resolve(name)
    verb = "analyze" if name in bundled.names() else "train"
    return f"icl-interp {verb} {name}"


def _found(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    if not hasattr(importlib.import_module(module), attribute):
        raise InputError(f"{name} does not exist: correct its row in {TABLE.name}")


def page() -> str:
    """The table of each work as Markdown, and how many rows are in which state."""
    found = rows()
    counts = ", ".join(f"{sum(row.state == state for row in found)} {state}" for state in STATES)
    parts = [
        "# What of the works is here",
        f"Every system, statement, figure and setting of the four works: {len(found)} rows, "
        f"{counts}. " + "; ".join(f"*{state}*: {words}" for state, words in STATES.items()) + ". "
        "What each experiment does otherwise than its work stands on its own page.",
    ]
    for name, study in STUDIES.items():
        own = [row for row in found if row.study == name]
        if own:
            parts += [f"## {in_markdown(study.work)}", _table(own)]
    return "\n\n".join(parts) + "\n"


def _table(own: list[Row]) -> str:
    lines = ["| in the work | state | run or read | note |", "|---|---|---|---|"]
    for row in own:
        commands = ", ".join(f"`{command(name)}`" for name in row.by) or "–"
        cells = (in_markdown(row.item), row.state, commands, in_markdown(row.note) or "–")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
