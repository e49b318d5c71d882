"""Recipes: runs as small YAML files, shipped with the package or written by the user."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from icl_interp.checkpoints import bundled
from icl_interp.checkpoints.config import RunConfig, parse
from icl_interp.errors import InputError, shown, unknown
from icl_interp.plain_yaml import parse_yaml, read_yaml
from icl_interp.provenance import encode
from icl_interp.structured import DEPTH


def resolve(source: str | Path | dict | RunConfig, overrides: Iterable[str] = ()) -> RunConfig:
    """The config of a recipe's name, a YAML file, a mapping or a config, with `key=value` changes.

    >>> resolve("affine", ["training.steps=10"]).training.steps
    10
    """
    overrides = list(overrides)
    if isinstance(source, RunConfig):
        if not overrides:
            return source
        data = encode(source)
    elif isinstance(source, dict):
        data = source
    else:
        data = _read(source)
    for override in overrides:
        data = _override(data, override)
    return parse(data, "config" if isinstance(source, (dict, RunConfig)) else str(source))


def _read(source: str | Path) -> Any:
    path = Path(source)
    known = bundled.recipes()
    try:
        found = path.exists() and not path.is_dir()  # a folder may have the name of a recipe
    except (OSError, ValueError):  # a name longer than the system's names, say
        found = False
    if not found:
        if str(source) not in known:
            raise unknown("recipe (or no such file)", str(source), known)
        path = known[str(source)]
    return read_yaml(path)


def _override(data: Any, override: str) -> Any:
    """A copy of nested data with one dotted key set. The value is read as YAML."""
    key, equals, text = override.partition("=")
    parts = key.split(".")
    if not equals or not all(parts) or len(parts) > DEPTH:
        raise InputError(
            f"changes to a recipe look like training.steps=1000, but got {shown(override)}"
        )
    return _with(data, parts, parse_yaml(text, f"the value {shown(text)}"))


def _with(data: Any, key: list[str], value: Any) -> Any:
    """A copy of nested mappings with one key set; what is no mapping gives way to one."""
    node = dict(data) if isinstance(data, dict) else {}
    node[key[0]] = _with(node.get(key[0]), key[1:], value) if key[1:] else value
    return node
