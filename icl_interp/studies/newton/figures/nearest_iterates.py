"""The iterates that are nearest to each layer, and how near they are."""

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
TITLE = "Which iterate is nearest to a layer's read-out?"
NAMES = {NEWTON: "Newton's iterate", DESCENT: "descent, log2 of steps"}


def newton_iterates(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """A line a family: its best exponents by layer, and their distances."""
    result = results.get(iterates)
    if result is None:
        return None
    below = f"{tested_by('newton_iterates', findings)}<br>{plain(result.attrs['note'])}."
    return Drawing(TITLE, below, by_layer(iterations.by_layer(result)))


def by_layer(table: DataFrame) -> list[Panel]:
    """Best exponents and distances of a table that has a row a family and layer."""
    best: list[Mark] = []
    near: list[Mark] = [Zone(y=(0.0, iterations.NEAR), colour=VERDICTS["supported"].pale)]
    for (family, name), colour in zip(NAMES.items(), COLOURS, strict=False):
        mine = table.set_index("family").loc[[family]]
        layer = mine["layer"].to_numpy()
        k = mine[["k", "low", "high"]].to_numpy().T
        best.append(Line(layer, *k, name=name, colour=colour))
        near.append(Line(layer, mine["D"].to_numpy(), name=name, colour=colour))
    return [
        Panel("Best iterate", LAYER, Axis("k of the nearest, 2^k"), best),
        Panel("Distance", LAYER, Axis("D", log=True, least=1e-5), near),
    ]


def layers(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """The figure of `newton.layers`: the same of a model that was trained for it."""
    table = results.get("by layer")
    if not isinstance(table, DataFrame):
        return {}
    below = "k of the nearest iterate, and its squared distance over the mean square of f(x)."
    return {"layers": Drawing(TITLE, below, by_layer(table))}


FIGURE = ReportFigure(
    newton_iterates,
    "On the left, for each layer: the exponent k at which Newton's iteration (iterate k) and "
    "descent (2^k steps) are nearest to the layer's read-out of f(x), with 95 % intervals. If all "
    "layers do equally many Newton iterations, they lie on a line; if they do equally many steps "
    "of descent, the curve flattens. On the right: the distance there, as a share of the mean "
    "square of f(x).",
)
