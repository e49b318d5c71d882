"""Classes of functions: the error rate on each, trained on or not, and similarity to algorithms."""

from collections.abc import Sequence

import numpy as np
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import BLUE, GREEN, INK, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Mark, Note, Panel, Points, Rule, Zone, rows
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import number, plain, tested_by
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.limits.claims.continuous import PRINTED, shares
from icl_interp.studies.limits.claims.error_rates import LOW, rate
from icl_interp.studies.limits.claims.no_classical import RESEMBLES, UNLIKE, Comparison
from icl_interp.studies.limits.measurements import algorithms
from icl_interp.studies.limits.measurements import classes as measured
from icl_interp.studies.limits.measurements import continuous as measured_continuous
from icl_interp.studies.limits.measurements.algorithms import ARMS
from icl_interp.studies.limits.measurements.classes import polynomial_in

# Class, look, error rate.
Rate = tuple[str, str, Interval]
# Of predictors: name, colour, symbol, size.
LOOKS = {
    "seen": ("trained on", BLUE, "circle", 10),
    "unseen": ("not trained on", BLUE, "circle-open", 10),
    "companion": ("matched model", INK, "diamond-open", 8),
    "least squares": ("least squares", ORANGE, "x-thin-open", 8),
}
MEANING = {
    "seen": "model, a class it was trained on",
    "unseen": "model, a class it was not trained on",
    "companion": "a matched model trained on this degree alone",
    "least squares": "least squares of the largest degree the model was trained on",
}
# Ends of the axis of what an algorithm misses: one that lies beyond is drawn there.
LEAST = 1e-5
MOST = 2.0
LOOKS_OF_ARMS = (
    ("circle", BLUE),
    ("triangle-up", ORANGE),
    ("square-open", INK),
    ("diamond-open", GREEN),
)
SIGNS = dict(zip(ARMS, LOOKS_OF_ARMS, strict=True))


def classes(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """Error rate on every class with its interval; what every algorithm misses, arm by arm."""
    panels = []
    rates = _rates(results, facts)
    if rates:
        panels.append(_draw_rates(rates))
    model = results.get(algorithms.own)
    others = results.get(algorithms.rivals)
    if model is not None and others is not None:
        panels.append(_draw_missed(Comparison.of(model, others)))
    if not panels:
        return None
    title = "Which classes of functions the model learns in context, and like which algorithm"
    return Drawing(title, tested_by("classes", findings), panels, height=260)


FIGURE = ReportFigure(
    classes,
    "First, one row for each class of functions: the squared error where the examples determine "
    "the function, relative to always predicting 0 (the mean, for the fixed functions). Filled "
    "marks are degrees that the model was trained on. Second, one row for each classical "
    "algorithm: the share of the model's predictions for the query that it misses, 1 minus their "
    "similarity (0: the same, 1: no closer than a constant), on a logarithmic axis. A mark is a "
    "test condition: in distribution, with functions scaled by 3, with the query at an end of the "
    "inputs' interval, and with factor and query drawn near these. Values below 0.00001 are drawn "
    "there, and those above 2 at 2. An algorithm is shown as it is or bounded by one number in "
    "all conditions, whichever is nearer on the other half of the sample. The model resembles an "
    "algorithm if all its marks lie in the left shaded zone, and none if every algorithm has a "
    "mark in the right one.",
)


def _rates(results: Results, facts: Facts) -> list[Rate]:
    """(class, look, error rate) of everything measured on classes."""
    found: list[Rate] = []
    if facts.task_kind != "Polynomial":
        return found
    errors = results.get(measured.errors)
    if errors is not None:
        trained = {f"degree {degree}" for degree in polynomial_in(facts).degrees}
        found += _rates_of_classes(errors, trained)
    # Fixed functions have no degree, so the model was trained on none of them.
    continuous = results.get(measured_continuous.continuous)
    if continuous is not None:
        for who in continuous.indexes["predictor"]:
            names, values, _ = shares(facts, continuous, who)
            look = "unseen" if who == "model" else who
            for i, name in enumerate(names):
                share = bootstrap(lambda mean: mean, values[:, i])
                found.append((PRINTED[name], look, share))
    return found


def _rates_of_classes(errors: DataArray, trained: set[str]) -> list[Rate]:
    """The error rate of each predictor on each class, where both were measured."""
    found = []
    for name in errors.indexes["class"]:
        for who in errors.indexes["predictor"]:
            cell = {"predictor": who, "class": name, "points": "own"}
            if who == "zero" or np.isnan(errors.sel(cell).values).any():
                continue
            look = "companion"
            if who == "model":
                look = "seen" if name in trained else "unseen"
            elif who == "least squares":
                look = who
            found.append((name, look, rate(errors, who, name)))
    return found


def _draw_rates(found: list[Rate]) -> Panel:
    """A row for each class."""
    labels = list(dict.fromkeys(label for label, _, _ in found))

    # Least squares can be exact: the axis ends where the models' errors do, and words say what lies
    # beyond.
    models = [one for _, look, one in found if look != "least squares"]
    lowest = min(max(one.low, 1e-12) for one in models)
    low = 10 ** np.floor(np.log10(lowest / 1.2))
    high = 2.0 * max(1.0, *(one.high for one in models))
    beyond = []
    for label, look, one in found:
        if look == "least squares" and not low < one.value < high:
            beyond.append(label)
    words = f"learned: below {LOW:g}"
    if beyond:
        words += f"; least squares off the axis: {', '.join(beyond)}"

    marks: list[Mark] = [Rule(x=LOW, words=words, at="bottom left"), Rule(x=1.0)]
    for look, (name, colour, symbol, size) in LOOKS.items():
        places = []
        values = []
        lows = []
        highs = []
        texts = []
        for label, of_row, one in found:
            if of_row != look:
                continue
            places.append(labels.index(label))
            values.append(one.value)
            lows.append(one.low)
            highs.append(one.high)
            texts.append(_told(label, look, one))
        if not places:
            continue
        shown = Points(
            values,
            places,
            lows,
            highs,
            name=name,
            colour=colour,
            symbol=symbol,
            size=size,
            edge=1.6,
            texts=texts,
        )
        marks.append(shown)
    title = "error / error of predicting 0 (fixed functions: / variance)"
    x = Axis(title, low, high, log=True, labels=6)
    y = rows(labels, spare=0.6)
    return Panel("Error relative to predicting 0", x, y, marks, width=1.3)


def _told(label: str, look: str, one: Interval) -> str:
    """What hovering over an error rate says."""
    words = f"{number(one.value)} [{number(one.low)}, {number(one.high)}]"
    return f"{plain(label)}<br>{MEANING[look]}<br>{words}"


def _draw_missed(found: Comparison) -> Panel:
    """A row for each algorithm: what it misses of the model's predictions, 1 - similarity."""
    each = found.chosen.each
    names = []
    similarities = []
    for rival in each:
        names.append(rival.algorithm)
        similarities.append(found.similarities(rival))
    missed = 1 - np.array(similarities)
    shown = np.minimum(missed, MOST)
    # What resembles the model, and what does not.
    near = VERDICTS["contradicted"]
    far = VERDICTS["supported"]
    said = "all four here: resembles"
    edge = 1 - RESEMBLES
    marks: list[Mark] = [
        Zone((LEAST, edge), None, near.pale),
        Zone((1 - UNLIKE, MOST), None, far.pale),
        Note(said, x=edge, at="bottom left", colour=near.ink, size=11),
    ]
    for number_of_arm, arm in enumerate(ARMS):
        symbol, colour = SIGNS[arm]
        texts = []
        for rival, one in zip(each, missed[:, number_of_arm].tolist(), strict=True):
            texts.append(f"{plain(str(rival))}<br>misses {number(one)}")
        points = Points(
            shown[:, number_of_arm],
            np.arange(len(each)),
            name=arm,
            colour=colour,
            symbol=symbol,
            size=9,
            texts=texts,
        )
        marks.append(points)
    words = "missed: 1 − similarity (least shown: 10⁻⁵)"
    x = Axis(words, LEAST / 1.5, MOST * 1.2, log=True, least=LEAST, labels=6)
    y = rows(names, spare=1.4)
    return Panel("What algorithms miss", x, y, marks)
