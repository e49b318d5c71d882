"""From the trained range to the plateau: f in the certificate, its way to its end, what grows."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses import output_unit
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import BLUE, GREEN, GREY, INK, ORANGE, PURPLE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Rule, Zone
from icl_interp.figures.text import joined, markup, number, tested_by
from icl_interp.studies.limits.measurements import boundary as measured
from icl_interp.studies.limits.measurements import far

DARK = "#003A5D"
LOOKS = {"+": ("x > 0", BLUE, "circle", "solid"), "-": ("x < 0", DARK, "circle-open", "dash")}
GROWS = {
    "E_f": ("prediction", BLUE, "solid"),
    "E_N": ("numerator", ORANGE, "dash"),
    "E_sigma": ("scale", PURPLE, "dot"),
}
# In units of f's size at the edge of the trained range: beyond, the axis of f is a symmetric-log
# one.
BOUNDED = 100.0
Rows = Mapping[tuple[str, str], Mapping[str, Any]]
Bound = tuple[float, float]


def boundary(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """One context in both directions, with marks, the distance from its end, and elasticities.

    The marks are zone, peak, onset and level.
    """
    table = results.get(measured.boundary)
    curve = results.get(measured.approach)
    logs = results.get(measured.logs)
    if table is None or curve is None or logs is None:
        return None
    rows: Rows = {(row["direction"], row["quantity"]): row for row in table.to_dict("records")}
    sizes = np.abs(curve["x"].values)
    trained = Zone(x=(0.0, max(_of(rows, "trained range"))))
    u = output_unit.u(results) if output_unit.own in results else 0.0
    panels = []
    for title, width, y, marks in (
        ("Prediction, one context and mean", 1.4, *_f(results, rows)),
        ("Distance from its end", 1.0, *_gap(curve, rows, u)),
        (_names_of_growth(), 1.0, *_growth(logs)),
    ):
        x = Axis("|x| of the query", sizes.min() / 1.2, sizes.max() * 1.2, log=True)
        panels.append(Panel(title, x, y, [*marks, trained], width=width))
    title = "From the training data (grey) to the level that the prediction tends to"
    below = f"{tested_by('boundary', findings)}<br>{_words(rows)}"
    return Drawing(title, below, panels, height=330)


FIGURE = ReportFigure(
    boundary,
    "The query alone moves, in both directions; grey marks the training data. First, one context "
    "(thin) and the mean over all (thick), with the |x| up to which the prediction follows the "
    "target function, the |x| at which the plateau begins, and the bound on the output from the "
    "weights (shaded). Second, the distance of the prediction from its own end value: parallel to "
    "the guide is an approach like 1/|x|, and below the dashed line it counts as level. Third, "
    "growth exponents: that of the prediction is that of the last norm's numerator minus that of "
    "the scale that divides it. The prediction levels off where the two cancel.",
)


def _of(rows: Rows, quantity: str) -> list[float]:
    """A quantity in both directions."""
    return [row["value"] for (_, name), row in rows.items() if name == quantity]


def _names_of_growth() -> str:
    """The heading that tells the lines of the last panel apart."""
    words = []
    for text, colour, _ in GROWS.values():
        words.append(markup('<span style="color:{}">{}</span>', colour, text))
    return joined(words, ", ")


def _words(rows: Rows) -> str:
    """Zone, peak, onset, level and rate, a line a direction."""
    lines = []
    for name, (label, *_) in LOOKS.items():
        value = {quantity: row["value"] for (d, quantity), row in rows.items() if d == name}
        sign = label.replace("<", "&lt;")
        text = f"{sign}: follows the target function up to {number(value['zone'])}"
        if np.isfinite(value["onset"]):
            text += (
                f", peaks at {number(value['peak at'])} ({number(value['peak'])}), flat from "
                f"{number(value['onset'])} on at {number(value['level'])} (standard deviation over "
                f"contexts {number(value['level, spread'], 2)}), its distance from it falls like "
                f"|x|<sup>{number(value['approach rate'])}</sup>"
            )
        else:
            text += ", does not level off"
        lines.append(text)
    return "<br>".join(lines)


def _f(results: Results, rows: Rows) -> tuple[Axis, list[Mark]]:
    """The first context's f and the mean over all, with the certificate behind and marks on it.

    Both directions are drawn.
    """
    marks: list[Mark] = []
    largest = 0.0
    contexts = results.get(far.contexts)
    if contexts is not None:
        one = contexts.sel(curve="model").isel(context=0)
        marks += _both_ways("one context", one, 1.1, 0.6)
        largest = float(np.abs(one).max())
    intact = results.get(far.intact)
    if intact is not None:
        mean = intact.sel(statistic="mean").mean("unit")
        marks += _both_ways("mean", mean, 2.2, 1.0)
        largest = max(largest, float(np.abs(mean).max()))

    bound = _certified(results)
    if bound:
        marks += [Zone(y=bound, colour="#F3F7F2")]
        marks += [Rule(y=end, colour=GREEN, dash="dash") for end in bound]
    marks += _places(rows)
    decade = max(np.abs(_of(rows, "one decade out")).max(initial=0.0), 0.0) or 1.0
    if bound or largest <= BOUNDED * decade:
        return Axis("prediction"), marks
    threshold = float(10 ** np.floor(np.log10(decade)))
    words = f"prediction (symmetric-log: linear within ±{number(threshold)})"
    return Axis(words, symlog=threshold), marks


def _both_ways(kind: str, f: DataArray, width: float, opacity: float) -> list[Mark]:
    """f in both directions over |x|."""
    marks: list[Mark] = []
    for name, (label, colour, _, dash) in LOOKS.items():
        half = f.sel(x=np.sign(f["x"]) == measured.SIGNS[name])
        order = np.argsort(np.abs(half["x"].values))
        line = Line(
            np.abs(half["x"].values)[order],
            half.values[order],
            name=f"{kind}, {label}",
            colour=colour,
            dash=dash,
            width=width,
            opacity=opacity,
            hover="|x| = {x:.4g}<br>y = {y:.6g}",
        )
        marks.append(line)
    return marks


def _certified(results: Results) -> Bound | None:
    """The band in which the weights alone say that f lies."""
    weights = results.get(far.certificate)
    if weights is None:
        return None
    known = weights.iloc[0].to_dict()
    c, r = known.get("c", np.nan), known.get("r", np.nan)
    return (c - r, c + r) if np.isfinite([c, r]).all() else None


def _places(rows: Rows) -> list[Mark]:
    """Where f leaves the function, and where it is level, in each direction."""
    marks: list[Mark] = []
    for name, (_, colour, _, dash) in LOOKS.items():
        at = "top right" if name == "+" else "bottom right"
        leaves = Rule(rows[name, "zone"]["value"], None, "leaves target", at, GREY, dash)
        level = Rule(rows[name, "onset"]["value"], None, "plateau begins", at, colour, dash)
        marks += [rule for rule in (leaves, level) if np.isfinite(rule.x or np.nan)]
    return marks


def _gap(curve: DataArray, rows: Rows, u: float) -> tuple[Axis, list[Mark]]:
    """Root mean square distance of f from its own end, a guide, and what counts as level.

    The guide falls like 1/|x|.
    """
    marks: list[Mark] = []
    for name, (label, colour, symbol, dash) in LOOKS.items():
        xs, keep = measured.direction(curve, measured.SIGNS[name])
        distances = np.sqrt(curve.sel(statistic="gap").values.mean(0)[keep])
        xs, y = xs[:-1], distances[:-1]  # the end's own distance is 0
        line = Line(
            xs,
            y,
            name=label,
            listed=False,
            colour=colour,
            dash=dash,
            width=1.6,
            symbol=symbol,
            size=5,
            hover="|x| = {x:.4g}<br>distance = {y:.4g}",
        )
        marks.append(line)
        onset = rows[name, "onset"]["value"]
        if name == "+" and np.isfinite(onset):
            start = int(np.argmin(np.abs(np.log(xs / onset))))
            guide = 1.6 * y[start] * xs[start] / xs[start:]
            look = {"colour": GREY, "width": 1.2, "dash": "dot", "hover": ""}
            marks.append(Line(xs[start:], guide, name="guide: 1/|x|", **look))
    if u > 0:
        words = f"level: {measured.LEVEL} standard deviations"
        level = Rule(y=measured.LEVEL * u, words=words, colour=GREEN, dash="dash", ink="#00694D")
        marks.append(level)
    return Axis("distance from the end value", log=True, labels=6), marks


def _growth(logs: DataArray) -> tuple[Axis, list[Mark]]:
    """E_f = E_N - E_sigma between neighbouring decades, the mean of both directions."""
    sizes = np.unique(np.abs(logs["x"].values))
    middles = np.sqrt(sizes[1:] * sizes[:-1])
    marks: list[Mark] = [Rule(y=value, colour=INK, width=0.8) for value in (0.0, 1.0)]
    for key, (label, colour, dash) in GROWS.items():
        ways = []
        for sign in measured.SIGNS.values():
            steps = pairwise(sizes)
            ways.append([measured.elasticities(logs, sign, a, b)[key].value for a, b in steps])
        line = Line(
            middles,
            np.mean(ways, 0),
            name=f"growth of {label}",
            listed=False,
            colour=colour,
            dash=dash,
            symbol="circle",
            size=6,
            hover="|x| = {x:.3g}<br>exponent = {y:.4f}",
        )
        marks.append(line)
    return Axis("growth exponent", -1.25, 1.5), marks
