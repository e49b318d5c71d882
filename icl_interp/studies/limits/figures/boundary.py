"""From the trained range to the plateau: f within the certificate, how it approaches its end, and what grows."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.graph_objects import Figure
from xarray import DataArray

from icl_interp.analyses import output_unit
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.style import (
    BLUE,
    FAINT,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    Symlog,
    finish,
    log_axis,
    panel_title,
    place,
    ranged,
)
from icl_interp.figures.text import number, tested_by
from icl_interp.studies.limits.measurements import boundary as measured
from icl_interp.studies.limits.measurements import far

DARK = "#003A5D"
LOOKS = {"+": ("x > 0", BLUE, "circle", "solid"), "-": ("x < 0", DARK, "circle-open", "dash")}
GROWS = {
    "E_f": ("prediction", BLUE, "solid"),
    "E_N": ("numerator", ORANGE, "dash"),
    "E_sigma": ("scale", PURPLE, "dot"),
}
MARKS = {"zone": "leaves target", "onset": "plateau begins"}
# In units of f's size at the edge of the trained range: beyond, the axis of f is a symmetric-log
# one.
BOUNDED = 100.0
Rows = Mapping[tuple[str, str], Mapping[str, Any]]


def boundary(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """One context in both directions with zone, peak, onset and level; distance from the end; elasticities."""
    table, curve, logs = (
        results.get(measured.boundary),
        results.get(measured.approach),
        results.get(measured.logs),
    )
    if table is None or curve is None or logs is None:
        return None
    rows: Rows = {(row["direction"], row["quantity"]): row for row in table.to_dict("records")}
    weights = results.get(far.certificate)
    known = weights.iloc[0].to_dict() if weights is not None else {}
    figure = go.Figure()
    domains = (0, 0.35), (0.44, 0.68), (0.765, 1)
    place(figure, *domains)
    sizes = np.unique(np.abs(curve["x"].values))
    ends = float(sizes[0]) / 1.2, float(sizes[-1]) * 1.2
    _f(figure, results, rows, known)
    _gap(figure, curve, rows, output_unit.u(results) if output_unit.own in results else 0.0)
    _growth(figure, logs)
    figure.update_layout(
        xaxis=log_axis("|x| of the query", *ends, 8),
        xaxis2=log_axis("|x| of the query", *ends, 5),
        xaxis3=log_axis("|x| of the query", *ends, 5),
    )
    edges = [row["value"] for (_, quantity), row in rows.items() if quantity == "trained range"]
    for axis in ("x", "x2", "x3"):
        figure.add_shape(
            type="rect",
            xref=axis,
            yref=axis.replace("x", "y") + " domain",
            x0=ends[0],
            x1=max(edges),
            y0=0,
            y1=1,
            fillcolor=FAINT,
            line={"width": 0},
            layer="below",
        )
    grows = ", ".join(
        f'<span style="color:{colour}">{text}</span>' for text, colour, _ in GROWS.values()
    )
    titles = ("Prediction, one context and mean", "Distance from its end", grows)
    for text, domain in zip(titles, domains, strict=True):
        panel_title(figure, text, domain)
    below = tested_by("boundary", findings) + "<br>" + _words(rows)
    finish(
        figure,
        "From the training data (grey) to the level that the prediction tends to",
        below,
        330,
        l=76,
        r=24,
    )
    return figure.update_layout(hovermode="closest")


def _words(rows: Rows) -> str:
    """Zone, peak, onset, level and rate, a line a direction."""
    lines = []
    for name, (label, *_) in LOOKS.items():
        value = {quantity: row["value"] for (d, quantity), row in rows.items() if d == name}
        text = f"{label}: follows the target function up to {number(value['zone'])}"
        if np.isfinite(value["onset"]):
            text += (
                f", is largest at {number(value['peak at'])} ({number(value['peak'])}), level from "
                f"{number(value['onset'])} on at {number(value['level'])} ± "
                f"{number(value['level, spread'], 2)} over contexts, approached like "
                f"|x|<sup>{number(value['approach rate'])}</sup>"
            )
        else:
            text += ", does not level off"
        lines.append(text)
    return "<br>".join(lines)


def _f(figure: Figure, results: Results, rows: Rows, known: Mapping[str, float]) -> None:
    """The first context's f and the mean over all, in both directions, with the certificate behind and marks on it."""
    contexts, intact = results.get(far.contexts), results.get(far.intact)
    curves = []
    if contexts is not None:
        curves.append(
            ("one context", contexts["x"].values, contexts.sel(curve="model").values[0], 1.1, 0.6)
        )
    if intact is not None:
        curves.append(
            ("mean", intact["x"].values, intact.sel(statistic="mean").values.mean(0), 2.2, 1.0)
        )
    held = [
        row["value"]
        for (_, quantity), row in rows.items()
        if quantity in ("level", "one decade out")
    ]
    certified = bool(np.isfinite([known.get("c", np.nan), known.get("r", np.nan)]).all())
    if certified:
        held += [known["c"] - known["r"], known["c"] + known["r"]]
    top = max([float(np.abs(f).max()) for _, _, f, _, _ in curves], default=1.0)
    decade = (
        max([abs(r["value"]) for (_, q), r in rows.items() if q == "one decade out"], default=1.0)
        or 1.0
    )
    axis: Any = (
        np.asarray
        if certified or top <= BOUNDED * decade
        else Symlog(float(10 ** np.floor(np.log10(decade))))
    )
    for kind, xs, f, width, opacity in curves:
        for name, (label, colour, _, dash) in LOOKS.items():
            keep = np.sign(xs) == measured.SIGNS[name]
            order = np.argsort(np.abs(xs[keep]))
            x, y = np.abs(xs[keep])[order], f[keep][order]
            held += [float(y.min()), float(y.max())]
            figure.add_trace(
                go.Scatter(
                    x=x,
                    y=axis(y),
                    customdata=y,
                    mode="lines",
                    name=f"{kind}, {label}",
                    opacity=opacity,
                    line={"color": colour, "width": width, "dash": dash},
                    xaxis="x",
                    yaxis="y",
                    hovertemplate=f"{kind}, {label}<br>|x| = %{{x:.4g}}<br>y = "
                    "%{customdata:.6g}<extra></extra>",
                )
            )
    if certified:
        _certificate(figure, known["c"] - known["r"], known["c"] + known["r"])
    _marks(figure, rows)
    if isinstance(axis, Symlog):
        every = int(np.ceil(np.log10(top / axis.threshold) / 6))
        figure.update_layout(
            yaxis={
                "title": {
                    "text": f"prediction (symmetric-log: linear within ±{number(axis.threshold)})"
                },
                "range": ranged([-float(axis(top)), float(axis(top))], 0.02),
                **axis.axis(top, every),
            }
        )
    else:
        figure.update_layout(yaxis={"title": {"text": "prediction"}, "range": ranged(held)})


def _certificate(figure: Figure, low: float, high: float) -> None:
    """The band in which the weights alone say that f lies."""
    figure.add_shape(
        type="rect",
        xref="x domain",
        yref="y",
        x0=0,
        x1=1,
        y0=low,
        y1=high,
        fillcolor="#F3F7F2",
        line={"width": 0},
        layer="below",
    )
    for edge in (low, high):
        figure.add_shape(
            type="line",
            xref="x domain",
            yref="y",
            x0=0,
            x1=1,
            y0=edge,
            y1=edge,
            layer="below",
            line={"color": GREEN, "width": 1, "dash": "dash"},
        )


def _marks(figure: Figure, rows: Rows) -> None:
    """Where f leaves the function, and where it is level, in each direction."""
    for name, (_, colour, _, dash) in LOOKS.items():
        for quantity in ("zone", "onset"):
            x = rows[name, quantity]["value"]
            if np.isfinite(x):
                figure.add_shape(
                    type="line",
                    xref="x",
                    yref="y domain",
                    x0=x,
                    x1=x,
                    y0=0,
                    y1=1,
                    layer="below",
                    line={
                        "color": colour if quantity == "onset" else GREY,
                        "width": 1,
                        "dash": dash,
                    },
                )
                figure.add_annotation(
                    text=MARKS[quantity],
                    x=float(np.log10(x)),
                    xref="x",
                    y=1 if name == "+" else 0.93,
                    yref="y domain",
                    yanchor="top",
                    xanchor="left",
                    xshift=2,
                    showarrow=False,
                    font={"size": 10, "color": colour},
                )


def _gap(figure: Figure, curve: DataArray, rows: Rows, u: float) -> None:
    """Root mean square distance of f from its own end, a guide that falls like 1/|x|, and what counts as level."""
    held = []
    for name, (label, colour, symbol, dash) in LOOKS.items():
        xs, keep = measured.direction(curve, measured.SIGNS[name])
        y = np.sqrt(curve.sel(statistic="gap").values.mean(0)[keep])[
            :-1
        ]  # the end's own distance is 0
        figure.add_trace(
            go.Scatter(
                x=xs[:-1],
                y=y,
                mode="lines+markers",
                showlegend=False,
                xaxis="x2",
                yaxis="y2",
                line={"color": colour, "width": 1.6, "dash": dash},
                marker={"symbol": symbol, "size": 5},
                hovertemplate=f"{label}<br>|x| = %{{x:.4g}}<br>distance = "
                "%{y:.4g}<extra></extra>",
            )
        )
        held += [float(v) for v in y if v > 0]
        if name == "+" and np.isfinite(rows[name, "onset"]["value"]):
            start = int(np.argmin(np.abs(np.log(xs / rows[name, "onset"]["value"]))))
            guide = 1.6 * y[start] * xs[start] / xs[start:-1]
            figure.add_trace(
                go.Scatter(
                    x=xs[start:-1],
                    y=guide,
                    mode="lines",
                    name="guide: 1/|x|",
                    hoverinfo="skip",
                    xaxis="x2",
                    yaxis="y2",
                    line={"color": GREY, "width": 1.2, "dash": "dot"},
                )
            )
    if u > 0:
        level = measured.LEVEL * u
        figure.add_shape(
            type="line",
            xref="x2 domain",
            yref="y2",
            x0=0,
            x1=1,
            y0=level,
            y1=level,
            layer="below",
            line={"color": GREEN, "width": 1, "dash": "dash"},
        )
        figure.add_annotation(
            text=f"level: {measured.LEVEL} standard deviations",
            x=1,
            xref="x2 domain",
            xanchor="right",
            y=float(np.log10(level)),
            yref="y2",
            yanchor="bottom",
            showarrow=False,
            font={"size": 11, "color": "#00694D"},
        )
        held.append(level)
    low, high = (min(held) / 2, max(held) * 2) if held else (0.1, 1.0)
    figure.update_layout(yaxis2=log_axis("distance from the end value", low, high, 6))


def _growth(figure: Figure, logs: DataArray) -> None:
    """E_f = E_N - E_sigma between neighbouring decades, the mean of both directions."""
    sizes = np.unique(np.abs(logs["x"].values))
    mid = np.sqrt(sizes[1:] * sizes[:-1])
    for key, (label, colour, dash) in GROWS.items():
        each = np.array(
            [
                [measured.elasticities(logs, sign, a, b)[key].value for a, b in pairwise(sizes)]
                for sign in measured.SIGNS.values()
            ]
        )
        figure.add_trace(
            go.Scatter(
                x=mid,
                y=each.mean(0),
                mode="lines+markers",
                name=f"growth of {label}",
                showlegend=False,
                xaxis="x3",
                yaxis="y3",
                line={"color": colour, "width": 2, "dash": dash},
                marker={"size": 6},
                hovertemplate=f"{label}<br>|x| = %{{x:.3g}}<br>exponent = "
                "%{y:.4f}<extra></extra>",
            )
        )
    for value in (0.0, 1.0):
        figure.add_shape(
            type="line",
            xref="x3 domain",
            yref="y3",
            x0=0,
            x1=1,
            y0=value,
            y1=value,
            layer="below",
            line={"color": INK, "width": 0.8, "dash": "dot"},
        )
    figure.update_layout(yaxis3={"title": {"text": "growth exponent"}, "range": [-1.25, 1.5]})
