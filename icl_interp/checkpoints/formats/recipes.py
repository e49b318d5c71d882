"""Recipes of quinine, the reader of configs in Garg et al.'s code: YAML files that inherit."""

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from icl_interp.errors import InputError, shown
from icl_interp.plain_yaml import foreign_mapping
from icl_interp.structured import Stored

INHERIT = "inherit"
MOST = 20  # files that a recipe may inherit, one through the other


def whole_config(file: Path) -> Stored:
    """The config in a file, with what the files named under `inherit` say beside it.

    What a file says itself replaces what it inherits. A run's own config.yaml names its parents
    too, but is whole without them.

    Raises:
        InputError: a file cannot be read, or a recipe inherits one that does not lie beside it.
    """
    own = foreign_mapping(file)
    return Stored(_merged(file, own, MOST), own.where)


def _merged(file: Path, own: Stored, most: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _parents(own):
        parent = file.parent / name
        if most == 0 or not _is_below(name) or not parent.is_file():
            if _is_whole(own):
                return dict(own.mapping())
            raise InputError(
                f"{file} is a recipe that inherits {shown(name)}, which does not lie beside it: "
                "give the run's own config.yaml"
            )
        _lay_over(found, _merged(parent, foreign_mapping(parent), most - 1))
    _lay_over(found, own.mapping())
    return found


def _parents(own: Stored) -> Iterator[str]:
    """Names of the files that a config inherits: none, one, or a list."""
    named = own.get(INHERIT)
    if named is None:
        return
    if isinstance(named.value, str):
        yield named.value
        return
    for each in named.items():
        yield each.of(str)


def _is_below(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


def _is_whole(own: Stored) -> bool:
    """Whether a config says its own model's sizes, as a run's does; a recipe inherits them."""
    model = own.mapping().get("model")
    return isinstance(model, Mapping) and "n_dims" in model


def _lay_over(found: dict[str, Any], above: Mapping[str, Any]) -> None:
    """Put what stands above in place of what was found, section by section."""
    for key, value in above.items():
        below = found.get(key)
        if isinstance(below, dict) and isinstance(value, Mapping):
            _lay_over(below, value)
        else:
            found[key] = dict(value) if isinstance(value, Mapping) else value
