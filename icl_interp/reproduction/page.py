"""Experiments as HTML pages that open offline: what came out first, then the figures, then the numbers."""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from icl_interp import page as report_page
from icl_interp.experiments.errors import MISPRINT
from icl_interp.figures import files
from icl_interp.figures.style import VERDICTS, Figure
from icl_interp.figures.text import number
from icl_interp.reproduction import layout
from icl_interp.results import Table, from_dict

MARKS = {"As in the paper": "supported", "Not as in the paper": "contradicted", "Undecided": "inconclusive"}
Record = Mapping[str, Any]


def page(record: Record, figures: Mapping[str, Figure], comparison: Table | None) -> str:
    """One self-contained page about one experiment."""
    parts = [
        _header(record),
        f"<main><h2>What came out</h2>{says(record['says'])}",
        *(f'<div class="plot">{files.to_div(figure, f"figure-{name}")}</div>' for name, figure in figures.items()),
        f"<h2>{_heading(comparison)}</h2>{table(comparison)}" if comparison is not None else "",
        f"<h2>Models</h2>{_models(record)}",
        f'<h2>Provenance</h2><p class="small">{_text(_origin(record).replace("`", ""))}</p></main>',
    ]  # fmt: skip
    script = f"<script>{files.plotly_js()}</script>" if figures else ""
    return _whole(record["id"], script, "\n".join(parts))


def says(lines: Iterable[str]) -> str:
    """Sentences with a sign for those that agree or disagree with the source."""
    return f"<ul>{''.join(f'<li>{_marked(line)}</li>' for line in lines)}</ul>"


def table(shown: Table) -> str:
    """A table with numbers rounded for reading."""
    words = layout.readable(shown)
    head = "".join(f"<th>{_text(name)}</th>" for name in words.columns)
    body = "".join(
        "<tr>" + "".join(f'<td class="number">{_text(value)}</td>' for value in row.values()) + "</tr>"
        for row in words.rows()
    )
    note = f'<p class="quiet small">{_text(shown.note)}</p>' if shown.note else ""
    return f'{note}<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def index(records: Sequence[Record]) -> str:
    """The page that leads to all experiments of a folder."""
    rows = "".join(
        f'<tr><td><a href="{_text(r["id"])}/figure.html">{_text(r["id"])}</a></td><td>{_text(r["title"])}'
        f"{says(r['says'])}</td><td>{_text(r['scale']['name'])}</td><td>{r['provenance']['seconds']:.0f}&nbsp;s</td></tr>"
        for r in records
    )
    head = "<tr><th>experiment</th><th>what came out</th><th>scale</th><th>time</th></tr>"
    body = f"<header><div><h1>Experiments, done again</h1></div></header><main><table>{head}{rows}</table></main>"
    return _whole("experiments", "", body)


def index_markdown(records: Sequence[Record]) -> str:
    """The same for readers of files."""
    parts = ["# Experiments, done again\n"]
    for r in records:
        says = "".join(f"* {line}\n" for line in r["says"])
        missing = f" Missing: {', '.join(r['missing'])}." if r["missing"] else ""
        parts.append(
            f"## {r['id']}: {r['title']}\n\n{r['source']}. {_origin(r)}\n\n"
            f"Ours: {r['scale']['words']}. The paper's: {r['scale']['published']}.{missing}\n\n{says}{_numbers(r)}"
        )
    return "\n".join(parts)


def _numbers(record: Record) -> str:
    """The comparison in Markdown, without intervals: results.json has them."""
    stored = from_dict(record["comparison"]) if record["comparison"] else None
    return f"\n{stored.note}:\n\n{layout.markdown(stored, intervals=False)}\n" if isinstance(stored, Table) else ""


def _heading(comparison: Table) -> str:
    return "The paper's numbers and ours" if "paper" in comparison.columns else "Our numbers; the paper prints none"


def _origin(record: Record) -> str:
    """Command, time and what it covers."""
    p = record["provenance"]
    total = p["measured"] + p["kept from before"]
    kept = f", {p['kept from before']} of {total} measurements kept from before" if p["kept from before"] else ""
    return f"`{p['command']}`: {p['seconds']:.0f} s of measuring{kept}; seed {p['seed']}, {p['written']} UTC."


def _header(record: Record) -> str:
    scale = record["scale"]
    missing = f" Missing models: {', '.join(record['missing'])}." if record["missing"] else ""
    return (
        f'<header><div><h1>{_text(record["title"])}</h1><p class="quiet small">{_text(record["id"])} · '
        f'{_text(record["source"])}</p><p class="small"><b>Scale {_text(scale["name"])}.</b> Ours: '
        f"{_text(scale['words'])}. The paper's: {_text(scale['published'])}.{_text(missing)}</p></div></header>"
    )


def _models(record: Record) -> str:
    rows = "".join(
        f"<tr><td>{_text(name)}</td><td>{facts['steps']}</td><td>{_trained(facts)}</td><td>{_error(facts)}</td><td>{_text(facts['run_id'])}</td></tr>"
        for name, facts in record["models"].items()
    )
    if not rows:
        return "<p>None is needed.</p>"
    head = "<tr><th>model</th><th>steps</th><th>trained in</th><th>in-distribution error</th><th>run id</th></tr>"
    return f"<table>{head}{rows}</table>"


def _trained(facts: Mapping[str, Any]) -> str:
    seconds = facts.get("training_seconds")
    return f"{seconds / 60:.1f} min" if seconds else "–"


def _error(facts: Mapping[str, Any]) -> str:
    error = facts.get("in_distribution") or {}
    return f"{number(error['error'])} (R² {number(error['r2'], 4)})" if "error" in error else "–"


def _marked(line: str) -> str:
    start, colon, rest = line.partition(": ")
    if f"{start}: " == MISPRINT:
        return f"<b>{_text(start)}</b>: {_text(rest)}"
    if not colon or start not in MARKS:
        return _text(line)
    look = VERDICTS[MARKS[start]]
    return f'<b style="color:{look.ink}">{look.sign} {_text(start)}</b>: {_text(rest)}'


def _whole(title: str, script: str, body: str) -> str:
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><title>icl_interp: {_text(title)}</title>'
        f'<link rel="icon" href="data:,"><style>{report_page.CSS}</style>{script}</head>\n<body>{body}\n'
        '<footer class="quiet small">Numbers are rounded for reading; results.json holds them in full.</footer>'
        "</body></html>\n"
    )


def _text(value: object) -> str:
    return html.escape(str(value))
