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
FITTED = "fitted, S from 10⁴ on"
LISTED = ("d = 2", "d = 3", "d = 5", "d = 10", ASYMPTOTE)  # first in the legend


def theorem2(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Four panels: for long prompts, by n, by L / sigma, and the exponents."""
    long = results.get("long")
    by_n = results.get("by n")
    by_ratio = results.get("by ratio")
    # What is not there has no panel.
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
    large = x >= 1000  # what the asymptote is about
    for d, colour in zip(found.indexes["d"], COLOURS, strict=False):
        here = found.sel(d=d)
        w = here.sel(line="exact").values
        end = here.sel(line="asymptote").values
        dotted = Line(x[large], end[large], name=ASYMPTOTE, colour=GREY, dash="dot", hover="")
        marks.append(Line(x, w, name=f"d = {d}", colour=colour))
        marks.append(dotted)
    across = Axis("S = n L² / σ²", log=True)
    return Panel("Long prompts", across, Axis(W, log=True), marks)


def _by_n(found: DataArray) -> Panel:
    marks: list[Mark] = []
    for d, colour in zip(found.indexes["d"], COLOURS, strict=False):
        marks += _measured(found.sel(d=d), "n", f"d = {d}", colour)
    title = "Finite prompts, L = 1, σ = 0.1"
    x = Axis("examples n", log=True)
    return Panel(title, x, Axis(W, log=True), marks)


def _by_ratio(found: DataArray, clean: Sequence[Mapping[str, Any]]) -> Panel:
    marks: list[Mark] = []
    lengths = found.indexes["n"]
    for n, symbol in zip(lengths, SYMBOLS, strict=False):
        marks += _measured(found.sel(n=n), "L/σ", f"d = 3, n = {n:,}", INK, symbol)
    for row in clean:  # where L >> sigma leads at this n
        if row["d"] == 3:
            marks.append(Rule(y=row["w*"], colour=GREY, name=WITHOUT))
    last = float(found["L/σ"].values[-1])
    x = Axis("L / σ", high=last * 1.3, log=True)
    return Panel("L far above σ", x, Axis(W, log=True), marks)


def _measured(
    found: DataArray, axis: str, name: str, colour: str, symbol: str = "circle"
) -> list[Mark]:
    """A line with marks and its interval."""
    x = found[axis].values
    w = found.sel(statistic="w").values
    low = found.sel(statistic="low").values
    high = found.sel(statistic="high").values
    band = Band(x, low, high, colour=colour)
    line = Line(x, w, name=name, colour=colour, symbol=symbol, size=6)
    return [band, line]


def _exponents(slopes: Sequence[Mapping[str, Any]]) -> Panel:
    """The fitted slope of each d in the interval of Theorem 2."""
    # Grey bars are the printed intervals.
    names = []
    marks: list[Mark] = []
    for at, row in enumerate(slopes):
        names.append(f"d = {row['d']}")
        ends = [row["1/d"], row["2/d"]]
        marks.append(Line(ends, [at, at], name=PRINTED, colour=PALE, width=8))
    table = DataFrame(slopes)
    colours = COLOURS[: len(table)]
    places = table.index.to_numpy()
    sharp = table["2/(d+2)"]
    marks.append(Points(sharp, places, name="2/(d+2)", colour=GREY, symbol="line-ns-open", size=14))
    value = table["slope"]
    low = table["low"]
    high = table["high"]
    marks.append(Points(value, places, low, high, name=FITTED, colour=colours))
    x = Axis("exponent of S", 0.0, 1.05)
    return Panel("Exponents", x, rows(names), marks)
