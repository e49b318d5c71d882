"""A registry: a folder of entries, read one by one, so that a damaged one costs no other.

A state of it that git keeps is read in the same way.
"""

import io
import re
import subprocess
import tarfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from icl_interp.analyses.claim import OPPOSITE
from icl_interp.errors import InputError, shown
from icl_interp.provenance import parse_json, write_atomically
from icl_interp.registry.entry import Entry
from icl_interp.stored import read_bytes

LARGEST = 10**6  # bytes of an entry; one that holds results has some 30,000
LARGEST_STATE = 10**9  # bytes of a whole registry as git gives it
CHANGES = "changes.txt"
# Verdicts, and what becomes of one that cannot be given any more.
UNJUDGED = "unjudged"
OUTCOMES = (*OPPOSITE, "inconclusive", "not_applicable", UNJUDGED)
LIVE = ("current", "disputed")  # what a later entry may change; the rest has been decided


class Change(NamedTuple):
    """A line of `changes.txt`: it explains why verdicts on a claim changed.

    Attributes:
        claim: its id.
        checkpoint: a name, the beginning of a hash, or "*" for all.
        before: the verdict that is stored.
        after: the verdict that results give now; "unjudged" where they give none.
        why: the reason.
    """

    claim: str
    checkpoint: str
    before: str
    after: str
    why: str

    def explains(self, entry: Entry, after: str) -> bool:
        """Whether the line is about this entry, and a change to this verdict."""
        named = self.checkpoint in ("*", entry.name) or (
            len(self.checkpoint) >= 8 and entry.sha256.startswith(self.checkpoint)
        )
        same = (self.claim, self.before, self.after) == (entry.claim, entry.verdict, after)
        return named and same


@dataclass
class Registry:
    """What a registry holds.

    Attributes:
        entries: in the order of their places.
        changes: the lines that explain changes of verdicts.
        problems: a line for each file or line that could not be read.
    """

    entries: list[Entry] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def current(self) -> list[Entry]:
        """The entries that count."""
        return [entry for entry in self.entries if entry.status == "current"]

    @property
    def in_the_field(self) -> list[Entry]:
        """Of these, those on models whose truth is not known."""
        return [entry for entry in self.current if not entry.planted]

    @property
    def disputed(self) -> list[Entry]:
        """Entries with opposite verdicts in one cell, on models whose truth is not known."""
        return [e for e in self.entries if e.status == "disputed" and not e.planted]

    def cells(self) -> dict[tuple[str, str], list[Entry]]:
        """Entries by claim and checkpoint, those that do not count any more included."""
        found: dict[tuple[str, str], list[Entry]] = defaultdict(list)
        for entry in self.entries:
            found[entry.cell].append(entry)
        return dict(found)


# ---- reading -------------------------------------------------------------------------------------


def read(folder: Path) -> Registry:
    """The registry in a folder.

    Raises:
        InputError: there is no such folder.
    """
    if not folder.is_dir():
        raise InputError(
            f"there is no registry {shown(str(folder))}: name one with --registry, or make one "
            "with icl-interp registry add REPORT"
        )
    found = Registry()
    for path in sorted([*folder.glob("*/*.json"), folder / CHANGES]):
        if path.name != CHANGES or path.exists():
            try:
                _take(found, path.relative_to(folder).as_posix(), read_bytes(path, LARGEST), path)
            except InputError as error:
                found.problems.append(str(error))
    return found


def state(name: str, folder: Path) -> Registry:
    """A registry by the name of a folder, or as it was at a revision of git.

    Args:
        name: of the folder or the revision.
        folder: the registry whose earlier state a revision gives.

    Raises:
        InputError: it is neither.
    """
    if Path(name).is_dir():
        return read(Path(name))
    if name.startswith("-"):
        raise InputError(f"a registry is a folder or a revision of git, but got {shown(name)}")
    # All files of the folder at that revision, in one archive.
    place = folder.absolute()
    argv = ["git", "-C", str(place.parent), "archive", "--format=tar", name, "--", place.name]
    try:
        made = subprocess.run(argv, capture_output=True, check=False)
    except OSError as error:
        raise InputError(
            f"{shown(name)} is not a folder, and git cannot be run: {error}"
        ) from error
    if made.returncode:
        said = made.stderr.decode("utf-8", "replace").strip().splitlines() or ["nothing"]
        raise InputError(f"{shown(name)} is not a folder, and git says about it: {said[-1]}")
    if len(made.stdout) > LARGEST_STATE:
        raise InputError(f"the registry at {shown(name)} is larger than {LARGEST_STATE:,} bytes")
    # Each is read like one that lies in a folder.
    found = Registry()
    with tarfile.TarFile(fileobj=io.BytesIO(made.stdout)) as archive:
        for member in sorted(archive.getmembers(), key=lambda one: one.name):
            file = archive.extractfile(member) if member.isfile() else None
            place_in = member.name.partition("/")[2]
            if file is None or not (
                place_in == CHANGES or re.fullmatch(r"[^/]+/[^/]+\.json", place_in)
            ):
                continue
            try:
                _take(found, place_in, file.read(LARGEST), Path(f"{name}:{member.name}"))
            except InputError as error:
                found.problems.append(str(error))
    return found


def _take(found: Registry, place: str, data: bytes, path: Path) -> None:
    """Put what a file holds into a registry."""
    if place == CHANGES:
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                try:
                    found.changes.append(change(line, f"{path}, line {number}"))
                except InputError as error:
                    found.problems.append(str(error))
        return
    entry = Entry.from_dict(parse_json(data, str(path)), str(path))
    if entry.path != place:
        raise InputError(
            f"{path} should be called {entry.path}: it was edited or renamed, so restore it from "
            "git"
        )
    found.entries.append(entry)


def change(line: str, where: str) -> Change:
    """A line that explains a change: `CLAIM CHECKPOINT BEFORE -> AFTER: WHY`.

    >>> change("a.b * supported -> inconclusive: a wider margin", "here").why
    'a wider margin'
    """
    told = re.fullmatch(r"(\S+) +(\S+) +(\w+) *-> *(\w+): *(.*\S)", line.strip())
    if told is None or not {told[3], told[4]} <= set(OUTCOMES):
        raise InputError(
            f"{where} should read 'CLAIM CHECKPOINT BEFORE -> AFTER: WHY', with verdicts of "
            f"{', '.join(OUTCOMES)}, but reads {shown(line)}"
        )
    return Change(*told.groups())


# ---- writing -------------------------------------------------------------------------------------


def write(folder: Path, entries: Iterable[Entry]) -> None:
    """Write entries, each whole or not at all."""
    for entry in entries:
        write_atomically(folder / entry.path, entry.text())


def add(folder: Path, new: Sequence[Entry]) -> Iterator[str]:
    """Add entries to a registry, which is made where there is none. Nothing that is there is lost.

    Args:
        folder: of the registry.
        new: entries; those that are there already are passed over.

    Yields:
        A line for each entry that is new, or that another one changed.
    """
    there = read(folder) if folder.is_dir() else Registry()
    places = {entry.path: entry for entry in there.entries}
    for entry in dated(new, there.entries):
        if entry.path not in places:
            write(folder, [entry])
            places[entry.path] = entry
            yield f"{entry.place}: {entry.verdict}"
    whole = Registry(list(places.values()))
    for entry in settled(whole):
        write(folder, [entry])
        yield f"{entry.place}: {entry.verdict} is {entry.status} ({entry.why})"


def dated(new: Sequence[Entry], there: Sequence[Entry]) -> Iterator[Entry]:
    """New entries whose rule is as old as the first entry that was judged by it."""
    first: dict[tuple[str, str], str] = {}
    for entry in (*there, *new):
        rule = entry.claim, entry.version
        first[rule] = min(first.get(rule, entry.fixed), entry.fixed)
    for entry in new:
        yield replace(entry, fixed=first[entry.claim, entry.version])


def settled(registry: Registry) -> Iterator[Entry]:
    """Entries whose status is not what the others of their cell make it, as they should be.

    Of the version of the newest entry, opposite verdicts are disputed: all of them, until one is
    invalidated by a person. Else the newest entry is current, and the others are superseded.
    """
    for entries in registry.cells().values():
        # Of those that may still count, the newest says which version does.
        live = [entry for entry in entries if entry.status in LIVE]
        if not live:
            continue
        newest = max(live, key=lambda one: (one.added, one.analyzed, one.path))
        alike = [entry for entry in live if entry.version == newest.version]
        verdicts = {entry.verdict for entry in alike if entry.decided}
        for entry in live:
            if entry.version != newest.version:
                why = f"version {newest.version} of the claim was judged on {newest.added[:10]}"
                other = replace(entry, status="superseded", why=why)
            elif len(verdicts) == 2:
                why = "another entry of the same version has the opposite verdict"
                other = replace(entry, status="disputed", why=why)
            elif entry is newest:
                other = replace(entry, status="current", why="")
            else:
                why = f"judged from another analysis, of {newest.analyzed[:10]}"
                other = replace(entry, status="superseded", why=why)
            if other != entry:
                yield other
