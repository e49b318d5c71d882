"""What is left of the context far out: how much f still differs, and what it still tells."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.graph_objects import Figure
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.style import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    VERDICTS,
    finish,
    log_axis,
    panel_title,
    place,
    rows_axis,
    tick,
)
from icl_interp.figures.text import number, plain, tested_by
from icl_interp.studies.limits.claims.context import spread, told_by
from icl_interp.studies.limits.measurements import far
from icl_interp.studies.limits.measurements.context import ERASED_AT, ROUNDING, information


def context(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """Spread of f over contexts against |x| in both directions; R2 of far f on the function's coefficients."""
    curve = results.get(far.intact)
    if curve is None:
        return None
    info, near = results.get(information), results.get(far.in_distribution)
    figure = go.Figure()
    left, right = (0, 0.6 if info is not None else 1), (0.735, 1)
    place(figure, left, *([right] if info is not None else []))
    out = ERASED_AT * facts.x_unit
    held = _spread(figure, curve)
    if near is not None:
        held += _thresholds(figure, near, out, findings)
    sizes = np.abs(curve["x"].values)
    if not held:
        figure.add_annotation(
            text="the prediction is the same for every context",
            xref="x domain",
            x=0.5,
            yref="y domain",
            y=0.5,
            showarrow=False,
            font={"size": 13, "color": GREY},
        )
    low, high = (min(held) / 2, max(held) * 2) if held else (0.1, 1.0)
    figure.update_layout(
        xaxis=log_axis("|x| of the query", float(sizes.min()) / 1.2, float(sizes.max()) * 1.2),
        yaxis=log_axis("standard deviation over contexts", low, high, 8),
    )
    panel_title(figure, "How much predictions differ between contexts", left)
    if info is not None:
        _information(figure, info)
        panel_title(figure, f"Function told at |x| = {tick(out)}", right)
    title = "Does the prediction at a far query still depend on the context?"
    finish(figure, title, tested_by("context", findings), 310, l=76, r=24)
    return figure.update_layout(hovermode="closest")


def _spread(figure: Figure, curve: DataArray) -> list[float]:
    """Both directions and the 1/x guide. Returns what the axis has to hold."""
    sd, size = spread(curve), np.abs(curve.values[0]).mean(0)
    held: list[float] = []
    looks = {1: ("x > 0", BLUE, "circle", "solid"), -1: ("x < 0", "#003A5D", "circle-open", "dash")}
    for sign, (name, colour, symbol, dash) in looks.items():
        keep = np.sign(curve["x"].values) == sign
        order = np.argsort(np.abs(curve["x"].values[keep]))
        x, y = np.abs(curve["x"].values[keep])[order], sd[keep][order]
        figure.add_trace(
            go.Scatter(
                x=x,
                y=y,
                mode="lines+markers",
                name=name,
                line={"color": colour, "width": 1.8, "dash": dash},
                marker={"symbol": symbol, "size": 6},
                xaxis="x",
                yaxis="y",
                hovertemplate=f"{name}<br>|x| = %{{x:.4g}}<br>spread = %{{y:.4g}}<extra></extra>",
            )
        )
        held += [float(v) for v in y if v > 0]
    x = np.unique(np.abs(curve["x"].values))
    at = float(x[np.argmin(np.abs(np.log(x / (x[-1] / 1e4))))])
    anchor = float(sd[np.isclose(np.abs(curve["x"].values), at)].mean())
    if anchor > 0:
        guide = x[x >= at]
        figure.add_trace(
            go.Scatter(
                x=guide,
                y=anchor * at / guide,
                mode="lines",
                name="guide: 1/|x|",
                hoverinfo="skip",
                xaxis="x",
                yaxis="y",
                line={"color": GREY, "width": 1.2, "dash": "dot"},
            )
        )
        held.append(float(anchor * at / guide[-1]))
    if (sd < ROUNDING * size).any():
        order = np.argsort(np.abs(curve["x"].values))
        figure.add_trace(
            go.Scatter(
                x=np.abs(curve["x"].values)[order],
                y=ROUNDING * size[order],
                mode="lines",
                name="rounding of float64",
                xaxis="x",
                yaxis="y",
                line={"color": ORANGE, "width": 1},
                hoverinfo="skip",
            )
        )
    return held


def _thresholds(
    figure: Figure, near: DataArray, out: float, findings: Sequence[Finding]
) -> list[float]:
    """The spread in distribution, and the criterion's zones at the |x| where it is judged."""
    inside = float(np.sqrt(np.square(spread(near)).mean()))
    if not inside > 0:
        return []
    line = {"color": INK, "width": 1, "dash": "dash"}
    figure.add_shape(
        type="line",
        xref="x domain",
        x0=0,
        x1=1,
        yref="y",
        y0=inside,
        y1=inside,
        line=line,
        layer="below",
    )
    figure.add_annotation(
        text="in distribution",
        xref="x domain",
        x=1,
        xanchor="right",
        yref="y",
        y=float(np.log10(inside)),
        yanchor="bottom",
        showarrow=False,
        font={"size": 11, "color": INK},
    )
    held = [inside]
    for finding in findings:
        if finding.id != "limits.context_erased":
            continue
        amplitude = finding.criterion.conditions[0]
        bounds = [("supported", amplitude.supports[1])]
        bounds += [("contradicted", amplitude.contradicts[0])] if amplitude.contradicts else []
        for verdict, bound in bounds:
            look = VERDICTS[verdict]
            ends = [out / 2.2, out * 2.2]
            figure.add_trace(
                go.Scatter(
                    x=ends,
                    y=[bound * inside] * 2,
                    mode="lines",
                    line={"color": look.colour, "width": 3},
                    showlegend=False,
                    xaxis="x",
                    yaxis="y",
                    hovertemplate=f"{look.word} {'below' if verdict == 'supported' else 'above'} "
                    f"{number(bound)} of the spread in distribution<extra></extra>",
                )
            )
            below = verdict == "supported"
            figure.add_annotation(
                text=f"{look.sign} {look.word} if {'below' if below else 'above'}",
                x=float(np.log10(out)),
                y=float(np.log10(bound * inside)),
                xref="x",
                yref="y",
                yanchor="top" if below else "bottom",
                showarrow=False,
                font={"size": 11, "color": look.ink},
            )
            held.append(bound * inside)
    return held


def _information(figure: Figure, info: DataArray) -> None:
    """Cross-validated R2 of far f on the function's coefficients, and on permuted ones, where it should be 0."""
    inputs = list(info.indexes["inputs"])
    low = 0.0
    for row, name in enumerate(inputs):
        r2 = told_by(info, name)
        colour, symbol = (BLUE, "circle") if row == 0 else (INK, "square-open")
        error = {
            "array": [r2.high - r2.value],
            "arrayminus": [r2.value - r2.low],
            "thickness": 1.5,
            "width": 5,
        }
        figure.add_trace(
            go.Scatter(
                x=[r2.value],
                y=[row],
                mode="markers",
                error_x=error,
                showlegend=False,
                xaxis="x2",
                yaxis="y2",
                marker={
                    "color": colour,
                    "symbol": symbol,
                    "size": 11,
                    "line": {"width": 1.5, "color": colour},
                },
                hovertemplate=f"{plain(name)}<br>R² = {number(r2.value)} [{number(r2.low)}, "
                f"{number(r2.high)}]"
                "<extra></extra>",
            )
        )
        low = min(low, r2.low)
    for value, text in ((0.0, "nothing"), (1.0, "the function")):
        figure.add_shape(
            type="line",
            xref="x2",
            x0=value,
            x1=value,
            yref="y2 domain",
            y0=0,
            y1=1,
            layer="below",
            line={"color": INK, "width": 1, "dash": "dot"},
        )
        figure.add_annotation(
            text=text,
            x=value,
            xref="x2",
            y=0,
            yref="y2 domain",
            yanchor="bottom",
            xanchor="left" if value == 0 else "right",
            xshift=3 if value == 0 else -3,
            showarrow=False,
            font={"size": 11, "color": GREY},
        )
    labels = {"coefficients": "coefficients", "permuted": "shuffled"}
    figure.update_layout(
        xaxis2={"range": [low - 0.08, 1.08], "title": {"text": "cross-validated R²"}, "nticks": 6},
        yaxis2=rows_axis([labels.get(name, name) for name in map(str, inputs)], spare=0.1),
    )
