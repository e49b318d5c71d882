"""Figures of experiments on single functions: predictions along x, layer by layer, and softmax of a few vectors."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from pandas import DataFrame
from plotly.graph_objects import Figure
from xarray import DataArray

from icl_interp.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    Symlog,
    finish,
    log_axis,
    panel_title,
    place,
    ranged,
    traces_of,
)
from icl_interp.figures.text import number, plain
from icl_interp.results import Result

Values = Sequence[float] | np.ndarray
RAMP = ("#C6DBEF", "#9ECAE1", "#6BAED6", "#4292C6", "#2171B5", "#08519C", "#08306B")
ROUNDING = 1e-12


def followed(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Figure]:
    """A panel a function: the model's mean with its band over contexts, and the function."""
    curves = {name: r for name, r in results.items() if isinstance(r, DataArray)}
    if not curves:
        return {}
    figure, domains = go.Figure(), _domains(len(curves))
    for i, (name, curve) in enumerate(curves.items()):
        axes = _axes(i)
        _band(figure, curve, curve["x"].values, axes, i == 0)
        _line(
            figure,
            "the function",
            curve["x"].values,
            curve.sel(statistic="truth").values,
            axes,
            INK,
            i == 0,
            "dot",
            1.6,
        )
        panel_title(figure, plain(name), domains[i])
    place(figure, *domains)
    figure.update_xaxes(title="query x")
    figure.update_layout(yaxis_title="f(x)")
    below = (
        f"{plain(next(iter(curves.values())).attrs['note'])}.<br>Line: mean over contexts; band: 5 "
        "to 95 % of contexts."
    )
    return {
        "predictions": finish(figure, "Functions that the model was not trained on", below, 360)
    }


def boundary(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Figure]:
    """A panel a function, the query on a symmetric-log axis; the certificate and the plateaus by the weights."""
    curves = {name: r for name, r in results.items() if isinstance(r, DataArray)}
    if not curves:
        return {}
    table = results.get("boundary")
    facts = (
        {row["function"]: row for row in table.to_dict("records")}
        if isinstance(table, DataFrame)
        else {}
    )
    figure, domains = go.Figure(), _domains(len(curves))
    for i, (name, curve) in enumerate(curves.items()):
        axes, fact = _axes(i), facts.get(name, {})
        scale = Symlog(float(np.abs(curve["x"].values[curve["x"].values != 0]).min()))
        _band(figure, curve, scale(curve["x"].values), axes, i == 0)
        mean = curve.sel(statistic="mean").values
        held = [*mean, *curve.sel(statistic="low").values, *curve.sel(statistic="high").values]
        c, r = fact.get("c", np.nan), fact.get("r", np.nan)
        if np.isfinite([c, r]).all():
            held += [c - r, c + r]
            edges = [c - r, c + r]
            for j, edge in enumerate(edges):
                span = scale(curve["x"].values[[0, -1]])
                _line(
                    figure,
                    "certificate c ± r",
                    span,
                    [edge, edge],
                    axes,
                    GREEN,
                    i == 0 and j == 0,
                    "dash",
                    1,
                )
        for j, (sign, key) in enumerate(((-1, "plateau -"), (1, "plateau +"))):
            if np.isfinite(fact.get(key, np.nan)):
                end = scale(np.array([sign * 10.0, sign * np.abs(curve["x"].values).max()]))
                first = i == 0 and j == 0
                _line(
                    figure,
                    "plateau, by the weights",
                    end,
                    [fact[key]] * 2,
                    axes,
                    ORANGE,
                    first,
                    "dash",
                    2,
                )
        limits = ranged(held)
        truth = curve.sel(statistic="truth").values
        inside = np.where((truth >= limits[0]) & (truth <= limits[1]), truth, np.nan)
        _line(
            figure, "the function", scale(curve["x"].values), inside, axes, INK, i == 0, "dot", 1.6
        )
        figure.update_layout(
            {
                f"xaxis{axes[1:]}": scale.axis(float(np.abs(curve["x"].values).max()), every=2),
                f"yaxis{axes[1:]}": {"range": limits},
            }
        )
        model = (
            "" if "model" in name else f", {fact.get('model', '')}"
        )  # a panel has no room for both
        panel_title(figure, plain(name + model), domains[i])
    place(figure, *domains)
    figure.update_xaxes(title="query x (symmetric-log)")
    figure.update_layout(yaxis_title="prediction")
    below = (
        "The context stays in distribution. Line: mean over contexts; band: 5 to 95 %; the "
        "function leaves the axis."
    )
    return {
        "boundary": finish(
            figure, "Boundary values: what is predicted as the query goes far", below, 380
        )
    }


def layers(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Figure]:
    """Left, what the lens reads after each block along x; right, its R² over many functions."""
    lens, table = results.get("lens"), results.get("r2")
    if not isinstance(lens, DataArray) or not isinstance(table, DataFrame):
        return {}
    figure, domains = go.Figure(), [(0.0, 0.55), (0.65, 1.0)]
    names = list(lens.indexes["layer"])
    for i, name in enumerate(names):
        colour = RAMP[min(len(RAMP) - 1, round(i * (len(RAMP) - 1) / max(1, len(names) - 1)))]
        _line(
            figure,
            name,
            lens["x"].values,
            lens.sel(layer=name, statistic="mean").values,
            "x",
            colour,
            True,
            "solid",
            2.2,
        )
    _line(
        figure,
        "the function",
        lens["x"].values,
        lens.sel(layer=names[-1], statistic="truth").values,
        "x",
        INK,
        True,
        "dot",
        1.6,
    )
    rows = table.to_dict("records")
    # A lens that is far off has R² far below 0; the axis stops at -1 and the hover tells the
    # number.
    r2 = [max(-1.0, row["r2"]) for row in rows]
    hover = [f"{number(row['r2'])} [{number(row['low'])}, {number(row['high'])}]" for row in rows]
    square = [row["correlation squared"] for row in rows]
    for name, values, text, colour in (
        ("R² of the lens", r2, hover, BLUE),
        ("scale and shift set right", square, [number(v) for v in square], GREY),
    ):
        figure.add_trace(
            go.Scatter(
                x=[plain(n) for n in names],
                y=values,
                text=text,
                mode="lines+markers",
                name=name,
                line={"color": colour},
                xaxis="x2",
                yaxis="y2",
                hovertemplate="%{x}: %{text}<extra>" + name + "</extra>",
            )
        )
    panel_title(figure, plain(lens.attrs["note"].partition(";")[0]), domains[0])
    panel_title(figure, "many functions", domains[1])
    place(figure, *domains)
    figure.update_layout(
        xaxis_title="query x",
        yaxis_title="lens",
        xaxis2={"type": "category"},
        yaxis2={"title": "R²", "range": [-1.1, 1.1]},
    )
    below = f"{plain(table.attrs['note'])}.<br>R² below −1 is drawn at −1."
    return {"layers": finish(figure, "Predictions over layers, by the logit lens", below, 360)}


def appendix_g(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Figure]:
    """A panel a sum: how far what heads read is from the exact limit and from the paper's, along |x|."""
    gaps = results.get("gaps")
    if not isinstance(gaps, DataArray):
        return {}
    sums, looks = (
        list(gaps.indexes["sum"]),
        {"exact limit": (BLUE, "solid"), "paper": (ORANGE, "dash")},
    )
    names = {"exact limit": "the exact limit", "paper": "the paper's"}
    shown = np.maximum(np.asarray(gaps.values), ROUNDING)
    axis = log_axis("", ROUNDING / 3, float(np.nanmax(shown)) * 3)
    figure, domains = go.Figure(), _domains(len(sums))
    for i, name in enumerate(sums):
        axes = _axes(i)
        for formula, (colour, dash) in looks.items():
            values = np.maximum(gaps.sel(sum=name, formula=formula).values, ROUNDING)
            _line(
                figure,
                f"distance from {names[formula]}",
                gaps["x"].values,
                values,
                axes,
                colour,
                i == 0,
                dash,
                2.2,
            )
            if formula != "paper" and name.startswith("S1"):
                traces_of(figure)[-1].line.width = 5  # the paper's line lies on it
        panel_title(figure, plain(name), domains[i])
        figure.update_layout(
            {
                f"xaxis{axes[1:]}": log_axis("|x| of the query", 1, float(gaps["x"].values.max())),
                f"yaxis{axes[1:]}": axis,
            }
        )
    place(figure, *domains)
    figure.update_layout(yaxis_title="largest gap, in units of the tokens")
    below = (
        f"{plain(gaps.attrs['note'])}.<br>Gaps below 10<sup>-12</sup>, which is rounding, are "
        "drawn there."
    )
    return {
        "gaps": finish(
            figure,
            "What a head reads far out: distance from each formula for the limit",
            below,
            360,
        )
    }


def softmax_examples(
    results: Mapping[str, Result], comparison: DataFrame | None
) -> dict[str, Figure]:
    """The weights of each vector, a row each: those with the same gaps look the same, whatever their size."""
    table = results.get("softmax")
    if not isinstance(table, DataFrame):
        return {}
    figure = go.Figure()
    names = list(dict.fromkeys(table["vector"]))
    for name in names:
        rows = [row for row in table.to_dict("records") if row["vector"] == name]
        label = f"{name}: {number(rows[0]['value'])} … {number(rows[-1]['value'], 5)}"
        figure.add_trace(
            go.Scatter(
                x=[row["softmax"] for row in rows],
                y=[label] * len(rows),
                mode="markers",
                showlegend=False,
                text=[number(row["value"], 6) for row in rows],
                marker={
                    "size": 11,
                    "color": BLUE if name in ("a", "b", "c") else ORANGE,
                    "opacity": 0.7,
                },
                hovertemplate="softmax of %{text}: %{x:.6f}<extra></extra>",
            )
        )
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(title="softmax weight", range=[-0.02, 1.02])
    below = (
        "Blue: the paper's three vectors. Orange: the same moved or stretched. Equal gaps, equal "
        "weights."
    )
    return {"softmax": finish(figure, "Softmax sees gaps, not sizes", below, 260, l=190)}


def _domains(n: int) -> list[tuple[float, float]]:
    gap = 0.06 if n > 1 else 0
    return [(i / n + gap * (i > 0), (i + 1) / n) for i in range(n)]


def _axes(i: int) -> str:
    """The x axis of a panel; its y axis has the same number."""
    return "x" if i == 0 else f"x{i + 1}"


def _band(figure: Figure, curve: DataArray, xs: np.ndarray, axes: str, legend: bool) -> None:
    low, high = curve.sel(statistic="low").values, curve.sel(statistic="high").values
    figure.add_trace(
        go.Scatter(
            x=np.concatenate([xs, xs[::-1]]),
            y=np.concatenate([high, low[::-1]]),
            fill="toself",
            fillcolor=BLUE,
            opacity=0.2,
            line={"width": 0},
            hoverinfo="skip",
            showlegend=False,
            xaxis=axes,
            yaxis=f"y{axes[1:]}",
        )
    )
    _line(
        figure,
        "model",
        xs,
        curve.sel(statistic="mean").values,
        axes,
        BLUE,
        legend,
        "solid",
        2.2,
        curve["x"].values,
    )


def _line(
    figure: Figure,
    name: str,
    xs: Values,
    ys: Values,
    axes: str,
    colour: str,
    legend: bool,
    dash: str,
    width: float,
    true_xs: Values | None = None,
) -> None:
    """A line whose hover shows x itself, not its place on a symmetric-log axis."""
    figure.add_trace(
        go.Scatter(
            x=xs,
            y=ys,
            customdata=xs if true_xs is None else true_xs,
            mode="lines",
            name=plain(name),
            showlegend=legend,
            legendgroup=name,
            line={"color": colour, "dash": dash, "width": width},
            xaxis=axes,
            yaxis=f"y{axes[1:]}",
            hovertemplate="x = %{customdata:.4g}: %{y:.5g}<extra>" + plain(name) + "</extra>",
        )
    )
