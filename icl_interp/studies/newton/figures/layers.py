"""The best exponent of each family by layer, in a report and of several models."""

from collections.abc import Mapping, Sequence

from pandas import DataFrame

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import COLOURS
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Zone
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import plain, tested_by
from icl_interp.results import Result
from icl_interp.studies.newton.claims import iterations
from icl_interp.studies.newton.measurements.iterates import DESCENT, NEWTON, iterates

LAYER = Axis("layer", whole=True)
NAMES = {NEWTON: "Newton's iterate", DESCENT: "descent, log2 of steps"}


def _panel(
    title: str, y: Axis, table: DataFrame, columns: Sequence[str], zones: Sequence[Zone] = ()
) -> Panel:
    """A line a family: a value by layer, with its interval where there is one."""
    marks: list[Mark] = [*zones]
    for place, (family, name) in enumerate(NAMES.items()):
        mine = table[table["rival"] == family]
        layer = mine["layer"].to_numpy()
        values = mine[list(columns)].to_numpy().T
        line = Line(layer, *values, name=name, colour=COLOURS[place], symbol="circle")
        marks.append(line)
    return Panel(title, LAYER, y, marks)


def _best(title: str, table: DataFrame) -> Panel:
    axis = Axis("k of the nearest, 2^k")
    return _panel(title, axis, table, ("k", "low", "high"))


def newton_iterates(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """The best exponents by layer, and how near they are."""
    result = results.get(iterates)
    if result is None:
        return None
    table = DataFrame(iterations.rows(result))
    zone = Zone(y=(0.0, iterations.NEAR), colour=VERDICTS["supported"].pale)
    near = _panel("Distance", Axis("D", log=True, least=1e-5), table, ("D",), [zone])
    below = f"{tested_by('newton_iterates', findings)}<br>{plain(result.attrs['note'])}."
    title = "Which iterate is nearest to what a layer says?"
    return Drawing(title, below, [_best("Best iterate", table), near])


def layers(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """A panel a model: the best exponents by layer."""
    found = results.get("layers")
    if not isinstance(found, DataFrame):
        return {}
    panels = []
    for name, part in found.groupby("model", sort=False):
        panel = _best(str(name), part)
        panels.append(panel)
    below = f"{plain(found.attrs['note'])}."
    return {"layers": Drawing("The iterate that is nearest to each layer", below, panels)}


FIGURE = ReportFigure(
    newton_iterates,
    "On the left, for each layer, the exponent 2^k at which Newton's iteration (iterate k) and "
    "descent (2^k steps) are nearest to what the layer says of f(x), with 95 % intervals. Layers "
    "that do as many iterations of Newton each lie on a line; layers that do as many steps of "
    "descent each flatten. On the right the distance there, in shares of the mean square of f(x).",
)
