"""Claims beside checkpoints: what a terminal shows, the page of the documentation, differences.

Claims on which checkpoints disagree come first, and no checkpoint comes before another for what was
found: names stand in alphabetical order.
"""

import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pandas import DataFrame

from icl_interp.analyses.claim import OPPOSITE
from icl_interp.registry.discoveries import RATE, adjusted, of_planted
from icl_interp.registry.entry import Entry
from icl_interp.registry.folder import LIVE, Registry
from icl_interp.report.card import plain
from icl_interp.results import table_of_rows

FIRM = {"supported": "✔", "contradicted": "✘"}
ALONE = {"supported": "+", "contradicted": "-"}  # decided, but no discovery
OPEN = "?"
DISPUTED = "!"
NOTHING = "·"
NO_ENTRY = "no entry"
LEGEND = (
    f"✔ supported, ✘ contradicted: of the verdicts with these marks at most {100 * RATE:g} % are "
    "expected to be wrong by the draw of prompts. + supported, - contradicted: only at 95 %. ? "
    "open. ! disputed: two entries have opposite verdicts. · not judged, or the claim does not "
    "apply."
)
Cell = tuple[str, str]


@dataclass(frozen=True)
class Row:
    """A claim beside all checkpoints.

    Attributes:
        claim: its id.
        marks: one for each checkpoint.
        disagreeing: whether checkpoints have opposite verdicts, or an entry is disputed.
    """

    claim: str
    marks: tuple[str, ...]
    disagreeing: bool


@dataclass(frozen=True)
class Table:
    """All that counts in a registry, planted models left out.

    Attributes:
        checkpoints: names, or the beginning of a hash, in alphabetical order.
        rows: claims; those with disagreements come first.
        seeds: a line for each claim and recipe whose seeds have opposite verdicts.
        n_judged: cells with a verdict, open ones included.
        planted: what is known of the error rate, in sentences.
    """

    checkpoints: tuple[str, ...]
    rows: tuple[Row, ...]
    seeds: tuple[str, ...]
    n_judged: int
    planted: str

    @classmethod
    def of(cls, registry: Registry) -> "Table":
        """The table of a registry."""
        marks = _marks(registry)
        names = _names(registry)
        claims: dict[str, list[str]] = {}
        for claim, _ in sorted(marks):
            claims[claim] = [marks.get((claim, sha256), NOTHING) for sha256 in names]
        rows = []
        for claim, told in claims.items():
            rows.append(Row(claim, tuple(told), _disagree(told)))
        rows.sort(key=lambda row: not row.disagreeing)  # a stable order: ids stay sorted
        field = registry.in_the_field
        rate = error_rate(registry.current)
        return cls(tuple(names.values()), tuple(rows), tuple(_seeds(field)), len(field), rate)

    def lines(self, width: int) -> Iterator[str]:
        """The table for a terminal of this width: checkpoints have numbers, ten a group."""
        longest = 0
        for row in self.rows:
            longest = max(longest, len(row.claim))
        # Ten columns and the gap behind them.
        n_groups = max(1, (width - longest - 1) // 11)
        n = len(self.checkpoints)
        for begin in range(0, n, 10 * n_groups):
            end = min(begin + 10 * n_groups, n)
            yield " " * (longest + 2) + _numbers(begin, end)
            for row in self.rows:
                told = row.marks[begin:end]
                if set(told) != {NOTHING}:
                    yield f"{row.claim:{longest}}  {_in_tens(told)}"
            yield ""
        numbered = []
        for i, name in enumerate(self.checkpoints, 1):
            numbered.append(f"{i} {name}")
        for text in (", ".join(numbered), LEGEND, self.summary(), *self.seeds, self.planted):
            yield textwrap.fill(text, width, break_on_hyphens=False)
            yield ""

    def summary(self) -> str:
        """How much was judged, in a sentence."""
        n = sum(row.disagreeing for row in self.rows)
        return (
            f"{len(self.rows)} claims and {len(self.checkpoints)} checkpoints: {self.n_judged} "
            f"cells are judged. Checkpoints have opposite verdicts on {n} claims, which come first."
        )

    def page(self) -> str:
        """The same as Markdown: a row a claim, with the checkpoints of each verdict."""
        told = (*FIRM.values(), *ALONE.values(), OPEN, DISPUTED)
        lines = [self.summary(), "", LEGEND, ""]
        lines.append(f"| claim | {' | '.join(told)} |")
        lines.append("|---" * (len(told) + 1) + "|")
        # Empty cells stay empty.
        for row in self.rows:
            named: dict[str, list[str]] = defaultdict(list)
            for name, mark in zip(self.checkpoints, row.marks, strict=True):
                named[mark].append(f"`{plain(name)}`")
            cells = [", ".join(named[mark]) for mark in told]
            lines.append(f"| `{row.claim}` | {' | '.join(cells)} |")
        lines.append("")
        for line in self.seeds:
            lines.append(f"* {plain(line)}")
        lines.append("")
        lines.append(self.planted)
        return "\n".join(lines) + "\n"


def _marks(registry: Registry) -> dict[Cell, str]:
    """The mark of each cell of the table."""
    found: dict[Cell, str] = {}
    field = registry.in_the_field
    for entry, q in zip(field, adjusted(field), strict=True):
        # Without sampling error (q is NaN) a verdict cannot be wrong by chance.
        kinds = ALONE if q > RATE else FIRM
        found[entry.cell] = kinds.get(entry.verdict, OPEN)
    for entry in registry.disputed:
        found[entry.cell] = DISPUTED
    return found


def _names(registry: Registry) -> dict[str, str]:
    """Names of checkpoints by their hash, in alphabetical order; hashes come last."""
    entries = registry.in_the_field + registry.disputed
    entries.sort(key=lambda one: (not one.name, one.checkpoint))
    found: dict[str, str] = {}
    for entry in entries:
        found.setdefault(entry.sha256, entry.checkpoint)
    return found


def _disagree(marks: Sequence[str]) -> bool:
    there = set(marks)
    for verdict in OPPOSITE:
        if not there & {FIRM[verdict], ALONE[verdict]}:
            return DISPUTED in there
    return True


def _numbers(begin: int, end: int) -> str:
    """The number of the first checkpoint of each ten, above its column."""
    found = ""
    for i in range(begin, end, 10):
        found += f"{i + 1:<11}"
    return found.rstrip()


def _in_tens(marks: Sequence[str]) -> str:
    """Marks with a gap behind each ten."""
    found = ""
    for i, mark in enumerate(marks):
        found += f" {mark}" if i and i % 10 == 0 else mark
    return found


def _seeds(entries: Sequence[Entry]) -> Iterator[str]:
    """Opposite verdicts of seeds of one recipe: both may be right, so no entry is disputed."""
    alike: dict[Cell, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        if entry.recipe and entry.decided:
            alike[entry.claim, entry.recipe][entry.verdict].append(entry.checkpoint)
    for (claim, _), by_verdict in sorted(alike.items()):
        if len(by_verdict) > 1:
            said = []
            for verdict, names in sorted(by_verdict.items()):
                said.append(f"{verdict} of {', '.join(sorted(names))}")
            yield f"seeds of one recipe have different verdicts: {claim} is {', '.join(said)}"


def error_rate(current: Sequence[Entry]) -> str:
    """How often verdicts are wrong on models of known truth, in sentences."""
    counts = of_planted(current)
    if not counts.decided:
        return "No model of known truth is in this registry, so its error rate is not measured."
    low, high = (f"{100 * end:.2g}" for end in (counts.low, counts.high))
    return (
        f"For models of known truth {counts.decided} cells are decided, {counts.wrong} of them "
        f"wrongly, and {counts.missed} that should be decided are open. At a false discovery rate "
        f"of {100 * RATE:g} % (Benjamini-Yekutieli) {counts.discoveries} verdicts are "
        f"discoveries, and {counts.false} of these are wrong: the interval of that share at 95 % "
        f"is {low} % to {high} % (Clopper-Pearson)."
    )


def differences(before: Registry, after: Registry) -> DataFrame:
    """What changed between two registries: a row a cell.

    Args:
        before: the earlier one.
        after: the later one.
    """
    earlier = _told(before)
    later = _told(after)
    rows = []
    for cell in sorted(earlier.keys() | later.keys()):
        name, was = earlier.get(cell, ("", NO_ENTRY))
        name_now, now = later.get(cell, ("", NO_ENTRY))
        if was != now:
            row = {"claim": cell[0], "checkpoint": name or name_now, "before": was, "after": now}
            rows.append(row)
    return table_of_rows(rows)


def _told(registry: Registry) -> dict[Cell, tuple[str, str]]:
    """The checkpoint's name and what is said of each cell: verdicts, versions and states."""
    found: dict[Cell, tuple[str, str]] = {}
    for cell, entries in registry.cells().items():
        # What does not count any more is told where nothing else is there.
        live = [one for one in entries if one.status in LIVE]
        said = set()
        for one in live or entries:
            status = "" if one.status == "current" else f", {one.status}"
            said.add(f"{one.verdict}, version {one.version}{status}")
        found[cell] = entries[0].checkpoint, "; ".join(sorted(said))
    return found
