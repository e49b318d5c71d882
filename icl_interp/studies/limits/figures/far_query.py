"""f(x) as the query goes far, in both directions, beside what is true and what the weights alone predict."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.graph_objects import Figure

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
    Symlog,
    finish,
    joined,
    ranged,
)
from icl_interp.figures.text import number, tested_by
from icl_interp.studies.limits.measurements import far

# Without a certificate: f counts as bounded below so many times its size in distribution.
BOUNDED = 100.0
LABELS = 8  # of an axis, in each direction


def far_query(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """Single contexts, their mean, the truth, plateaus in closed form, the output certificate and the onset."""
    contexts = results.get(far.contexts)
    if contexts is None:
        return None
    order = np.argsort(contexts["x"].values)
    xs = contexts["x"].values[order]
    model, truth = (contexts.sel(curve=name).values[:, order] for name in ("model", "truth"))
    band = facts.trained_range
    weights = results.get(far.certificate)
    known = weights.iloc[0].to_dict() if weights is not None else {}
    known = {name: value for name, value in known.items() if np.isfinite(value)}

    x_axis = Symlog(float(np.abs(xs[xs != 0]).min()))
    near = (xs >= band[0]) & (xs <= band[1]) if band else np.ones(len(xs), bool)
    size, true_size = (float(np.abs(curves[:, near]).max(initial=0.0)) for curves in (model, truth))
    bounded = {"c", "r"} <= set(known) or float(np.abs(model).max()) <= BOUNDED * size
    y_axis = (
        np.asarray if bounded else Symlog(10.0 ** np.floor(np.log10(max(size, true_size) or 1.0)))
    )

    figure = go.Figure()
    _backdrop(figure, band, known, x_axis, y_axis)
    figure.add_trace(
        _lines("truth", truth, xs, x_axis, y_axis, {"color": INK, "width": 0.8, "dash": "dot"}, 0.5)
    )
    n = len(model)
    figure.add_trace(
        _lines(
            f"model, {n} contexts", model, xs, x_axis, y_axis, {"color": BLUE, "width": 1.1}, 0.45
        )
    )
    intact = results.get(far.intact)
    if intact is not None:
        mean = intact.sel(statistic="mean").values.mean(0)[np.argsort(intact["x"].values)]
        line = {"color": "#003A5D", "width": 2.4}
        figure.add_trace(
            _lines(
                "mean over all contexts",
                mean[None],
                np.sort(intact["x"].values),
                x_axis,
                y_axis,
                line,
                1.0,
            )
        )
    _predictions(figure, known, findings, xs, x_axis, y_axis)

    if not bounded:
        _slopes(figure, findings)
    largest = float(np.abs(xs).max())
    figure.update_xaxes(
        title="query x (symmetric-log: linear within ±" + number(x_axis.threshold) + ")",
        range=ranged(list(x_axis(xs[[0, -1]])), 0.015),
        **x_axis.axis(largest),
    )
    below = tested_by("far_query", findings)
    if isinstance(y_axis, Symlog):
        top = float(max(np.abs(model).max(), np.abs(truth).max()))
        every = int(np.ceil(np.log10(top / y_axis.threshold) / LABELS))
        figure.update_yaxes(
            title=f"prediction (symmetric-log: linear within ±{number(y_axis.threshold)})",
            range=ranged([-float(y_axis(top)), float(y_axis(top))], 0.02),
            **y_axis.axis(top, every),
        )
    else:
        held = [float(model.min()), float(model.max())]
        if {"c", "r"} <= set(known):
            held += [known["c"] - known["r"], known["c"] + known["r"]]
        figure.update_yaxes(title="prediction", range=ranged(held))
        below += (
            "<br>The axis spans all that the model can predict; the target functions (dotted) "
            "leave it."
        )
    title = "What the model predicts when only the query goes far from the data"
    finish(figure, title, below, 400, l=76, r=26, b=56)
    return figure.update_layout(hovermode="closest")


def _lines(
    name: str,
    curves: np.ndarray,
    xs: np.ndarray,
    x_axis: Symlog,
    y_axis: Any,
    line: dict[str, Any],
    opacity: float,
) -> go.Scatter:
    """Many curves as one trace; hovering shows the values themselves, not their places on the axes."""
    x, y = joined(np.broadcast_to(xs, curves.shape)), joined(curves)
    hover = (
        "x = %{customdata[0]:.4g}<br>prediction = %{customdata[1]:.6g}<extra>" + name + "</extra>"
    )
    return go.Scatter(
        x=x_axis(x),
        y=y_axis(y),
        customdata=np.stack([x, y], -1),
        mode="lines",
        name=name,
        line=line,
        opacity=opacity,
        hovertemplate=hover,
        connectgaps=False,
    )


def _backdrop(
    figure: Figure, band: Any, known: Mapping[str, float], x_axis: Symlog, y_axis: Any
) -> None:
    """Bands behind the curves: where training was, and where the read-out confines every output."""
    if {"c", "r"} <= set(known):
        low, high = (float(y_axis(known["c"] + s * known["r"])) for s in (-1, 1))
        figure.add_hrect(y0=low, y1=high, fillcolor="#F3F7F2", line={"width": 0}, layer="below")
        for edge in (low, high):
            figure.add_hline(
                y=edge, line={"color": GREEN, "width": 1, "dash": "dash"}, layer="below"
            )
        bounds = f"{number(known['c'])} ± {number(known['r'])}"
        text = f"bound from the weights alone:<br>every prediction lies in<br>{bounds}"
        figure.add_annotation(
            text=text,
            x=0.008,
            xref="paper",
            y=low,
            yanchor="bottom",
            xanchor="left",
            align="left",
            showarrow=False,
            font={"color": "#00694D", "size": 12},
        )
    if band:
        low, high = (float(x_axis(edge)) for edge in band)
        figure.add_vrect(x0=low, x1=high, fillcolor=FAINT, line={"width": 0}, layer="below")
        figure.add_annotation(
            text="trained range",
            x=(low + high) / 2,
            y=0,
            yref="paper",
            yanchor="bottom",
            showarrow=False,
            font={"color": GREY, "size": 12},
        )


def _predictions(
    figure: Figure,
    known: Mapping[str, float],
    findings: Sequence[Finding],
    xs: np.ndarray,
    x_axis: Symlog,
    y_axis: Any,
) -> None:
    """What the weights alone predict: the plateau on each side, and where it is reached."""
    onset = {"predicted": known.get("onset", np.nan), "measured": measured_onset(findings)}
    start = onset["predicted"] if np.isfinite(onset["predicted"]) else float(np.abs(xs).max()) / 100
    x, y = [], []
    for name, end in (("plateau -", xs[0]), ("plateau +", xs[-1])):
        if name in known and start < abs(end):
            x += [float(np.sign(end) * start), float(end), np.nan]
            y += [known[name], known[name], np.nan]
    if x:
        x, y = np.array(x[:-1]), np.array(y[:-1])
        figure.add_trace(
            go.Scatter(
                x=x_axis(x),
                y=y_axis(y),
                customdata=np.stack([x, y], -1),
                mode="lines",
                name="level that the weights predict",
                line={"color": ORANGE, "width": 2.4, "dash": "8px,5px"},
                hovertemplate="level that the weights predict: %{customdata[1]:.6g}<extra></extra>",
            )
        )
    looks = {"predicted": ("dash", ORANGE, "#AB4A00"), "measured": ("solid", BLUE, "#005A8C")}
    words = []
    for name, value in onset.items():
        if np.isfinite(value) and value < np.abs(xs).max():
            dash, colour, ink = looks[name]
            for sign in (-1, 1):
                line = {"color": colour, "width": 1, "dash": dash}
                figure.add_vline(
                    x=float(x_axis(sign * value)), line=line, opacity=0.8, layer="below"
                )
            words.append(f'<span style="color:{ink}">{name}: |x| = {number(value)}</span>')
    if words:
        figure.add_annotation(
            text="the plateau begins at<br>" + "<br>".join(words),
            x=0.992,
            xref="paper",
            y=0.9,
            yref="paper",
            xanchor="right",
            yanchor="top",
            align="right",
            showarrow=False,
            font={"size": 12},
        )


def _slopes(figure: Figure, findings: Sequence[Finding]) -> None:
    """The line that f becomes in each direction, as the judge found it."""
    for finding in findings:
        for row in finding.details if finding.id == "limits.linear_asymptote" else ():
            up = row["direction"] == "+"
            figure.add_annotation(
                text=f"slope {number(row['slope'])}<br>± "
                f"{number(row['sd of slope over contexts'])} over contexts",
                x=0.992 if up else 0.008,
                xref="paper",
                y=0.5,
                yref="paper",
                xanchor="right" if up else "left",
                yanchor="middle",
                align="right" if up else "left",
                showarrow=False,
                font={"size": 12, "color": "#003A5D"},
            )


def measured_onset(findings: Sequence[Finding]) -> float:
    """|x| from which f stays at its plateau, as the judge found it; NaN where it did not."""
    for finding in findings:
        for row in finding.details if finding.id == "limits.layernorm_saturation" else ():
            if "measured onset" in row:
                return float(row["measured onset"])
    return float("nan")
