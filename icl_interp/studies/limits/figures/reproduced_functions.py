"""Figures of experiments on functions: predictions along x, by layer, and softmax of vectors."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.colours import BLUE, GREEN, GREY, INK, ORANGE
from icl_interp.figures.drawing import Axis, Band, Drawing, Line, Mark, Panel, Points, Rule, rows
from icl_interp.figures.style import ranged
from icl_interp.figures.text import number, plain
from icl_interp.results import Result

RAMP = ("#C6DBEF", "#9ECAE1", "#6BAED6", "#4292C6", "#2171B5", "#08519C", "#08306B")
ROUNDING = 1e-12
HOVER = "x = {x:.4g}: {y:.5g}"
PAPERS = ("a", "b", "c")  # vectors that the paper has


def followed(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """A panel a function: the model's mean with its band over contexts, and the function."""
    curves = _curves(results)
    if not curves:
        return {}
    panels = []
    for i, (name, curve) in enumerate(curves.items()):
        marks = [*_model(curve), _truth(curve)]
        panels.append(Panel(name, Axis("query x"), Axis("" if i else "f(x)"), marks))
    below = (
        f"{plain(next(iter(curves.values())).attrs['note'])}.<br>Line: mean over contexts; band: 5 "
        "to 95 % of contexts."
    )
    title = "Functions that the model was not trained on"
    return {"predictions": Drawing(title, below, panels, height=360)}


def _curves(results: Mapping[str, Result]) -> dict[str, DataArray]:
    return {name: found for name, found in results.items() if isinstance(found, DataArray)}


def _model(curve: DataArray) -> list[Mark]:
    """The mean prediction, and the band that holds most contexts."""
    xs = curve["x"].values
    low, mean, high = (curve.sel(statistic=name).values for name in ("low", "mean", "high"))
    line = Line(xs, mean, name="model", width=2.2, hover=HOVER)
    return [Band(xs, low, high, opacity=0.2), line]


def _truth(curve: DataArray) -> Line:
    truth = curve.sel(statistic="truth").values
    look = {"colour": INK, "dash": "dot", "width": 1.6}
    return Line(curve["x"].values, truth, name="the function", hover=HOVER, **look)


def boundary(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """A panel for each function, the query on a symmetric-log axis; certificate and plateaus.

    The plateaus are those by the weights.
    """
    curves = _curves(results)
    if not curves:
        return {}
    facts = {}
    table = results.get("boundary")
    if isinstance(table, DataFrame):
        facts = {row["function"]: row for row in table.to_dict("records")}
    panels = []
    for name, curve in curves.items():
        panels.append(_boundary(name, curve, facts.get(name, {}), not panels))
    below = (
        "The context stays in distribution. Line: mean over contexts; band: 5 to 95 %; the "
        "function leaves the axis."
    )
    title = "Boundary values: what is predicted as the query goes far"
    return {"boundary": Drawing(title, below, panels, height=380)}


def _boundary(name: str, curve: DataArray, fact: Mapping[str, Any], first: bool) -> Panel:
    """One function."""
    xs = curve["x"].values
    marks = _model(curve)
    held = curve.sel(statistic=["mean", "low", "high"]).values.ravel().tolist()
    c, r = fact.get("c", np.nan), fact.get("r", np.nan)
    if np.isfinite([c, r]).all():
        for edge in (c - r, c + r):
            held.append(edge)
            marks.append(Rule(y=edge, colour=GREEN, dash="dash", name="certificate c ± r"))
    for sign, key in ((-1, "plateau -"), (1, "plateau +")):
        plateau = fact.get(key, np.nan)
        if np.isfinite(plateau):
            ends = [sign * 10.0, sign * np.abs(xs).max()]
            words = "plateau, by the weights"
            line = Line(ends, [plateau] * 2, name=words, colour=ORANGE, dash="dash", hover=HOVER)
            marks.append(line)
    marks.append(_truth(curve))
    low, high = ranged(held)  # all but the function
    x = Axis("query x (symmetric-log)", symlog=float(np.abs(xs[xs != 0]).min()), labels=4)
    y = Axis("prediction" if first else "", low, high)
    # A panel has no room for both names of a model.
    title = name if "model" in name else f"{name}, {fact.get('model', '')}"
    return Panel(title, x, y, marks)


def layers(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Left, what the lens reads after each block along x; right, its R² over many functions."""
    lens, table = results.get("lens"), results.get("r2")
    if not isinstance(lens, DataArray) or not isinstance(table, DataFrame):
        return {}
    names = list(lens.indexes["layer"])
    marks: list[Mark] = []
    for name, at in zip(names, np.linspace(0, len(RAMP) - 1, len(names)), strict=True):
        mean = lens.sel(layer=name, statistic="mean").values
        colour = RAMP[round(at)]
        line = Line(lens["x"].values, mean, name=name, colour=colour, width=2.2, hover=HOVER)
        marks.append(line)
    marks.append(_truth(lens.sel(layer=names[-1])))
    one = Panel(lens.attrs["note"].partition(";")[0], Axis("query x"), Axis("lens"), marks, 1.55)
    below = f"{plain(table.attrs['note'])}.<br>R² below −1 is drawn at −1."
    drawing = Drawing("Predictions over layers, by the logit lens", below, [one, _r2(table)], 360)
    return {"layers": drawing}


def _r2(table: DataFrame) -> Panel:
    """R² of the lens by depth.

    A lens that is far off has R² far below 0; the axis stops at -1 and the hover tells the number.
    """
    places = np.arange(len(table))
    texts = []
    for row in table.to_dict("records"):
        texts.append(f"{number(row['r2'])} [{number(row['low'])}, {number(row['high'])}]")
    own = Line(places, table["r2"], name="R² of the lens", symbol="circle", size=6, texts=texts)
    squared = Line(
        places,
        table["correlation squared"],
        name="scale and shift set right",
        colour=GREY,
        symbol="circle",
        size=6,
        hover="{y:.3g}",
    )
    x = Axis(ticks=dict(enumerate(table["layer"])))
    return Panel("many functions", x, Axis("R²", -1.1, 1.1, least=-1.0), [own, squared])


def appendix_g(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """A panel for each sum: how far readings are from two limits, along |x|.

    The limits are the exact one and the paper's.
    """
    gaps = results.get("gaps")
    if not isinstance(gaps, DataArray):
        return {}
    xs = gaps["x"].values
    panels = []
    for name in gaps.indexes["sum"]:
        # The paper's line lies on the exact one where both formulas agree.
        wide = 5.0 if name.startswith("S1") else 2.2
        exact = gaps.sel(sum=name, formula="exact limit").values
        paper = gaps.sel(sum=name, formula="paper").values
        words = "distance from the paper's"
        marks = [
            Line(xs, exact, name="distance from the exact limit", width=wide, hover=HOVER),
            Line(xs, paper, name=words, colour=ORANGE, dash="dash", width=2.2, hover=HOVER),
        ]
        x = Axis("|x| of the query", 1, float(xs.max()), log=True)
        y = Axis("largest gap, in units of the tokens", log=True, least=ROUNDING)
        panels.append(Panel(name, x, y, marks))
    below = (
        f"{plain(gaps.attrs['note'])}.<br>Gaps below 10<sup>-12</sup>, which is rounding, are "
        "drawn there."
    )
    title = "What a head reads far out: distance from each formula for the limit"
    return {"gaps": Drawing(title, below, panels, height=360, same_y=True)}


def softmax_examples(
    results: Mapping[str, Result], comparison: DataFrame | None
) -> dict[str, Drawing]:
    """The weights of each vector, a row each: those with the same gaps look the same.

    This holds whatever the size of a vector.
    """
    table = results.get("softmax")
    if not isinstance(table, DataFrame):
        return {}
    marks: list[Mark] = []
    labels = []
    for row, (name, part) in enumerate(table.groupby("vector", sort=False)):
        values = part["value"].tolist()
        labels.append(f"{name}: {number(values[0])} … {number(values[-1], 5)}")
        points = Points(
            part["softmax"],
            np.full(len(values), row),
            colour=BLUE if name in PAPERS else ORANGE,
            size=11,
            opacity=0.7,
            texts=[number(value, 6) for value in values],
            hover="softmax of {text}: {x:.6f}",
        )
        marks.append(points)
    below = (
        "Blue: the paper's three vectors. Orange: the same moved or stretched. Equal gaps, equal "
        "weights."
    )
    panel = Panel("", Axis("softmax weight", -0.02, 1.02), rows(labels), marks)
    return {"softmax": Drawing("Softmax sees gaps, not sizes", below, [panel], height=260)}
