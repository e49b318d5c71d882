"""How f grows far out, intact and with norms frozen: plateau or line; and what freezing removes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.graph_objects import Figure

from icl_interp.analyses import output_unit
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.style import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    VERDICTS,
    finish,
    log_axis,
    panel_title,
    place,
    ranged,
    rows_axis,
)
from icl_interp.figures.text import number, plain, tested_by
from icl_interp.resampling import Interval
from icl_interp.studies.limits.claims.failure import CRITERION
from icl_interp.studies.limits.claims.layernorm_cause import LEVEL, at_drawn_places, exponent
from icl_interp.studies.limits.measurements import far
from icl_interp.studies.limits.measurements.failure import SCALES

FAILURE = "limits.layernorm_causes_failure"
ARMS = {  # stored name: (label, colour, symbol, dash)
    "intact": ("unchanged model", BLUE, "circle", "solid"),
    "frozen": ("all norms frozen", ORANGE, "circle", "solid"),
    "sham": ("context frozen (control)", BLUE, "square-open", "dot"),
    "trained without": ("trained without norm", PURPLE, "circle", "solid"),
}
PLATEAUS = ("intact", "sham")  # arms that are judged by the direction in which f grows faster
RANDOM = "randomly initialised"
ALONE = ("", GREY, "circle", "solid")


def growth(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """|f| against |x|, growth exponents of arms, and the share of the failure freezing removes."""
    curve = results.get(far.norm_arms)
    if curve is None:
        return None
    arms = {arm: curve.sel(arm=arm) for arm in curve.indexes["arm"] if arm != "law mean"}
    other, u = results.get(far.counterpart), results.get(output_unit.own)
    if other is not None and other.sizes["unit"]:
        arms["trained without"] = other
    first = [name for name in ARMS if name in arms]
    arms = {name: arms[name] for name in [*first, *(name for name in arms if name not in ARMS)]}
    labels = [ARMS[name][0] if name in ARMS else f"only {name}" for name in arms]

    figure = go.Figure()
    domains = (0, 0.3), (0.47, 0.68), (0.8, 1)
    place(figure, *domains)
    squares = {name: arm.sel(statistic="mean square").values for name, arm in arms.items()}
    _sizes(figure, squares, curve["x"].values)
    control = results.control.get(far.norm_arms)
    exponents = []
    between = {name: (steps,) for name, steps in at_drawn_places(results).items()}
    for row, (name, arm) in enumerate(arms.items()):
        squares_of = [arm.sel(statistic="squared increment"), *between.get(name, ())]
        exponents.append(exponent(squares_of, _u(u), name not in PLATEAUS))
        figure.add_trace(_point(name, labels[row], row, exponents[-1], "growth exponent", "2"))
        if control is not None and name in control.indexes["arm"]:
            known = control.sel(arm=name, statistic="squared increment")
            of_control = exponent(
                [known], _u(results.control.get(output_unit.own)), name not in PLATEAUS
            )
            figure.add_trace(_control(labels[row], row, of_control.value))
    _exponent_axes(figure, labels, exponents)
    panel_title(figure, "Size of the prediction", domains[0])
    panel_title(figure, "Growth exponent", domains[1])
    panel_title(figure, "Failure removed", domains[2])
    _removed(figure, findings)
    finish(
        figure,
        "Does the norm make the prediction level off, and is that why the model fails?",
        tested_by("growth", findings),
        max(290, 21 * len(labels) + 20),
        l=72,
        r=20,
    )
    return figure.update_layout(hovermode="closest")


def _u(own: Any) -> float:
    return 0.0 if own is None else float(own.sel(statistic="u"))


def _removed(figure: Figure, findings: Sequence[Finding]) -> None:
    """Phi at every place and freezing scale, as the judge found it.

    The zones that support and contradict are shaded.
    """
    rows = [row for f in findings if f.id == FAILURE for row in f.details]
    ends: list[float] = [0.0, 1.0]
    for i, row in enumerate(rows):
        for k, arm in enumerate(SCALES):
            value, low, high = (float(row[f"phi, {arm}{end}"]) for end in ("", ", low", ", high"))
            if np.isfinite([value, low, high]).all():
                ends += [low, high]
                words = f"{plain(row['place'])}, frozen at {arm}"
                figure.add_trace(
                    _point(
                        "frozen",
                        words,
                        i + 0.16 * (k - 2),
                        Interval(value, low, high),
                        "share removed",
                        "3",
                        5,
                    )
                )
        at = float(row.get("sham", np.nan))  # functions have none
        if np.isfinite(at):
            ends.append(at)
            sham = Interval(at, at, at)
            figure.add_trace(
                _point(
                    "sham",
                    f"{plain(row['place'])}, control",
                    i + 0.44,
                    sham,
                    "share removed",
                    "3",
                    6,
                )
            )
    low, high = ranged(ends, 0.08)
    places = [str(row["place"]).replace(" x ", "\n\N{MULTIPLICATION SIGN} ") for row in rows]
    figure.update_layout(yaxis3=rows_axis(places, spare=0.6))
    figure.update_layout(
        xaxis3={"range": [low, high], "title": {"text": "share removed"}, "nticks": 5}
    )
    (condition,) = CRITERION.conditions
    for region, verdict in (
        (condition.supports, "supported"),
        (condition.contradicts, "contradicted"),
    ):
        if rows and region:
            x0, x1 = (float(np.clip(end, low, high)) for end in region)
            figure.add_shape(
                type="rect",
                xref="x3",
                yref="y3 domain",
                x0=x0,
                x1=x1,
                y0=0,
                y1=1,
                fillcolor=VERDICTS[verdict].pale,
                opacity=0.5,
                line={"width": 0},
                layer="below",
            )


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
                hovertemplate=f"{plain(label or name)}<br>|x| = %{{x:.4g}}<br>its size = "
                "%{y:.4g}<extra></extra>",
            )
        )
    if every:
        low, high = min(every) / 2, max(every) * 2
        figure.update_layout(yaxis=log_axis("root mean square of the prediction", low, high, 7))
    figure.update_layout(xaxis=log_axis("|x| of the query", sizes[0] / 1.3, sizes[-1] * 1.3))


def _point(
    name: str,
    label: str,
    row: float,
    value: Interval,
    what: str,
    axis: str,
    size: float | None = None,
) -> go.Scatter:
    _, colour, symbol, _ = _look(name)
    interval = f"{number(value.value, 4)} [{number(value.low, 4)}, {number(value.high, 4)}]"
    error = {
        "array": [value.high - value.value],
        "arrayminus": [value.value - value.low],
        "thickness": 1.5,
        "width": 4,
    }
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
            "size": size or (9 if name in ARMS else 7),
            "line": {"width": 1.5, "color": colour},
        },
        hovertemplate=f"{plain(label)}<br>{what}: {interval}<extra></extra>",
        cliponaxis=False,
    )


def _control(label: str, row: int, value: float) -> go.Scatter:
    return go.Scatter(
        x=[value],
        y=[row],
        mode="markers",
        xaxis="x2",
        yaxis="y2",
        name=RANDOM,
        legendgroup="twin",
        showlegend=row == 0,
        marker={"symbol": "diamond-open", "color": INK, "size": 11},
        legendrank=2000,
        cliponaxis=False,
        hovertemplate=f"{RANDOM}, {plain(label)}<br>growth exponent: "
        f"{number(value, 4)}<extra></extra>",
    )


def _exponent_axes(figure: Figure, labels: list[str], exponents: list[Interval]) -> None:
    """The rows of exponents, with the references to read them by: a plateau and a line."""
    low, high = ranged([0.0, 1.0, *(v for e in exponents for v in (e.low, e.high))], 0.12)
    title = {"text": "exponent of its change from x to 10x"}
    figure.update_layout(
        xaxis2={"range": [low, high], "title": title, "nticks": 6},
        yaxis2=rows_axis(labels, spare=0.6),
    )
    for value, text in ((LEVEL, "level"), (1.0, "line")):
        _reference(figure, value, text, "2")


def _reference(figure: Figure, value: float, text: str, axis: str) -> None:
    line = {"color": INK, "width": 1, "dash": "dot"}
    y = {"yref": f"y{axis} domain"}
    figure.add_shape(
        type="line", x0=value, x1=value, y0=0, y1=1, xref=f"x{axis}", line=line, layer="below", **y
    )
    figure.add_annotation(
        text=text,
        x=value,
        xref=f"x{axis}",
        y=0,
        yanchor="bottom",
        xanchor="left",
        xshift=3,
        showarrow=False,
        font={"size": 11, "color": GREY},
        **y,
    )
