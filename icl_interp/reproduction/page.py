"""Experiments as HTML pages that open offline: what came out first, then the figures, then the numbers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from markupsafe import Markup
from pandas import DataFrame

from icl_interp.experiments import statements
from icl_interp.figures import files
from icl_interp.figures.style import VERDICTS, Figure
from icl_interp.figures.text import joined, markup, number
from icl_interp.report.page import document
from icl_interp.reproduction import layout
from icl_interp.results import from_dict

MARKS = dict(zip(statements.COUNTED, ("supported", "contradicted", "inconclusive"), strict=True))
BESIDE = (
    "Not counted: checks of formulas, errata of the source, and models that have not learned, or "
    "not equally well."
)
Record = Mapping[str, Any]


def page(record: Record, figures: Mapping[str, Figure], comparison: DataFrame | None) -> str:
    """One self-contained page about one experiment."""
    divs = [files.to_div(figure, f"figure-{name}") for name, figure in figures.items()]
    parts = [
        _header(record),
        markup("<main><h2>What came out</h2>{}", says(record["says"])),
        *(markup('<div class="plot">{}</div>', div) for div in divs),
        ""
        if comparison is None
        else markup("<h2>{}</h2>{}", _heading(comparison), table(comparison)),
        markup("<h2>Models</h2>{}", _models(record)),
        markup(
            '<h2>Provenance</h2><p class="small">{}</p></main>', _origin(record).replace("`", "")
        ),
    ]
    return document(record["id"], joined(parts, "\n"), divs, "results.json")


def says(lines: Sequence[str]) -> Markup:
    """Sentences with a sign for those that agree or disagree with the source; what is not counted stands apart."""
    main, beside = apart(lines)
    shown = markup("<ul>{}</ul>", joined(markup("<li>{}</li>", _marked(line)) for line in main))
    if not beside:
        return shown
    rest = joined(markup("<li>{}</li>", _marked(line)) for line in beside)
    return markup('{}<p class="quiet small">{}</p><ul>{}</ul>', shown, BESIDE, rest)


def apart(lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """What the source found, with notes; and what is not counted: formulas, misprints, models that are left out."""
    both: tuple[list[str], list[str]] = ([], [])
    for line in lines:
        both[line.startswith(statements.BESIDE)].append(line)
    return both


def table(shown: DataFrame) -> Markup:
    """A table with numbers rounded for reading."""
    words = layout.readable(shown)
    return markup(
        "{note}<div "
        'class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>',
        note=markup('<p class="quiet small">{}</p>', shown.attrs["note"])
        if shown.attrs["note"]
        else "",
        head=joined(markup("<th>{}</th>", name) for name in words.columns),
        body=joined(
            markup(
                "<tr>{}</tr>",
                joined(markup('<td class="number">{}</td>', value) for value in row.values()),
            )
            for row in words.to_dict("records")
        ),
    )


def index(records: Sequence[Record]) -> str:
    """The page that leads to all experiments of a folder."""
    rows = joined(
        markup(
            "<tr><td><a "
            'href="{href}/figure.html">{id}</a></td><td>{title}{says}</td><td>{scale}</td>'
            "<td>{seconds:.0f}&nbsp;s</td></tr>",
            href=quote(r["id"], safe=""),
            id=r["id"],
            title=r["title"],
            says=says(r["says"]),
            scale=r["scale"]["name"],
            seconds=r["provenance"]["seconds"],
        )
        for r in records
    )
    body = markup(
        "<header><div><h1>Experiments, done again</h1></div></header><main><table>"
        "<tr><th>experiment</th><th>what came "
        "out</th><th>scale</th><th>time</th></tr>{}</table></main>",
        rows,
    )
    return document("experiments", body, [], "results.json")


def index_markdown(records: Sequence[Record]) -> str:
    """The same for readers of files."""
    parts = ["# Experiments, done again\n"]
    for r in records:
        main, beside = apart(r["says"])
        says = "".join(f"* {line}\n" for line in main)
        says += f"\n{BESIDE}\n\n" + "".join(f"* {line}\n" for line in beside) if beside else ""
        missing = f" Missing: {', '.join(r['missing'])}." if r["missing"] else ""
        parts.append(
            f"## {r['id']}: {r['title']}\n\n{r['source']}. {_origin(r)}\n\n"
            f"Ours: {r['scale']['words']}. The paper's: {r['scale']['published']}.{missing}\n\n"
            f"{says}{_numbers(r)}"
        )
    return "\n".join(parts)


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
        "The paper's numbers and ours"
        if "paper" in comparison.columns
        else "Our numbers; the paper prints none"
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


def _header(record: Record) -> Markup:
    return markup(
        '<header><div><h1>{r[title]}</h1><p class="quiet small">{r[id]} · {r[source]}</p><p '
        'class="small"><b>Scale {r[scale][name]}.</b> Ours: {r[scale][words]}. The paper\'s: '
        "{r[scale][published]}.{missing}</p></div>"
        "</header>",
        r=record,
        missing=f" Missing models: {', '.join(record['missing'])}." if record["missing"] else "",
    )


def _models(record: Record) -> Markup:
    rows = joined(
        markup(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            name,
            facts["steps"],
            _trained(facts),
            _error(facts),
            facts["run_id"],
        )
        for name, facts in record["models"].items()
    )
    if not rows:
        return markup("<p>None is needed.</p>")
    return markup(
        "<table><tr><th>model</th><th>steps</th><th>trained in</th><th>in-distribution "
        "error</th><th>run id</th></tr>"
        "{}</table>",
        rows,
    )


def _trained(facts: Mapping[str, Any]) -> str:
    seconds = facts.get("training_seconds")
    return f"{seconds / 60:.1f} min" if seconds else "–"


def _error(facts: Mapping[str, Any]) -> str:
    error = facts.get("in_distribution") or {}
    return f"{number(error['error'])} (R² {number(error['r2'], 4)})" if "error" in error else "–"


def _marked(line: str) -> str | Markup:
    word = next((word for word in statements.WORDS if line.startswith(word)), "")
    start, rest = word.rstrip(": "), line.removeprefix(word)
    if not word:
        return line
    if word not in MARKS:
        return markup("<b>{start}</b>: {rest}", start=start, rest=rest)
    look = VERDICTS[MARKS[word]]
    return markup(
        '<b style="color:{look.ink}">{look.sign} {start}</b>: {rest}',
        look=look,
        start=start,
        rest=rest,
    )
