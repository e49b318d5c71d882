"""The models that come with the package: names and folders. Light: it reads names, not weights."""

import difflib
import json
from pathlib import Path
from typing import Any

from icl_interp.errors import InputError, nearest, shown

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
    asked = source[:80]
    close = difflib.get_close_matches(asked, names(), n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return InputError(
        f"no such path or bundled model: {shown(source)}; {hint}bundled models: {DEFAULT}; "
        f"{nearest(asked, names(), 'model')}"
    )


def config(name: str) -> dict[str, Any]:
    """A bundled model's config, as data."""
    return json.loads((folder(name) / "config.json").read_text())


def provenance(name: str) -> dict[str, Any]:
    """Where a bundled model came from, and its in-distribution error."""
    return json.loads((folder(name) / "provenance.json").read_text())
