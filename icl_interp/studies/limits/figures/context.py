"""What is left of the context far out: how much f still differs, and what it still tells."""

from collections.abc import Sequence

import numpy as np
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import BLUE, GREY, INK, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Note, Panel, Points, Rule, rows
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import number, tested_by
from icl_interp.studies.limits.claims.context import spread, told_by
from icl_interp.studies.limits.measurements import far
from icl_interp.studies.limits.measurements.context import ERASED_AT, ROUNDING, information

LOOKS = {1: ("x > 0", BLUE, "circle", "solid"), -1: ("x < 0", "#003A5D", "circle-open", "dash")}
LABELS = {"coefficients": "coefficients", "permuted": "shuffled"}


def context(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """Spread of f over contexts against |x| in both directions; R2 of far f on the coefficients."""
    curve = results.get(far.intact)
    if curve is None:
        return None
    out = ERASED_AT * facts.x_unit
    marks = _spread(curve)
    near = results.get(far.in_distribution)
    if near is not None:
        marks += _thresholds(near, out, findings)
    if not (spread(curve) > 0).any():
        marks.append(Note("the prediction is the same for every context", colour=GREY, size=13))

    # One panel for the spread, and one for what is told where that was measured.
    sizes = np.abs(curve["x"].values)
    x = Axis("|x| of the query", sizes.min() / 1.2, sizes.max() * 1.2, log=True)
    y = Axis("standard deviation over contexts", log=True)
    panels = [Panel("How much predictions differ between contexts", x, y, marks, width=2.25)]
    info = results.get(information)
    if info is not None:
        panels.append(_information(info, f"Function told at |x| = {number(out)}"))
    title = "Does the prediction at a far query still depend on the context?"
    return Drawing(title, tested_by("context", findings), panels, height=310)


FIGURE = ReportFigure(
    context,
    "First, how much predictions still differ between contexts as the query goes far from the "
    "data. The dotted guide falls like 1/|x|; the two bars are the claim's thresholds. Second, "
    "whether the difference still tells which function the context shows: the cross-validated R² "
    "of these predictions on the coefficients of the function, near 1 if so. With coefficients "
    "shuffled over functions it should be 0.",
)


def _spread(curve: DataArray) -> list[Mark]:
    """Both directions and the 1/x guide."""
    sd = spread(curve)
    sizes = np.abs(curve["x"].values)
    marks: list[Mark] = []
    for sign, (name, colour, symbol, dash) in LOOKS.items():
        keep = np.sign(curve["x"].values) == sign
        order = np.argsort(sizes[keep])
        line = Line(
            sizes[keep][order],
            sd[keep][order],
            name=name,
            colour=colour,
            dash=dash,
            width=1.8,
            symbol=symbol,
            size=6,
            hover="|x| = {x:.4g}<br>spread = {y:.4g}",
        )
        marks.append(line)

    # A guide through the spread four decades before the end.
    xs = np.unique(sizes)
    at = float(xs[np.argmin(np.abs(np.log(xs / (xs[-1] / 1e4))))])
    anchor = float(sd[np.isclose(sizes, at)].mean())
    if anchor > 0:
        guide = xs[xs >= at]
        look = {"colour": GREY, "width": 1.2, "dash": "dot", "hover": ""}
        marks.append(Line(guide, anchor * at / guide, name="guide: 1/|x|", **look))
    rounding = ROUNDING * np.abs(curve.values[0]).mean(0)
    if (sd < rounding).any():
        order = np.argsort(sizes)
        look = {"colour": ORANGE, "width": 1, "hover": ""}
        marks.append(Line(sizes[order], rounding[order], name="rounding of float64", **look))
    return marks


def _thresholds(near: DataArray, out: float, findings: Sequence[Finding]) -> list[Mark]:
    """The spread in distribution, and the criterion's zones at the |x| where it is judged."""
    inside = float(np.sqrt(np.square(spread(near)).mean()))
    if not inside > 0:
        return []
    marks: list[Mark] = [Rule(y=inside, words="in distribution", colour=INK, dash="dash")]
    for finding in findings:
        if finding.id != "limits.context_erased":
            continue
        condition = finding.criterion.conditions[0]
        marks += _threshold("supported", "below", condition.supports[1], inside, out)
        if condition.contradicts:
            marks += _threshold("contradicted", "above", condition.contradicts[0], inside, out)
    return marks


def _threshold(verdict: str, side: str, bound: float, inside: float, out: float) -> list[Mark]:
    """A threshold of the criterion, where it is judged."""
    look = VERDICTS[verdict]
    y = bound * inside
    words = f"{look.word} {side} {number(bound)} of the spread in distribution"
    line = Line([out / 2.2, out * 2.2], [y, y], colour=look.colour, width=3, hover=words)
    at = "bottom" if side == "below" else "top"
    text = f"{look.sign} {look.word} if {side}"
    return [line, Note(text, out, y, at, colour=look.ink, size=11)]


def _information(info: DataArray, title: str) -> Panel:
    """Cross-validated R2 of far f on the function's coefficients, and on permuted ones.

    On the latter it should be 0.
    """
    names = list(map(str, info.indexes["inputs"]))
    marks: list[Mark] = [
        Rule(x=0.0, words="nothing", at="bottom right", colour=INK, ink=GREY),
        Rule(x=1.0, words="the function", at="bottom left", colour=INK, ink=GREY),
    ]
    for row, name in enumerate(names):
        r2 = told_by(info, name)
        point = Points(
            [r2.value],
            [row],
            [r2.low],
            [r2.high],
            name=name,
            listed=False,
            colour=INK if row else BLUE,
            symbol="square-open" if row else "circle",
            size=11,
            texts=[f"R² = {number(r2.value)} [{number(r2.low)}, {number(r2.high)}]"],
        )
        marks.append(point)
    y = rows([LABELS.get(name, name) for name in names], spare=0.1)
    return Panel(title, Axis("cross-validated R²", labels=6), y, marks)
