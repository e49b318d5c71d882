"""The report as one HTML page that opens offline, and as a fragment for notebooks.

Numbers are rounded here only.

The page runs no script but those of its figures: rows unfold and filters work by HTML and CSS
alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from icl_interp.analyses import multiplicity
from icl_interp.analyses.criterion import Estimate
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.natural import BASES
from icl_interp.figures import catalogue, files, stored_attention
from icl_interp.figures.attention import AttentionView
from icl_interp.figures.style import VERDICTS, Figure
from icl_interp.figures.text import interval
from icl_interp.report import glossary
from icl_interp.report.bars import bar
from icl_interp.report.findings import anchor
from icl_interp.report.html import rendered
from icl_interp.report.words import answered, by_question, measured, thresholds, why_open

MODEL = (
    "config",
    "task",
    "encoding",
    "in_distribution",
)  # facts about the model that the foot of the page repeats
OVERVIEW = "claims"  # the figure with a row a claim: for papers, since the page has a bar a claim
PATTERNS = "mechanism_patterns"
OF_HEADS = ("mechanism", "mechanism_roles")  # a click on a square shows the head's attention
MECHANISM = (
    "Where this model makes its prediction, measured in distribution. These figures describe the "
    "model and test no claim. Shares of the prediction need a linear read-out of a sum of parts, "
    "which post-norm models and those with a tanh do not have."
)
HOW = (
    "Each row is a claim. The bar shows the measured value with its 95 % interval (filled mark) "
    "between the zones that support the claim (blue) and contradict it (orange). They were fixed "
    "before anything was measured. A claim is supported or contradicted where the whole interval "
    "lies in one zone and its preconditions hold; where one fails, the row says which, and the "
    "claim is inconclusive. A hollow diamond is the same measurement on a randomly initialised "
    "model of this architecture, a hollow square the control intervention. Open a row for the "
    "reason, the controls and the criterion; only open rows are printed in full."
)


def render(
    report: Mapping[str, Any], figures: Mapping[str, Figure], attention: AttentionView | None = None
) -> str:
    """One self-contained page.

    It shows the answer on the first screen, then the claims by question, method and provenance.

    Args:
        report: as `Report.to_dict` gives it, also after a trip through JSON; of its "results" only
            the names are read.
        figures: by name.
        attention: weights to look through. They stand in place of the figure of mean patterns.

    Returns:
        HTML that fetches nothing; the same bytes for the same input.
    """
    findings = [Finding.from_dict(finding) for finding in report["findings"]]
    shown = [f for f in findings if f.verdict != "not_applicable"]
    replaced = PATTERNS if attention else None
    divs = {
        name: files.to_div(
            figure, f"figure-{anchor(name)}", attention is not None and name in OF_HEADS
        )
        for name, figure in figures.items()
        if name != replaced
    }
    view = attention.part_of_page(stored_attention.DIV) if attention else None
    first = key_figure(shown, divs)
    # Each figure stands once: below the first question whose claims name it.
    left = [name for name in divs if name not in (first, OVERVIEW, *catalogue.MECHANISM)]
    sections: list[tuple[str, list[Finding], list[str]]] = []
    for question, of_it in by_question(shown):
        own = [name for name in left if any(name in f.figures for f in of_it)]
        left = [name for name in left if name not in own]
        sections.append((question, of_it, own))
    body = rendered(
        "page.html",
        HOW=HOW,
        MECHANISM=MECHANISM,
        OVERVIEW=OVERVIEW,
        ATTENTION=stored_attention.TITLE,
        ATTENTION_CAPTION=stored_attention.CAPTION,
        attention=view,
        TERMS=glossary.TERMS,
        bar=bar,
        value_of=value_of,
        rule_of=rule_of,
        why_open=why_open,
        caption_of=caption_of,
        shown_in=shown_in,
        report=report,
        findings=findings,
        divs=divs,
        first=first,
        by_chance=multiplicity.by_chance(
            findings, (report.get("provenance") or {}).get("n_prompts", 0)
        ),
        studies=list(dict.fromkeys(f.study for f in shown)),
        boxes=_boxes(shown),
        one_each=one_each,
        sections=sections,
        mechanism=[name for name in catalogue.MECHANISM if name in divs],
        more=left,
        left_out=_by_reason(findings),
        facts={key: report["model"][key] for key in MODEL if key in report["model"]},
    )
    name = report["checkpoint"].get("name", "a model")
    drawn = [*divs.values(), *([view] if view else [])]
    return document(name, body, drawn, "the JSON report")


def document(title: str, body: Markup, figures: Sequence[Markup], source: str) -> str:
    """A whole page: it runs no script but plotly.js and those of its figures, and loads nothing.

    Args:
        title: of the page, plain text.
        body: what stands above the figures' scripts.
        figures: what stands in the body of `figures.files.to_div`.
        source: of the numbers, not rounded.
    """
    policy, plotly_js = files.scripts(figures)
    text = rendered(
        "document.html", title=title, body=body, source=source, policy=policy, plotly_js=plotly_js
    )
    # The methods of Markup escape what they are given, and a page is text to its callers.
    return f"{text}\n"


def summary(report: Mapping[str, Any]) -> str:
    """A short HTML fragment for notebooks: the banner in a line, and the table of verdicts.

    Its styles are inline.

    Claims that do not apply close it, a line for each reason.
    """
    every = [Finding.from_dict(finding) for finding in report["findings"]]
    text = rendered(
        "summary.html",
        name=report["checkpoint"].get("name", "a model"),
        model=report["model"],
        findings=[f for f in every if f.verdict != "not_applicable"],
        left_out=_by_reason(every),
    )
    return str(text)


def _by_reason(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Claims that do not apply, by reason."""
    found: dict[str, list[Finding]] = {}
    for f in findings:
        if f.verdict == "not_applicable":
            found.setdefault(f.reason, []).append(f)
    return found


def key_figure(findings: Sequence[Finding], names: Iterable[str]) -> str | None:
    """The figure of the first claim that the answer names and that has one."""
    drawn = set(names)
    return next((name for f in answered(findings) for name in f.figures if name in drawn), None)


Box = tuple[str, str]  # its name, and the words beside it
Boxes = list[tuple[str, list[Box]]]  # in groups, each with a title
Rule = tuple[str, Sequence[str]]  # a class that is hidden while none of these boxes is ticked


def one_each(boxes: Boxes) -> list[Rule]:
    """Rules of boxes that hide a class of their own name."""
    return [(name, (name,)) for _, entries in boxes for name, _ in entries]


def any_of(mixes: Iterable[Sequence[str]]) -> list[Rule]:
    """Rules for rows that several boxes stand for: one is hidden while none of these is ticked.

    Args:
        mixes: the boxes of each class "mix-0", "mix-1", ...; without a box nothing hides it.

    >>> any_of([("supported", "inconclusive"), ()])
    [('mix-0', ('supported', 'inconclusive'))]
    """
    return [(f"mix-{i}", tuple(mix)) for i, mix in enumerate(mixes) if mix]


def _boxes(findings: Sequence[Finding]) -> Boxes | None:
    """Boxes that hide findings, in groups of more than one; None without findings."""
    if not findings:
        return None
    verdicts = [v for v in VERDICTS if any(f.verdict == v for f in findings)]
    studies = dict.fromkeys(f.study for f in findings)
    questions = [question for question, _ in by_question(findings)]
    groups = [
        ("Verdict", [(v, f"{VERDICTS[v].sign} {VERDICTS[v].word}") for v in verdicts]),
        ("Study", [(f"study-{i}", study) for i, study in enumerate(studies)]),
        ("Question", [(f"question-{i}", question) for i, question in enumerate(questions)]),
    ]
    return [(title, entries) for title, entries in groups if len(entries) > 1]


def value_of(e: Estimate | None) -> str:
    """The number of a row."""
    if e is None:
        return "not measured"
    return measured(e) if e.unit in BASES else interval(e)


def rule_of(f: Finding) -> str:
    """Where the number that decides must lie; empty where none decides."""
    return thresholds(f.decided_by, f.test.unit) if f.test else ""


def caption_of(name: str) -> str:
    """What a figure shows; nothing of one that is not registered here."""
    return catalogue.FIGURES[name].caption if name in catalogue.FIGURES else ""


def shown_in(name: str, findings: Iterable[Finding]) -> list[Finding]:
    """The findings that a figure belongs to."""
    return [f for f in findings if name in f.figures and f.verdict != "not_applicable"]
