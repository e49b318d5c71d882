"""YAML files of plain data, for recipes, tasks and the configs of other programs.

They are read by one reader, which is strict with what is written for this package. Of what other
programs write it reads all that cannot run code.
"""

import textwrap
from pathlib import Path
from typing import Any

import yaml

from icl_interp.errors import InputError, shown
from icl_interp.stored import read_bytes
from icl_interp.structured import DEPTH, Stored

LARGEST = 10**5  # bytes of a YAML file


def read_yaml(file: Path, *, foreign: bool = False) -> Any:
    """The data of a YAML file.

    Args:
        file: a regular one.
        foreign: whether another program wrote it: aliases, dates and repeated keys are read then.

    Raises:
        InputError: it cannot be read, is too large, is no YAML, or holds what is not read.
    """
    try:
        text = read_bytes(file, LARGEST).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {file}: {error}") from error
    return parse_yaml(text, str(file), foreign=foreign)


def parse_yaml(text: str, where: str, *, foreign: bool = False) -> Any:
    """The data of YAML text; arguments and errors are those of `read_yaml`, and name `where`.

    >>> parse_yaml("{a: [1, 2.5e-3], b: null}", "x")
    {'a': [1, 0.0025], 'b': None}
    >>> parse_yaml("[&x 1, *x]", "x"), parse_yaml("[&x 1, *x]", "x", foreign=True)
    Traceback (most recent call last):
    icl_interp.errors.InputError: x, line 1: expected no anchors and aliases, such as &a and *a
    """
    try:
        return yaml.load(text, _Plain if foreign else _Strict)
    except InputError as error:
        raise InputError(f"{where}, {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = textwrap.shorten(str(error), 200, placeholder=" ...")
        raise InputError(f"{where} is not YAML: {reason}") from error


def foreign_mapping(file: Path) -> Stored:
    """A YAML file of another program, which has to be a mapping, with the errors of `read_yaml`."""
    found = Stored(read_yaml(file, foreign=True), f"{file}: ")
    found.mapping()
    return found


class _Plain(yaml.SafeLoader):
    """A YAML loader for plain data, no deeper than configs are.

    The time of the parser grows with the square of the number of nested brackets.
    """

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.depth > DEPTH:
            raise _refused(f"at most {DEPTH} levels", self.peek_event().start_mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Strict(_Plain):
    """The same without aliases, which could grow without bound, repeated keys and dates."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        if getattr(event, "anchor", None) is not None:  # of an alias too
            raise _refused("no anchors and aliases, such as &a and *a", event.start_mark)
        return super().compose_node(parent, index)

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
    _Strict.add_constructor(f"tag:yaml.org,2002:{_kind}", _Strict.construct_other)
# To PyYAML None stands for every other tag, but its stubs know text only.
_Strict.add_constructor(None, _Strict.construct_other)  # pyright: ignore[reportArgumentType]


def _refused(allowed: str, mark: yaml.Mark) -> InputError:
    return InputError(f"line {mark.line + 1}: expected {allowed}")
