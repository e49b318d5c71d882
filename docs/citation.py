"""The page on how to cite, from CITATION.cff."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from icl_interp.plain_yaml import read_yaml


def page(path: Path) -> str:
    """Markdown: BibTeX entries of the package and of each work that a study tests.

    Args:
        path: of a file in the Citation File Format.
    """
    told = read_yaml(path)
    parts = [
        "# Cite",
        f"{told['message']} The entries are made of `CITATION.cff`, version {told['version']}.",
        bibtex("icl_interp", told),
        "## The works",
    ]
    for work in told["references"]:
        study = work["notes"].partition("`")[2].partition("`")[0]
        parts += [work["notes"], bibtex(study, work)]
    return "\n\n".join(parts) + "\n"


def bibtex(key: str, work: Mapping[str, Any]) -> str:
    """A block with one entry; what the file does not tell is left out."""
    known = {
        "author": " and ".join(map(_author, work["authors"])),
        "title": f"{{{work['title']}}}",
        "year": work.get("year"),
        "version": work.get("version"),
        "note": ", ".join(one["value"] for one in work.get("identifiers", ())),
    }
    lines = [f"  {name} = {{{value}}}," for name, value in known.items() if value]
    return "\n".join(["```bibtex", f"@misc{{{key},", *lines, "}", "```"])


def _author(one: Mapping[str, str]) -> str:
    """A person as BibTeX writes one; a group in braces, so that it is not taken apart."""
    if "name" in one:
        return f"{{{one['name']}}}"
    return f"{one['family-names']}, {one['given-names']}"
