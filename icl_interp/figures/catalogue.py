"""All figures of a report, by name and in order: of claims, of the mechanism, and of studies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.errors import logger, unreadable
from icl_interp.figures import mechanism
from icl_interp.figures.claims import forest
from icl_interp.figures.drawing import Drawing
from icl_interp.figures.render import rendered
from icl_interp.figures.style import Figure, safe
from icl_interp.registers import View
from icl_interp.results import Result

Draw = Callable[[Results, Sequence[Finding], Facts], Drawing | Figure | None]
T = TypeVar("T")
Make = Callable[[], T]

log = logger(__name__)


@dataclass(frozen=True)
class ReportFigure:
    """A figure of reports.

    Attributes:
        draw: a pure function of what is stored, to a `figures.drawing.Drawing` (or a figure of
            plotly); None where that does not allow the figure.
        caption: what one sees, for readers who meet the figure for the first time.
    """

    draw: Draw
    caption: str


FOREST = (
    "Each claim on its own axis. A filled mark is the estimate with its 95 % interval; shaded "
    "zones were fixed before anything was measured. Hollow marks are controls: a diamond is the "
    "same measurement on a randomly initialised model, a square the same intervention where it "
    "should do nothing."
)
FIRST = {
    "claims": ReportFigure(forest, FOREST),
    "mechanism": ReportFigure(mechanism.where, mechanism.WHERE),
    "mechanism_roles": ReportFigure(mechanism.roles, mechanism.ROLES),
    "mechanism_patterns": ReportFigure(mechanism.patterns, mechanism.PATTERNS),
}
FIGURES: View[ReportFigure] = View("figure", lambda study: study.figures, first=FIRST)
MECHANISM = ("mechanism", "mechanism_roles", "mechanism_patterns")  # they belong to no claim


def draw(
    results: Mapping[str, Result],
    findings: Sequence[Finding],
    facts: Facts,
    file: Path | None = None,
) -> dict[str, Figure]:
    """Every figure that the stored results allow, in a fixed order.

    A figure is a pure function of what is stored and changes no number. Results that no figure
    knows are left alone; a finding on any claim, also one of your own, has its row in "claims". A
    figure that cannot be drawn, for want of a measurement that failed, say, is left out and the log
    says why: it costs no other.

    Args:
        results: what is stored.
        findings: on the model.
        facts: about the model.
        file: what all of it was read from, where it was.
    """
    drawn = {}
    for name in FIGURES:
        figure = draw_one(name, results, findings, facts, file)
        if figure is not None:
            drawn[name] = figure
    return drawn


def draw_one(
    name: str,
    results: Mapping[str, Result],
    findings: Sequence[Finding],
    facts: Facts,
    file: Path | None = None,
) -> Figure | None:
    """One figure; None where the stored results do not allow it. Arguments are those of `draw`."""

    def make() -> Figure | None:
        drawn = FIGURES[name].draw(Results(results), findings, facts)
        if drawn is None:
            return None
        return safe(rendered(drawn))

    return tried(name, file, make)


def tried(name: str, file: Path | None, make: Make[T]) -> T | None:
    """What is made of a figure; None, and a line in the log, where that fails.

    Args:
        name: of the figure.
        file: what it is drawn from, where that was read from a file.
        make: draws it.
    """
    try:
        return make()
    except Exception as error:
        if file is None:
            log.warning("the figure %s could not be drawn and is left out", name, exc_info=True)
        else:  # the file is at fault, not the code: a line says so
            log.warning("the figure %s is left out: %s", name, unreadable(file, "it", error))
        return None
