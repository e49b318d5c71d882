"""The figure of `lipschitz.window`: functions, attention against distance and error against n, a column for each L."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments.errors import rows_of
from icl_interp.figures.grid import Drawn, add_band, add_line, add_panel, spans
from icl_interp.figures.style import GREY, INK, PALE, finish, log_axis, ranged
from icl_interp.results import Result
from icl_interp.studies.lipschitz.figures.colours import colour_of

SHADE = "#9A9A9A"  # of the noise of labels
SHOWN = 100  # decades of attention that are drawn, as a factor below the largest


def window(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """Three rows, as in the slides; a column for each Lipschitz constant."""
    functions, attention, curves = (
        results.get(name) for name in ("functions", "attention", "errors")
    )
    if not all(isinstance(found, DataArray) for found in (functions, attention, curves)):
        return {}
    assert isinstance(functions, DataArray)
    assert isinstance(attention, DataArray)
    assert isinstance(curves, DataArray)
    figure, sizes = go.Figure(), functions.indexes["L"]
    columns, rows = spans(len(sizes), 0.075), spans(3, 0.11)[::-1]
    for column, lipschitz in enumerate(sizes):
        known = rows_of(results, "windows", L=lipschitz)
        _functions(figure, column, columns[column], rows[0], functions, lipschitz, known)
        _attention(
            figure, len(sizes) + column, columns[column], rows[1], attention, lipschitz, known
        )
        _errors(figure, 2 * len(sizes) + column, columns[column], rows[2], curves, lipschitz)
    below = (
        "Top: functions of the class along a great circle through the query, the noise of labels "
        "shaded (± σ); between the dotted lines a key has at least half<br>the weight of one at "
        "the query. Middle: what the unit trained at this L pays to a key, in units of 1/n, 80 % "
        "of keys shaded; dashed, the window of least loss.<br>Bottom: each unit on this task, "
        "trained at n = 100 (dotted line); dashed, the window that is best at each n."
    )
    return {
        "window": finish(figure, "Attention windows for three Lipschitz constants L", below, 780)
    }


def _functions(
    figure: go.Figure,
    panel: int,
    across: tuple[float, float],
    up: tuple[float, float],
    functions: DataArray,
    lipschitz: float,
    known: Sequence[Mapping[str, float]],
) -> None:
    angles = np.degrees(functions["angle"].values)
    values = functions.sel(L=lipschitz).values
    limits = ranged([*values.ravel().tolist(), -1.3, 1.3])
    axis = {"title": {"text": "f(x) − f(x<sub>q</sub>)" if panel == 0 else ""}, "range": limits}
    ticks = {
        "range": [-180, 180],
        "tickvals": [-180, -90, 0, 90, 180],
        "title": {"text": "angle to the query, °"},
    }
    add_panel(figure, panel, across, up, f"L = {lipschitz:g}", ticks, axis)
    ends = np.array([-180.0, 180.0])
    add_band(figure, panel, ends, -np.ones(2), np.ones(2), SHADE, "± σ" if panel == 0 else "", 0.25)
    for profile in values:
        add_line(
            figure,
            panel,
            "functions",
            angles,
            profile,
            colour_of(lipschitz),
            legend=False,
            width=1.4,
        )
    for row in known:
        for side in (-1, 1):
            place = [side * row["half-weight angle"]] * 2
            add_line(
                figure, panel, "half weight", place, limits, INK, "dot", legend=False, width=1.2
            )


def _attention(
    figure: go.Figure,
    panel: int,
    across: tuple[float, float],
    up: tuple[float, float],
    attention: DataArray,
    lipschitz: float,
    known: Sequence[Mapping[str, float]],
) -> None:
    at, first = attention.sel(L=lipschitz), panel == len(attention.indexes["L"])
    apart = attention["distance"].values
    mean, low, high = (at.sel(statistic=name).values for name in ("mean", "low", "high"))
    top = float(np.nanmax(attention.values)) * 1.5
    add_panel(
        figure,
        panel,
        across,
        up,
        "",
        {"range": [0, 2], "title": {"text": "distance of the key from the query"}},
        log_axis("n × attention" if first else "", top / 10 ** np.ceil(np.log10(top * SHOWN)), top),
    )
    add_band(figure, panel, apart, low, high, colour_of(lipschitz))
    add_line(
        figure,
        panel,
        "attention",
        apart,
        mean,
        colour_of(lipschitz),
        legend=False,
        mode="lines+markers",
    )
    for row in known:
        add_line(
            figure,
            panel,
            "least loss",
            apart,
            _ideal(row["best w"], apart),
            INK,
            "dash",
            legend=first,
            width=1.4,
        )


def _ideal(w: float, apart: np.ndarray) -> np.ndarray:
    """e^(w t) / Z(w) at the cosine t that belongs to a distance: n times the attention in long prompts, for d = 3."""
    size = np.exp(w * (1 - apart**2 / 2) - w)  # over e^w, so that it does not overflow
    return size * 2 * w / (1 - np.exp(-2 * w))


def _errors(
    figure: go.Figure,
    panel: int,
    across: tuple[float, float],
    up: tuple[float, float],
    curves: DataArray,
    lipschitz: float,
) -> None:
    sizes, lengths, first = (
        curves.indexes["L"],
        curves["n"].values,
        panel == 2 * len(curves.indexes["L"]),
    )
    at = curves.sel(L=lipschitz)
    limits = at.values.min() / 1.3, at.values.max() * 1.3
    add_panel(
        figure,
        panel,
        across,
        up,
        "",
        log_axis("labelled examples n", lengths[0] / 1.2, lengths[-1] * 1.2),
        log_axis("squared error at the query" if first else "", *limits),
    )
    add_line(
        figure, panel, "n of training", [100, 100], list(limits), PALE, "dot", legend=False, width=1
    )
    for unit, size in zip(curves.indexes["unit"], sizes, strict=False):
        mean, low, high = (
            at.sel(unit=unit, statistic=name).values for name in ("mean", "low", "high")
        )
        add_band(figure, panel, lengths, low, high, colour_of(size))
        add_line(
            figure, panel, unit, lengths, mean, colour_of(size), legend=first, mode="lines+markers"
        )
    best = at.sel(unit=curves.indexes["unit"][-1], statistic="mean").values
    add_line(figure, panel, curves.indexes["unit"][-1], lengths, best, GREY, "dash", legend=first)
