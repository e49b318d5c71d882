"""A report on one screen of a terminal, and all that is known of one claim."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from icl_interp.analyses import multiplicity, registry
from icl_interp.analyses.claim import Claim
from icl_interp.analyses.finding import Finding
from icl_interp.checkpoints import assumptions
from icl_interp.descriptions import model_words, value_words
from icl_interp.report.banner import checks
from icl_interp.report.findings import shown_key
from icl_interp.report.report import Report
from icl_interp.report.words import (
    MARKS,
    REFERENCES,
    WORDS,
    answer,
    by_question,
    measured,
    needed,
    region,
    sentence,
    thresholds,
    why_open,
)

# ---- a report ------------------------------------------------------------------------------------


def screen(report: Report, verbose: bool = False) -> Group:
    """The report on one screen: the model, the answer, counts, and a line a claim.

    Args:
        report: what was found.
        verbose: whether each claim's reason is shown, and each claim that does not apply.
    """
    with report.reads("the screen"):
        return _screen(report, verbose)


def _screen(report: Report, verbose: bool) -> Group:
    shown = []
    left_out = []
    for f in report.findings:
        if f.verdict == "not_applicable":
            left_out.append(f)
        else:
            shown.append(f)

    # The model and the answer.
    parts: list[RenderableType] = [_model(report)]
    said = report.summary
    if said:
        parts.append(Text(" ".join(said) + "\n"))
    parts.append(Text(answer(shown)))
    parts.append(_counts(report.findings))

    # The findings, and what was left out.
    for question, of_it in by_question(shown):
        parts.append(Text(f"\n{question}", style="bold"))
        if verbose:
            parts += _reasons(of_it)
        else:
            parts.append(_lines(of_it))
    if left_out:
        parts.append(Text(""))
    parts += map(_one_left_out, left_out) if verbose else _left_out(left_out)
    text = multiplicity.by_chance(report.findings, report.provenance.get("n_prompts", 0))
    if text:
        parts.append(Text(f"\n{text}", style="bright_black"))
    return Group(*parts)


def _model(report: Report) -> Text:
    # Errors in distribution, and other measures.
    error = report.model["in_distribution"]
    known = []
    for name, key in REFERENCES.items():
        if error.get(key) is not None:
            known.append(f"{name} {error[key]:.2g}")
    interval = f"[{error['low']:.3g}, {error['high']:.3g}]"
    measures = (
        f"\nin distribution: error {error['error']:.3g} {interval}, R2 {error['r2']:.4f}; "
        f"{', '.join(known)}\n"
    )
    config = report.model["config"]
    values = value_words(config)
    if values:
        measures += f"values: {values}; errors are means over coordinates\n"
    for name, says in checks(report.model):
        measures += f"{name}: {says}\n"

    # Notes on what was read.
    notes = ""
    for line in (report.checkpoint.get("note"), *assumptions.lines(report.checkpoint)):
        if line:
            notes += f"{line}\n"
    # Texts of a report are never markup: a folder may be called [red].
    title = (str(report.checkpoint["name"]), "bold")
    words = f": {model_words(config)}{measures}"
    return Text.assemble("\n", title, words, (notes, "yellow") if notes else "")


def explained(report: Report) -> Group:
    """What the model of a report does: the model, a few sentences, and counts of verdicts."""
    with report.reads("the screen"):
        sentences = report.summary or ["Nothing was measured."]
        return Group(_model(report), *map(Text, sentences), _counts(report.findings))


def as_data(report: Report) -> dict[str, Any]:
    """The findings as JSON data, with the model's name and, where there is one, its note."""
    data: dict[str, Any] = {"name": report.checkpoint["name"]}
    for key in ("note", assumptions.RECORDED, assumptions.NOTES):
        if report.checkpoint.get(key):
            data[key] = report.checkpoint[key]
    data["findings"] = [f.to_dict() for f in report.findings]
    return data


def _counts(findings: Sequence[Finding]) -> Text:
    said = []
    for verdict, word in WORDS.items():
        of_it = [f for f in findings if f.verdict == verdict]
        vacuous = sum(f.vacuous for f in of_it)
        if of_it:
            algebra = f" ({vacuous} of these by algebra)" if vacuous else ""
            said.append(f"{len(of_it)} {word}{algebra}")
    return Text(f"\n{len(findings)} claim{'s' * (len(findings) != 1)}: {', '.join(said)}")


def _lines(findings: Sequence[Finding]) -> Table:
    """A row a claim: its sentence, the number, where that must lie, and why it is open if it is."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False, expand=True)
    table.add_column(no_wrap=True, width=1)
    for share in (5, 5, 6):  # the same in each table, so that columns line up down the page
        table.add_column(ratio=share)
    for f in findings:
        mark, style = MARKS[f.verdict]
        e = f.test or f.estimate
        number = f"{e.name}: {measured(e)}" if e else "not measured"
        table.add_row(Text(mark, style=style), Text(sentence(f)), Text(number), _rule(f))
    return table


def _rule(f: Finding) -> Text:
    """Where the number must lie, and what else there is to say of it, a line each."""
    # An estimate is another quantity than the one that decides: the thresholds say nothing of it.
    rule = Text(thresholds(f.decided_by, f.test.unit) if f.test else "")
    rule.stylize("bright_black")
    why = why_open(f)
    if why:
        rule.append("\n" if rule else "")
        rule.append(f"open: {why}")
    if f.vacuous:
        rule.append("\n" if rule else "")
        rule.append("by algebra, true of every network of this kind")
    return rule


def _reasons(findings: Sequence[Finding]) -> Iterator[RenderableType]:
    for f in findings:
        mark, style = MARKS[f.verdict]
        yield Text.assemble((mark, style), f" {sentence(f)} ", (f.id, "bright_black"))
        e = f.test or f.estimate
        needs = f" (supported: {needed(f.decided_by, f.test.unit)})" if f.test else ""
        number = f"{e.name}: {measured(e)}{needs}\n" if e else ""
        yield Padding(Text(number + f.reason), (0, 0, 1, 2))


def _left_out(findings: Sequence[Finding]) -> Iterator[Text]:
    """Claims that do not apply: a line for studies most of whose claims have the same reason."""
    by_study: dict[str, list[str]] = {}
    for f in findings:
        by_study.setdefault(f.study, []).append(f.reason)
    by_reason: dict[str, list[str]] = {}
    for study, reasons in by_study.items():
        most = max(reasons, key=reasons.count)
        by_reason.setdefault(most, []).append(study)
    for most, studies in by_reason.items():
        reasons = [reason for study in studies for reason in by_study[study]]
        others = len(reasons) - reasons.count(most)
        more = f"; {others} for other reasons (--verbose)" if others else ""
        n = "1 claim does" if len(reasons) == 1 else f"{len(reasons)} claims do"
        yield Text(f"– {', '.join(studies)}: {n} not apply: {most}{more}", style="bright_black")


def _one_left_out(f: Finding) -> Text:
    return Text(f"– {f.id} does not apply: {f.reason}", style="bright_black")


# ---- the claims ---------------------------------------------------------------------------------


def claims(listed: Mapping[str, str | None]) -> Table:
    """A row a claim: its id and sentence, or why it does not apply.

    Args:
        listed: why it does not apply, by id; None for a claim that does.
    """
    table = _two_columns()
    for name, reason in listed.items():
        asked = registry.REGISTRY.named(name)
        if reason is None:
            table.add_row(Text(name), Text(asked.statement))
        else:
            row = (Text(name), Text(f"does not apply: {reason}"))
            table.add_row(*row, style="bright_black")
    return table


def experiments(listed: Mapping[str, str]) -> Table:
    """A row an experiment: its id, and its title."""
    table = _two_columns()
    for name, title in listed.items():
        table.add_row(Text(name), Text(title))
    return table


def _two_columns() -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    return table


# ---- a claim -------------------------------------------------------------------------------------


def claim(asked: Claim, finding: Finding | None = None) -> Group:
    """All that is known of a claim, for the terminal.

    It shows the statement, the quoted sentence, how it is measured, what decides, and the result.

    Args:
        asked: the claim.
        finding: what a report found.
    """
    # A row for each thing that is known, with what a report found at the end.
    rows = about(asked)
    if finding:
        mark, _ = MARKS[finding.verdict]
        rows["result"] = f"{mark} {WORDS[finding.verdict].capitalize()}. {finding.reason}"
        numbers = {
            "estimate": finding.estimate,
            "decided by": finding.test,
            "control (result)": finding.control,
        }
        for name, e in numbers.items():
            if e:
                rows[name] = f"{e.name}: {measured(e)}"
        if finding.causal:
            parts = [f"{key}: {_plain(value)}" for key, value in finding.causal.items()]
            rows["causal test"] = ", ".join(parts)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0), show_header=False)
    table.add_column(no_wrap=True, style="bright_black")
    table.add_column(overflow="fold")
    for name, text in rows.items():
        table.add_row(name, Text(text))
    return Group(Text.assemble("\n", (asked.id, "bold"), "\n"), table)


def about(asked: Claim) -> dict[str, str]:
    """What is known of a claim before anything is measured, by a word for each part.

    The terminal and the catalogue show it.
    """
    rows: dict[str, str] = {"says": asked.statement, "or else": asked.denied}
    # Where it comes from, then how it is tested.
    quote = asked.quote
    if quote:
        rows["the work says"] = f"“{quote.text}” ({quote.place})"
        if quote.differs:
            rows["our test differs"] = quote.differs
    else:
        rows["source"] = asked.source
    rows["measured"] = "\n".join(_doc(m.function, m.name) for m in asked.measurements)
    rows["criterion"] = "\n".join([asked.criterion.text, *_conditions(asked)])
    rows["reads"] = asked.reads
    rows["kind"] = KINDS[asked.kind]
    if asked.control:
        rows["control"] = (
            "The same is measured on randomly initialised models of this architecture."
        )
    if asked.figures:
        rows["figures"] = ", ".join(asked.figures)
    return rows


KINDS = {
    "architecture": (
        "architecture: a claim about the design, which a randomly initialised model should pass "
        "too."
    ),
    "learning": "learning: a claim about training, which a randomly initialised model must fail.",
}


def _conditions(asked: Claim) -> Iterator[str]:
    for c in asked.criterion.conditions:
        yield f"  {c.quantity}: {needed(c, c.unit)}"
    for p in asked.criterion.preconditions:
        yield f"  precondition: {shown_key(p.quantity)}: {region(p.holds, '')}"


def _doc(function: Any, name: str) -> str:
    doc = inspect.getdoc(function) or ""
    first, _, _ = doc.partition("\n\n")
    if not first:
        return name
    return f"{name}: {first}".replace("\n", " ")


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
