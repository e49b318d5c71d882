"""All figures of a report, by name and in their order."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from icl_interp.analyses.verdicts import Finding
from icl_interp.figures.claims import forest
from icl_interp.figures.context import context
from icl_interp.figures.dispersion import dispersion
from icl_interp.figures.far_query import far_query
from icl_interp.figures.growth import growth
from icl_interp.figures.heads import heads
from icl_interp.figures.style import Figure
from icl_interp.results import Result

Drawing = Callable[[Mapping[str, Result], Sequence[Finding], Mapping[str, Any]], Figure | None]

FIGURES: dict[str, Drawing] = {
    "claims": forest,
    "far_query": far_query,
    "growth": growth,
    "context": context,
    "heads": heads,
    "dispersion": dispersion,
}


def draw(results: Mapping[str, Result], findings: Sequence[Finding], facts: Mapping[str, Any]) -> dict[str, Figure]:
    """Every figure that the stored results allow, in a fixed order.

    A figure is a pure function of what is stored and changes no number. Results that no figure knows are left alone;
    a finding on any claim, also one of your own, has its row in "claims".
    """
    drawn = {name: drawing(results, findings, facts) for name, drawing in FIGURES.items()}
    return {name: figure for name, figure in drawn.items() if figure is not None}
