"""The figures of the experiments of `linear_attention`.

They show excess along training, error by prompt length, and ends.
"""

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go
from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.grid import whiskers
from icl_interp.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    finish,
    log_axis,
    panel_title,
    place,
)
from icl_interp.figures.text import plain
from icl_interp.results import Result
from icl_interp.studies.linear_attention.figures.panels import (
    COLOURS,
    FLOOR,
    Drawn,
    add_band,
    add_line,
    axes_of,
    law,
    spans,
)


def convergence(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """Left, excess along flow and SGD with the bound; right, drift of the balance.

    The drift is by the step.
    """
    flow, sgd, drift = results.get("flow"), results.get("sgd"), results.get("drift")
    if (
        not isinstance(flow, DataArray)
        or not isinstance(sgd, DataArray)
        or not isinstance(drift, DataFrame)
    ):
        return {}
    figure, domains = go.Figure(), [(0.0, 0.62), (0.72, 1.0)]
    shown = flow["t"].values > 0
    for i, start in enumerate(flow.indexes["start"]):
        for line, dash in (("flow", "solid"), ("bound", "dash")):
            values = flow.sel(start=start, line=line).values[shown]
            if not np.isnan(values).all():
                name = (
                    f"flow from {start:g} σ<sub>max</sub>"
                    if line == "flow"
                    else "bound e<sup>−μt</sup>"
                )
                values = np.where(values > 1e-12, values, np.nan)
                add_line(
                    figure,
                    name,
                    flow["t"].values[shown],
                    values,
                    "x",
                    COLOURS[i],
                    line == "flow" or i == 0,
                    dash,
                )
    at = sgd["t"].values > 0
    figure.add_trace(
        go.Scatter(
            x=sgd["t"].values[at],
            y=sgd.values[at],
            mode="markers",
            name="SGD on sampled prompts, from the first start",
            marker={"size": 5, "color": INK},
            hovertemplate="t = %{x:.3g}: %{y:.3g}<extra>SGD</extra>",
        )
    )
    steps, worst = (np.array(drift[key], dtype=float) for key in ("step", "largest imbalance"))
    add_line(figure, "u² − |U|²", steps, worst, "x2", INK, False, "solid", mode="lines+markers")
    add_line(
        figure,
        "proportional to the step",
        steps,
        worst[-1] * steps / steps[-1],
        "x2",
        GREY,
        False,
        "dot",
    )
    panel_title(figure, "excess loss", domains[0])
    panel_title(figure, "largest |u² − |U|²|", domains[1])
    place(figure, *domains)
    figure.update_layout(
        xaxis=log_axis("time t", flow["t"].values[shown][0], flow["t"].values[-1]),
        yaxis=log_axis("l − min l", 1e-12, 10),
        xaxis2=log_axis("step of gradient descent", steps.min() / 1.5, steps.max() * 1.5),
        yaxis2=log_axis("", worst.min() / 2, worst.max() * 2),
    )
    note = plain(flow.attrs["note"])
    below = (
        f"{note}. Left: exact flow, its exponential bound, SGD. Right: balance, which the flow "
        "conserves."
    )
    return {"convergence": finish(figure, "Training a layer of linear self-attention", below, 380)}


def covariance(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """A panel for each training law and N: error by M on each test law.

    The LSA limit is dashed in the same colour.
    """
    curve = results.get("errors")
    if not isinstance(curve, DataArray):
        return {}
    kinds, lengths, tests = (curve.indexes[name] for name in ("trained on", "N", "test"))
    figure = go.Figure()
    values = np.asarray(curve.values)
    top = float(np.nanmax(values[..., curve.indexes["predictor"].get_loc("softmax"), 0, :])) * 1.5
    rows = spans(len(kinds), 0.12)[::-1]
    columns = spans(len(lengths), 0.04)
    for r, kind in enumerate(kinds):
        for c, n in enumerate(lengths):
            panel = r * len(lengths) + c
            axes, first = axes_of(panel), panel == 0
            seen = curve["M"].values <= 2 * n
            best = curve.sel(
                **{"trained on": kind},
                N=n,
                test=tests[0],
                predictor="least squares",
                statistic="mean",
            ).values[seen]
            add_line(
                figure,
                "least squares",
                curve["M"].values[seen],
                np.maximum(best, FLOOR),
                axes,
                GREY,
                first,
                "dot",
            )
            for t, test in enumerate(tests):
                key = {"trained on": kind, "N": n, "test": test}
                name, colour = law(test), COLOURS[t]
                mean, low, high = (
                    curve.sel(**key, predictor="softmax", statistic=s).values[seen]
                    for s in ("mean", "low", "high")
                )
                add_band(figure, curve["M"].values[seen], low, high, axes, colour)
                add_line(
                    figure,
                    f"on {name}",
                    curve["M"].values[seen],
                    mean,
                    axes,
                    colour,
                    first,
                    "solid",
                )
                limit = curve.sel(**key, predictor="LSA limit", statistic="mean").values[seen]
                shown = first and t == 0
                add_line(
                    figure,
                    "LSA limit",
                    curve["M"].values[seen],
                    limit,
                    axes,
                    colour,
                    shown,
                    "dash",
                    1.3,
                )
            add_line(figure, "M = N", [n, n], [FLOOR, top], axes, GREY, False, "dash", 1)
            suffix = axes[1:]
            figure.update_layout(
                {
                    f"xaxis{suffix}": {
                        "domain": columns[c],
                        "anchor": f"y{suffix}",
                        "range": [0.5, 2 * n + 0.5],
                        "title": {"text": "examples M" if r == len(kinds) - 1 else ""},
                    },
                    f"yaxis{suffix}": {
                        **log_axis("error / E[y²]" if c == 0 else "", 1e-3, top),
                        "domain": rows[r],
                        "anchor": f"x{suffix}",
                        "showticklabels": c == 0,
                    },
                }
            )
            figure.add_annotation(
                text=f"<b>trained on {kind} Λ, N = {n}</b>",
                xref="paper",
                yref="paper",
                x=columns[c][0],
                y=rows[r][1],
                xanchor="left",
                yanchor="bottom",
                showarrow=False,
                name="panel",
            )
    below = (
        "Solid: softmax model, with 95 % bands; vertical: M = N. Dashed in its colour: the LSA "
        "layer that training on the same prompts<br>converges to, exact. Errors below "
        "10<sup>−3</sup> leave the axis, as do limits far above E[y²]."
    )
    return {"covariance": finish(figure, "Trained on one covariance or on random ones", below, 640)}


def risk_formula(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """A panel for each noise: both formulas over M, and what two layers do."""
    curve, table = results.get("formulas"), results.get("measured")
    if not isinstance(curve, DataArray) or not isinstance(table, DataFrame):
        return {}
    figure, domains = go.Figure(), spans(len(curve.indexes["noise"]), 0.08)
    layers = list(dict.fromkeys(table["layer"]))
    for i, noise in enumerate(curve.indexes["noise"]):
        axes = axes_of(i)
        for formula, colour, dash in zip(
            curve.indexes["formula"], (BLUE, ORANGE), ("solid", "dash"), strict=True
        ):
            add_line(
                figure,
                formula,
                curve["M"].values,
                curve.sel(noise=noise, formula=formula).values,
                axes,
                colour,
                i == 0,
                dash,
            )
        for layer, colour, symbol in zip(
            layers, (INK, GREEN), ("circle", "diamond-open"), strict=False
        ):
            rows = [
                row
                for row in table.to_dict("records")
                if row["layer"] == layer and row["noise"] == noise
            ]
            figure.add_trace(
                go.Scatter(
                    x=[row["M"] for row in rows],
                    y=[row["error"] for row in rows],
                    mode="markers",
                    name=f"measured: {plain(layer)}",
                    showlegend=i == 0,
                    legendgroup=layer,
                    error_y={"array": [2 * row["se"] for row in rows], "thickness": 1.2},
                    marker={"size": 9, "color": colour, "symbol": symbol},
                    xaxis=axes,
                    yaxis=f"y{axes[1:]}",
                    hovertemplate="M = %{x}: %{y:.4g}<extra>" + plain(layer) + "</extra>",
                )
            )
        held = np.asarray(curve.values)
        figure.update_layout(
            {
                f"xaxis{axes[1:]}": log_axis(
                    "examples M", curve["M"].values[0] / 1.3, curve["M"].values[-1] * 1.3
                ),
                f"yaxis{axes[1:]}": log_axis(
                    "mean squared error" if i == 0 else "", held.min() / 1.5, held.max() * 1.5
                ),
            }
        )
        panel_title(figure, f"label noise τ² = {noise:g}", domains[i])
    place(figure, *domains)
    below = f"{plain(curve.attrs['note'])}. Bars: two standard errors."
    return {"risk": finish(figure, "Theorem 4.2: the risk on prompts of M examples", below, 380)}


def shifts(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """A panel for each N: error at the query by shift.

    The errors are those of the softmax model, least squares and the LSA limit.
    """
    found = results.get("errors")
    if not isinstance(found, DataArray):
        return {}
    figure, domains = go.Figure(), spans(len(found.indexes["N"]), 0.04)
    names = found.indexes["shift"]
    looks = {
        "softmax": (BLUE, "circle"),
        "least squares": (GREY, "line-ns-open"),
        "LSA limit": (ORANGE, "diamond-open"),
    }
    held = np.maximum(np.asarray(found.values), FLOOR)
    low, high = held[:, :, 0].min() / 2, held.max() * 2
    for i, n in enumerate(found.indexes["N"]):
        axes = axes_of(i)
        for predictor, (colour, symbol) in looks.items():
            mean, lower, upper = (
                np.array(found.sel(N=n, predictor=predictor, statistic=s).values)
                for s in ("mean", "low", "high")
            )
            off = (
                predictor == "least squares"
            )  # exact without noise: at the edge, not twenty decades further
            shown = np.maximum(mean, low * 1.2) if off else mean
            figure.add_trace(
                go.Scatter(
                    x=shown,
                    y=[plain(n) for n in names],
                    mode="markers",
                    name=predictor,
                    showlegend=i == 0,
                    legendgroup=predictor,
                    marker={
                        "color": colour,
                        "symbol": symbol,
                        "size": 11 if off else 8,
                        "line": {"width": 2},
                    },
                    error_x=whiskers(mean, lower, upper),
                    xaxis=axes,
                    yaxis=f"y{axes[1:]}",
                    customdata=mean,
                    hovertemplate="%{y}: %{customdata:.3g}<extra>" + plain(predictor) + "</extra>",
                )
            )
        suffix = axes[1:]
        figure.update_layout(
            {
                f"xaxis{suffix}": log_axis("error / E[y²]", low, high),
                f"yaxis{suffix}": {
                    "type": "category",
                    "autorange": "reversed",
                    "showticklabels": i == 0,
                    "ticks": "",
                },
            }
        )
        panel_title(figure, f"M = N = {n}", domains[i])
    place(figure, *domains)
    below = (
        "Trained on Λ = I without noise, tested at the query after N examples. Bars: 95 % over "
        "blocks of prompts.<br>"
        "Where least squares is exact (all but noisy labels) it stands at the left edge."
    )
    return {"shifts": finish(figure, "Under distribution shift", below, 380)}


def trap(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """A bar for each N: the share of random starts that end at the rank-one point.

    Bars are grouped by the spread of the starts.
    """
    ends = results.get("ends")
    if not isinstance(ends, DataArray):
        return {}
    figure = go.Figure()
    for i, n in enumerate(ends.indexes["N"]):
        figure.add_trace(
            go.Bar(
                x=[f"{spread:g}" for spread in ends.indexes["spread"]],
                y=ends.sel(N=n, end="rank one").values,
                name=f"N = {n}",
                marker={"color": COLOURS[i]},
                hovertemplate="spread %{x}: %{y:.0%}<extra>" + f"N = {n}</extra>",
            )
        )
    figure.update_layout(
        xaxis={"title": {"text": "spread of the initial weights"}, "type": "category"},
        barmode="group",
        yaxis={"title": {"text": "share at the rank-one point"}, "range": [0, 1]},
    )
    return {
        "trap": finish(
            figure,
            "Random starts that end at a stationary point of rank one",
            plain(ends.attrs["note"]),
            340,
        )
    }
