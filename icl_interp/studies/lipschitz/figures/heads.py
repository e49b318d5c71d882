"""Figures of reports: heads and their smoothers, errors at other L, families, weights.

Windows are of a family, weights are by distance.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.graph_objects import Figure

from icl_interp.analyses import relevance
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.style import (
    BLUE,
    FAINT,
    GREEN,
    GREY,
    INK,
    ORANGE,
    finish,
    log_axis,
    panel_title,
    place,
    rows_axis,
)
from icl_interp.figures.text import plain, tested_by
from icl_interp.studies.lipschitz.claims import smoother as claim
from icl_interp.studies.lipschitz.claims import transfer as transfer_claim
from icl_interp.studies.lipschitz.claims.window_adapts import grids
from icl_interp.studies.lipschitz.measurements import (
    example_weights,
    heads,
    transfer_errors,
    window_family,
)

HEIGHT, ROW = 300, 24
LOWEST = 1e-4  # shares below are drawn there
COLOURS = (GREEN, BLUE, ORANGE)
KERNELS = {
    example_weights.MODEL: (INK, "solid"),
    example_weights.PLAIN: (GREY, "dash"),
    example_weights.WINDOW: (BLUE, "dot"),
}


def smoother(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """Of what each head does at the query, the part that its smoother misses."""
    result = results.get(heads.smoother)
    if result is None:
        return None
    effects = claim.matters(result, relevance.USUAL)
    names = [name for name, effect in effects.items() if effect.matters]
    if not names:
        return None
    figure = go.Figure()
    arms = {
        "labels averaged": ("labels", INK, -0.12),
        "own values averaged": ("values", GREY, 0.12),
    }
    for title, (what, colour, shift) in arms.items():
        found = claim.missed(result, what, relevance.USUAL)
        ends = np.array([found[name].shown for name in names])
        value, low, high = np.maximum(ends, LOWEST).T
        figure.add_trace(
            go.Scatter(
                x=value,
                y=np.arange(len(names)) + shift,
                mode="markers",
                name=title,
                marker={
                    "color": colour,
                    "size": 8,
                    "symbol": "circle" if shift < 0 else "diamond-open",
                },
                error_x={
                    "array": high - value,
                    "arrayminus": value - low,
                    "thickness": 1,
                    "width": 3,
                    "color": colour,
                },
                customdata=names,
                hovertemplate=f"head %{{customdata}}, {title}: %{{x:.3g}} is missed<extra></extra>",
            )
        )
    figure.add_vrect(
        x0=LOWEST / 2, x1=claim.REPLACED, fillcolor="#D6E9F5", line_width=0, layer="below"
    )
    figure.add_vrect(x0=claim.MISSED, x1=10, fillcolor="#F9E3D3", line_width=0, layer="below")
    figure.update_layout(
        xaxis=log_axis(
            "share that is missed (log axis; 0.0001 and less at the left end)", LOWEST / 2, 4.0
        ),
        yaxis=rows_axis([f"head {name}" for name in names]),
    )
    below = tested_by("lipschitz_smoother", findings)
    finish(
        figure,
        "Does a kernel smoother do what each head does?",
        below,
        max(120, ROW * len(names) + 40),
        l=90,
    )
    return figure.update_layout(hovermode="closest")


def transfer(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """The model's error at other L over the least possible there, beside theory's."""
    result, known = results.get(transfer_errors.transfer), results.get(transfer_errors.exact)
    if result is None or known is None:
        return None
    rows = transfer_claim.details(result, known)
    xs = [float(row["L' / L"]) for row in rows]
    figure = go.Figure()
    value, low, high = (
        np.array([float(row[key]) for row in rows]) for key in ("model pays", "low", "high")
    )
    lines: Mapping[str, tuple[np.ndarray, str, str]] = {
        "best window for L, by theory": (
            np.array([float(row["theory"]) for row in rows]),
            BLUE,
            "dash",
        ),
        "model": (value, INK, "solid"),
    }
    for name, (ys, colour, dash) in lines.items():
        figure.add_trace(
            go.Scatter(
                x=xs,
                y=ys,
                mode="lines+markers",
                name=name,
                line={"color": colour, "dash": dash, "width": 1.6},
                error_y={"array": high - ys, "arrayminus": ys - low, "thickness": 1}
                if name == "model"
                else None,
                hovertemplate=f"{name}<br>L' = %{{x:g}} L: %{{y:.3g}} times the least "
                "error<extra></extra>",
            )
        )
    top = 1.5 * max(float(high.max()), *(float(row["theory"]) for row in rows))
    figure.update_layout(
        xaxis=log_axis("L' / L", xs[0] / 1.3, xs[-1] * 1.3),
        yaxis=log_axis("squared error / least possible at L'", 0.8, top),
    )
    finish(
        figure,
        "Tested at another Lipschitz constant",
        tested_by("lipschitz_transfer", findings),
        HEIGHT,
    )
    return figure.update_layout(hovermode="closest")


def family(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """Windows of all runs of a kind against L, a colour a noise; the best windows as lines."""
    table = results.get(window_family.family)
    if table is None:
        return None
    own, best, noises, lipschitz = grids(table)
    if not len(own):
        return None
    figure = go.Figure()
    left, right = (0.0, 0.44), (0.58, 1.0)
    place(figure, left, right)
    for i, noise in enumerate(noises):
        colour, name = COLOURS[i % len(COLOURS)], f"σ = {noise:g}"
        figure.add_trace(
            go.Scatter(
                x=lipschitz,
                y=np.exp(best[0, i]),
                mode="lines",
                name=f"{name}, w*",
                line={"color": colour, "width": 1.4, "dash": "dash"},
                hovertemplate=f"best, {name}<br>L = %{{x:g}}: w* = %{{y:.3g}}<extra></extra>",
            )
        )
        ys = np.exp(own[:, i])
        for axis, xs in (
            ("", np.tile(lipschitz, len(ys))),
            ("2", np.exp(np.tile(best[0, i], len(ys)))),
        ):
            figure.add_trace(
                go.Scatter(
                    x=xs,
                    y=ys.flatten(),
                    mode="markers",
                    name=f"{name}, runs",
                    showlegend=not axis,
                    xaxis=f"x{axis}",
                    yaxis=f"y{axis}",
                    marker={"color": colour, "size": 6, "opacity": 0.6},
                    hovertemplate=f"{name}<br>%{{x:.3g}}: w = %{{y:.3g}}<extra></extra>",
                )
            )
    mine = table[table["run"] == window_family.THIS]
    figure.add_trace(
        go.Scatter(
            x=mine["best"],
            y=np.maximum(mine["w"], 1e-3),
            mode="markers",
            name="this model",
            xaxis="x2",
            yaxis="y2",
            marker={"color": INK, "symbol": "x", "size": 10},
            hovertemplate="this model<br>w* = %{x:.3g}: w = %{y:.3g}<extra></extra>",
        )
    )
    both = np.exp(np.concatenate([own.flatten(), best.flatten()]))
    low, high = float(both.min()) / 1.5, float(both.max()) * 1.5
    figure.add_shape(
        type="line",
        x0=low,
        x1=high,
        y0=low,
        y1=high,
        xref="x2",
        yref="y2",
        line={"color": GREY, "width": 1, "dash": "dot"},
    )
    figure.update_layout(
        xaxis=log_axis("L", float(lipschitz[0]) / 1.3, float(lipschitz[-1]) * 1.3),
        yaxis=log_axis("w, wide windows to narrow ones", low, high),
        xaxis2=log_axis("best window w*", low, high),
        yaxis2=log_axis("learned window w", low, high),
    )
    panel_title(figure, "Against L", left)
    panel_title(figure, "Against the best window", right)
    below = tested_by("lipschitz_family", findings) + f"<br>{plain(table.attrs['note'])}."
    finish(figure, "Windows learned at other L and other noise", below, HEIGHT, l=76)
    return figure.update_layout(hovermode="closest")


def linear(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """The weight of an example by its cosine to the query.

    Drawn are the model's, that of x_i . x_q, and that of the best window.
    """
    curve = results.get(example_weights.by_cosine)
    if curve is None:
        return None
    figure = go.Figure()
    for name, (colour, dash) in KERNELS.items():
        figure.add_trace(
            go.Scatter(
                x=curve["cosine"].values,
                y=curve.sel(kernel=name).values,
                mode="lines",
                name=name,
                line={"color": colour, "dash": dash, "width": 1.8},
                hovertemplate=f"{name}<br>cosine %{{x:.2f}}: %{{y:.3g}}<extra></extra>",
            )
        )
    figure.add_hline(y=0, line={"color": FAINT, "width": 1}, layer="below")
    figure.update_layout(
        xaxis={"title": {"text": "cosine between example and query"}},
        yaxis={"title": {"text": "mean weight / mean size"}},
    )
    below = tested_by("lipschitz_linear", findings)
    return finish(figure, "The weight of an example by its distance from the query", below, HEIGHT)


FIGURES = {
    "lipschitz_smoother": ReportFigure(
        smoother,
        "A row for each head that matters at the last query. Its output there is replaced by an "
        "average of the prompt's labels whose weights depend on the inputs alone (filled), or by "
        "the same weights on the head's own values (hollow): how much of what the head does to the "
        "prediction is then missed. Blue is replaced, orange is not.",
    ),
    "lipschitz_transfer": ReportFigure(
        transfer,
        "Squared error on functions with another Lipschitz constant L', over the least that any "
        "window has there. The dashed line is the same for the window that is best for the model's "
        "own L, by theory.",
    ),
    "lipschitz_family": ReportFigure(
        family,
        "A dot is a training run: the window w that it learned, a colour for each standard "
        "deviation σ of the label noise. Large w are narrow windows. Dashed lines are the windows "
        "w* with the least loss. On the right dots on the dotted line have learned it; the cross "
        "is this model.",
    ),
    "lipschitz_linear": ReportFigure(
        linear,
        "How much the label of an example moves the prediction, by the cosine between the example "
        "and the query; over the mean size. A window is high near 1 and flat elsewhere. The "
        "product x_i · x_q is a straight line at every L.",
    ),
}
