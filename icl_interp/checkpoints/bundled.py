"""The models that come with the package: names and folders. Light: it reads names, not weights."""

import difflib
import json
from pathlib import Path
from typing import Any

from icl_interp.errors import InputError

ZOO = Path(__file__).parent.parent / "zoo"
DEFAULT = "affine"


def names() -> list[str]:
    """Names of the bundled models."""
    return sorted(folder.parent.name for folder in (ZOO / "models").glob("*/config.json"))


def folder(name: str) -> Path:
    """The run folder of a bundled model."""
    return ZOO / "models" / name


def recipes() -> dict[str, Path]:
    """Recipe files by name."""
    return {path.stem: path for path in sorted((ZOO / "recipes").glob("*.yaml"))}


def not_found(source: str) -> InputError:
    """The error for something that is neither a path nor a bundled name."""
    close = difflib.get_close_matches(source, names(), n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return InputError(f"no such path or bundled model: {source!r}; {hint}bundled models: {', '.join(names())}")


def config(name: str) -> dict[str, Any]:
    """A bundled model's config, as data."""
    return json.loads((folder(name) / "config.json").read_text())


def provenance(name: str) -> dict[str, Any]:
    """Where a bundled model came from, and its in-distribution error."""
    return json.loads((folder(name) / "provenance.json").read_text())


def without_norm(run: dict[str, Any]) -> str | None:
    """The bundled model that differs from this config in having no normalisation, if there is one.

    Both must be trained on the same task with the same architecture otherwise; training settings may differ.
    """
    ignored = ("normalization_type", "norm_position", "init_std")

    def key(data: dict[str, Any]) -> tuple[Any, ...]:
        model = {name: value for name, value in data["model"].items() if name not in ignored}
        return model, data["task"], data["encoding"]

    for name in names():
        other = config(name)
        if other["model"]["normalization_type"] is None and key(other) == key(run):
            return name
    return None
