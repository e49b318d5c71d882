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
from icl_interp.studies.limits.measurements import certificates, far

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
    model = contexts.sel(curve="model").values
    truth = contexts.sel(curve="truth").values
    known = _known(results)
    bound = _bound(known)

    # The axis of f is symmetric-log where f grows without bound.
    trained = facts.trained_range
    near = np.ones(len(xs), bool)
    if trained:
        near = (xs >= trained[0]) & (xs <= trained[1])
    size = float(np.abs(model[:, near]).max(initial=0.0))
    true_size = float(np.abs(truth[:, near]).max(initial=0.0))
    bounded = bound is not None or float(np.abs(model).max()) <= BOUNDED * size
    threshold = 10.0 ** np.floor(np.log10(max(size, true_size) or 1.0))

    marks: list[Mark] = []
    ends = list(model.ravel())
    if bound is not None:
        marks += _certificate(known["c"], known["r"])
        ends += bound
    if trained:
        middle = (trained[0] + trained[1]) / 2
        marks.append(Zone(x=trained))
        marks.append(Note("trained range", x=middle, at="bottom", colour=GREY))
    lowest = min(ends)
    highest = max(ends)
    pad = 0.06 * ((highest - lowest) or abs(highest) or 1.0)
    low = lowest - pad
    high = highest + pad
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
    drawn_of = "prediction" if facts.n_targets == 1 else "first coordinate of the prediction"
    if bounded:
        # The model's predictions and what bounds them; the target functions leave the axis.
        y = Axis(drawn_of, low, high)
        below += (
            "<br>The axis spans all that the model can predict; the target functions (dotted) "
            "leave it."
        )
    else:
        marks += _slopes(findings)
        y = Axis(_symlog_words(drawn_of, threshold), symlog=threshold)
    smallest = float(np.abs(xs[xs != 0]).min())
    x = Axis(_symlog_words("query x", smallest), symlog=smallest, labels=12)
    title = "What the model predicts when only the query goes far from the data"
    return Drawing(title, below, [Panel(x=x, y=y, marks=marks)], height=400)


def _known(results: Results) -> dict[str, float]:
    """What the weights alone tell, as far as it is finite."""
    weights = results.get(certificates.certificate)
    if weights is None:
        return {}
    known = {}
    for name, value in weights.iloc[0].to_dict().items():
        if np.isfinite(value):
            known[name] = value
    return known


def _bound(known: Mapping[str, float]) -> tuple[float, float] | None:
    """Both ends of what the weights alone allow, where these are known."""
    if "c" not in known or "r" not in known:
        return None
    c = known["c"]
    r = known["r"]
    return c - r, c + r


def until_it_leaves(curves: np.ndarray, low: float, high: float) -> np.ndarray:
    """Curves, (curve, x), without the stretches of which an axis from low to high shows nothing.

    >>> until_it_leaves(np.array([[9.0, 5.0, 1.0, -5.0, 5.0, 6.0]]), -2, 2)
    array([[nan,  5.,  1., -5.,  5., nan]])
    """
    below = np.where(curves < low, -1, 0)
    side = np.where(curves > high, 1, below)
    # A segment is off the axis where both of its ends lie on one side of it.
    start = side[:, :-1]
    end = side[:, 1:]
    shown = (end == 0) | (end != start)
    nothing = np.zeros((len(curves), 1), bool)
    # A point is kept if the segment before it or behind it is.
    before = np.hstack([nothing, shown])
    behind = np.hstack([shown, nothing])
    return np.where(before | behind, curves, np.nan)


FIGURE = ReportFigure(
    far_query,
    "The context stays in distribution and only the last query moves, in both directions. Each "
    "thin line is one context; dotted lines are the target functions that these contexts show. "
    "With LayerNorm the predictions are expected to tend to one level on each side, which the "
    "weights alone predict (dashed), within a bound that no prediction can leave (shaded). "
    "Without it they are expected to become one line on each side, whatever the context says.",
)


def _symlog_words(name: str, threshold: float) -> str:
    """The title of a symmetric-log axis."""
    return f"{name} (symmetric-log: linear within ±{number(threshold)})"


def _certificate(c: float, r: float) -> list[Mark]:
    """Where the read-out confines every output."""
    low = c - r
    high = c + r
    bounds = f"{number(c)} ± {number(r)}"
    words = f"bound from the weights alone:\nevery prediction lies in\n{bounds}"
    marks: list[Mark] = [Zone(y=(low, high), colour="#F3F7F2")]
    for edge in (low, high):
        marks.append(Rule(y=edge, colour=GREEN, dash="dash", inside=False))
    marks.append(Note(words, y=low, at="top left", colour="#00694D"))
    return marks


def _predictions(known: Mapping[str, float], xs: np.ndarray) -> list[Mark]:
    """What the weights alone predict: the plateau on each side, from where it is reached."""
    usual = float(np.abs(xs).max()) / 100
    start = known.get("onset", usual)
    marks: list[Mark] = []
    for key, end in (("plateau -", xs[0]), ("plateau +", xs[-1])):
        if key not in known or start >= abs(end):
            continue
        level = known[key]
        line = Line(
            [np.sign(end) * start, end],
            [level, level],
            name="level that the weights predict",
            colour=ORANGE,
            width=2.4,
            dash="8px,5px",
            hover="{y:.6g}",
        )
        marks.append(line)
    return marks


def _onsets(known: Mapping[str, float], findings: Sequence[Finding], xs: np.ndarray) -> list[Mark]:
    """Where the plateau begins, by the weights and as the judge measured it."""
    farthest = np.abs(xs).max()
    marks: list[Mark] = []
    words = []
    found = {"predicted": known.get("onset", np.nan), "measured": measured_onset(findings)}
    for name, value in found.items():
        if not np.isfinite(value) or value >= farthest:
            continue
        dash, colour, look = ONSETS[name]
        marks.append(Rule(x=-value, colour=colour, dash=dash))
        marks.append(Rule(x=value, colour=colour, dash=dash))
        ink = VERDICTS[look].ink
        word = markup('<span style="color:{}">{}: |x| = {}</span>', ink, name, number(value))
        words.append(word)
    if not words:
        return marks
    # The words stand at the upper end of what the weights allow, if that is drawn.
    text = joined(["the plateau begins at", *words], "<br>")
    bound = _bound(known)
    if bound is None:
        marks.append(Note(text, y=None, at="top right"))
    else:
        marks.append(Note(text, y=bound[1], at="bottom right"))
    return marks


def _slopes(findings: Sequence[Finding]) -> list[Mark]:
    """The line that f becomes in each direction, as the judge found it."""
    notes: list[Mark] = []
    for finding in findings:
        if finding.id != "limits.linear_asymptote":
            continue
        for row in finding.details:
            slope = number(row["slope"])
            spread = number(row["sd of slope over contexts"])
            side = "right" if row["direction"] == "+" else "left"
            words = f"slope {slope}\n± {spread} over contexts"
            notes.append(Note(words, at=side, colour=DARK))
    return notes


def measured_onset(findings: Sequence[Finding]) -> float:
    """|x| from which f stays at its plateau, as the judge found it; NaN where it did not."""
    for finding in findings:
        if finding.id != "limits.layernorm_saturation":
            continue
        for row in finding.details:
            if "measured onset" in row:
                return float(row["measured onset"])
    return float("nan")
