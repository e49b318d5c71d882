"""Experiments as HTML pages that open offline: the outcome, then the figures, then the numbers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from markupsafe import Markup
from pandas import DataFrame

from icl_interp.experiments import statements
from icl_interp.experiments.settings import Row, different, from_dicts
from icl_interp.figures import files
from icl_interp.figures.style import VERDICTS, Figure, Look
from icl_interp.figures.text import number
from icl_interp.report.html import rendered
from icl_interp.report.page import any_of, document, one_each
from icl_interp.reproduction import layout
from icl_interp.results import from_dict

MARKS = dict(zip(statements.COUNTED, ("supported", "contradicted", "inconclusive"), strict=True))
BESIDE = (
    "Not counted: checks of formulas, errata of the source, and models that have not learned, or "
    "not equally well."
)
RESULTS = {
    "supported": "as in the paper",
    "contradicted": "not as in the paper",
    "inconclusive": "undecided",
}
HOW = (
    "Each row is an experiment of a work, reproduced. Counted are its sentences about what the "
    "work found: as in the paper, not as in the paper, or undecided. Open a row for the sentences; "
    "the name of the experiment leads to its figures, numbers and setting."
)
Record = Mapping[str, Any]


def page(record: Record, figures: Mapping[str, Figure], comparison: DataFrame | None) -> str:
    """One self-contained page about one experiment."""
    divs = [files.to_div(figure, f"figure-{name}") for name, figure in figures.items()]
    body = rendered(
        "experiment.html",
        record=record,
        divs=divs,
        heading="" if comparison is None else _heading(comparison),
        table=None if comparison is None else table(comparison),
        origin=_origin(record).replace("`", ""),
        says=says,
        count=counted(record["says"]),
        RESULTS=RESULTS,
        trained=trained,
        error_of=error_of,
        settings=settings_of(record),
        different=different(settings_of(record)),
    )
    return document(record["id"], body, divs, "results.json")


def says(lines: Sequence[str]) -> Markup:
    """Sentences, marked if they agree or disagree with the source; uncounted ones stand apart."""
    return rendered("says.html", lines=lines, apart=apart, parts_of=parts_of, BESIDE=BESIDE)


def apart(lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """The sentences on what the source found, with notes, and those that are not counted.

    Not counted are formulas, misprints, and models that are left out.
    """
    both: tuple[list[str], list[str]] = ([], [])
    for line in lines:
        both[line.startswith(statements.BESIDE)].append(line)
    return both


def table(shown: DataFrame) -> Markup:
    """A table with numbers rounded for reading."""
    words = layout.readable(shown)
    rows = words.to_dict("records")
    return rendered("table.html", note=shown.attrs["note"], names=list(words.columns), rows=rows)


def index(records: Sequence[Record]) -> str:
    """The page that leads to all experiments of a folder."""
    counts = [counted(r["says"]) for r in records]
    mixes = list(dict.fromkeys(tuple(count) for count in counts))
    studies = list(dict.fromkeys(study_of(r) for r in records))
    rows = []
    for r, count in zip(records, counts, strict=True):
        classes = f"mix-{mixes.index(tuple(count))} study-{studies.index(study_of(r))}"
        rows.append((r, count, classes))
    groups = [
        ("Result", [(v, f"{VERDICTS[v].sign} {RESULTS[v]}") for v in RESULTS]),
        ("Study", [(f"study-{i}", study) for i, study in enumerate(studies)]),
    ]
    boxes = [(title, entries) for title, entries in groups if len(entries) > 1]
    body = rendered(
        "experiments.html",
        rows=rows,
        total={v: sum(count.get(v, 0) for count in counts) for v in RESULTS},
        RESULTS=RESULTS,
        HOW=HOW,
        boxes=boxes,
        rules=[*any_of(mixes), *one_each(boxes[1:])],
        says=says,
        address=address,
    )
    return document("experiments", body, [], "results.json")


def counted(lines: Iterable[str]) -> dict[str, int]:
    """How many sentences say that the source's finding is found again, is not, or is open.

    >>> counted(["As in the paper: it grows.", "Formula holds: 3 of 3.", "Undecided: x."])
    {'supported': 1, 'inconclusive': 1}
    """
    words = [statement for line in lines for statement in MARKS if line.startswith(statement)]
    every = {MARKS[word]: words.count(word) for word in MARKS}
    return {verdict: n for verdict, n in every.items() if n}


def study_of(record: Record) -> str:
    """The study of an experiment, which begins its id."""
    return str(record["id"]).partition(".")[0]


def index_markdown(records: Sequence[Record]) -> str:
    """The same for readers of files."""
    parts = ["# Experiments, reproduced\n"]
    for r in records:
        main, beside = apart(r["says"])
        says = "".join(f"* {line}\n" for line in main)
        says += f"\n{BESIDE}\n\n" + "".join(f"* {line}\n" for line in beside) if beside else ""
        missing = f" Missing: {', '.join(r['missing'])}." if r["missing"] else ""
        parts.append(
            f"## {r['id']}: {r['title']}\n\n{r['source']}. {_origin(r)}\n\n"
            f"Ours: {r['scale']['words']}.{missing}\n\n{_settings_markdown(r)}"
            f"{says}{_numbers(r)}"
        )
    return "\n".join(parts)


def settings_of(record: Record) -> tuple[Row, ...]:
    """The work's setting beside ours; none in records of earlier versions."""
    return from_dicts(record["scale"].get("settings", ()))


def _settings_markdown(record: Record) -> str:
    """The work's setting beside ours in Markdown, and what differs."""
    rows = settings_of(record)
    if not rows:
        return ""
    lines = ["| setting | the work | where | ours |", "|---|---|---|---|"]
    for row in rows:
        cells = (row.name, row.work, row.place or "–", row.ours)
        lines.append(f"| {' | '.join(cell.replace('|', '¦') for cell in cells)} |")
    table = "\n".join(lines)
    return f"{table}\n\nDifferent from the work: {different(rows)}.\n\n"


def _numbers(record: Record) -> str:
    """The comparison in Markdown, without intervals: results.json has them."""
    stored = from_dict(record["comparison"]) if record["comparison"] else None
    return (
        f"\n{stored.attrs['note']}:\n\n{layout.markdown(stored, intervals=False)}\n"
        if isinstance(stored, DataFrame)
        else ""
    )


def _heading(comparison: DataFrame) -> str:
    return (
        "The work's numbers and ours"
        if "paper" in comparison.columns
        else "Our numbers; the work prints none"
    )


def _origin(record: Record) -> str:
    """Command, time and what it covers."""
    p = record["provenance"]
    total = p["measured"] + p["kept from before"]
    kept = (
        f", {p['kept from before']} of {total} measurements kept from before"
        if p["kept from before"]
        else ""
    )
    return (
        f"`{p['command']}`: {p['seconds']:.0f} s of measuring{kept}; seed {p['seed']}, "
        f"{p['written']} UTC."
    )


def trained(facts: Mapping[str, Any]) -> str:
    """How long a model was trained."""
    seconds = facts.get("training_seconds")
    return f"{seconds / 60:.1f} min" if seconds else "–"


def error_of(facts: Mapping[str, Any]) -> str:
    """The error of a model in distribution."""
    error = facts.get("in_distribution") or {}
    return f"{number(error['error'])} (R² {number(error['r2'], 4)})" if "error" in error else "–"


def parts_of(line: str) -> tuple[Look | None, str, str]:
    """The look of a sentence that agrees or disagrees, its first word, and the rest."""
    word = next((word for word in statements.WORDS if line.startswith(word)), "")
    look = VERDICTS[MARKS[word]] if word in MARKS else None
    return look, word.rstrip(": "), line.removeprefix(word)


def address(record: Record) -> str:
    """The folder of an experiment, or of its variant, as a part of an address."""
    variant = record.get("variant")
    name = f"{record['id']}.{variant}" if variant else record["id"]
    return quote(name, safe="")
