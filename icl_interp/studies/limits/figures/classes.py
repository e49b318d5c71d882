"""Classes of functions: the error rate on each, trained on or not, and similarity to algorithms."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.graph_objects import Figure

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    VERDICTS,
    finish,
    log_axis,
    panel_title,
    place,
    rows_axis,
)
from icl_interp.figures.text import number, plain, tested_by
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.limits.claims import continuous as limits_continuous
from icl_interp.studies.limits.claims.continuous import PRINTED, shares
from icl_interp.studies.limits.claims.error_rates import LOW, rate
from icl_interp.studies.limits.claims.no_classical import RESEMBLES, UNLIKE, Comparison
from icl_interp.studies.limits.measurements import algorithms
from icl_interp.studies.limits.measurements import classes as measured
from icl_interp.studies.limits.measurements.algorithms import ARMS
from icl_interp.studies.limits.measurements.classes import polynomial_in

ROW = 22  # pixels
LOOKS = {  # of predictors: name, colour, symbol, size
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
LEAST = -0.5  # similarity at which the axis ends: an algorithm that lies beyond is drawn there
LOOKS_OF_ARMS = (
    ("circle", BLUE),
    ("triangle-up", ORANGE),
    ("square-open", INK),
    ("diamond-open", GREEN),
)
SIGNS = dict(zip(ARMS, LOOKS_OF_ARMS, strict=True))


def classes(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """Error rate on every class with its interval; similarity to every algorithm, arm by arm."""
    model, others = results.get(algorithms.own), results.get(algorithms.rivals)
    rows = _rates(results, facts)
    paired = model is not None and others is not None
    if not (rows or paired):
        return None
    figure = go.Figure()
    left, right = (0.0, 0.42 if paired else 0.85), (0.68 if rows else 0.2, 1.0)
    place(figure, *([left] if rows else []), *([right] if paired else []))
    if rows:
        _draw_rates(figure, rows)
        panel_title(figure, "Error relative to predicting 0", left)
    n_rows = len({label for label, _, _ in rows})
    if model is not None and others is not None:
        n_rows = max(
            n_rows, _draw_similarities(figure, Comparison.of(model, others), "2" if rows else "")
        )
        panel_title(figure, "Similarity to algorithms", right)
    finish(
        figure,
        "Which classes of functions the model learns in context, and like which algorithm",
        tested_by("classes", findings),
        max(260, ROW * n_rows + 40),
        l=96,
        r=24,
    )
    return figure.update_layout(hovermode="closest")


def _rates(results: Results, facts: Facts) -> list[tuple[str, str, Interval]]:
    """(class, look, error rate) of everything measured on classes."""
    found: list[tuple[str, str, Interval]] = []
    if facts.task_kind != "Polynomial":
        return found
    errors, continuous = results.get(measured.errors), results.get(limits_continuous.continuous)
    if errors is not None:
        trained = {f"degree {d}" for d in polynomial_in(facts).degrees}
        for name in errors.indexes["class"]:
            for who in errors.indexes["predictor"]:
                if (
                    who == "zero"
                    or np.isnan(
                        errors.sel({"predictor": who, "class": name, "points": "own"}).values
                    ).any()
                ):
                    continue
                seen = "seen" if name in trained else "unseen"
                look = {"model": seen, "least squares": who}.get(who, "companion")
                found.append((name, look, rate(errors, who, name)))
    if continuous is not None:
        for who in continuous.indexes["predictor"]:
            names, values, _ = shares(facts, continuous, who)
            look = "unseen" if who == "model" else who
            for i, name in enumerate(names):
                found.append((PRINTED[name], look, bootstrap(lambda mean: mean, values[:, i])))
    return found


def _draw_rates(figure: Figure, rows: list[tuple[str, str, Interval]]) -> None:
    labels = list(dict.fromkeys(label for label, _, _ in rows))
    # Least squares can be exact: the axis ends where the models' errors do, and words say what lies
    # beyond.
    low = 10 ** np.floor(
        np.log10(min(max(i.low, 1e-12) for _, look, i in rows if look != "least squares") / 1.2)
    )
    high = 2.0 * max(1.0, *(i.high for _, look, i in rows if look != "least squares"))
    beyond = [
        plain(label)
        for label, look, i in rows
        if look == "least squares" and not low < i.value < high
    ]
    for look, (name, colour, symbol, size) in LOOKS.items():
        mine = [(labels.index(label), i, label) for label, this, i in rows if this == look]
        if not mine:
            continue
        values = np.array([[i.value, i.low, i.high] for _, i, _ in mine])
        figure.add_trace(
            go.Scatter(
                x=values[:, 0],
                y=[row for row, _, _ in mine],
                mode="markers",
                name=name,
                xaxis="x",
                yaxis="y",
                marker={
                    "color": colour,
                    "symbol": symbol,
                    "size": size,
                    "line": {"color": colour, "width": 1.6},
                },
                error_x={
                    "array": values[:, 2] - values[:, 0],
                    "arrayminus": values[:, 0] - values[:, 1],
                    "thickness": 1.2,
                    "width": 3,
                },
                text=[
                    (
                        f"{plain(label)}<br>{MEANING[look]}<br>{number(i.value)} [{number(i.low)}, "
                        f"{number(i.high)}]"
                    )
                    for _, i, label in mine
                ],
                hovertemplate="%{text}<extra></extra>",
            )
        )
    for at in (LOW, 1.0):
        figure.add_shape(
            type="line",
            xref="x",
            x0=at,
            x1=at,
            yref="y domain",
            y0=0,
            y1=1,
            layer="below",
            line={"color": GREY, "width": 1, "dash": "dot"},
        )
    words = f"learned: below {LOW:g}" + (
        f"; least squares off the axis: {', '.join(beyond)}" if beyond else ""
    )
    figure.add_annotation(
        text=words,
        xref="x",
        x=float(np.log10(LOW)),
        xanchor="right",
        xshift=-3,
        yref="y domain",
        y=0,
        yanchor="bottom",
        showarrow=False,
        font={"size": 11, "color": GREY},
    )
    figure.update_layout(
        xaxis=log_axis(
            "error / error of predicting 0 (fixed functions: / variance)",
            float(low),
            float(high),
            6,
        ),
        yaxis=rows_axis(labels, spare=0.6),
    )


def _draw_similarities(figure: Figure, found: Comparison, axis: str) -> int:
    """Returns how many rows were drawn."""
    each = found.chosen.each
    values = np.array([found.similarities(rival) for rival in each])
    for arm, column in zip(ARMS, values.T, strict=True):
        symbol, colour = SIGNS[arm]
        figure.add_trace(
            go.Scatter(
                x=np.maximum(column, LEAST),
                y=list(range(len(each))),
                mode="markers",
                name=arm,
                xaxis=f"x{axis}",
                yaxis=f"y{axis}",
                marker={
                    "symbol": symbol,
                    "color": colour,
                    "size": 9,
                    "line": {"color": colour, "width": 1.4},
                },
                text=[
                    f"{plain(str(rival))}<br>{arm}<br>similarity {number(float(value))}"
                    for rival, value in zip(each, column, strict=True)
                ],
                hovertemplate="%{text}<extra></extra>",
            )
        )
    for verdict, x0, x1 in (("supported", LEAST, UNLIKE), ("contradicted", RESEMBLES, 1.0)):
        figure.add_shape(
            type="rect",
            xref=f"x{axis}",
            x0=x0,
            x1=x1,
            yref=f"y{axis} domain",
            y0=0,
            y1=1,
            fillcolor=VERDICTS[verdict].pale,
            line={"width": 0},
            layer="below",
        )
    figure.add_annotation(
        text="resembles, if all four lie to the right",
        xref=f"x{axis}",
        x=UNLIKE,
        xanchor="right",
        yref=f"y{axis} domain",
        y=0,
        yanchor="bottom",
        showarrow=False,
        font={"size": 11, "color": VERDICTS["contradicted"].ink},
    )
    figure.update_layout(
        {
            f"xaxis{axis}": {
                "title": {"text": "similarity (1: the same predictions)"},
                "range": [LEAST - 0.04, 1.04],
            },
            f"yaxis{axis}": rows_axis([rival.algorithm for rival in each], spare=0.6),
        }
    )
    return len(each) + 1
