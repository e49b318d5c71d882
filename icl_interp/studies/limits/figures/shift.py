"""Kinds of training side by side: errors on scaled functions, in the domain, and by interval."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from pandas import DataFrame
from plotly.graph_objects import Figure

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.style import (
    BLUE,
    FAINT,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    YELLOW,
    finish,
    log_axis,
    panel_title,
    place,
)
from icl_interp.figures.text import number, plain, tested_by
from icl_interp.results import rows_in
from icl_interp.studies.limits.claims.error_near_boundary import EDGE, INNER
from icl_interp.studies.limits.claims.kinds import Row
from icl_interp.studies.limits.measurements import seeds
from icl_interp.studies.limits.measurements.seeds import OWN, TRAINED

LOOKS = {  # arm: (colour, symbol)
    OWN: (BLUE, "circle"),
    "no norm": (ORANGE, "square"),
    "with norm": (PURPLE, "diamond"),
    "attention only": (GREEN, "triangle-up"),
    "with MLP": (SKY, "triangle-down"),
    "wider": (YELLOW, "cross"),
    "narrower": (YELLOW, "x"),
}
INTERVALS = (BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY)
Draw = Callable[[Figure, list[Row], str], None]


def shift(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """As many panels as there are numbers for: errors over sigma, over |x|, over test intervals.

    |x| lies within the domain.
    """
    panels: list[tuple[str, Draw, list[Row]]] = []
    for title, draw, measurement, prefix in (
        ("Functions scaled", _functions, seeds.functions, "functions"),
        ("Within the inputs' interval", _inside, seeds.inside, "inside"),
        ("By training interval U(−a, a)", _intervals, seeds.intervals, "both"),
    ):
        rows = measured(results.get(measurement), prefix)
        if rows is not None:
            panels.append((title, draw, rows))
    if not panels:
        return None
    figure = go.Figure()
    width = (1 - 0.1 * (len(panels) - 1)) / len(panels)
    domains = [(i * (width + 0.1), i * (width + 0.1) + width) for i in range(len(panels))]
    place(figure, *domains)
    for i, ((title, draw, rows), domain) in enumerate(zip(panels, domains, strict=True)):
        draw(figure, rows, "" if i == 0 else str(i + 1))
        panel_title(figure, title, domain)
    title = (
        "Errors of models trained in different ways: points are seeds, lines their geometric mean"
    )
    finish(figure, title, tested_by("shift", findings), 310, l=76)
    return figure.update_layout(hovermode="closest")


def measured(table: DataFrame | None, prefix: str) -> list[Row] | None:
    """The trained runs whose numbers of this family are there; None where no second arm has any.

    Arms of too few seeds to compare have their error rate alone.
    """
    rows = [] if table is None else rows_in(table)
    found = [
        row for row in rows if row["weights are"] == TRAINED and row["numbers"] != seeds.NOWHERE
    ]
    return found if _columns(found, prefix) and len({row["arm"] for row in found}) > 1 else None


def _columns(rows: list[Row], prefix: str) -> dict[float, str]:
    """Columns of a family by the number in their name, ascending."""
    found = {
        float(name.split()[1]): name for row in rows for name in row if name.split()[0] == prefix
    }
    return dict(sorted(found.items()))


def _with(rows: list[Row], columns: dict[float, str], **key: Any) -> list[Row]:
    """The rows with these values that have all of these numbers."""
    mine = [row for row in rows if all(row[name] == value for name, value in key.items())]
    return [row for row in mine if all(np.isfinite(row[name]) for name in columns.values())]


def _arm(
    figure: Figure,
    columns: dict[float, str],
    rows: list[Row],
    name: str,
    look: tuple[str, str],
    axis: str,
    legend: bool,
) -> list[float]:
    """Each seed as points and the arm's geometric mean as a line.

    Returns what the axis has to hold.
    """
    colour, symbol = look
    x, y = (
        np.array(list(columns)),
        np.array([[float(row[key]) for key in columns.values()] for row in rows]),
    )
    common = {"legendgroup": name, "xaxis": f"x{axis}", "yaxis": f"y{axis}"}
    n = len(rows)
    figure.add_trace(
        go.Scatter(
            x=x,
            y=np.exp(np.log(y).mean(0)),
            mode="lines",
            name=plain(f"{name}, {n} seed{'s' * (n > 1)}"),
            showlegend=legend,
            line={"color": colour, "width": 1.8},
            hovertemplate=f"{plain(name)}, mean of {n}<br>%{{x:.3g}}: %{{y:.4g}}<extra></extra>",
            **common,
        )
    )
    figure.add_trace(
        go.Scatter(
            x=np.tile(x, n),
            y=y.ravel(),
            mode="markers",
            showlegend=False,
            marker={"symbol": f"{symbol}-open", "size": 6, "color": colour},
            text=[plain(row["run"]) for row in rows for _ in x],
            hovertemplate="%{text}<br>%{x:.3g}: %{y:.4g}<extra></extra>",
            **common,
        )
    )
    return [float(v) for v in y.ravel() if v > 0]


def _axes(figure: Figure, axis: str, x: dict[str, Any], y: str, held: list[float]) -> None:
    low, high = (min(held) / 1.5, max(held) * 1.5) if held else (0.1, 1.0)
    figure.update_layout({f"xaxis{axis}": x, f"yaxis{axis}": log_axis(y, low, high, 7)})


def _arms(figure: Figure, table: list[Row], prefix: str, axis: str, legend: bool) -> list[float]:
    columns, held = _columns(table, prefix), []
    for name, look in LOOKS.items():
        if rows := _with(table, columns, arm=name):
            held += _arm(
                figure,
                columns,
                rows,
                "like this model" if name == OWN else name,
                look,
                axis,
                legend,
            )
    return held


def _functions(figure: Figure, table: list[Row], axis: str) -> None:
    """Error against sigma, of coefficients from sigma times their law."""
    sigmas = list(_columns(table, "functions"))
    held = _arms(figure, table, "functions", axis, legend=True)
    x = log_axis("factor on the functions", sigmas[0] / 1.15, sigmas[-1] * 1.15)
    _axes(figure, axis, x, "squared error", held)


def _inside(figure: Figure, table: list[Row], axis: str) -> None:
    """Error against |x| as a share of the half-width.

    It marks what counts as inside and as near the boundary.
    """
    held = _arms(figure, table, "inside", axis, legend=axis == "")
    for low, high in ((0.0, INNER), (EDGE, 1.0)):
        figure.add_shape(
            type="rect",
            xref=f"x{axis}",
            yref=f"y{axis} domain",
            x0=low,
            x1=high,
            y0=0,
            y1=1,
            fillcolor=FAINT,
            line={"width": 0},
            layer="below",
        )
    x = {"title": {"text": "|x| / half-width of the inputs' interval"}, "range": [0.0, 1.04]}
    _axes(figure, axis, x, "squared error", held)


def _intervals(figure: Figure, table: list[Row], axis: str) -> None:
    """Error over sigma^2 against sigma, inputs and functions from U(-sigma, sigma)."""
    columns, held = _columns(table, "both"), []
    for a, colour in zip(sorted({row["a"] for row in table}), INTERVALS, strict=False):
        if rows := _with(table, columns, a=a):
            scaled = [
                {**row, **{name: row[name] / sigma**2 for sigma, name in columns.items()}}
                for row in rows
            ]
            held += _arm(
                figure, columns, scaled, f"a = {number(a)}", (colour, "circle"), axis, legend=True
            )
    sigmas = list(columns)
    x = log_axis("sigma: tested on U(−sigma, sigma)", sigmas[0] / 1.15, sigmas[-1] * 1.15)
    _axes(figure, axis, x, "squared error / sigma²", held)
