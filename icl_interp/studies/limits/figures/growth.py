"""How f grows far out, intact and with norms frozen: plateau or line; and what that does to the error."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.graph_objects import Figure

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.style import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    finish,
    log_axis,
    panel_title,
    place,
    ranged,
    rows_axis,
    tick,
)
from icl_interp.figures.text import number, plain, tested_by
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.limits.claims.layernorm import FAR_X, growth_exponent
from icl_interp.studies.limits.measurements import far

ARMS = {  # stored name: (label, colour, symbol, dash)
    "intact": ("intact", BLUE, "circle", "solid"),
    "frozen": ("all norms frozen", ORANGE, "circle", "solid"),
    "sham": ("sham: context frozen", BLUE, "square-open", "dot"),
    "trained without": ("trained without norm", PURPLE, "circle", "solid"),
}
ALONE = ("", GREY, "circle", "solid")


def growth(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """|f| against |x|, the growth exponent and the far error of every arm: intact, frozen, sham, each norm alone."""
    curve = results.get(far.norm_arms)
    if curve is None:
        return None
    arms = {arm: curve.sel(arm=arm).values for arm in curve.indexes["arm"] if arm != "zero predictor"}
    zero = (
        curve.sel(arm="zero predictor", statistic="squared error").values
        if "zero predictor" in curve.indexes["arm"]
        else None
    )
    other = results.get(far.counterpart)
    if other is not None and len(other.indexes["function"]):
        arms["trained without"] = other.values
    first = [name for name in ARMS if name in arms]
    arms = {name: arms[name] for name in [*first, *(name for name in arms if name not in ARMS)]}
    labels = [ARMS[name][0] if name in ARMS else f"only {name}" for name in arms]
    squares = list(curve.indexes["statistic"]).index("mean square")
    errors = list(curve.indexes["statistic"]).index("squared error")

    figure, far_x = go.Figure(), FAR_X * facts.x_unit
    domains = (0, 0.335), (0.525, 0.75), (0.775, 1)
    place(figure, *domains)
    _sizes(figure, {name: values[squares] for name, values in arms.items()}, curve["x"].values)
    twin = results.twin.get(far.norm_arms)
    of_twin = (
        {n: twin.sel(arm=n, statistic="mean square").values for n in twin.indexes["arm"]} if twin is not None else {}
    )
    exponent, error = [], []
    for row, (name, values) in enumerate(arms.items()):
        exponent.append(bootstrap(lambda mean: growth_exponent(mean, curve["x"].values), values[squares]))
        figure.add_trace(_point(name, labels[row], row, exponent[-1], "growth exponent", "2"))
        if name in of_twin:
            value = float(growth_exponent(of_twin[name].mean(0), curve["x"].values))
            figure.add_trace(_twin(labels[row], row, value))
        if zero is not None:
            judged = np.isclose(np.abs(curve["x"].values), far_x)
            a, b = values[errors][:, judged].mean(-1), zero[:, judged].mean(-1)
            error.append(bootstrap(lambda top, bottom: top / np.maximum(bottom, np.finfo(float).tiny), a, b))
            figure.add_trace(_point(name, labels[row], row, error[-1], "far error / zero predictor", "3"))
    _axes(figure, labels, exponent, error)
    panel_title(figure, "Size of f", domains[0])
    panel_title(figure, "Growth exponent of f", domains[1])
    panel_title(figure, f"Error at |x| = {tick(far_x)}", domains[2])
    finish(
        figure,
        "Is it the norm that makes the output level off, and is that why the model fails?",
        tested_by("growth", findings),
        max(290, 21 * len(labels) + 20),
        l=72,
        r=20,
    )
    return figure.update_layout(hovermode="closest")


def _look(name: str) -> tuple[str, str, str, str]:
    return ARMS.get(name, ALONE)


def _sizes(figure: Figure, squares: dict[str, np.ndarray], xs: np.ndarray) -> None:
    """Root mean square of f over functions, contexts and both directions, against |x|."""
    sizes = np.unique(np.abs(xs))
    every = []
    for name, square in reversed(squares.items()):  # the named arms last, so that they lie on top
        label, colour, symbol, dash = _look(name)
        f = np.sqrt([square[:, np.abs(xs) == x].mean() for x in sizes])
        every += list(f[f > 0])
        figure.add_trace(
            go.Scatter(
                x=sizes,
                y=f,
                mode="lines+markers",
                name=label or "one norm alone",
                legendgroup=label or "alone",
                showlegend=bool(label) or name == list(squares)[-1],
                line={"color": colour, "width": 2 if label else 1, "dash": dash},
                marker={"symbol": symbol, "size": 8 if label else 4},
                opacity=1 if label else 0.7,
                legendrank=list(squares).index(name),
                xaxis="x",
                yaxis="y",
                hovertemplate=f"{plain(label or name)}<br>|x| = %{{x:.4g}}<br>rms f = %{{y:.4g}}<extra></extra>",
            )
        )
    if every:
        low, high = min(every) / 2, max(every) * 2
        figure.update_layout(yaxis=log_axis("root mean square of f", low, high, 7))
    figure.update_layout(xaxis=log_axis("|x| of the query", sizes[0] / 1.3, sizes[-1] * 1.3))


def _point(name: str, label: str, row: int, value: Interval, what: str, axis: str) -> go.Scatter:
    _, colour, symbol, _ = _look(name)
    interval = f"{number(value.value, 4)} [{number(value.low, 4)}, {number(value.high, 4)}]"
    error = {"array": [value.high - value.value], "arrayminus": [value.value - value.low], "thickness": 1.5, "width": 4}
    return go.Scatter(
        x=[value.value],
        y=[row],
        mode="markers",
        error_x=error,
        showlegend=False,
        xaxis=f"x{axis}",
        yaxis=f"y{axis}",
        marker={
            "color": colour,
            "symbol": symbol,
            "size": 9 if name in ARMS else 7,
            "line": {"width": 1.5, "color": colour},
        },
        hovertemplate=f"{plain(label)}<br>{what}: {interval}<extra></extra>",
        cliponaxis=False,
    )


def _twin(label: str, row: int, value: float) -> go.Scatter:
    return go.Scatter(
        x=[value],
        y=[row],
        mode="markers",
        xaxis="x2",
        yaxis="y2",
        name="untrained twin",
        legendgroup="twin",
        showlegend=row == 0,
        marker={"symbol": "diamond-open", "color": INK, "size": 11},
        legendrank=2000,
        cliponaxis=False,
        hovertemplate=f"untrained twin, {plain(label)}<br>growth exponent: {number(value, 4)}<extra></extra>",
    )


def _axes(figure: Figure, labels: list[str], exponent: list[Interval], error: list[Interval]) -> None:
    """The two panels of rows, with the references to read them by: a plateau and a line; the zero predictor."""
    low, high = ranged([0.0, 1.0, *(v for e in exponent for v in (e.low, e.high))], 0.12)
    title = {"text": "d log |f| / d log |x|, 0 where f falls"}
    figure.update_layout(xaxis2={"range": [low, high], "title": title, "nticks": 6})
    figure.update_layout(yaxis2=rows_axis(labels, spare=0.6), yaxis3=rows_axis(labels, False, 0.6))
    for value, text in ((0.0, "plateau"), (1.0, "line")):
        _reference(figure, value, text, "2")
    positive = [v for e in error for v in (e.low, e.high) if v > 0]
    if positive:
        low, high = min([1.0, *positive]) / 1.6, max([1.0, *positive]) * 1.6
        figure.update_layout(xaxis3=log_axis("error / error of predicting 0", low, high, 5))
        _reference(figure, 1.0, "predicting 0", "3")


def _reference(figure: Figure, value: float, text: str, axis: str) -> None:
    line = {"color": INK, "width": 1, "dash": "dot"}
    y = {"yref": f"y{axis} domain"}
    figure.add_shape(type="line", x0=value, x1=value, y0=0, y1=1, xref=f"x{axis}", line=line, layer="below", **y)
    place_of = np.log10(value) if axis == "3" else value
    figure.add_annotation(
        text=text,
        x=place_of,
        xref=f"x{axis}",
        y=0,
        yanchor="bottom",
        xanchor="left",
        xshift=3,
        showarrow=False,
        font={"size": 11, "color": GREY},
        **y,
    )
