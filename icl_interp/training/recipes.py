"""Recipes: runs as small YAML files, shipped with the package or written by the user."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from icl_interp.checkpoints import bundled
from icl_interp.checkpoints.config import RunConfig, parse
from icl_interp.errors import InputError, unknown
from icl_interp.provenance import encode


def resolve(source: str | Path | dict | RunConfig, overrides: Iterable[str] = ()) -> RunConfig:
    """The config that a recipe's name, a YAML file, a mapping or a config stands for, with `key=value` changes.

    >>> resolve("affine", ["training.steps=10"]).training.steps
    10
    """
    overrides = list(overrides)
    if isinstance(source, RunConfig):
        if not overrides:
            return source
        source = encode(source)
    where = "config" if isinstance(source, dict) else str(source)
    data = source if isinstance(source, dict) else _read(source)
    for override in overrides:
        data = _override(data, override)
    return parse(data, where)


def _read(source: str | Path) -> Any:
    path = Path(source)
    if not path.is_file():
        known = bundled.recipes()
        if str(source) not in known:
            raise unknown("recipe (or no such file)", str(source), known)
        path = known[str(source)]
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    return _yaml(text, str(path))


def _yaml(text: str, where: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{where} is not YAML: {' '.join(str(error).split())}") from error


def _override(data: Any, override: str) -> Any:
    """A copy of nested data with one dotted key set. The value is read as YAML."""
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise InputError(f"changes to a recipe look like training.steps=1000, but got {override!r}")
    head, _, rest = key.partition(".")
    node = dict(data) if isinstance(data, dict) else {}
    node[head] = _override(node.get(head), f"{rest}={text}") if rest else _yaml(text, f"the value {text!r}")
    return node
