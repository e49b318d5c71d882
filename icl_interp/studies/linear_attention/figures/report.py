"""Linear regression in context: risk by prompt length against Theorem 4.2, the way to the minimum, which algorithm."""

from collections.abc import Callable, Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.graph_objects import Figure
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    finish,
    layout_of,
    log_axis,
    panel_title,
    place,
    rows_axis,
    traces_of,
)
from icl_interp.figures.text import number, plain, tested_by
from icl_interp.resampling import bootstrap
from icl_interp.results import coordinates
from icl_interp.studies.linear_attention.measurements import algorithms as lsa_algorithms
from icl_interp.studies.linear_attention.measurements import shifts as lsa_shifts
from icl_interp.studies.linear_attention.measurements import weights as lsa_weights
from icl_interp.studies.linear_attention.measurements.algorithms import SIZE, TRUTH
from icl_interp.studies.linear_attention.measurements.setting import task_in
from icl_interp.studies.linear_attention.measurements.shifts import BEST, MODEL, PRINTED, ZERO

LOWEST = 1e-12  # of logarithmic axes
FLOOR = -0.5  # of the axis of similarities: a prediction can be off by any amount
HEIGHT, LINE = 300, 24  # pixels: of the panels, and of a line of the legend
A_ROW = 3  # names that a line of the legend holds
LINES = {  # (name, colour, dash) of what the risk is compared with
    BEST: ("optimal layer", BLUE, "solid"),
    PRINTED: ("the same without 1/M, as printed", ORANGE, "dash"),
    ZERO: ("predicting 0", GREY, "dot"),
}
ALONG = {
    "excess": ("excess loss", BLUE, "solid"),
    "squared gradient": ("|∇L|²", GREEN, "solid"),
    "PL bound": ("mu × excess", PURPLE, "dot"),
}
Panel = tuple[
    str, float, Callable[[Figure, str], None]
]  # title, share of the width, how it is drawn


def linear_attention(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """As many panels as were measured: error by prompt length, loss and gradient over steps, nearness to algorithms."""
    risk, path = results.get(lsa_shifts.risk), results.get(lsa_weights.path)
    algorithms = results.get(lsa_algorithms.algorithms)
    panels: list[Panel] = []
    if risk is not None:
        panels.append(("Error by prompt length", 1.0, lambda f, axis: _risk(f, risk, facts, axis)))
    if path is not None and _drawable(path):
        panels.append(("During training", 1.0, lambda f, axis: _path(f, path, axis)))
    if algorithms is not None:
        panels.append(
            ("Which algorithm", 0.8, lambda f, axis: _algorithms(f, algorithms, facts, axis))
        )
    if not panels:
        return None
    figure = go.Figure()
    domains = _domains([share for _, share, _ in panels], algorithms is not None)
    place(figure, *domains)
    for i, ((title, _, draw), domain) in enumerate(zip(panels, domains, strict=True)):
        draw(figure, "" if i == 0 else str(i + 1))
        panel_title(figure, title, domain)
    finish(
        figure,
        "Linear regression in context, against its theory",
        tested_by("linear_attention", findings),
        HEIGHT,
        l=76,
    )
    more = LINE * (
        -(-sum(trace.showlegend is not False for trace in traces_of(figure)) // A_ROW) - 1
    )
    return figure.update_layout(
        hovermode="closest",
        height=layout_of(figure).height + more,
        margin={"t": layout_of(figure).margin.t + more},
    )


def _domains(shares: list[float], rows: bool) -> list[tuple[float, float]]:
    """Where panels lie; the last one has room for the names of algorithms on its left."""
    gap, names = 0.085, 0.17 if rows else 0.0
    free = 1 - gap * (len(shares) - 1) - names
    domains, at = [], 0.0
    for i, share in enumerate(shares):
        at += names if i == len(shares) - 1 else 0.0
        width = free * share / sum(shares)
        domains.append((at, min(at + width, 1.0)))
        at += width + gap
    return domains


def _positive(values: np.ndarray) -> list[float]:
    return [float(v) for v in np.ravel(values) if np.isfinite(v) and v > 0]


def _risk(figure: Figure, risk: DataArray, facts: Facts, axis: str) -> None:
    """Measured errors and the formulas' lines.

    The intervals are those of the ratio to the optimum's, by function.
    """
    held: list[float] = []
    random = task_in(facts).random_covariance
    theorem = "4.5" if random else "4.2"
    for who, (name, colour, dash) in LINES.items():
        if who == PRINTED and random:
            continue  # the slides print nothing of the kind
        name = f"{name}, Theorem {theorem}" if who == BEST else name
        y = risk.sel(who=who).values.mean(0)
        held += _positive(y)
        figure.add_trace(
            go.Scatter(
                x=risk["M"].values,
                y=np.maximum(y, LOWEST),
                mode="lines",
                name=name,
                xaxis=f"x{axis}",
                yaxis=f"y{axis}",
                line={"color": colour, "width": 1.6, "dash": dash},
                hovertemplate=f"{plain(name)}<br>M = %{{x}}: %{{y:.4g}}<extra></extra>",
            )
        )
    best = risk.sel(who=BEST).values
    found = [
        bootstrap(_over, own, other)
        for own, other in zip(risk.sel(who=MODEL).values.T, best.T, strict=True)
    ]
    y, low, high = (
        np.maximum(np.array([getattr(i, key) for i in found]) * best.mean(0), LOWEST)
        for key in ("value", "low", "high")
    )
    held += _positive(np.array([y, low, high]))
    figure.add_trace(
        go.Scatter(
            x=risk["M"].values,
            y=y,
            mode="markers",
            name="measured",
            xaxis=f"x{axis}",
            yaxis=f"y{axis}",
            marker={"color": INK, "symbol": "circle", "size": 8},
            error_y={"array": high - y, "arrayminus": y - low, "thickness": 1, "width": 3},
            hovertemplate="measured<br>M = %{x}: %{y:.4g}<extra></extra>",
        )
    )
    figure.update_layout(
        {
            f"xaxis{axis}": log_axis(
                "M, labelled examples",
                float(risk["M"].values[0]) / 1.3,
                float(risk["M"].values[-1]) * 1.3,
                5,
            ),
            f"yaxis{axis}": log_axis(
                "squared error", min(held, default=0.1) / 1.5, max(held, default=1.0) * 1.5, 6
            ),
        }
    )


def _drawable(path: DataArray) -> bool:
    """Whether there are at least two steps with a loss above the minimum."""
    excess = path.sel(quantity="excess").values
    return len(path["step"].values) > 1 and int((np.isfinite(excess) & (excess > 0)).sum()) > 1


def _path(figure: Figure, path: DataArray, axis: str) -> None:
    """Excess, squared gradient and its bound by step.

    The step before the first is drawn half a step in.
    """
    steps, held = (
        np.maximum(path["step"].values, 0.5 * min(_positive(path["step"].values), default=1.0)),
        [],
    )
    for quantity, (name, colour, dash) in ALONG.items():
        y = path.sel(quantity=quantity).values
        shown = np.where(y > 0, y, np.nan)
        held += _positive(shown)
        figure.add_trace(
            go.Scatter(
                x=steps,
                y=shown,
                mode="lines+markers",
                name=name,
                xaxis=f"x{axis}",
                yaxis=f"y{axis}",
                customdata=path["step"].values,
                line={"color": colour, "width": 1.6, "dash": dash},
                marker={"size": 4},
                hovertemplate=f"{plain(name)}<br>step %{{customdata}}: %{{y:.4g}}<extra></extra>",
            )
        )
    figure.update_layout(
        {
            f"xaxis{axis}": log_axis(
                "step of training", float(steps.min()) / 1.3, float(steps.max()) * 1.3, 5
            ),
            f"yaxis{axis}": log_axis("", min(held, default=0.1) / 2, max(held, default=1.0) * 2, 6),
        }
    )


def _algorithms(figure: Figure, result: DataArray, facts: Facts, axis: str) -> None:
    """Similarity of predictions, and cosine of input gradients, at M = N and the last depth."""
    trained = facts.n_points - 1
    m = trained if trained in result.indexes["M"] else coordinates(result, "M")[-1]
    depth = coordinates(result, "depth")[-1]
    names = [name for name in result.indexes["algorithm"] if name != SIZE]
    size = result.sel(M=m, algorithm=SIZE, depth=depth, statistic="distance").values
    looks = {
        "similarity of predictions": (BLUE, "circle"),
        "cosine of input gradients": (ORANGE, "diamond-open"),
    }
    for what, (colour, symbol) in looks.items():
        found = []
        for name in names:
            cell = {"M": m, "algorithm": name, "depth": depth}
            if what.startswith("sim"):
                found.append(
                    bootstrap(
                        lambda a, b: 1 - _over(a, b),
                        result.sel(**cell, statistic="distance").values,
                        size,
                    )
                )
            else:
                found.append(bootstrap(lambda a: a, result.sel(**cell, statistic="cosine").values))
        value, low, high = (
            np.array([getattr(i, key) for i in found]) for key in ("value", "low", "high")
        )
        x = np.maximum(value, FLOOR)
        figure.add_trace(
            go.Scatter(
                x=x,
                y=list(range(len(names))),
                mode="markers",
                name=what,
                xaxis=f"x{axis}",
                yaxis=f"y{axis}",
                marker={"color": colour, "symbol": symbol, "size": 9},
                error_x={
                    "array": np.maximum(high, FLOOR) - x,
                    "arrayminus": x - np.maximum(low, FLOOR),
                    "thickness": 1,
                    "width": 3,
                },
                text=[
                    (
                        f"{plain(name)}<br>{what}: {number(i.value)} [{number(i.low)}, "
                        f"{number(i.high)}]"
                    )
                    for name, i in zip(names, found, strict=True)
                ],
                hovertemplate="%{text}<extra></extra>",
            )
        )
    labels = ["the truth" if name == TRUTH else _short(name) for name in names]
    figure.update_layout(
        {
            f"xaxis{axis}": {"title": {"text": f"nearness at M = {m}"}, "range": [FLOOR, 1.08]},
            f"yaxis{axis}": rows_axis(labels),
        }
    )


def _short(name: str) -> str:
    return name.replace("of gradient descent", "of GD")


def _over(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a / np.maximum(b, np.finfo(float).tiny)
