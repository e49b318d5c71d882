"""What the command line says about a model for its file: a task in a YAML file, settings as `name=value`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from yaml.tokens import AliasToken

from icl_interp.checkpoints.config import parse_task
from icl_interp.checkpoints.formats import garg_tasks
from icl_interp.checkpoints.formats.files import LARGEST, plain_yaml
from icl_interp.errors import InputError, shown
from icl_interp.stored import read_bytes
from icl_interp.tasks.base import Task


def read_task(file: Path) -> Task:
    """The task that a YAML file describes in its section `task`, as recipes do.

    Other sections are not read.

    A config.yaml of Garg et al. (2022), which has the sections `model` and `training`, gives the
    task that it trains.

    Raises:
        InputError: no such file, no YAML of plain data, no such section, or a task that is not
            known.
    """
    data = plain_yaml(file)
    if "task" not in data.mapping() and {"model", "training"} <= {*data.mapping()}:
        return garg_tasks.task_of(data)
    if any(
        isinstance(token, AliasToken)
        for token in yaml.scan(read_bytes(file, LARGEST).decode("utf-8"))
    ):
        raise InputError(
            f"{file} holds an alias (*name), which a task has no need of: write its value out"
        )
    if "task" not in data.mapping():
        found = ", ".join(data.mapping()) or "nothing"
        raise InputError(
            f"{file} has no section 'task', but {shown(found)}: give it one, for example "
            "task: {kind: LinearRegression, n_dims: 20, n_points: 41}"
        )
    task = data["task"]
    try:
        return parse_task(task.plain(), task.where)
    except InputError as error:  # a setting that the task refuses by its own name
        if str(file) in str(error):
            raise
        raise InputError(f"{file}: {error}") from error


def options(
    task: Path | None, encoding: str | None, n_heads: int | None, settings: list[str] | None
) -> dict[str, Any]:
    """What the options of a command say about a model, as `icl_interp.load` takes it.

    Raises:
        InputError: a file without a task, or a setting that is none.
    """
    return {
        "task": None if task is None else read_task(task),
        "encoding": encoding,
        "n_heads": n_heads,
        "settings": read_settings(settings or ()),
    }


def read_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """Settings of a model by name, from text such as "act_fn=relu"; values are read as YAML.

    Raises:
        InputError: no name, no "=", or a value that is no number, text, truth value or null.

    >>> read_settings(["act_fn=relu", "eps=1.0e-6", "normalization_type=null"])
    {'act_fn': 'relu', 'eps': 1e-06, 'normalization_type': None}
    """
    settings = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        try:
            value = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, RecursionError):
            value = ()
        if not (name and equals and text.strip()) or not isinstance(
            value, (str, int, float, bool, type(None))
        ):
            raise InputError(f"a setting looks like act_fn=relu, but got {shown(pair)}")
        settings[name] = value
    return settings
