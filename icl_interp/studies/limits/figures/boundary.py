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
from icl_interp.studies.limits.measurements import certificates, far

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
    u = output_unit.u(results) if output_unit.own in results else 0.0
    # All panels share the axis of |x|, and each marks the training data.
    sizes = np.abs(curve["x"].values)
    x = Axis("|x| of the query", sizes.min() / 1.2, sizes.max() * 1.2, log=True)
    trained = Zone(x=(0.0, max(_of(rows, "trained range"))))
    panels = []
    y, marks = _f(results, rows)
    panels.append(Panel("Prediction, one context and mean", x, y, [*marks, trained], width=1.4))
    y, marks = _gap(curve, rows, u)
    panels.append(Panel("Distance from its end", x, y, [*marks, trained], width=1.0))
    y, marks = _growth(logs)
    panels.append(Panel(_names_of_growth(), x, y, [*marks, trained], width=1.0))
    title = "From the training data (grey) to the level that the prediction tends to"
    below = f"{tested_by('boundary', findings)}<br>{_words(rows)}"
    if facts.n_targets > 1:
        below += (
            "<br>Predictions are vectors: the first panel shows their first coordinate, and sizes "
            "are lengths."
        )
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
        word = markup('<span style="color:{}">{}</span>', colour, text)
        words.append(word)
    return joined(words, ", ")


def _words(rows: Rows) -> str:
    """Zone, peak, onset, level and rate, a line a direction."""
    lines = []
    for name, (label, *_) in LOOKS.items():
        value = {}
        for (direction, quantity), row in rows.items():
            if direction == name:
                value[quantity] = row["value"]
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
        marks.append(Zone(y=bound, colour="#F3F7F2"))
        for end in bound:
            edge = Rule(y=end, colour=GREEN, dash="dash")
            marks.append(edge)
    marks += _places(rows)
    # What is bounded, or hardly larger than in the trained range, needs no symmetric-log axis.
    beyond = np.abs(_of(rows, "one decade out"))
    decade = max(beyond.max(initial=0.0), 0.0) or 1.0
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
        sizes = np.abs(half["x"].values)
        order = np.argsort(sizes)
        line = Line(
            sizes[order],
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
    weights = results.get(certificates.certificate)
    if weights is None:
        return None
    known = weights.iloc[0].to_dict()
    c = known.get("c", np.nan)
    r = known.get("r", np.nan)
    if not np.isfinite([c, r]).all():
        return None
    low = c - r
    high = c + r
    return low, high


def _places(rows: Rows) -> list[Mark]:
    """Where f leaves the function, and where it is level, in each direction."""
    marks: list[Mark] = []
    for name, (_, colour, _, dash) in LOOKS.items():
        at = "top right" if name == "+" else "bottom right"
        zone = rows[name, "zone"]["value"]
        onset = rows[name, "onset"]["value"]
        # At 0 a logarithmic axis has no place.
        if np.isfinite(zone or np.nan):
            leaves = Rule(zone, None, "leaves target", at, GREY, dash)
            marks.append(leaves)
        if np.isfinite(onset or np.nan):
            level = Rule(onset, None, "plateau begins", at, colour, dash)
            marks.append(level)
    return marks


def _gap(curve: DataArray, rows: Rows, u: float) -> tuple[Axis, list[Mark]]:
    """Root mean square distance of f from its own end, a guide, and what counts as level.

    The guide falls like 1/|x|.
    """
    marks: list[Mark] = []
    for name, (label, colour, symbol, dash) in LOOKS.items():
        xs, keep = measured.direction(curve, measured.SIGNS[name])
        gap = curve.sel(statistic="gap").values.mean(0)
        distances = np.sqrt(gap[keep])
        # The end's own distance is 0.
        xs = xs[:-1]
        y = distances[:-1]
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
            decades = np.log(xs / onset)
            start = int(np.argmin(np.abs(decades)))
            guide = 1.6 * y[start] * xs[start] / xs[start:]
            look = {"colour": GREY, "width": 1.2, "dash": "dot", "hover": ""}
            marks.append(Line(xs[start:], guide, name="guide: 1/|x|", **look))
    if u > 0:
        words = f"level: {measured.LEVEL} standard deviations"
        level = Rule(y=measured.LEVEL * u, words=words, colour=GREEN, dash="dash", ink="#00694D")
        marks.append(level)
    axis = Axis("distance from the end value", log=True, labels=6)
    return axis, marks


def _growth(logs: DataArray) -> tuple[Axis, list[Mark]]:
    """E_f = E_N - E_sigma between neighbouring decades, the mean of both directions."""
    xs = logs["x"].values
    sizes = np.unique(np.abs(xs))
    # Each exponent is that of a step between neighbours, so it stands between them.
    middles = np.sqrt(sizes[1:] * sizes[:-1])
    marks: list[Mark] = [Rule(y=value, colour=INK, width=0.8) for value in (0.0, 1.0)]
    for key, (label, colour, dash) in GROWS.items():
        ways = []
        for sign in measured.SIGNS.values():
            exponents = []
            for near, out in pairwise(sizes):
                found = measured.elasticities(logs, sign, near, out)
                exponents.append(found[key].value)
            ways.append(exponents)
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
    axis = Axis("growth exponent", -1.25, 1.5)
    return axis, marks
