"""The figure of `lipschitz.theorem2`: the best window against what Theorem 2 says it depends on."""

from collections.abc import Mapping, Sequence
from typing import Any

from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments.errors import rows_of
from icl_interp.figures.colours import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE
from icl_interp.figures.drawing import Axis, Band, Drawing, Line, Mark, Panel, Points, Rule, rows
from icl_interp.figures.text import markup
from icl_interp.results import Result

COLOURS = (BLUE, ORANGE, GREEN, PURPLE)
SYMBOLS = ("circle", "diamond", "square", "triangle-up")
W = markup("w<sub>KQ</sub>")
WITHOUT = "best without noise"
ASYMPTOTE = "asymptote"
PRINTED = "between 1/d and 2/d, as printed"
LISTED = (*(f"d = {d}" for d in (2, 3, 5, 10)), ASYMPTOTE)  # first in the legend


def theorem2(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Four panels: for long prompts, by n, by L / sigma, and the exponents."""
    long, by_n, by_ratio = (results.get(name) for name in ("long", "by n", "by ratio"))
    panels = []
    if isinstance(long, DataArray):
        panels.append(_long(long))
    if isinstance(by_n, DataArray):
        panels.append(_by_n(by_n))
    if isinstance(by_ratio, DataArray):
        panels.append(_by_ratio(by_ratio, rows_of(results, "noiseless")))
    if slopes := rows_of(results, "slopes"):
        panels.append(_exponents(slopes))
    if not panels:
        return {}
    below = markup(
        "Long prompts: without sampling. Bands: 95 % intervals of the Monte Carlo at finite n."
    )
    title = "The best window against what Theorem 2 says it depends on"
    return {"theorem2": Drawing(title, below, panels, height=290, legend=LISTED)}


def _long(found: DataArray) -> Panel:
    marks: list[Mark] = []
    x = found["S"].values
    for d, colour in zip(found.indexes["d"], COLOURS, strict=False):
        marks.append(Line(x, found.sel(d=d, line="exact").values, name=f"d = {d}", colour=colour))
        # Large S is what the asymptote is about.
        large = x >= 1000
        end = found.sel(d=d, line="asymptote").values[large]
        marks.append(
            Line(x[large], end, name=ASYMPTOTE, colour=GREY, dash="dot", width=1.5, hover="")
        )
    return Panel("Long prompts", Axis("S = n L² / σ²", log=True), Axis(W, log=True), marks)


def _by_n(found: DataArray) -> Panel:
    marks: list[Mark] = []
    dimensions = list(found.indexes["d"])
    for d, colour in zip(dimensions, COLOURS, strict=False):
        marks += _measured(found.sel(d=d), "n", f"d = {d}", colour)
    return Panel(
        "Finite prompts, L = 1, σ = 0.1", Axis("examples n", log=True), Axis(W, log=True), marks
    )


def _by_ratio(found: DataArray, clean: Sequence[Mapping[str, Any]]) -> Panel:
    marks: list[Mark] = []
    last = float(found["L/σ"].values[-1])
    for n, symbol in zip(found.indexes["n"], SYMBOLS, strict=False):
        marks += _measured(found.sel(n=n), "L/σ", f"d = 3, n = {n:,}", INK, symbol)
        for row in clean:
            if row["n"] == n and row["d"] == 3:  # where L >> sigma leads at this n
                marks.append(Rule(y=row["w*"], dash="dot", colour=GREY, name=WITHOUT))
    x = Axis("L / σ", high=last * 1.3, log=True)
    return Panel("L far above σ", x, Axis(W, log=True), marks)


def _measured(
    found: DataArray, axis: str, name: str, colour: str, symbol: str = "circle"
) -> list[Mark]:
    """A line with marks and its interval."""
    x = found[axis].values
    w, low, high = (found.sel(statistic=key).values for key in ("w", "low", "high"))
    return [
        Band(x, low, high, colour=colour),
        Line(x, w, name=name, colour=colour, symbol=symbol, size=6),
    ]


def _exponents(slopes: Sequence[Mapping[str, Any]]) -> Panel:
    """The fitted slope of each d in the interval of Theorem 2."""
    places = list(range(len(slopes)))
    printed = [
        Line([row["1/d"], row["2/d"]], [at, at], name=PRINTED, colour=PALE, width=8)
        for at, row in zip(places, slopes, strict=True)
    ]
    sharp = Points(
        [row["2/(d+2)"] for row in slopes],
        places,
        name="2/(d+2)",
        colour=GREY,
        symbol="line-ns-open",
        size=14,
    )
    fitted = Points(
        [row["slope"] for row in slopes],
        places,
        [row["low"] for row in slopes],
        [row["high"] for row in slopes],
        name="fitted, S from 10⁴ on",
        colour=[*COLOURS[: len(slopes)]],
    )
    names = [f"d = {row['d']}" for row in slopes]
    x = Axis("exponent of S", 0.0, 1.05)
    return Panel("Exponents", x, rows(names), [*printed, sharp, fitted])
