"""The figures of the experiments of `linear_attention`: excess along training, error by prompt length, ends."""

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
    PURPLE,
    SKY,
    YELLOW,
    finish,
    log_axis,
    panel_title,
    place,
)
from icl_interp.figures.text import plain
from icl_interp.results import Result

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW)
FLOOR = 1e-5  # least squares is exact from d examples on: it would stretch every axis by twenty decades
Drawn = dict[str, Figure]


def convergence(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """Left, excess along flow and SGD with the exponential bound; right, drift of the balance by the step."""
    flow, sgd, drift = results.get("flow"), results.get("sgd"), results.get("drift")
    if not isinstance(flow, DataArray) or not isinstance(sgd, DataArray) or not isinstance(drift, DataFrame):
        return {}
    figure, domains = go.Figure(), [(0.0, 0.62), (0.72, 1.0)]
    shown = flow["t"].values > 0
    for i, start in enumerate(flow.indexes["start"]):
        for line, dash in (("flow", "solid"), ("bound", "dash")):
            values = flow.sel(start=start, line=line).values[shown]
            if not np.isnan(values).all():
                name = f"flow from {start:g} σ<sub>max</sub>" if line == "flow" else "bound e<sup>−μt</sup>"
                values = np.where(values > 1e-12, values, np.nan)
                _line(figure, name, flow["t"].values[shown], values, "x", COLOURS[i], line == "flow" or i == 0, dash)
    at = sgd["t"].values > 0
    figure.add_trace(go.Scatter(
        x=sgd["t"].values[at], y=sgd.values[at], mode="markers", name="SGD on sampled prompts, from the first start",
        marker={"size": 5, "color": INK}, hovertemplate="t = %{x:.3g}: %{y:.3g}<extra>SGD</extra>",
    ))  # fmt: skip
    steps, worst = (np.array(drift[key], dtype=float) for key in ("step", "largest imbalance"))
    _line(figure, "u² − |U|²", steps, worst, "x2", INK, False, "solid", mode="lines+markers")
    _line(figure, "proportional to the step", steps, worst[-1] * steps / steps[-1], "x2", GREY, False, "dot")
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
    below = f"{note}. Left: exact flow, its exponential bound, SGD. Right: balance, which the flow conserves."
    return {"convergence": finish(figure, "Training a layer of linear self-attention", below, 380)}


def covariance(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """A panel for each training law and N: error by M on each test law, the LSA limit dashed in the same colour."""
    curve = results.get("errors")
    if not isinstance(curve, DataArray):
        return {}
    kinds, lengths, tests = (curve.indexes[name] for name in ("trained on", "N", "test"))
    figure = go.Figure()
    values = np.asarray(curve.values)
    top = float(np.nanmax(values[..., curve.indexes["predictor"].get_loc("softmax"), 0, :])) * 1.5
    rows = _spans(len(kinds), 0.12)[::-1]
    columns = _spans(len(lengths), 0.04)
    for r, kind in enumerate(kinds):
        for c, n in enumerate(lengths):
            panel = r * len(lengths) + c
            axes, first = _axes(panel), panel == 0
            seen = curve["M"].values <= 2 * n
            best = curve.sel(
                **{"trained on": kind}, N=n, test=tests[0], predictor="least squares", statistic="mean"
            ).values[seen]
            _line(figure, "least squares", curve["M"].values[seen], np.maximum(best, FLOOR), axes, GREY, first, "dot")
            for t, test in enumerate(tests):
                key = {"trained on": kind, "N": n, "test": test}
                name, colour = _law(test), COLOURS[t]
                mean, low, high = (
                    curve.sel(**key, predictor="softmax", statistic=s).values[seen] for s in ("mean", "low", "high")
                )
                _band(figure, curve["M"].values[seen], low, high, axes, colour)
                _line(figure, f"on {name}", curve["M"].values[seen], mean, axes, colour, first, "solid")
                limit = curve.sel(**key, predictor="LSA limit", statistic="mean").values[seen]
                shown = first and t == 0
                _line(figure, "LSA limit", curve["M"].values[seen], limit, axes, colour, shown, "dash", 1.3)
            _line(figure, "M = N", [n, n], [FLOOR, top], axes, GREY, False, "dash", 1)
            suffix = axes[1:]
            figure.update_layout({
                f"xaxis{suffix}": {"domain": columns[c], "anchor": f"y{suffix}", "range": [0.5, 2 * n + 0.5],
                                   "title": {"text": "examples M" if r == len(kinds) - 1 else ""}},
                f"yaxis{suffix}": {**log_axis("error / E[y²]" if c == 0 else "", 1e-3, top), "domain": rows[r],
                                   "anchor": f"x{suffix}", "showticklabels": c == 0},
            })  # fmt: skip
            figure.add_annotation(
                text=f"<b>trained on {kind} Λ, N = {n}</b>", xref="paper", yref="paper", x=columns[c][0],
                y=rows[r][1], xanchor="left", yanchor="bottom", showarrow=False, name="panel",
            )  # fmt: skip
    below = (
        "Solid: softmax model, with 95 % bands; vertical: M = N. Dashed in its colour: the LSA layer that training on "
        "the same prompts<br>converges to, exact. Errors below 10<sup>−3</sup> leave the axis, as do limits far above "
        "E[y²]."
    )
    return {"covariance": finish(figure, "Trained on one covariance or on random ones", below, 640)}


def length_spike(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """One figure of what replacing the untrained positions does, one of how the rise depends on the test law."""
    names = [name for name in results if isinstance(results[name], DataArray)]
    if not names:
        return {}
    return {"positions": _positions(results, names), "tests": _by_test(results, names)}


def _positions(results: Mapping[str, Result], names: Sequence[str]) -> Figure:
    figure, domains = go.Figure(), _spans(len(names), 0.07)
    looks = dict(zip(
        ("as they are", "drawn anew", "mean trained", "last trained", "used again", "trained alone", "trained without",
         "least squares"), (INK, PURPLE, BLUE, GREEN, ORANGE, SKY, INK, GREY), strict=True,
    ))  # fmt: skip
    seen: set[str] = set()
    shown: list[list[np.ndarray]] = []
    for i, name in enumerate(names):
        curve, test = results[name], "random, c = 1" if "random" in name else "fixed"
        for how in curve.indexes["positions"]:
            mean, low, high = (curve.sel(positions=how, test=test, statistic=s).values for s in ("mean", "low", "high"))
            dash = "dot" if how == "least squares" else "solid"
            # Edits change nothing up to N: they are drawn from there on.
            whole = how in ("least squares", curve.indexes["positions"][0])
            from_n = slice(0 if whole else len(curve["M"].values) // 2 - 1, None)
            if how != "least squares":
                _band(figure, curve["M"].values[from_n], low[from_n], high[from_n], _axes(i), looks[how])
            mean = np.maximum(mean, FLOOR)[from_n]
            listed = how not in seen and how != "trained without"  # its panel says so; a legend of one row
            _line(figure, how, curve["M"].values[from_n], mean, _axes(i), looks[how], listed, dash)
            seen.add(how)
        shown.append(
            [curve.sel(positions=how, test=test, statistic="mean").values for how in curve.indexes["positions"][:-1]]
        )
        panel_title(figure, f"{plain(name)}, on {_law(test)}", domains[i])
    held = np.concatenate([np.concatenate(part) for part in shown])
    low, high = float(np.nanmin(held)) / 1.5, float(np.nanmax(held)) * 1.5
    for i, name in enumerate(names):
        n = len(results[name]["M"]) // 2
        _line(figure, "N", [n, n], [low, high], _axes(i), GREY, False, "dash", 1)
        figure.update_layout({
            f"xaxis{_axes(i)[1:]}": {"title": {"text": "examples M"}},
            f"yaxis{_axes(i)[1:]}": log_axis("error / E[y²]" if i == 0 else "", low, high),
        })  # fmt: skip
    place(figure, *domains)
    below = (
        "Position vectors beyond N (dashed line) were never trained: left as they are, replaced by trained ones of the "
        "same kind of token, drawn anew,<br>or trained with all else fixed. Bands: 95 % over blocks of prompts."
    )
    return finish(figure, "Beyond the trained length: what untrained positions do", below, 380)


def _by_test(results: Mapping[str, Result], names: Sequence[str]) -> Figure:
    figure, domains = go.Figure(), _spans(len(names), 0.07)
    for i, name in enumerate(names):
        curve = results[name]
        n, how = len(curve["M"].values) // 2, curve.indexes["positions"][0]
        for t, test in enumerate(curve.indexes["test"]):
            mean, low, high = (curve.sel(positions=how, test=test, statistic=s).values for s in ("mean", "low", "high"))
            at_n = mean[n - 1]
            _band(figure, curve["M"].values, low / at_n, high / at_n, _axes(i), COLOURS[t])
            _line(
                figure, f"tested on {_law(test)}", curve["M"].values, mean / at_n, _axes(i), COLOURS[t], i == 0, "solid"
            )
        top = max(
            3.0,
            1.3
            * max(
                float(
                    np.nanmax(
                        curve.sel(positions=how, test=t, statistic="high").values[n:]
                        / curve.sel(positions=how, test=t, statistic="mean").values[n - 1]
                    )
                )
                for t in curve.indexes["test"]
            ),
        )
        suffix = _axes(i)[1:]
        _line(figure, "N", [n, n], [1e-3, 1e4], _axes(i), GREY, False, "dash", 1)
        figure.update_layout({
            f"xaxis{suffix}": {"title": {"text": "examples M"}},
            f"yaxis{suffix}": log_axis("error / error at N" if i == 0 else "", 0.1, top),
        })  # fmt: skip
        panel_title(figure, plain(name), domains[i])
    place(figure, *domains)
    below = (
        "Positions as they are, error relative to the error at M = N (dashed): does the rise shrink at higher variance?"
    )
    return finish(figure, "The rise beyond N, by test law", below, 340)


def risk_formula(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """A panel for each noise: both formulas over M, and what two layers do."""
    curve, table = results.get("formulas"), results.get("measured")
    if not isinstance(curve, DataArray) or not isinstance(table, DataFrame):
        return {}
    figure, domains = go.Figure(), _spans(len(curve.indexes["noise"]), 0.08)
    layers = list(dict.fromkeys(table["layer"]))
    for i, noise in enumerate(curve.indexes["noise"]):
        axes = _axes(i)
        for formula, colour, dash in zip(curve.indexes["formula"], (BLUE, ORANGE), ("solid", "dash"), strict=True):
            _line(
                figure,
                formula,
                curve["M"].values,
                curve.sel(noise=noise, formula=formula).values,
                axes,
                colour,
                i == 0,
                dash,
            )
        for layer, colour, symbol in zip(layers, (INK, GREEN), ("circle", "diamond-open"), strict=False):
            rows = [row for row in table.to_dict("records") if row["layer"] == layer and row["noise"] == noise]
            figure.add_trace(go.Scatter(
                x=[row["M"] for row in rows], y=[row["error"] for row in rows], mode="markers",
                name=f"measured: {plain(layer)}", showlegend=i == 0, legendgroup=layer,
                error_y={"array": [2 * row["se"] for row in rows], "thickness": 1.2},
                marker={"size": 9, "color": colour, "symbol": symbol}, xaxis=axes, yaxis=f"y{axes[1:]}",
                hovertemplate="M = %{x}: %{y:.4g}<extra>" + plain(layer) + "</extra>",
            ))  # fmt: skip
        held = np.asarray(curve.values)
        figure.update_layout({
            f"xaxis{axes[1:]}": log_axis("examples M", curve["M"].values[0] / 1.3, curve["M"].values[-1] * 1.3),
            f"yaxis{axes[1:]}": log_axis("mean squared error" if i == 0 else "", held.min() / 1.5, held.max() * 1.5),
        })  # fmt: skip
        panel_title(figure, f"label noise τ² = {noise:g}", domains[i])
    place(figure, *domains)
    below = f"{plain(curve.attrs['note'])}. Bars: two standard errors."
    return {"risk": finish(figure, "Theorem 4.2: the risk on prompts of M examples", below, 380)}


def shifts(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """A panel for each N: error at the query by shift, of the softmax model, least squares and the LSA limit."""
    found = results.get("errors")
    if not isinstance(found, DataArray):
        return {}
    figure, domains = go.Figure(), _spans(len(found.indexes["N"]), 0.04)
    names = found.indexes["shift"]
    looks = {
        "softmax": (BLUE, "circle"), "least squares": (GREY, "line-ns-open"), "LSA limit": (ORANGE, "diamond-open"),
    }  # fmt: skip
    held = np.maximum(np.asarray(found.values), FLOOR)
    low, high = held[:, :, 0].min() / 2, held.max() * 2
    for i, n in enumerate(found.indexes["N"]):
        axes = _axes(i)
        for predictor, (colour, symbol) in looks.items():
            mean, lower, upper = (
                np.array(found.sel(N=n, predictor=predictor, statistic=s).values) for s in ("mean", "low", "high")
            )
            off = predictor == "least squares"  # exact without noise: at the edge, not twenty decades further
            shown = np.maximum(mean, low * 1.2) if off else mean
            figure.add_trace(go.Scatter(
                x=shown, y=[plain(n) for n in names], mode="markers", name=predictor, showlegend=i == 0,
                legendgroup=predictor,
                marker={"color": colour, "symbol": symbol, "size": 11 if off else 8, "line": {"width": 2}},
                error_x={"array": upper - mean, "arrayminus": mean - lower, "symmetric": False, "thickness": 1.2},
                xaxis=axes, yaxis=f"y{axes[1:]}", customdata=mean,
                hovertemplate="%{y}: %{customdata:.3g}<extra>" + plain(predictor) + "</extra>",
            ))  # fmt: skip
        suffix = axes[1:]
        figure.update_layout({
            f"xaxis{suffix}": log_axis("error / E[y²]", low, high),
            f"yaxis{suffix}": {"type": "category", "autorange": "reversed", "showticklabels": i == 0, "ticks": ""},
        })  # fmt: skip
        panel_title(figure, f"M = N = {n}", domains[i])
    place(figure, *domains)
    below = (
        "Trained on Λ = I without noise, tested at the query after N examples. Bars: 95 % over blocks of prompts.<br>"
        "Where least squares is exact (all but noisy labels) it stands at the left edge."
    )
    return {"shifts": finish(figure, "Under distribution shift", below, 380)}


def trap(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """A bar for each N: the share of random starts that end at the rank-one point, by their spread."""
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
        xaxis={"title": {"text": "spread of the initial weights"}, "type": "category"}, barmode="group",
        yaxis={"title": {"text": "share at the rank-one point"}, "range": [0, 1]},
    )  # fmt: skip
    return {
        "trap": finish(
            figure, "Random starts that end at a stationary point of rank one", plain(ends.attrs["note"]), 340
        )
    }


# ---- helpers -------------------------------------------------------------------------------------------------------


def _law(test: str) -> str:
    """A test law as readers see it."""
    return "Λ = I" if test == "fixed" else f"random Λ, {test.partition(', ')[2]}"


def _spans(n: int, gap: float) -> list[tuple[float, float]]:
    """n equal parts of 0 .. 1 with gaps between them."""
    width = (1 - gap * (n - 1)) / n
    return [(i * (width + gap), i * (width + gap) + width) for i in range(n)]


def _axes(i: int) -> str:
    return "x" if i == 0 else f"x{i + 1}"


def _band(figure: Figure, xs: np.ndarray, low: np.ndarray, high: np.ndarray, axes: str, colour: str) -> None:
    low, high = np.maximum(low, FLOOR), np.maximum(high, FLOOR)
    figure.add_trace(go.Scatter(
        x=np.concatenate([xs, xs[::-1]]), y=np.concatenate([high, low[::-1]]), fill="toself", fillcolor=colour,
        opacity=0.18, line={"width": 0}, mode="lines", hoverinfo="skip", showlegend=False, xaxis=axes,
        yaxis=f"y{axes[1:]}",
    ))  # fmt: skip


def _line(
    figure: Figure, name: str, xs: Sequence[float] | np.ndarray, ys: Sequence[float] | np.ndarray, axes: str,
    colour: str, legend: bool, dash: str, width: float = 2.0, mode: str = "lines",
) -> None:  # fmt: skip
    figure.add_trace(go.Scatter(
        x=xs, y=ys, mode=mode, name=plain(name), showlegend=legend, legendgroup=name, xaxis=axes, yaxis=f"y{axes[1:]}",
        line={"color": colour, "dash": dash, "width": width},
        hovertemplate="%{x:.3g}: %{y:.3g}<extra>" + plain(name) + "</extra>",
    ))  # fmt: skip
