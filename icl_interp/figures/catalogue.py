"""All figures of a report, by name and in their order."""

from collections.abc import Mapping, Sequence
from typing import Any

from icl_interp.analyses.verdicts import Finding
from icl_interp.figures.claims import forest
from icl_interp.figures.style import Figure
from icl_interp.results import Result


def draw(results: Mapping[str, Result], findings: Sequence[Finding], facts: Mapping[str, Any]) -> dict[str, Figure]:
    """x"""
    return {"claims": forest(list(findings))}
