"""The report as one HTML page that opens offline, and as a fragment for notebooks.

Numbers are rounded here only.

The page runs no script but those of its figures: rows unfold and filters work by HTML and CSS
alone.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from icl_interp.analyses import multiplicity
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.natural import BASES
from icl_interp.errors import printable
from icl_interp.figures import catalogue, files
from icl_interp.figures.style import VERDICTS, Figure
from icl_interp.figures.text import interval, joined, legible, markup, packaged
from icl_interp.report import banner, glossary
from icl_interp.report.bars import bar
from icl_interp.report.findings import (
    anchor,
    body,
    cell,
    estimates,
    link,
    mapping,
    rows,
    verdict_mark,
)
from icl_interp.report.words import answered, by_question, measured, sentence

MODEL = (
    "config",
    "task",
    "encoding",
    "in_distribution",
)  # facts about the model that the foot of the page repeats
OVERVIEW = "claims"  # the figure with a row a claim: for papers, since the page has a bar a claim
MECHANISM = (
    "Where this model makes its prediction, measured in distribution. These figures describe the "
    "model and test no claim. Shares of the prediction are left out where the read-out sees no sum "
    "of parts (a post-norm model, a tanh)."
)
CSS = packaged("icl_interp.report", "page.css")
HOW = (
    "Each row is a claim. The bar shows the measured value with its 95 % interval (filled mark) "
    "between the zones that support the claim (blue) and contradict it (orange). They were fixed "
    "before anything was measured. A claim is supported or contradicted where the whole interval "
    "lies in one zone, and inconclusive otherwise. A hollow diamond is the same measurement on a "
    "randomly initialised model of this architecture, a hollow square the control intervention. "
    "Open a row for the reason, the controls and the criterion."
)


def render(report: Mapping[str, Any], figures: Mapping[str, Figure]) -> str:
    """One self-contained page.

    It shows the answer on the first screen, then the claims by question, method and provenance.

    Args:
        report: as `Report.to_dict` gives it, also after a trip through JSON; of its "results" only
            the names are read.
        figures: by name.

    Returns:
        HTML that fetches nothing; the same bytes for the same input.
    """
    findings = [Finding.from_dict(finding) for finding in report["findings"]]
    shown = [f for f in findings if f.verdict != "not_applicable"]
    divs = {
        name: files.to_div(figure, f"figure-{anchor(name)}") for name, figure in figures.items()
    }
    first, left = key_figure(shown, divs), list(divs)
    studies = list(dict.fromkeys(f.study for f in shown))
    parts = [
        markup("<header><div>{}</div></header><main>", banner.banner(report, findings)),
        _figure(first, divs[first], findings) if first else "",
        markup(
            '<h2 id="verdicts">Verdicts</h2><p class="small">{}</p><p class="quiet small">{}</p>',
            HOW,
            multiplicity.by_chance(findings, (report.get("provenance") or {}).get("n_prompts", 0)),
        ),
        _filters(shown, studies),
    ]
    left = [name for name in left if name not in (first, OVERVIEW, *catalogue.MECHANISM)]
    for i, (question, of_it) in enumerate(by_question(shown)):
        parts.append(
            markup(
                '<section class="question-{}"><h2>{}</h2>', i, question[0].upper() + question[1:]
            )
        )
        parts += [_claim(f, studies.index(f.study), divs) for f in of_it]
        own = [name for name in left if any(name in f.figures for f in of_it)]
        left = [name for name in left if name not in own]
        parts += [_figure(name, divs[name], findings) for name in own]
        parts.append(markup("</section>"))
    if drawn := [name for name in catalogue.MECHANISM if name in divs]:
        parts.append(markup('<h2 id="mechanism">Mechanism</h2><p class="small">{}</p>', MECHANISM))
        parts += [_figure(name, divs[name], findings) for name in drawn]
    if left:
        parts.append(markup('<h2 id="figures">More figures</h2>'))
        parts += [_figure(name, divs[name], findings) for name in left]
    parts.append(_left_out([f for f in findings if f.verdict == "not_applicable"]))
    if OVERVIEW in divs:
        parts += [
            markup('<h2 id="overview">All claims in one figure</h2>'),
            _figure(OVERVIEW, divs[OVERVIEW], findings),
        ]
    parts.append(markup('<h2 id="glossary">Terms</h2>{}', _glossary()))
    parts.append(markup('<h2 id="provenance">Provenance</h2>{}</main>', _provenance(report)))
    text, name = (
        joined((part for part in parts if part), "\n"),
        report["checkpoint"].get("name", "a model"),
    )
    return document(name, text, list(divs.values()), "the JSON report")


def document(title: str, body: Markup, figures: Sequence[Markup], source: str) -> str:
    """A whole page: it runs no script but plotly.js and those of its figures, and loads nothing.

    Args:
        title: of the page, plain text.
        body: what stands above the figures' scripts.
        figures: what stands in the body of `figures.files.to_div`.
        source: of the numbers, not rounded.
    """
    policy, plotly_js = files.scripts(figures)
    text = markup(
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">{policy}'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>icl_interp: '
        "{title}</title>"
        '<link rel="icon" href="data:,"><style>{css}</style>\n{plotly_js}</head>\n<body>{body}\n'
        '<footer class="quiet small">Numbers are rounded for reading; {source} holds them in '
        "full.</footer>"
        "</body></html>\n",
        policy=policy,
        title=printable(title),
        css=CSS,
        plotly_js=plotly_js,
        body=legible(body),
        source=source,
    )
    return str(
        text
    )  # the methods of Markup escape what they are given, and a page is text to its callers


def summary(report: Mapping[str, Any]) -> str:
    """A short HTML fragment for notebooks: the banner in a line, and the table of verdicts.

    Its styles are inline.

    Claims that do not apply close it, a line for each reason.
    """
    every = [Finding.from_dict(finding) for finding in report["findings"]]
    findings = [f for f in every if f.verdict != "not_applicable"]
    cell = markup('style="text-align:left;vertical-align:top;padding:4px 12px 4px 0"')
    rows = joined(
        markup(
            '<tr><td {cell}>{f.statement}<br><span style="color:#666">{f.id}</span></td>'
            "<td {cell}>{verdict}</td><td {cell}>{estimates}</td><td {cell}>{f.reason}</td></tr>",
            cell=cell,
            f=f,
            verdict=verdict_mark(f),
            estimates=estimates(f),
        )
        for f in findings
    )
    text = markup(
        '<div style="font-family:sans-serif;font-size:13px"><div><b style="font-size:15px">'
        '{name}</b> <span style="color:#666">{kind}</span></div><div>{facts}</div>'
        "<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{rest}</div>",
        name=report["checkpoint"].get("name", "a model"),
        kind=banner.describe(report["model"]),
        facts=joined(
            (f"{label} {value}" for value, label, _ in banner.tiles(report["model"])), " · "
        ),
        head=joined(
            markup("<th {}>{}</th>", cell, title)
            for title in ("claim", "verdict", "estimate", "why")
        ),
        rows=rows,
        rest=joined(
            markup('<div style="color:#666">not applicable, {}: {}</div>', reason, ", ".join(ids))
            for reason, ids in _by_reason(every).items()
        ),
    )
    return printable(text)


def _by_reason(findings: Iterable[Finding]) -> dict[str, list[str]]:
    """Ids of the claims that do not apply, by reason."""
    found: dict[str, list[str]] = {}
    for f in findings:
        if f.verdict == "not_applicable":
            found.setdefault(f.reason, []).append(f.id)
    return found


# ---- claims --------------------------------------------------------------------------------------


def key_figure(findings: Sequence[Finding], names: Iterable[str]) -> str | None:
    """The figure of the first claim that the answer names and that has one."""
    drawn = set(names)
    return next((name for f in answered(findings) for name in f.figures if name in drawn), None)


def _filters(findings: Sequence[Finding], studies: Sequence[str]) -> Markup:
    """Boxes to tick, and the rules that hide what is not ticked.

    Names in rules are numbers: ids may be any text.
    """
    if not findings:
        return Markup("")
    verdicts = [v for v in VERDICTS if any(f.verdict == v for f in findings)]
    groups: list[tuple[str, list[tuple[str, str]]]] = [
        ("Verdict", [(v, f"{VERDICTS[v].sign} {VERDICTS[v].word}") for v in verdicts]),
        ("Study", [(f"study-{i}", study) for i, study in enumerate(studies)]),
        (
            "Question",
            [(f"question-{i}", question) for i, (question, _) in enumerate(by_question(findings))],
        ),
    ]
    boxes = joined(
        markup(
            "<fieldset><legend>{}</legend>{}</fieldset>",
            title,
            joined(
                markup(
                    '<label><input type="checkbox" checked id="show-{}"> {}</label>', name, words
                )
                for name, words in entries
            ),
        )
        for title, entries in groups
        if len(entries) > 1
    )
    rules = joined(
        markup("body:has(#show-{}:not(:checked)) .{} {{ display: none; }}\n", name, name)
        for _, entries in groups
        for name, _ in entries
        if len(entries) > 1
    )
    return markup('<style>{}</style><div class="filters">{}</div>', rules, boxes)


def _claim(f: Finding, study: int, drawn: Collection[str]) -> Markup:
    """A claim as a row that unfolds."""
    e = f.test or f.estimate
    value = "not measured" if e is None else measured(e) if e.unit in BASES else interval(e)
    return markup(
        '<details class="claim {verdict} study-{study}"><summary><span><b>{sentence}</b><br>'
        '<span class="quiet small">{f.id}</span></span><span class="bar">{bar}</span>'
        '<span class="small number">{value}<br><span class="quiet">{name}</span></span>'
        '<span>{mark}{firm}</span></summary><div id="{anchor}">{body}</div></details>',
        verdict=f.verdict,
        study=study,
        sentence=sentence(f),
        f=f,
        bar=bar(f),
        value=value,
        name=e.name if e else "",
        mark=verdict_mark(f),
        firm=markup('<br><small class="quiet">firm</small>') if f.firm else "",
        anchor=anchor(f.id),
        body=body(f, drawn),
    )


def _left_out(findings: Sequence[Finding]) -> Markup:
    """Claims that do not apply: one list, by reason."""
    if not findings:
        return Markup("")
    n = "1 claim does" if len(findings) == 1 else f"{len(findings)} claims do"
    lines = joined(
        markup(
            "<dt>{}</dt><dd>{}</dd>",
            reason,
            joined(
                markup('<div id="{}"><code>{}</code> {}</div>', anchor(f.id), f.id, sentence(f))
                for f in findings
                if f.reason == reason
            ),
        )
        for reason in _by_reason(findings)
    )
    return markup(
        '<h2 id="left-out">Not applicable</h2><details><summary>{} not apply to this '
        "model</summary><dl>{}</dl>"
        "</details>",
        n,
        lines,
    )


# ---- below ---------------------------------------------------------------------------------------


def _figure(name: str, div: Markup, findings: Iterable[Finding]) -> Markup:
    claims = joined(
        (link(f) for f in findings if name in f.figures and f.verdict != "not_applicable"), ", "
    )
    caption = catalogue.FIGURES[name].caption if name in catalogue.FIGURES else ""
    return markup(
        '<figure><div class="plot">{}</div><figcaption>{} {}</figcaption></figure>',
        div,
        caption,
        markup("Belongs to {}.", claims) if claims else "",
    )


def _glossary() -> Markup:
    terms = joined(
        markup("<dt>{}</dt><dd>{}</dd>", term, meaning) for term, meaning in glossary.TERMS.items()
    )
    return markup(
        "<details><summary>What the words of this page mean</summary><dl>{}</dl></details>", terms
    )


def _provenance(report: Mapping[str, Any]) -> Markup:
    shown = {
        "checkpoint": mapping(report["checkpoint"]),
        "analysis": mapping(report["provenance"]),
        "model": mapping({key: report["model"][key] for key in MODEL if key in report["model"]}),
        "results stored": ", ".join(report["results"]),
        "schema": report["schema"],
    }
    if left_out := report["model"].get("companions_left_out"):
        shown["matched models left out"] = cell(left_out)
    return markup('<div class="wide">{}</div>', rows(shown))
