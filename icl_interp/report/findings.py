"""What templates show of findings: numbers with intervals, keys in words, rows of details."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from icl_interp.analyses.criterion import Condition, Estimate, Precondition
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.natural import BASES, SHARE
from icl_interp.figures.text import interval, number
from icl_interp.report.words import measured

OPEN = 8  # rows of a table of details that are shown unasked


def unit_of(f: Finding, rule: Condition | Precondition) -> str:
    """The unit of what a rule asks for."""
    e = f.evidence.get(rule.quantity)
    if not e:
        return ""
    return e.unit


def found_of(f: Finding, rule: Condition | Precondition) -> str:
    """What was found of what a rule asks for."""
    e = f.evidence.get(rule.quantity)
    return f"found {found(e)}" if e else "not measured"


def found(e: Estimate) -> str:
    """A measured value, with its interval if it has one; of a logarithm the factor, shares in %."""
    if e.unit in (*BASES, SHARE):
        return measured(e)
    if e.low != e.high:
        return interval(e)
    return f"{number(e.value)} {e.unit}".rstrip()


def anchor(text: str) -> str:
    """An id for a part of the page."""
    return "-".join(str(text).split())


def shown_key(key: object) -> str:
    """A stored key in the words of the glossary: "sham" becomes "control intervention".

    >>> shown_key("sham effect"), shown_key("error, intact")
    ('control intervention effect', 'error, unchanged model')
    """
    words = re.sub(r"\bsham\b", "control intervention", str(key))
    return re.sub(r"\bintact\b", "unchanged model", words)


def same_columns(
    rows: Sequence[Mapping[str, Any]],
) -> list[tuple[tuple[str, ...], list[Mapping[str, Any]]]]:
    """Rows in groups, each with its columns: those of one group share a table."""
    groups = itertools.groupby(rows, key=lambda row: tuple(row))
    return [(columns, list(group)) for columns, group in groups]


def is_listed(value: object) -> bool:
    """Whether a value is a list of values."""
    return isinstance(value, (list, tuple))
