"""The figures of `lipschitz.bias_noise`: bias, noise and their sum against w, and what the slides print of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go
from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments.errors import rows_of
from icl_interp.figures.grid import Drawn, add_line, add_panel, spans, whiskers
from icl_interp.figures.style import BLUE, GREEN, GREY, INK, ORANGE, finish, log_axis
from icl_interp.figures.text import plain
from icl_interp.results import Result

LOOKS = {"bias": (BLUE, "circle"), "noise": (ORANGE, "diamond"), "total": (GREEN, "square")}
NAMES = {"bias": "bias", "noise": "noise", "total": "error"}
LOWEST, LEAST_W = 1e-6, 1e-2  # ends of logarithmic axes
UNITS_D = 3  # of trained units


def bias_noise(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """A panel for each d; trained units beside theory in a figure of their own."""
    measured, exact, printed = (results.get(name) for name in ("measured", "theory", "printed"))
    figures: Drawn = {}
    if all(isinstance(found, DataArray) for found in (measured, exact, printed)):
        assert isinstance(measured, DataArray)
        assert isinstance(exact, DataArray)
        assert isinstance(printed, DataArray)
        figures["bias_noise"] = _windows(measured, exact, printed)
    if rows := rows_of(results, "trained"):
        figures["trained"] = _trained(rows, exact if isinstance(exact, DataArray) else None)
    return figures


def _windows(measured: DataArray, exact: DataArray, printed: DataArray) -> go.Figure:
    figure, dimensions = go.Figure(), measured.indexes["d"]
    columns = spans(len(dimensions), 0.05)
    w, fine = measured["w"].values, exact["w"].values
    held = measured.sel(statistic="value").values
    low, high = max(float(held.min()) / 4, LOWEST), float(held.max()) * 4
    for panel, d in enumerate(dimensions):
        add_panel(
            figure,
            panel,
            columns[panel],
            (0.0, 1.0),
            f"d = {d}",
            log_axis("w<sub>KQ</sub>", w[0] / 1.4, w[-1] * 1.4),
            log_axis("mean squared" if panel == 0 else "", low, high),
        )
        for line, colour in zip(printed.indexes["line"], (ORANGE, BLUE, BLUE), strict=True):
            values = printed.sel(d=d, line=line).values
            name = (
                "order as printed"
                if line == printed.indexes["line"][0]
                else "bounds on the bias as printed"
            )
            legend = panel == 0 and line != printed.indexes["line"][2]
            values = np.where((values >= low) & (values <= high), values, np.nan)
            add_line(figure, panel, name, fine, values, colour, "dot", legend, 1.3)
        for part, (colour, symbol) in LOOKS.items():
            add_line(
                figure,
                panel,
                f"{NAMES[part]}, theory",
                fine,
                _lines(exact, d)[part],
                colour,
                legend=False,
            )
            value, se = (
                measured.sel(d=d, part=part, statistic=name).values for name in ("value", "se")
            )
            add_line(
                figure,
                panel,
                NAMES[part],
                w,
                value,
                colour,
                legend=panel == 0,
                mode="markers",
                marker={"color": colour, "symbol": symbol, "size": 7},
                error_y={"array": 2 * se, "thickness": 1.2, "color": colour},
            )
    below = (
        f"{plain(measured.attrs['note'])}. Marks: measured on softmax units, with two standard "
        "errors. Lines: theory."
        "<br>Dotted: what the slides print, with constants 1: noise (w<sup>d/2</sup> + 1)/n; bias "
        "between 1/w² and 1/w + 1/n."
    )
    return finish(figure, "Bias and noise against the width of the window", below, 400)


def _lines(exact: DataArray, d: int, lipschitz: float = 1.0) -> dict[str, np.ndarray]:
    """Theory's bias, noise and their sum at one d, for any L: the bias has the factor L^2."""
    bias, noise = (
        exact.sel(d=d, part=part, statistic="value").values for part in ("bias", "noise")
    )
    return {"bias": lipschitz**2 * bias, "noise": noise, "total": lipschitz**2 * bias + noise}


def _trained(rows: list[dict[str, Any]], exact: DataArray | None) -> go.Figure:
    """Bias, noise and error of each unit on its own task, on theory's lines where there are some for its d."""
    figure, columns = go.Figure(), spans(len(rows), 0.05)
    for panel, row in enumerate(rows):
        lines = (
            _lines(exact, UNITS_D, row["L"])
            if exact is not None and UNITS_D in exact.indexes["d"]
            else {}
        )
        fine = np.array([]) if exact is None else np.asarray(exact["w"].values)
        ends = [max(row["w"], LEAST_W), row["best w"], *(fine.tolist() if lines else ())]
        sizes = [value for line in lines.values() for value in line] + [
            row[key] for key in NAMES.values()
        ]
        limits = max(min(sizes), LOWEST) / 1.5, max(sizes) * 1.5
        add_panel(
            figure,
            panel,
            columns[panel],
            (0.0, 1.0),
            f"trained at L = {row['L']:g}",
            log_axis("w<sub>KQ</sub>", min(ends) / 1.4, max(ends) * 1.4),
            log_axis("mean squared" if panel == 0 else "", *limits),
        )
        for part, line in lines.items():
            add_line(
                figure, panel, f"{NAMES[part]}, theory", fine, line, LOOKS[part][0], legend=False
            )
        for part, (colour, symbol) in LOOKS.items():
            key = NAMES[part]
            add_line(
                figure,
                panel,
                f"{key} of the unit",
                [row["w"]],
                [row[key]],
                colour,
                legend=panel == 0,
                mode="markers",
                marker={
                    "color": colour,
                    "symbol": symbol,
                    "size": 10,
                    "line": {"width": 1, "color": INK},
                },
                error_y=whiskers([row[key]], [row[f"{key}, low"]], [row[f"{key}, high"]]),
            )
        add_line(
            figure,
            panel,
            "best window",
            [row["best w"]] * 2,
            list(limits),
            GREY,
            "dash",
            panel == 0,
            1.3,
        )
    below = (
        "Units trained on F<sub>L</sub><sup>+</sup>, each measured on its own task. Lines: theory "
        "for M = w I."
    )
    return finish(figure, "Where training ends between bias and noise", below, 360)
