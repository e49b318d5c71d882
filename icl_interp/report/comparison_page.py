"""Several models side by side, as one HTML page that opens offline and as a fragment for notebooks.

Numbers are rounded here only. The page has the style and the filters of a report's page
(`report.page`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icl_interp.analyses.finding import Finding
from icl_interp.analyses.natural import span
from icl_interp.errors import counted
from icl_interp.figures import files
from icl_interp.figures.colours import COLOURS
from icl_interp.figures.style import VERDICTS, Figure
from icl_interp.report import glossary
from icl_interp.report.bars import bar
from icl_interp.report.html import rendered
from icl_interp.report.page import Boxes, Rule, any_of, document, one_each, value_of
from icl_interp.report.words import by_question, what_decides, why_open

if TYPE_CHECKING:
    from icl_interp.report.comparison import Comparison

BESIDE = 4  # models whose cells stand beside each other, under a head with their names
HOW = (
    "Each row is a claim, with a cell for each model. A cell shows the verdict, and the measured "
    "value with its 95 % interval (filled mark) between the zones that support the claim (blue) "
    "and contradict it (orange). The numbers below a bar are the thresholds, which were fixed "
    "before anything was measured. Cells of a row have the same axis where the same quantity "
    "decides. A hollow diamond is the same measurement on a randomly initialised model, a hollow "
    "square the control intervention. Open a row for the reason of each verdict. A verdict is "
    "about one model: its interval says nothing about another seed."
)
SEEDS = (
    "Models of one recipe differ in their seed alone. Counted are those to which the claim "
    "applies. The range is that of the numbers which decide, from the lowest seed to the highest."
)
CURVES = (
    "The lines of all models in one panel, from the figure of that name in each report. A model "
    "has one colour throughout. A line that is the same for all models is black."
)


@dataclass(frozen=True)
class Row:
    """A claim.

    Attributes:
        findings: of all models, in their order; at least one applies.
        rule: what is measured and where it must lie; empty where it is not the same for all models.
        classes: of the row, which filters hide.
    """

    findings: tuple[Finding, ...]
    rule: str
    classes: str

    @property
    def applying(self) -> list[Finding]:
        """Those of models to which the claim applies."""
        return [f for f in self.findings if f.verdict != "not_applicable"]


def render(comparison: "Comparison", links: Mapping[str, str] | None = None) -> str:
    """One self-contained page.

    Args:
        comparison: of two or more reports.
        links: addresses of the pages of single reports, by the name of the model.

    Returns:
        HTML that fetches nothing; the same bytes for the same input.
    """
    findings = {claim: _findings(comparison, claim) for claim in comparison.claims}
    shown = {claim: of_it for claim, of_it in findings.items() if any(map(_applies, of_it))}
    rows = _rows(shown)
    # By the question of the first model's finding: a claim is the same for all.
    sections = []
    for question, of_it in by_question([row.findings[0] for row in rows.values()]):
        sections.append((question, [rows[f.id] for f in of_it]))
    divs = {
        name: files.to_div(figure, f"figure-{name}")
        for name, figure in _figures(comparison).items()
    }
    body = rendered(
        "comparison.html",
        HOW=HOW,
        SEEDS=SEEDS,
        CURVES=CURVES,
        BESIDE=BESIDE,
        TERMS=glossary.TERMS,
        bar=bar,
        value_of=value_of,
        what_decides=what_decides,
        why_open=why_open,
        names=comparison.names,
        reports=comparison.reports,
        links=dict(links or {}),
        agreement=agreement(list(shown.values())),
        opposite=[of_it[0] for of_it in shown.values() if _is_opposite(of_it)],
        boxes=_boxes(comparison.names, rows),
        rules=_rules(comparison.names, rows),
        sections=sections,
        seeds=_seeds(comparison),
        divs=divs,
        most=len(COLOURS),
        left_out=[of_it[0] for claim, of_it in findings.items() if claim not in shown],
    )
    return document("comparison", body, list(divs.values()), "the JSON comparison")


def summary(comparison: "Comparison") -> str:
    """A fragment for notebooks, whose styles are inline: a row a claim, a column a model."""
    findings = [_findings(comparison, claim) for claim in comparison.claims]
    shown = [of_it for of_it in findings if any(map(_applies, of_it))]
    text = rendered(
        "comparison_summary.html",
        names=comparison.names,
        agreement=agreement(shown),
        rows=shown,
        n_left_out=len(findings) - len(shown),
        value_of=value_of,
    )
    return str(text)


def agreement(rows: Sequence[Sequence[Finding]]) -> str:
    """How often models get the same verdict, in two sentences.

    Args:
        rows: for each claim the findings of all models.

    >>> agreement([])
    'No claim applies to any of these models.'
    """
    if not rows:
        return "No claim applies to any of these models."
    alike = sum(not _differs(of_it) for of_it in rows)
    opposite = sum(map(_is_opposite, rows))
    apply = f"{counted(len(rows), 'claim')} {'applies' if len(rows) == 1 else 'apply'}"
    said = f"{apply} to at least one of these models; {alike} "
    said += f"{'has' if alike == 1 else 'have'} the same verdict for all."
    if opposite:
        verb = "is" if opposite == 1 else "are"
        said += f" {opposite} {verb} supported for one model and contradicted for another."
    return said


def _applies(f: Finding) -> bool:
    return f.verdict != "not_applicable"


def _findings(comparison: "Comparison", claim: str) -> tuple[Finding, ...]:
    return tuple(report[claim] for report in comparison.reports)


def _differs(findings: Sequence[Finding]) -> bool:
    return len({f.verdict for f in findings}) > 1


def _is_opposite(findings: Sequence[Finding]) -> bool:
    """Whether the claim is supported for one model and contradicted for another."""
    return {"supported", "contradicted"} <= {f.verdict for f in findings}


def _figures(comparison: "Comparison") -> dict[str, Figure]:
    """Curves of as many models as there are colours."""
    return comparison.curves(comparison.names[: len(COLOURS)])


def _rows(findings: Mapping[str, tuple[Finding, ...]]) -> dict[str, Row]:
    """A row for each claim, with the classes that filters hide."""
    studies = _studies(findings.values())
    mixes = _mixes(findings.values())
    rows = {}
    for claim, of_it in findings.items():
        rules = {what_decides(f) for f in of_it if _applies(f) and f.test}
        alike = "differ" if _differs(of_it) else "alike"
        study = f"study-{studies.index(of_it[0].study)}"
        classes = f"{alike} {study} mix-{mixes.index(_mix(of_it))}"
        rows[claim] = Row(of_it, rules.pop() if len(rules) == 1 else "", classes)
    return rows


def _studies(rows: Iterable[Sequence[Finding]]) -> list[str]:
    return list(dict.fromkeys(of_it[0].study for of_it in rows))


def _mix(findings: Sequence[Finding]) -> tuple[str, ...]:
    """The verdicts of a row, each once, in the order of the legend."""
    return tuple(v for v in VERDICTS if any(f.verdict == v for f in findings))


def _mixes(rows: Iterable[Sequence[Finding]]) -> list[tuple[str, ...]]:
    return list(dict.fromkeys(map(_mix, rows)))


def _boxes(names: Sequence[str], rows: Mapping[str, Row]) -> Boxes:
    """Boxes that hide rows, and models; in groups of more than one."""
    every = [row.findings for row in rows.values()]
    verdicts = [v for v in VERDICTS if any(v in _mix(of_it) for of_it in every)]
    alike = [("alike", "the same for all"), ("differ", "different")]
    given = {_differs(of_it) for of_it in every}
    questions = [question for question, _ in by_question([of_it[0] for of_it in every])]
    groups = [
        ("Verdicts are", alike if len(given) > 1 else []),
        ("Verdict", [(v, f"{VERDICTS[v].sign} {VERDICTS[v].word}") for v in verdicts]),
        ("Study", [(f"study-{i}", study) for i, study in enumerate(_studies(every))]),
        ("Question", [(f"question-{i}", question) for i, question in enumerate(questions)]),
        ("Model", [(f"model-{i}", name) for i, name in enumerate(names)]),
    ]
    return [(title, entries) for title, entries in groups if len(entries) > 1]


def _rules(names: Sequence[str], rows: Mapping[str, Row]) -> list[Rule]:
    """What each box hides. A row is hidden where none of its verdicts is ticked."""
    boxes = _boxes(names, rows)
    rules = one_each([(title, entries) for title, entries in boxes if title != "Verdict"])
    has_verdicts = any(title == "Verdict" for title, _ in boxes)
    mixes = _mixes(row.findings for row in rows.values())
    return [*rules, *(any_of(mixes) if has_verdicts else ())]


def _seeds(comparison: "Comparison") -> list[tuple[str, list[dict[str, Any]]]]:
    """For each recipe of several seeds the names of its models, and a row a claim."""
    pooled = comparison.pooled.to_dict("records")
    found = []
    for recipe, names in comparison.recipes.items():
        rows = []
        for row in pooled:
            if row["recipe"] == recipe:
                f = _findings(comparison, row["claim"])
                rows.append({**row, "finding": f[0], "range": _range(row, f)})
        if rows:
            found.append((", ".join(names), rows))
    return found


def _range(pooled: Mapping[str, Any], findings: Sequence[Finding]) -> str:
    """From the lowest number of a claim to the highest, in its unit."""
    units = [e.unit for f in findings if _applies(f) and (e := f.test or f.estimate)]
    if not units or math.isnan(pooled["min"]):
        return "–"
    return span(pooled["min"], pooled["max"], units[0])
