"""Entries judged again: from stored results, or from stored numbers.

An entry holds the results that its claim needs where they are small. Then all is made anew: the
numbers and the verdict. Of the others the numbers are stored, and the criterion decides again.
"""

import datetime
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from icl_interp.analyses.claim import Claim
from icl_interp.analyses.criterion import Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.registry import REGISTRY
from icl_interp.errors import in_one_line
from icl_interp.registry import folder as folders
from icl_interp.registry.discoveries import chance_of
from icl_interp.registry.entry import Entry, version_of
from icl_interp.registry.folder import UNJUDGED, Change, Registry
from icl_interp.registry.from_report import code_of, other_version

OUTDATED = "outdated"  # it rests on measurements of another version


@dataclass(frozen=True)
class Judged:
    """An entry judged again.

    Attributes:
        entry: as it is stored.
        after: the verdict now; "unjudged" where none can be given, and "outdated" where the
            measurements have another version: then only a new analysis can tell.
        note: why there is none.
        from_results: whether its results are stored, so that the numbers were made again too.
        change: the line that explains another verdict, if there is one.
    """

    entry: Entry
    after: str
    note: str = ""
    from_results: bool = False
    change: Change | None = None

    @property
    def changed(self) -> bool:
        """Whether the verdict is another one."""
        return self.after not in (self.entry.verdict, OUTDATED)

    @property
    def line(self) -> str:
        """What became of it."""
        why = f": {self.note}" if self.note else ""
        said = f" ({self.change.why})" if self.change else ""
        return f"{self.entry.place}: {self.entry.verdict} -> {self.after}{why}{said}"


@dataclass
class Outcome:
    """What came out for a whole registry.

    Attributes:
        judged: each entry that counts or is disputed.
        problems: files that could not be read, and entries whose status is not right.
    """

    judged: list[Judged] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def unexplained(self) -> list[Judged]:
        """Changes of a verdict that no line explains."""
        return [one for one in self.judged if one.changed and one.change is None]

    @property
    def lines(self) -> list[str]:
        """What there is to say, the worst last."""
        # Entries by what became of them.
        ways: Counter[str] = Counter()
        outdated: Counter[str] = Counter()
        explained = []
        changed = []
        for one in self.judged:
            if one.after == OUTDATED:
                outdated[f"{one.entry.claim}: {one.note}"] += 1
                continue
            ways["results" if one.from_results else "numbers"] += 1
            if one.changed and one.change:
                explained.append(f"changed and explained: {one.line}")
            elif one.changed:
                changed.append(f"changed: {one.line}")
        # How much was judged comes first.
        said = [
            f"{ways.total()} verdicts judged again: {ways['results']} from stored results, "
            f"{ways['numbers']} from stored numbers"
        ]
        for about, n in outdated.items():
            said.append(f"not judged: {n} of {about}")
        said += explained
        said += changed
        for line in self.problems:
            said.append(f"problem: {line}")
        return said

    @property
    def right(self) -> bool:
        """Whether all was read, and no verdict changed that no line explains."""
        return not self.unexplained and not self.problems


def judge(registry: Registry) -> Outcome:
    """All entries that count, judged again by the claims as they are registered now."""
    found = Outcome(problems=list(registry.problems))
    for entry in registry.entries:
        if entry.status in folders.LIVE:
            found.judged.append(_explained(_judged(entry), registry.changes))
    for entry in folders.settled(registry):
        found.problems.append(
            f"{entry.place} should be {entry.status} ({entry.why}): icl-interp registry judge "
            "--write corrects it"
        )
    return found


def _explained(judged: Judged, changes: Sequence[Change]) -> Judged:
    """The same, with the line that explains its change."""
    for change in changes if judged.changed else ():
        if change.explains(judged.entry, judged.after):
            return replace(judged, change=change)
    return judged


def _judged(entry: Entry) -> Judged:
    """One entry judged again."""
    claim = REGISTRY.get(entry.claim)
    if claim is None:
        return Judged(entry, UNJUDGED, "no such claim is registered")
    if other := other_version(claim, entry.measurements):
        return Judged(entry, OUTDATED, f"{other}: analyse the models again")
    try:
        model, results = entry.unpacked()
        facts = Facts.from_dict(model, f"{entry.file}: model")
        if results is not None:
            verdict = claim.judge_results(results, facts).verdict
        else:
            verdict = claim.decided(entry.numbers, entry.controls, facts)[0]
        return Judged(entry, verdict, from_results=results is not None)
    except Exception as error:  # of a claim's function, which may fail in any way
        return Judged(entry, UNJUDGED, in_one_line(error))


def write(folder: Path, outcome: Outcome) -> Iterator[str]:
    """Write what was judged: explained changes, and today's version of claims whose verdict stays.

    The entry that was judged is kept, as superseded.

    Yields:
        A line for each entry that changed.
    """
    earlier: list[Entry] = []
    new: list[Entry] = []
    for one in outcome.judged:
        claim = REGISTRY.get(one.entry.claim)
        given = one.after not in (UNJUDGED, OUTDATED)
        if claim is None or not given or (one.changed and one.change is None):
            continue
        version = version_of(claim)
        if one.changed or version != one.entry.version:
            why = one.change.why if one.change else f"version {version} says the same"
            earlier.append(replace(one.entry, status="superseded", why=why))
            new.append(_rejudged(one, claim))
            yield f"{one.line}, by version {version}"
    # The new ones first: were this interrupted, a cell would have two entries, and not none.
    folders.write(folder, folders.dated(new, folders.read(folder).entries))
    folders.write(folder, earlier)
    yield from folders.add(folder, [])


def _rejudged(one: Judged, claim: Claim) -> Entry:
    """The entry by today's claim. Numbers are made again where results are stored."""
    entry = one.entry
    model, results = entry.unpacked()
    facts = Facts.from_dict(model, f"{entry.file}: model")
    numbers: Mapping[str, Estimate] = entry.numbers
    if results is not None and numbers:
        numbers, controls = claim.numbers(results, facts)
        entry = replace(entry, numbers=dict(numbers), controls=tuple(map(dict, controls)))
    decided_by = entry.decided_by
    if numbers:
        condition = claim.criterion.decide(numbers, facts.n_claims).condition
        decided_by = condition.quantity if condition else decided_by
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return replace(
        entry,
        version=version_of(claim),
        verdict=one.after,
        reason=f"Judged again: {one.change.why}" if one.change else entry.reason,
        quote=claim.quote,
        criterion=claim.criterion.text,
        fixed=now[:10],
        decided_by=decided_by,
        p=chance_of(claim.criterion, numbers, one.after),
        added=now,
        code={**entry.code, "judged by": code_of(claim.study)},
        status="current",
        why="",
    )
