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
from icl_interp.report.page import Boxes, any_of, document, one_each
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
    divs = []
    for name, figure in figures.items():
        divs.append(files.to_div(figure, f"figure-{name}"))
    settings = settings_of(record)
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
        settings=settings,
        different=different(settings),
    )
    return document(record["id"], body, divs, "results.json")


def says(lines: Sequence[str]) -> Markup:
    """Sentences, marked if they agree or disagree with the source; uncounted ones stand apart."""
    return rendered("says.html", lines=lines, apart=apart, parts_of=parts_of, BESIDE=BESIDE)


def apart(lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """The sentences on what the source found, with notes, and those that are not counted.

    Not counted are formulas, misprints, and models that are left out.
    """
    main = []
    beside = []
    for line in lines:
        if line.startswith(statements.BESIDE):
            beside.append(line)
        else:
            main.append(line)
    return main, beside


def table(shown: DataFrame) -> Markup:
    """A table with numbers rounded for reading."""
    words = layout.readable(shown)
    names = list(words.columns)
    rows = words.to_dict("records")
    return rendered("table.html", note=shown.attrs["note"], names=names, rows=rows)


def index(records: Sequence[Record]) -> str:
    """The page that leads to all experiments of a folder."""
    # Rows, each with the classes by which boxes hide it, and how many sentences there are of each
    # result. A mix is the results that an experiment has.
    mixes: list[tuple[str, ...]] = []
    studies: list[str] = []
    rows = []
    total = dict.fromkeys(RESULTS, 0)
    for record in records:
        count = counted(record["says"])
        mix = tuple(count)
        if mix not in mixes:
            mixes.append(mix)
        study = study_of(record)
        if study not in studies:
            studies.append(study)
        rows.append((record, count, f"mix-{mixes.index(mix)} study-{studies.index(study)}"))
        for verdict, n in count.items():
            total[verdict] += n

    # Boxes, in groups. A single study needs none.
    results = [(verdict, f"{VERDICTS[verdict].sign} {RESULTS[verdict]}") for verdict in RESULTS]
    boxes: Boxes = [("Result", results)]
    if len(studies) > 1:
        boxes.append(("Study", [(f"study-{i}", study) for i, study in enumerate(studies)]))
    body = rendered(
        "experiments.html",
        rows=rows,
        total=total,
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
    lines = list(lines)
    found = {}
    for statement, verdict in MARKS.items():
        n = sum(line.startswith(statement) for line in lines)
        if n:
            found[verdict] = n
    return found


def study_of(record: Record) -> str:
    """The study of an experiment, which begins its id."""
    return str(record["id"]).partition(".")[0]


def index_markdown(records: Sequence[Record]) -> str:
    """The same for readers of files."""
    parts = ["# Experiments, reproduced\n"]
    for record in records:
        missing = f" Missing: {', '.join(record['missing'])}." if record["missing"] else ""
        parts.append(
            f"## {folder_of(record)}: {record['title']}\n\n"
            f"{record['source']}. {_origin(record)}\n\n"
            f"Ours: {record['scale']['words']}.{missing}\n\n{_settings_markdown(record)}"
            f"{_says_markdown(record)}{_numbers(record)}"
        )
    return "\n".join(parts)


def _says_markdown(record: Record) -> str:
    """The sentences, in a list for those that are counted and one for the others."""
    main, beside = apart(record["says"])
    text = "".join(f"* {line}\n" for line in main)
    if beside:
        text += f"\n{BESIDE}\n\n"
        text += "".join(f"* {line}\n" for line in beside)
    return text


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
        cells = []
        for text in (row.name, row.work, row.place or "–", row.ours):
            cells.append(text.replace("|", "¦"))
        lines.append(f"| {' | '.join(cells)} |")
    table = "\n".join(lines)
    return f"{table}\n\nDifferent from the work: {different(rows)}.\n\n"


def _numbers(record: Record) -> str:
    """The comparison in Markdown, without intervals: results.json has them."""
    stored = from_dict(record["comparison"]) if record["comparison"] else None
    if not isinstance(stored, DataFrame):
        return ""
    return f"\n{stored.attrs['note']}:\n\n{layout.markdown(stored, intervals=False)}\n"


def _heading(comparison: DataFrame) -> str:
    if "paper" in comparison.columns:
        return "The work's numbers and ours"
    return "Our numbers; the work prints none"


def _origin(record: Record) -> str:
    """Command, time and what it covers."""
    p = record["provenance"]
    n_kept = p["kept from before"]
    kept = ""
    if n_kept:
        kept = f", {n_kept} of {p['measured'] + n_kept} measurements kept from before"
    took = f"{p['seconds']:.0f} s of measuring{kept}"
    return f"`{p['command']}`: {took}; seed {p['seed']}, {p['written']} UTC."


def trained(facts: Mapping[str, Any]) -> str:
    """How long a model was trained."""
    seconds = facts.get("training_seconds")
    return f"{seconds / 60:.1f} min" if seconds else "–"


def error_of(facts: Mapping[str, Any]) -> str:
    """The error of a model in distribution."""
    error = facts.get("in_distribution") or {}
    if "error" not in error:
        return "–"
    return f"{number(error['error'])} (R² {number(error['r2'], 4)})"


def parts_of(line: str) -> tuple[Look | None, str, str]:
    """The look of a sentence that agrees or disagrees, its first word, and the rest."""
    word = next((word for word in statements.WORDS if line.startswith(word)), "")
    look = VERDICTS[MARKS[word]] if word in MARKS else None
    return look, word.rstrip(": "), line.removeprefix(word)


def address(record: Record) -> str:
    """The folder of an experiment, or of its variant, as a part of an address."""
    return quote(folder_of(record), safe="")


def folder_of(record: Record) -> str:
    """The folder of an experiment, or of its variant."""
    variant = record.get("variant")
    return f"{record['id']}.{variant}" if variant else record["id"]
