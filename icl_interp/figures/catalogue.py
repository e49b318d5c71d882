"""All figures of a report, by name and in their order."""

from collections.abc import Mapping, Sequence
from typing import Any

from icl_interp.analyses.verdicts import Finding
from icl_interp.figures.claims import forest
from icl_interp.figures.context import context
from icl_interp.figures.far_query import far_query
from icl_interp.figures.growth import growth
from icl_interp.figures.style import Figure
from icl_interp.results import Result


def draw(results: Mapping[str, Result], findings: Sequence[Finding], facts: Mapping[str, Any]) -> dict[str, Figure]:
    """x"""
    d= {"claims": forest(list(findings)), "far_query":far_query(results,findings,facts),"growth":growth(results,findings,facts),"context":context(results,findings,facts)}
    return {k:v for k,v in d.items() if v}
