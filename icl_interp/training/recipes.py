"""Recipes: runs as small YAML files, shipped with the package or written by the user."""

import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from icl_interp.checkpoints import bundled
from icl_interp.checkpoints.config import RunConfig, parse
from icl_interp.errors import InputError, shown, unknown
from icl_interp.provenance import encode
from icl_interp.stored import read_bytes
from icl_interp.structured import DEPTH

LARGEST = 10**5  # bytes of a recipe


def resolve(source: str | Path | dict | RunConfig, overrides: Iterable[str] = ()) -> RunConfig:
    """The config of a recipe's name, a YAML file, a mapping or a config, with `key=value` changes.

    >>> resolve("affine", ["training.steps=10"]).training.steps
    10
    """
    overrides = list(overrides)
    if isinstance(source, RunConfig):
        if not overrides:
            return source
        where, data = "config", encode(source)
    elif isinstance(source, dict):
        where, data = "config", source
    else:
        where, data = str(source), _read(source)
    for override in overrides:
        data = _override(data, override)
    return parse(data, where)


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
    try:
        text = read_bytes(path, LARGEST).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {path}: {error}") from error
    return _yaml(text, str(path))


class _Loader(yaml.SafeLoader):
    """A YAML loader for plain data: no aliases, repeated keys or dates, and a limited depth.

    Aliases could grow without bound.
    """

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        if getattr(event, "anchor", None) is not None:  # of an alias too
            raise _refused("no anchors and aliases, such as &a and *a", event.start_mark)
        if self.depth > DEPTH:
            raise _refused(f"at most {DEPTH} levels", event.start_mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                raise _refused("no merge keys <<", key.start_mark)
            name = (
                self.construct_object(key, deep=True) if isinstance(key, yaml.ScalarNode) else None
            )
            if not isinstance(name, str):
                raise _refused(f"text as keys, and not {shown(key.value)}", key.start_mark)
            if name in seen:
                raise _refused(f"each key once, and not {shown(name)} twice", key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)

    def construct_other(self, node: yaml.Node) -> Any:
        kind = node.tag.rpartition(":")[2]
        raise _refused(
            f"numbers, text, truth values, lists and mappings, and not {shown(kind)} (quote what "
            "is meant as text)",
            node.start_mark,
        )


# What is left are null, truth values, numbers, text, lists and mappings.
for _kind in ("binary", "timestamp", "omap", "pairs", "set"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _Loader.construct_other)
# To PyYAML None stands for every other tag, but its stubs know text only.
_Loader.add_constructor(None, _Loader.construct_other)  # pyright: ignore[reportArgumentType]


def _refused(allowed: str, mark: yaml.Mark) -> InputError:
    return InputError(f"line {mark.line + 1}: expected {allowed}")


def _yaml(text: str, where: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except InputError as error:
        raise InputError(f"{where}, {error}") from error
    except (yaml.YAMLError, ValueError) as error:
        reason = textwrap.shorten(str(error), 200, placeholder=" ...")
        raise InputError(f"{where} is not YAML: {reason}") from error


def _override(data: Any, override: str) -> Any:
    """A copy of nested data with one dotted key set. The value is read as YAML."""
    key, equals, text = override.partition("=")
    parts = key.split(".")
    if not equals or not all(parts) or len(parts) > DEPTH:
        raise InputError(
            f"changes to a recipe look like training.steps=1000, but got {shown(override)}"
        )
    return _with(data, parts, _yaml(text, f"the value {shown(text)}"))


def _with(data: Any, key: list[str], value: Any) -> Any:
    """A copy of nested mappings with one key set; what is no mapping gives way to one."""
    node = dict(data) if isinstance(data, dict) else {}
    node[key[0]] = _with(node.get(key[0]), key[1:], value) if key[1:] else value
    return node
