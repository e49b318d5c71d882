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

# Facts about the model that the foot of the page repeats.
MODEL = ("config", "task", "encoding", "in_distribution")
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
    findings = list(map(Finding.from_dict, report["findings"]))
    shown = _applying(findings)
    divs, view = _drawn(figures, attention)
    first = key_figure(shown, divs)
    mechanism = [name for name in catalogue.MECHANISM if name in divs]
    left = [name for name in divs if name not in (first, OVERVIEW, *catalogue.MECHANISM)]
    sections, more = _sections(shown, left)

    # What the template asks for by name.
    n_prompts = (report.get("provenance") or {}).get("n_prompts", 0)
    by_chance = multiplicity.by_chance(findings, n_prompts)
    facts = {key: report["model"][key] for key in MODEL if key in report["model"]}
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
        by_chance=by_chance,
        studies=_studies(shown),
        boxes=_boxes(shown),
        one_each=one_each,
        sections=sections,
        mechanism=mechanism,
        more=more,
        left_out=_by_reason(findings),
        facts=facts,
    )
    drawn = list(divs.values())
    if view:
        drawn.append(view)
    name = report["checkpoint"].get("name", "a model")
    return document(name, body, drawn, "the JSON report")


def _drawn(
    figures: Mapping[str, Figure], attention: AttentionView | None
) -> tuple[dict[str, Markup], Markup | None]:
    """Figures by name, and the view of attention, as parts of the page."""
    replaced = PATTERNS if attention else None
    divs = {}
    for name, figure in figures.items():
        if name != replaced:
            clickable = attention is not None and name in OF_HEADS
            divs[name] = files.to_div(figure, f"figure-{anchor(name)}", clickable)
    view = attention.part_of_page(stored_attention.DIV) if attention else None
    return divs, view


def _sections(
    findings: Sequence[Finding], names: Sequence[str]
) -> tuple[list[tuple[str, list[Finding], list[str]]], list[str]]:
    """Each question with its findings and figures, and the figures that no claim names.

    Each figure stands once: below the first question whose claims name it.
    """
    left = list(names)
    sections = []
    for question, of_it in by_question(findings):
        named: set[str] = set()
        for f in of_it:
            named.update(f.figures)
        own = []
        for name in tuple(left):
            if name in named:
                own.append(name)
                left.remove(name)
        sections.append((question, of_it, own))
    return sections, left


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
    every = list(map(Finding.from_dict, report["findings"]))
    text = rendered(
        "summary.html",
        name=report["checkpoint"].get("name", "a model"),
        model=report["model"],
        findings=_applying(every),
        left_out=_by_reason(every),
    )
    return str(text)


def _applying(findings: Iterable[Finding]) -> list[Finding]:
    """Those of claims that apply to the model."""
    return [f for f in findings if f.verdict != "not_applicable"]


def _studies(findings: Iterable[Finding]) -> list[str]:
    """Of these findings, each once, in order."""
    studies: dict[str, None] = {}
    for f in findings:
        studies[f.study] = None
    return list(studies)


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
    for finding in answered(findings):
        for name in finding.figures:
            if name in drawn:
                return name
    return None


Box = tuple[str, str]  # its name, and the words beside it
Boxes = list[tuple[str, list[Box]]]  # in groups, each with a title
Rule = tuple[str, Sequence[str]]  # a class that is hidden while none of these boxes is ticked


def one_each(boxes: Boxes) -> list[Rule]:
    """Rules of boxes that hide a class of their own name."""
    rules: list[Rule] = []
    for _, entries in boxes:
        for name, _ in entries:
            rules.append((name, (name,)))
    return rules


def any_of(mixes: Iterable[Sequence[str]]) -> list[Rule]:
    """Rules for rows that several boxes stand for: one is hidden while none of these is ticked.

    Args:
        mixes: the boxes of each class "mix-0", "mix-1", ...; without a box nothing hides it.

    >>> any_of([("supported", "inconclusive"), ()])
    [('mix-0', ('supported', 'inconclusive'))]
    """
    rules: list[Rule] = []
    for i, mix in enumerate(mixes):
        if mix:
            rules.append((f"mix-{i}", tuple(mix)))
    return rules


def _boxes(findings: Sequence[Finding]) -> Boxes | None:
    """Boxes that hide findings, in groups of more than one; None without findings."""
    if not findings:
        return None
    seen = {f.verdict for f in findings}
    verdicts: list[Box] = []
    for verdict, look in VERDICTS.items():
        if verdict in seen:
            verdicts.append((verdict, f"{look.sign} {look.word}"))
    studies: list[Box] = []
    for i, study in enumerate(_studies(findings)):
        studies.append((f"study-{i}", study))
    questions: list[Box] = []
    for i, (question, _) in enumerate(by_question(findings)):
        questions.append((f"question-{i}", question))
    groups = [("Verdict", verdicts), ("Study", studies), ("Question", questions)]
    return [group for group in groups if len(group[1]) > 1]


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
    if name not in catalogue.FIGURES:
        return ""
    return catalogue.FIGURES[name].caption


def shown_in(name: str, findings: Iterable[Finding]) -> list[Finding]:
    """The findings that a figure belongs to."""
    return [f for f in _applying(findings) if name in f.figures]
