"""The parts of a long run: made beside each other, kept in a folder that refuses those made otherwise."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import torch

from icl_interp.errors import InputError
from icl_interp.provenance import read_json, write_json
from icl_interp.studies.base import Study

PACKAGE = Path(__file__).parents[1]
STUDIES = PACKAGE / "studies"
T = TypeVar("T")
MADE_BY = "made_by.json"
SHOWING = (
    "figures",
    "report",
    "reproduction",
    "cli.py",
)  # what shows verdicts, in the package or in a study


def sources(study: Study) -> str:
    """A hash of all that a verdict of a study depends on: the package's code and models, and the study's own folder.

    Other studies are left out, since no study imports another. So is what shows verdicts: a word in
    the caption of a figure does not forbid a run of hours to go on.
    """
    found = hashlib.sha256()
    for root in (PACKAGE, *([study.folder] if study.folder else ())):
        for path in sorted(path for kind in ("*.py", "*.safetensors") for path in root.rglob(kind)):
            if root == PACKAGE and STUDIES in path.parent.parents:
                continue  # the study's own files are those of the other root
            if path.relative_to(root).parts[0] in SHOWING:
                continue
            found.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def claim(folder: Path, made_by: dict[str, Any]) -> None:
    """Make a folder the one for parts that are made like this.

    Args:
        folder: with parts, empty, or not there yet.
        made_by: what parts depend on besides their name.

    Raises:
        InputError: it keeps parts that were made otherwise.
    """
    path = folder / MADE_BY
    if not path.exists():
        write_json(path, made_by)
        return
    there = read_json(path)
    other = [
        name for name in made_by if not isinstance(there, dict) or there.get(name) != made_by[name]
    ]
    if other:
        raise InputError(
            f"{folder} keeps parts of a run with other {' and '.join(other)}: name another folder, "
            "or delete this one"
        )


def file_of(folder: Path, key: str) -> Path:
    """Where a folder keeps the part of this name; two names never share a file."""
    return folder / f"{quote(key, safe=' ,=()+')}.json"


def made(work: Sequence[Callable[[], T]], processes: int) -> Iterator[T]:
    """What some functions return, as each is done; with several processes each computes with one thread."""
    if processes == 1:
        for part in work:
            yield part()
        return
    # Not by fork: threads of the parent would not live on in its children.
    with ProcessPoolExecutor(processes, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        for each in as_completed([pool.submit(part) for part in work]):
            yield each.result()
