"""Recipes: runs as small YAML files, shipped with the package or written by the user."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from icl_interp.checkpoints import bundled
from icl_interp.checkpoints.config import RunConfig, parse
from icl_interp.errors import InputError, shown, unknown
from icl_interp.plain_yaml import parse_yaml, read_yaml
from icl_interp.provenance import encode
from icl_interp.structured import DEPTH


def resolve(
    source: str | Path | dict | RunConfig, overrides: Iterable[str] | Mapping[str, Any] = ()
) -> RunConfig:
    """The config of a recipe's name, a YAML file, a mapping or a config, with changes.

    Changes are texts `key=value`, whose values are read as YAML, or values by dotted key.

    >>> resolve("affine", ["training.steps=10"]).training.steps
    10
    >>> resolve("affine", {"training.learning_rate": 1e-5}).training.learning_rate
    1e-05
    """
    if isinstance(overrides, Mapping):
        changes = list(overrides.items())
    else:
        changes = [_parsed(override) for override in overrides]
    if isinstance(source, RunConfig):
        if not changes:
            return source
        data = encode(source)
    elif isinstance(source, dict):
        data = source
    else:
        data = _read(source)
    for key, value in changes:
        if not _is_key(key):
            raise InputError(f"keys of a recipe look like training.steps, but got {shown(key)}")
        data = _with(data, key.split("."), value)
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


def _parsed(override: str) -> tuple[str, Any]:
    """A dotted key and its value, which is read as YAML."""
    key, equals, text = override.partition("=")
    if not equals or not _is_key(key):
        raise InputError(
            f"changes to a recipe look like training.steps=1000, but got {shown(override)}"
        )
    return key, parse_yaml(text, f"the value {shown(text)}")


def _is_key(text: str) -> bool:
    """Whether a text is a dotted key."""
    parts = text.split(".")
    return all(parts) and len(parts) <= DEPTH


def _with(data: Any, key: list[str], value: Any) -> Any:
    """A copy of nested mappings with one key set; what is no mapping gives way to one."""
    node = dict(data) if isinstance(data, dict) else {}
    node[key[0]] = _with(node.get(key[0]), key[1:], value) if key[1:] else value
    return node
