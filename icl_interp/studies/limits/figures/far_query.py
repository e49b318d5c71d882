"""f(x) as the query goes far, in both directions, beside the truth and what the weights predict."""

from collections.abc import Mapping, Sequence

import numpy as np

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import BLUE, GREEN, GREY, INK, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Note, Panel, Rule, Zone
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import joined, markup, number, tested_by
from icl_interp.studies.limits.measurements import far

# Without a certificate: f counts as bounded below so many times its size in distribution.
BOUNDED = 100.0
DARK = "#003A5D"
HOVER = "x = {x:.4g}<br>prediction = {y:.6g}"
ONSETS = {"predicted": ("dash", ORANGE, "contradicted"), "measured": ("solid", BLUE, "supported")}


def far_query(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """Single contexts, their mean, the truth, plateaus in closed form, certificate and onset."""
    contexts = results.get(far.contexts)
    if contexts is None:
        return None
    contexts = contexts.sortby("x")
    xs = contexts["x"].values
    model, truth = (contexts.sel(curve=name).values for name in ("model", "truth"))
    weights = results.get(far.certificate)
    known = weights.iloc[0].to_dict() if weights is not None else {}
    known = {name: value for name, value in known.items() if np.isfinite(value)}
    certified = {"c", "r"} <= set(known)

    # The axis of f is symmetric-log where f grows without bound.
    trained = facts.trained_range
    near = (xs >= trained[0]) & (xs <= trained[1]) if trained else np.ones(len(xs), bool)
    size, true_size = (float(np.abs(curves[:, near]).max(initial=0.0)) for curves in (model, truth))
    bounded = certified or float(np.abs(model).max()) <= BOUNDED * size
    threshold = 10.0 ** np.floor(np.log10(max(size, true_size) or 1.0))

    marks: list[Mark] = []
    if certified:
        marks += _certificate(known["c"], known["r"])
    if trained:
        middle = (trained[0] + trained[1]) / 2
        marks += [Zone(x=trained), Note("trained range", x=middle, at="bottom", colour=GREY)]
    ends = [*model.ravel(), *(c for sign in (-1, 1) for c in _edge(known, sign))]
    pad = 0.06 * ((max(ends) - min(ends)) or abs(max(ends)) or 1.0)
    low, high = min(ends) - pad, max(ends) + pad
    dotted = {"colour": INK, "width": 0.8, "dash": "dot", "opacity": 0.5}
    # A dot of a dotted line far off the axis takes room in a PDF like any other.
    drawn = until_it_leaves(truth, low, high) if bounded else truth
    marks.append(Line(xs, drawn, name="truth", hover=HOVER, **dotted))
    name = f"model, {len(model)} contexts"
    marks.append(Line(xs, model, name=name, width=1.1, opacity=0.45, hover=HOVER))
    intact = results.get(far.intact)
    if intact is not None:
        mean = intact.sel(statistic="mean").mean("unit").sortby("x")
        name = "mean over all contexts"
        line = Line(mean["x"].values, mean.values, name=name, colour=DARK, width=2.4, hover=HOVER)
        marks.append(line)
    marks += _predictions(known, xs)
    marks += _onsets(known, findings, xs)

    below = tested_by("far_query", findings)
    if bounded:
        # The model's predictions and what bounds them; the target functions leave the axis.
        y = Axis("prediction", low, high)
        below += (
            "<br>The axis spans all that the model can predict; the target functions (dotted) "
            "leave it."
        )
    else:
        marks += _slopes(findings)
        y = Axis(_symlog_words("prediction", threshold), symlog=threshold)
    threshold_x = float(np.abs(xs[xs != 0]).min())
    x = Axis(_symlog_words("query x", threshold_x), symlog=threshold_x, labels=12)
    title = "What the model predicts when only the query goes far from the data"
    return Drawing(title, below, [Panel(x=x, y=y, marks=marks)], height=400)


def until_it_leaves(curves: np.ndarray, low: float, high: float) -> np.ndarray:
    """Curves, (curve, x), without the stretches of which an axis from low to high shows nothing.

    >>> until_it_leaves(np.array([[9.0, 5.0, 1.0, -5.0, 5.0, 6.0]]), -2, 2)
    array([[nan,  5.,  1., -5.,  5., nan]])
    """
    side = np.where(curves > high, 1, np.where(curves < low, -1, 0))
    # A segment is off the axis where both of its ends lie on one side of it.
    shown = (side[:, 1:] == 0) | (side[:, 1:] != side[:, :-1])
    nothing = np.zeros((len(curves), 1), bool)
    kept = np.hstack([shown, nothing]) | np.hstack([nothing, shown])
    return np.where(kept, curves, np.nan)


FIGURE = ReportFigure(
    far_query,
    "The context stays in distribution and only the last query moves, in both directions. Each "
    "thin line is one context; dotted lines are the target functions that these contexts show. "
    "With LayerNorm the predictions are expected to tend to one level on each side, which the "
    "weights alone predict (dashed), within a bound that no prediction can leave (shaded). "
    "Without it they are expected to become one line on each side, whatever the context says.",
)


def _symlog_words(name: str, threshold: float) -> str:
    return f"{name} (symmetric-log: linear within ±{number(threshold)})"


def _edge(known: Mapping[str, float], sign: int) -> list[float]:
    """An end of what the weights alone allow, where that is known."""
    return [known["c"] + sign * known["r"]] if {"c", "r"} <= set(known) else []


def _certificate(c: float, r: float) -> list[Mark]:
    """Where the read-out confines every output."""
    bounds = f"{number(c)} ± {number(r)}"
    words = f"bound from the weights alone:\nevery prediction lies in\n{bounds}"
    edges = [Rule(y=edge, colour=GREEN, dash="dash", inside=False) for edge in (c - r, c + r)]
    note = Note(words, y=c - r, at="top left", colour="#00694D")
    return [Zone(y=(c - r, c + r), colour="#F3F7F2"), *edges, note]


def _predictions(known: Mapping[str, float], xs: np.ndarray) -> list[Mark]:
    """What the weights alone predict: the plateau on each side, from where it is reached."""
    start = known.get("onset", float(np.abs(xs).max()) / 100)
    return [
        Line(
            [np.sign(end) * start, end],
            [known[key]] * 2,
            name="level that the weights predict",
            colour=ORANGE,
            width=2.4,
            dash="8px,5px",
            hover="{y:.6g}",
        )
        for key, end in (("plateau -", xs[0]), ("plateau +", xs[-1]))
        if key in known and start < abs(end)
    ]


def _onsets(known: Mapping[str, float], findings: Sequence[Finding], xs: np.ndarray) -> list[Mark]:
    """Where the plateau begins, by the weights and as the judge measured it."""
    marks: list[Mark] = []
    words = []
    found = {"predicted": known.get("onset", np.nan), "measured": measured_onset(findings)}
    for name, value in found.items():
        if np.isfinite(value) and value < np.abs(xs).max():
            dash, colour, look = ONSETS[name]
            marks += [Rule(x=sign * value, colour=colour, dash=dash) for sign in (-1, 1)]
            ink = VERDICTS[look].ink
            words.append(
                markup('<span style="color:{}">{}: |x| = {}</span>', ink, name, number(value))
            )
    if words:
        text = joined(["the plateau begins at", *words], "<br>")
        top = known["c"] + known["r"] if {"c", "r"} <= set(known) else None
        marks.append(Note(text, y=top, at="bottom right" if top is not None else "top right"))
    return marks


def _slopes(findings: Sequence[Finding]) -> list[Mark]:
    """The line that f becomes in each direction, as the judge found it."""
    rows = [row for f in findings if f.id == "limits.linear_asymptote" for row in f.details]
    notes: list[Mark] = []
    for row in rows:
        slope, spread = number(row["slope"]), number(row["sd of slope over contexts"])
        side = "right" if row["direction"] == "+" else "left"
        notes.append(Note(f"slope {slope}\n± {spread} over contexts", at=side, colour=DARK))
    return notes


def measured_onset(findings: Sequence[Finding]) -> float:
    """|x| from which f stays at its plateau, as the judge found it; NaN where it did not."""
    for finding in findings:
        for row in finding.details if finding.id == "limits.layernorm_saturation" else ():
            if "measured onset" in row:
                return float(row["measured onset"])
    return float("nan")
