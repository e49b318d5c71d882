"""What the command line adds to a file: its task as a YAML file, settings as `name=value`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from icl_interp.checkpoints.config import parse_task
from icl_interp.checkpoints.formats import garg_tasks
from icl_interp.errors import InputError, shown
from icl_interp.plain_yaml import foreign_mapping, parse_yaml, read_yaml
from icl_interp.structured import Stored
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
    data = foreign_mapping(file)
    sections = set(data.mapping())
    if "task" not in sections and {"model", "training"} <= sections:
        return garg_tasks.task_of(data)
    data = Stored(read_yaml(file), data.where)
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
    found = None if task is None else read_task(task)
    words = read_settings(settings or ())
    return {"task": found, "encoding": encoding, "n_heads": n_heads, "settings": words}


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
            value = parse_yaml(text, name)
        except InputError:
            value = ()  # refused below
        complete = name and equals and text.strip()
        if not complete or not isinstance(value, (str, int, float, bool, type(None))):
            raise InputError(
                f"a setting is given as name=value, such as act_fn=relu, but got {shown(pair)}"
            )
        settings[name] = value
    return settings
