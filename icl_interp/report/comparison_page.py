"""Several models side by side, as one HTML page that opens offline and as a fragment for notebooks.

Numbers are rounded here only. The page has the style and the filters of a report's page
(`report.page`).
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
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
from icl_interp.report.page import Box, Boxes, Rule, any_of, document, one_each, value_of
from icl_interp.report.words import by_question, what_decides, why_open

if TYPE_CHECKING:
    from icl_interp.report.comparison import Comparison

Findings = tuple[Finding, ...]  # on one claim, of all models in their order
VERDICT = "Verdict"  # the title of the boxes that hide verdicts
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
    "Models of one recipe differ in their seed alone. Only models to which the claim applies are "
    "counted. The range is that of the numbers that decide, from the lowest seed to the highest."
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

    findings: Findings
    rule: str
    classes: str

    @property
    def applying(self) -> list[Finding]:
        """Those of models to which the claim applies."""
        return list(filter(_applies, self.findings))


def render(comparison: "Comparison", links: Mapping[str, str] | None = None) -> str:
    """One self-contained page.

    Args:
        comparison: of two or more reports.
        links: addresses of the pages of single reports, by the name of the model.

    Returns:
        HTML that fetches nothing; the same bytes for the same input.
    """
    shown, left_out = _apart(comparison)
    rows = _rows(shown)
    # By the question of the first model's finding: a claim is the same for all.
    sections = []
    for question, of_it in by_question(_firsts(shown.values())):
        of_question = []
        for f in of_it:
            of_question.append(rows[f.id])
        sections.append((question, of_question))
    divs = {}
    for name, figure in _figures(comparison).items():
        divs[name] = files.to_div(figure, f"figure-{name}")
    boxes = _boxes(comparison.names, shown.values())
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
        opposite=_firsts(filter(_is_opposite, shown.values())),
        boxes=boxes,
        rules=_rules(boxes, shown.values()),
        sections=sections,
        seeds=_seeds(comparison),
        divs=divs,
        most=len(COLOURS),
        left_out=_firsts(left_out),
    )
    return document("comparison", body, list(divs.values()), "the JSON comparison")


def summary(comparison: "Comparison") -> str:
    """A fragment for notebooks, whose styles are inline: a row a claim, a column a model."""
    applying, left_out = _apart(comparison)
    shown = list(applying.values())
    text = rendered(
        "comparison_summary.html",
        names=comparison.names,
        agreement=agreement(shown),
        rows=shown,
        n_left_out=len(left_out),
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
    alike = len(rows) - sum(map(_differs, rows))
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


def _apart(comparison: "Comparison") -> tuple[dict[str, Findings], list[Findings]]:
    """The findings on each claim that applies to a model, by claim, and on the other claims."""
    shown = {}
    left_out = []
    for claim in comparison.claims:
        found = _findings(comparison, claim)
        if any(map(_applies, found)):
            shown[claim] = found
        else:
            left_out.append(found)
    return shown, left_out


def _findings(comparison: "Comparison", claim: str) -> Findings:
    return tuple(report[claim] for report in comparison.reports)


def _firsts(rows: Iterable[Findings]) -> list[Finding]:
    """Of each claim the finding of the first model."""
    return [findings[0] for findings in rows]


def _differs(findings: Sequence[Finding]) -> bool:
    return len(_mix(findings)) > 1


def _is_opposite(findings: Sequence[Finding]) -> bool:
    """Whether the claim is supported for one model and contradicted for another."""
    return {"supported", "contradicted"} <= set(_mix(findings))


def _mix(findings: Sequence[Finding]) -> tuple[str, ...]:
    """The verdicts of a row, each once, in the order of the legend."""
    found = set(map(attrgetter("verdict"), findings))
    return tuple(filter(found.__contains__, VERDICTS))


def _figures(comparison: "Comparison") -> dict[str, Figure]:
    """Curves of as many models as there are colours."""
    return comparison.curves(comparison.names[: len(COLOURS)])


def _rows(shown: Mapping[str, Findings]) -> dict[str, Row]:
    """A row for each claim, with the classes that filters hide."""
    studies = _studies(shown.values())
    mixes = _mixes(shown.values())
    rows = {}
    for claim, findings in shown.items():
        # What decides stands once, where it is the same for all models.
        rules = set(map(what_decides, findings)) - {""}
        rule = rules.pop() if len(rules) == 1 else ""
        alike = "differ" if _differs(findings) else "alike"
        study = studies.index(findings[0].study)
        mix = mixes.index(_mix(findings))
        rows[claim] = Row(findings, rule, f"{alike} study-{study} mix-{mix}")
    return rows


def _studies(rows: Iterable[Findings]) -> list[str]:
    return list(dict.fromkeys(map(attrgetter("study"), _firsts(rows))))


def _mixes(rows: Iterable[Findings]) -> list[tuple[str, ...]]:
    return list(dict.fromkeys(map(_mix, rows)))


def _boxes(names: Sequence[str], rows: Iterable[Findings]) -> Boxes:
    """Boxes that hide rows, and models; in groups of more than one."""
    every = list(rows)
    alike = [("alike", "the same for all"), ("differ", "different")]
    given = set(map(_differs, every))
    questions = map(itemgetter(0), by_question(_firsts(every)))
    groups = [
        ("Verdicts are", alike if len(given) > 1 else []),
        (VERDICT, _verdicts(every)),
        ("Study", _numbered("study", _studies(every))),
        ("Question", _numbered("question", questions)),
        ("Model", _numbered("model", names)),
    ]
    boxes = []
    for title, entries in groups:
        if len(entries) > 1:
            boxes.append((title, entries))
    return boxes


def _verdicts(rows: Sequence[Findings]) -> list[Box]:
    """A box for each verdict that some model has."""
    boxes = []
    for verdict in _mix(list(itertools.chain(*rows))):
        look = VERDICTS[verdict]
        boxes.append((verdict, f"{look.sign} {look.word}"))
    return boxes


def _numbered(kind: str, words: Iterable[str]) -> list[Box]:
    """A box for each of some words."""
    boxes = []
    for number, word in enumerate(words):
        boxes.append((f"{kind}-{number}", word))
    return boxes


def _rules(boxes: Boxes, rows: Iterable[Findings]) -> list[Rule]:
    """What each box hides. A row is hidden where none of its verdicts is ticked."""
    rules: list[Rule] = []
    for title, entries in boxes:
        if title == VERDICT:
            rules += any_of(_mixes(rows))
        else:
            rules += one_each([(title, entries)])
    return rules


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
    if math.isnan(pooled["min"]):
        return "–"
    for f in filter(_applies, findings):
        e = f.test or f.estimate
        if e:
            return span(pooled["min"], pooled["max"], e.unit)
    return "–"
