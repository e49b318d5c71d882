"""What layers do: predictions depth by depth, and errors without a part.

It also shows how much of the last prediction is there before.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.graph_objects import Figure
from xarray import DataArray

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
    VERDICTS,
    finish,
    layout_of,
    log_axis,
    panel_title,
    place,
    ranged,
    rows_axis,
    traces_of,
)
from icl_interp.figures.text import number, plain, tested_by
from icl_interp.studies.limits.claims import last_layer as last_layer_claim
from icl_interp.studies.limits.claims import patterns as limits_patterns
from icl_interp.studies.limits.claims.attention import ratio
from icl_interp.studies.limits.claims.last_layer import LENSES, MAINLY, seen_by
from icl_interp.studies.limits.claims.patterns import ALIKE, LARGEST
from icl_interp.studies.limits.measurements import ablation
from icl_interp.studies.limits.measurements.ablation import ALL, BLIND, NOTHING, QUERY

ROW, LINE = 24, 24  # pixels: of an arm, and of the legend
A_ROW = 5  # names that a line of the legend holds
MOST_LISTED = 5  # depths up to which each has its place in the legend
FLOOR = -0.5  # of the axis of R2: a lens can be worse than a constant by any amount
LOWEST = 1e-7  # of the axis of errors
PALE_BLUE = "#B9D3E6"
LENS_LOOKS = {
    "logit": ("logit lens", ORANGE, "square-open", "dot"),
    "affine": ("affine read-out", BLUE, "circle", "solid"),
}
ARM_LOOKS = {
    ALL: ("at every position", GREEN, "circle"),
    QUERY: ("at the query's token", INK, "diamond-open"),
}
ROWS = {
    "intact": "unchanged",
    "no attention": "no attention",
    "no MLP": "no MLPs",
    "reordered": "context reordered",
    "MLP only": "other: MLP only",
    "attention only": "other: no MLPs",
    "with MLP": "other: with MLPs",
    BLIND: "no prompt",
}
MEANING = {
    "intact": "the unchanged model",
    "no attention": "outputs of all heads replaced by their mean",
    "no MLP": "outputs of all MLPs replaced by their mean",
    "reordered": "the examples in another order (a control intervention)",
    "MLP only": "a matched model with MLPs only",
    "attention only": "a matched model without MLPs",
    "with MLP": "a matched model with MLPs",
    BLIND: "the best guess without the prompt: the mean over all functions at the query",
}


def layers(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """As many panels as can be shown: predictions, R2, ablated errors and patterns.

    The first two are by depth, errors by what is ablated, patterns by degree.
    """
    curves, lens = results.get(last_layer_claim.curves), results.get(last_layer_claim.lens)
    whole, parts = results.get(ablation.without_attention), results.get(ablation.ablated)
    patterns = results.get(limits_patterns.distances)
    panels: list[
        tuple[str, float, float, Any]
    ] = []  # title, share of the width, room on its left, what draws it
    if curves is not None:
        panels.append(
            ("One prompt, depth by depth", 0.3, 0.0, lambda f, axis: _curves(f, curves, axis))
        )
    if lens is not None:
        panels.append(("Prediction there already", 0.2, 0.08, lambda f, axis: _lens(f, lens, axis)))
    n_rows = 8
    if whole is not None:
        rows = _arms(whole, parts)
        n_rows = max(n_rows, len(rows))
        panels.append(("Errors without a part", 0.2, 0.15, lambda f, axis: _errors(f, rows, axis)))
    if patterns is not None:
        panels.append(("Patterns", 0.15, 0.08, lambda f, axis: _patterns(f, patterns, axis)))
    if not panels:
        return None
    figure = go.Figure()
    domains = _domains([(width, room) for _, width, room, _ in panels])
    place(figure, *domains)
    for i, ((title, _, _, draw), domain) in enumerate(zip(panels, domains, strict=True)):
        draw(figure, "" if i == 0 else str(i + 1))
        panel_title(figure, title, domain)
    finish(
        figure,
        "What the layers do",
        tested_by("layers", findings),
        max(280, ROW * n_rows),
        l=76,
        r=30,
    )
    if sum(trace.showlegend is not False for trace in traces_of(figure)) > A_ROW:
        figure.update_layout(
            height=layout_of(figure).height + LINE, margin={"t": layout_of(figure).margin.t + LINE}
        )
    return figure.update_layout(hovermode="closest")


def _domains(sizes: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Where panels of these widths lie, each with room on its left; stretched over the figure.

    A single panel covers a part of the figure.
    """
    rooms = [room if i or room > 0.1 else 0.0 for i, (_, room) in enumerate(sizes)]
    free = 1 - sum(rooms)
    stretch = min(free / sum(width for width, _ in sizes), 2.5)
    domains, at = [], 0.0
    for (width, _), room in zip(sizes, rooms, strict=True):
        domains.append((at + room, min(at + room + width * stretch, 1.0)))
        at = domains[-1][1]
    return domains


def _curves(figure: Figure, curves: DataArray, axis: str) -> None:
    """What the logit lens reads over x after each block, in one context, and the function.

    The context is the first.
    """
    names = [name for name in curves.indexes["what"] if name != "f"]
    truth = curves.sel(context=0, what="f").values
    held = [*truth]
    for depth, name in enumerate(names):
        line = curves.sel(context=0, what=name).values
        last = depth == len(names) - 1
        held += [*line] if last else []
        figure.add_trace(
            go.Scatter(
                x=curves["x"].values,
                y=line,
                mode="lines",
                name=_after(depth, len(names) - 1),
                xaxis=f"x{axis}",
                yaxis=f"y{axis}",
                showlegend=len(names) <= MOST_LISTED or depth in (0, len(names) - 1),
                line={
                    "color": BLUE if last else _shade(depth / max(1, len(names) - 1)),
                    "width": 2.6 if last else 1.8,
                    "dash": "solid" if last else ("dot", "dash", "dashdot")[depth % 3],
                },
                hovertemplate=f"{_after(depth, len(names) - 1)}<br>x = %{{x:.3g}}: "
                "%{y:.4g}<extra></extra>",
            )
        )
    figure.add_trace(
        go.Scatter(
            x=curves["x"].values,
            y=truth,
            mode="lines",
            name="the function",
            xaxis=f"x{axis}",
            yaxis=f"y{axis}",
            line={"color": INK, "width": 1.2},
            hovertemplate="the function<br>x = %{x:.3g}: %{y:.4g}<extra></extra>",
        )
    )
    low, high = ranged([float(v) for v in held])
    half = 0.5 * (high - low)
    # Early depths may lie anywhere: the axis holds what is predicted in the end, and as much again
    # around it.
    figure.update_layout(
        {
            f"xaxis{axis}": {
                "title": {"text": "x of the query"},
                "range": ranged([float(x) for x in curves["x"].values], 0.02),
            },
            f"yaxis{axis}": {"title": {"text": "prediction"}, "range": [low - half, high + half]},
        }
    )


def _after(depth: int, n_layers: int) -> str:
    if depth == n_layers:
        return "prediction"
    return "before any layer" if depth == 0 else f"after layer {depth}"


def _shade(share: float) -> str:
    """From pale to full blue."""
    ends = [[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in (PALE_BLUE, BLUE)]
    return "#" + "".join(f"{round(a + share * (b - a)):02X}" for a, b in zip(*ends, strict=True))


def _lens(figure: Figure, lens: DataArray, axis: str) -> None:
    """R2 of both lenses at each depth; the zone is what the claim reads, before the last layer."""
    n_depths = len(lens.indexes["depth"])
    for name in LENSES:
        word, colour, symbol, dash = LENS_LOOKS[name]
        found = [seen_by(lens, name, depth) for depth in range(n_depths)]
        value, low, high = (
            np.array([getattr(i, key) for i in found]) for key in ("value", "low", "high")
        )
        y = np.clip(value, FLOOR, None)
        figure.add_trace(
            go.Scatter(
                x=list(range(n_depths)),
                y=y,
                mode="lines+markers",
                name=word,
                xaxis=f"x{axis}",
                yaxis=f"y{axis}",
                line={"color": colour, "width": 1.6, "dash": dash},
                marker={"symbol": symbol, "size": 8},
                error_y={
                    "array": np.clip(high, FLOOR, None) - y,
                    "arrayminus": y - np.clip(low, FLOOR, None),
                    "thickness": 1,
                    "width": 3,
                },
                text=[
                    (
                        f"{word}, {_after(d, n_depths - 1)}<br>R² = {number(i.value)} "
                        f"[{number(i.low)}, {number(i.high)}]"
                    )
                    for d, i in enumerate(found)
                ],
                hovertemplate="%{text}<extra></extra>",
            )
        )
    if n_depths > 2:
        figure.add_shape(
            type="rect",
            xref=f"x{axis}",
            yref=f"y{axis}",
            x0=n_depths - 2.35,
            x1=n_depths - 1.65,
            y0=FLOOR,
            y1=MAINLY,
            fillcolor=VERDICTS["supported"].pale,
            line={"width": 0},
            layer="below",
        )
    figure.update_layout(
        {
            f"xaxis{axis}": {
                "title": {"text": "layers read"},
                "dtick": 1 if n_depths <= MOST_LISTED + 2 else 3,
                "range": [-0.3, n_depths - 0.7],
            },
            f"yaxis{axis}": {
                "title": {"text": "share of the prediction, R²"},
                "range": [FLOOR, 1.06],
            },
        }
    )


Row = tuple[str, str, dict[str, Any]]  # label, meaning, interval by points


def _arms(whole: DataArray, parts: DataArray | None) -> list[Row]:
    """Error rates of the model, of the model without a part, and of those beside it.

    They come in this order.
    """
    sources = {arm: whole for arm in whole.indexes["arm"]}
    sources |= dict.fromkeys(parts.indexes["arm"], parts) if parts is not None else {}
    blocks = [arm for arm in sources if arm.startswith("block ")]
    order = [
        "intact",
        "no attention",
        "no MLP",
        *blocks,
        "reordered",
        "MLP only",
        "attention only",
        "with MLP",
        BLIND,
    ]
    rows: list[Row] = []
    for arm in order:
        if arm not in sources:
            continue
        edited = arm == "no attention" or sources[arm] is parts
        found = {
            points: ratio(sources[arm], arm, NOTHING, points, reference=whole)
            for points in (ALL, QUERY)
            if (points == ALL or edited)
            and np.isfinite(sources[arm].sel(arm=arm, points=points).values).all()
        }
        number_of = int(arm.split()[1]) + 1 if arm in blocks else 0
        label = f"no layer {number_of}" if number_of else ROWS[arm]
        rows.append(
            (
                label,
                f"outputs of layer {number_of} replaced by their mean"
                if number_of
                else MEANING[arm],
                found,
            )
        )
    return rows


def _errors(figure: Figure, rows: list[Row], axis: str) -> None:
    labels, held = [label for label, _, _ in rows], [1.0]
    for points, (word, colour, symbol) in ARM_LOOKS.items():
        mine = [
            (i, meaning, found[points])
            for i, (_, meaning, found) in enumerate(rows)
            if points in found
        ]
        values = np.array([[i.value, i.low, i.high] for _, _, i in mine]).reshape(-1, 3)
        shown = np.maximum(values, LOWEST)
        held += [float(v) for v in shown.ravel()]
        figure.add_trace(
            go.Scatter(
                x=shown[:, 0],
                y=[row for row, _, _ in mine],
                mode="markers",
                name=word,
                xaxis=f"x{axis}",
                yaxis=f"y{axis}",
                marker={
                    "color": colour,
                    "symbol": symbol,
                    "size": 9,
                    "line": {"color": colour, "width": 1.4},
                },
                error_x={
                    "array": shown[:, 2] - shown[:, 0],
                    "arrayminus": shown[:, 0] - shown[:, 1],
                    "thickness": 1,
                    "width": 3,
                },
                text=[
                    (
                        f"{plain(meaning)}<br>{word}: {number(i.value)} [{number(i.low)}, "
                        f"{number(i.high)}]"
                    )
                    for _, meaning, i in mine
                ],
                hovertemplate="%{text}<extra></extra>",
            )
        )
    figure.add_shape(
        type="line",
        xref=f"x{axis}",
        x0=1,
        x1=1,
        yref=f"y{axis} domain",
        y0=0,
        y1=1,
        layer="below",
        line={"color": GREY, "width": 1, "dash": "dot"},
    )
    figure.update_layout(
        {
            f"xaxis{axis}": log_axis(
                "error / error of predicting 0", min(held) / 2, max(held) * 2, 5
            ),
            f"yaxis{axis}": rows_axis(labels),
        }
    )


def _patterns(figure: Figure, patterns: DataArray, axis: str) -> None:
    """The largest distance of mean patterns over pairs of degrees, layer by layer.

    The same with degrees shuffled stands beside it.
    """
    depths = [i for i in patterns.indexes["layer"] if i != LARGEST]
    cells = {
        s: np.array(
            [float(patterns.sel(pair=LARGEST, layer=i, statistic=s).values) for i in depths]
        )
        for s in ("ratio", "low", "high", "shuffled")
    }
    x = [int(i) + 1 for i in depths]
    figure.add_trace(
        go.Scatter(
            x=x,
            y=cells["ratio"],
            mode="markers",
            name="two degrees / two prompts",
            xaxis=f"x{axis}",
            yaxis=f"y{axis}",
            marker={"color": BLUE, "symbol": "circle", "size": 9},
            showlegend=False,
            error_y={
                "array": cells["high"] - cells["ratio"],
                "arrayminus": cells["ratio"] - cells["low"],
                "thickness": 1,
                "width": 3,
            },
            hovertemplate="layer %{x}: %{y:.3g}<extra></extra>",
        )
    )
    figure.add_trace(
        go.Scatter(
            x=x,
            y=cells["shuffled"],
            mode="markers",
            name="degrees shuffled",
            xaxis=f"x{axis}",
            yaxis=f"y{axis}",
            marker={"color": GREY, "symbol": "diamond-open", "size": 8},
            hovertemplate="degrees shuffled, layer %{x}: %{y:.3g}<extra></extra>",
        )
    )
    top = float(np.nanmax([1.3 * ALIKE, *(1.1 * cells["high"])]))
    figure.add_shape(
        type="rect",
        xref=f"x{axis} domain",
        yref=f"y{axis}",
        x0=0,
        x1=1,
        y0=0,
        y1=ALIKE,
        fillcolor=VERDICTS["supported"].pale,
        line={"color": FAINT, "width": 0},
        layer="below",
    )
    figure.update_layout(
        {
            f"xaxis{axis}": {
                "title": {"text": "layer"},
                "dtick": 1 if len(x) <= MOST_LISTED + 2 else 3,
                "range": [0.5, len(x) + 0.5],
            },
            f"yaxis{axis}": {"title": {"text": "two degrees / two prompts"}, "range": [0, top]},
        }
    )
