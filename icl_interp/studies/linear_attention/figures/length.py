"""The figures of `linear_attention.length_spike`.

They show what untrained positions do beyond the trained length.
"""

from collections.abc import Mapping

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


def length_spike(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """Two figures: replacing the untrained positions, and the rise by test law."""
    curves = {name: result for name, result in results.items() if isinstance(result, DataArray)}
    if not curves:
        return {}
    return {"positions": _positions(curves), "tests": _by_test(curves)}


def _positions(curves: Mapping[str, DataArray]) -> Figure:
    figure, domains = go.Figure(), spans(len(curves), 0.07)
    looks = {
        "as they are": INK,
        "drawn anew": PURPLE,
        "mean trained": BLUE,
        "last trained": GREEN,
        "used again": ORANGE,
        "trained alone": SKY,
        "trained without": INK,
        "least squares": GREY,
    }
    seen: set[str] = set()
    shown: list[list[np.ndarray]] = []
    for i, name in enumerate(curves):
        curve, test = curves[name], "random, c = 1" if "random" in name else "fixed"
        for how in curve.indexes["positions"]:
            mean, low, high = (
                curve.sel(positions=how, test=test, statistic=s).values
                for s in ("mean", "low", "high")
            )
            dash = "dot" if how == "least squares" else "solid"
            # Edits change nothing up to N: they are drawn from there on.
            whole = how in ("least squares", curve.indexes["positions"][0])
            from_n = slice(0 if whole else len(curve["M"].values) // 2 - 1, None)
            if how != "least squares":
                add_band(
                    figure,
                    curve["M"].values[from_n],
                    low[from_n],
                    high[from_n],
                    axes_of(i),
                    looks[how],
                )
            mean = np.maximum(mean, FLOOR)[from_n]
            listed = (
                how not in seen and how != "trained without"
            )  # its panel says so; a legend of one row
            add_line(
                figure, how, curve["M"].values[from_n], mean, axes_of(i), looks[how], listed, dash
            )
            seen.add(how)
        shown.append(
            [
                curve.sel(positions=how, test=test, statistic="mean").values
                for how in curve.indexes["positions"][:-1]
            ]
        )
        panel_title(figure, f"{plain(name)}, on {law(test)}", domains[i])
    held = np.concatenate([np.concatenate(part) for part in shown])
    low, high = float(np.nanmin(held)) / 1.5, float(np.nanmax(held)) * 1.5
    for i, name in enumerate(curves):
        n = len(curves[name]["M"]) // 2
        add_line(figure, "N", [n, n], [low, high], axes_of(i), GREY, False, "dash", 1)
        figure.update_layout(
            {
                f"xaxis{axes_of(i)[1:]}": {"title": {"text": "examples M"}},
                f"yaxis{axes_of(i)[1:]}": log_axis("error / E[y²]" if i == 0 else "", low, high),
            }
        )
    place(figure, *domains)
    below = (
        "Position vectors beyond N (dashed line) were never trained: left as they are, replaced by "
        "trained ones of the same kind of token, drawn anew,<br>or trained with all else fixed. "
        "Bands: 95 % over blocks of prompts."
    )
    return finish(figure, "Beyond the trained length: what untrained positions do", below, 380)


def _by_test(curves: Mapping[str, DataArray]) -> Figure:
    figure, domains = go.Figure(), spans(len(curves), 0.07)
    for i, name in enumerate(curves):
        curve = curves[name]
        n, how = len(curve["M"].values) // 2, curve.indexes["positions"][0]
        for t, test in enumerate(curve.indexes["test"]):
            mean, low, high = (
                curve.sel(positions=how, test=test, statistic=s).values
                for s in ("mean", "low", "high")
            )
            at_n = mean[n - 1]
            add_band(figure, curve["M"].values, low / at_n, high / at_n, axes_of(i), COLOURS[t])
            add_line(
                figure,
                f"tested on {law(test)}",
                curve["M"].values,
                mean / at_n,
                axes_of(i),
                COLOURS[t],
                i == 0,
                "solid",
            )
        highest = curve.sel(positions=how, statistic="high").values[:, n:]
        rises = highest / curve.sel(positions=how, statistic="mean").values[:, n - 1 : n]
        top = max(3.0, 1.3 * float(np.nanmax(rises)))
        suffix = axes_of(i)[1:]
        add_line(figure, "N", [n, n], [1e-3, 1e4], axes_of(i), GREY, False, "dash", 1)
        figure.update_layout(
            {
                f"xaxis{suffix}": {"title": {"text": "examples M"}},
                f"yaxis{suffix}": log_axis("error / error at N" if i == 0 else "", 0.1, top),
            }
        )
        panel_title(figure, plain(name), domains[i])
    place(figure, *domains)
    below = (
        "Positions as they are, error relative to the error at M = N (dashed): does the rise "
        "shrink at higher variance?"
    )
    return finish(figure, "The rise beyond N, by test law", below, 340)
