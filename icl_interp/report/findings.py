"""Findings as HTML: a mark, numbers with intervals, and everything that a finding holds."""

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from icl_interp.analyses.criterion import Condition, Estimate, Precondition
from icl_interp.analyses.finding import Finding, Quote
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import MINUS, interval, joined, markup, name_of, number
from icl_interp.report.words import BASES, measured, needed, region
from icl_interp.structured import NOT_FINITE

OPEN = 8  # rows of a table of details that are shown unasked


def body(f: Finding, drawn: Collection[str] = ()) -> Markup:
    """A finding in full, without its short sentence.

    It links to those of its figures that are `drawn` on the page.
    """
    pairs: dict[str, object] = {"claim": f.statement}
    if f.quote:
        pairs["the paper says"] = _quote(f.quote)
    if f.kept:
        pairs["not judged again"] = f.kept
    if f.estimate:
        pairs["estimate"] = estimates(f)
    pairs["criterion"] = joined([markup("{}", f.criterion.text), *_rules(f)], "<br>")
    if f.scope:
        pairs["scope"] = f.scope
    if f.control:
        pairs["randomly initialised control"] = one_estimate(f.control)
    if f.causal:
        pairs["causal test"] = mapping(f.causal)
    if f.details:
        pairs["details"] = _details(f.details)
    if shown := [name for name in f.figures if name in drawn]:
        pairs["figures"] = joined(
            (markup('<a href="#figure-{}">{}</a>', anchor(n), n) for n in shown), ", "
        )
    pairs["source"] = f"{f.source}; a claim about {f.kind}"
    pairs["more"] = markup(
        "<code>icl-interp explain {} REPORT</code>, REPORT being the folder of this page", f.id
    )
    return markup('<p class="said">{}</p><div class="wide">{}</div>', f.reason, rows(pairs))


def _quote(quote: Quote) -> Markup:
    differs = markup("<br>Our test differs: {}", quote.differs) if quote.differs else ""
    return markup('“{}” <span class="quiet">({})</span>{}', quote.text, quote.place, differs)


def _rules(f: Finding) -> Iterator[Markup]:
    """Conditions and preconditions with what was found, a line each."""
    for c in f.criterion.conditions:
        zones = needed(c, _unit(f, c))
        yield markup(
            '<span class="quiet">{}: supported: {}{}</span>',
            shown_key(c.quantity),
            zones,
            _found(f, c),
        )
    for p in f.criterion.preconditions:
        asked = region(p.holds, _unit(f, p))
        yield markup(
            '<span class="quiet">asked first: {}: {}{}</span>',
            shown_key(p.quantity),
            asked,
            _found(f, p),
        )


def _unit(f: Finding, rule: Condition | Precondition) -> str:
    e = f.evidence.get(rule.quantity)
    return e.unit if e else ""


def _found(f: Finding, rule: Condition | Precondition) -> Markup:
    e = f.evidence.get(rule.quantity)
    return markup("; not measured") if e is None else markup("; found {}", found(e))


def found(e: Estimate) -> str:
    """A measured value: with its interval where it has one, and of a logarithm the factor."""
    if e.unit in BASES:
        return measured(e)
    return f"{number(e.value)} {e.unit}".rstrip() if e.low == e.high else interval(e)


def verdict_mark(finding: Finding) -> Markup:
    """The verdict's sign and word, in its colour."""
    return markup(
        '<span class="verdict" style="color:{look.ink};font-weight:bold">{look.sign} '
        "{look.word}</span>",
        look=VERDICTS[finding.verdict],
    )


def estimates(finding: Finding) -> Markup:
    """The estimate, and what the criterion reads where that is something else."""
    parts = [one_estimate(finding.estimate)] if finding.estimate else []
    if finding.test and finding.test != finding.estimate:
        parts.append(
            markup('<span style="color:#666">judged by:</span> {}', one_estimate(finding.test))
        )
    return joined(parts or ["–"], "<br>")


def one_estimate(estimate: Estimate) -> Markup:
    """A number with its interval and its name."""
    return markup(
        '<span class="number">{}</span><br><small style="color:#666">{}</small>',
        interval(estimate),
        name_of(estimate),
    )


def link(finding: Finding) -> Markup:
    """The claim's id, which leads to the finding in full."""
    return markup('<a href="#{}"><code>{}</code></a>', anchor(finding.id), finding.id)


def anchor(text: str) -> str:
    """An id for a part of the page."""
    return "-".join(str(text).split())


def shown_key(key: object) -> str:
    """A stored key in the words of the glossary: "sham" becomes "control intervention".

    >>> shown_key("sham effect"), shown_key("error, intact")
    ('control intervention effect', 'error, unchanged model')
    """
    return re.sub(
        r"\bintact\b", "unchanged model", re.sub(r"\bsham\b", "control intervention", str(key))
    )


def rows(pairs: Mapping[str, object]) -> Markup:
    """A table of names and values."""
    each = joined(
        markup("<tr><th>{}</th><td>{}</td></tr>", shown_key(key), value)
        for key, value in pairs.items()
    )
    return markup("<table><tbody>{}</tbody></table>", each)


def mapping(values: Mapping[str, Any]) -> Markup:
    """Numbers by name, a row each; what is nested in a row goes on one line."""
    return rows({key: cell(value) for key, value in values.items()})


def _details(rows: Sequence[Mapping[str, Any]]) -> Markup:
    """Rows with the same columns share a table; a long one opens when asked."""
    tables = []
    for columns, rows_of_one in itertools.groupby(rows, key=lambda row: tuple(row)):
        group = list(rows_of_one)
        table = markup(
            "<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>",
            joined(markup("<th>{}</th>", shown_key(column)) for column in columns),
            joined(
                markup(
                    "<tr>{}</tr>",
                    joined(markup('<td class="number">{}</td>', cell(v)) for v in row.values()),
                )
                for row in group
            ),
        )
        asked = markup("<details><summary>{} rows</summary>{}</details>", len(group), table)
        tables.append(asked if len(group) > OPEN else table)
    return joined(tables)


def cell(value: Any) -> str | Markup:
    """One value, rounded."""
    if isinstance(value, Mapping):
        nested = {
            shown_key(key): markup("({})", cell(v)) if isinstance(v, Mapping) else cell(v)
            for key, v in value.items()
        }
        return joined(
            (markup('<span class="quiet">{}</span> {}', *pair) for pair in nested.items()), " · "
        )
    return joined(map(cell, value), ", ") if isinstance(value, (list, tuple)) else scalar(value)


def scalar(value: Any) -> str:
    """One value as text."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, float) or (
        isinstance(value, str) and value in NOT_FINITE
    ):  # what JSON makes of them
        return number(float(value), 4)
    return str(value).replace("-", MINUS) if isinstance(value, int) else str(value)
