"""Figures of `limits.remedies`: every quantity of every model on its own axis, and dispersion."""

from collections.abc import Mapping

from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.colours import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY, YELLOW
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Points, Rule, rows
from icl_interp.figures.text import number, plain
from icl_interp.results import Result

COLUMNS = 2
COLOURS = (INK, BLUE, SKY, GREEN, YELLOW, ORANGE, PURPLE, GREY)
WIDE = 3.0  # quantities whose values differ by more than this factor have a logarithmic axis


def remedies(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Remedies side by side with intervals, and the fall of the largest weight with more keys."""
    figures = {}
    table = results.get("quantities")
    if isinstance(table, DataFrame):
        figures["side_by_side"] = _side_by_side(table)
    curve = results.get("dispersion")
    if isinstance(curve, DataArray):
        figures["dispersion"] = _dispersion(curve)
    return figures


def _short(model: str) -> str:
    return model.removeprefix("remedy_")


def _side_by_side(table: DataFrame) -> Drawing:
    """A panel for each quantity, a row for each model."""
    models = list(dict.fromkeys(map(_short, table["model"])))
    panels = []
    for quantity, rows_of in table.groupby("quantity", sort=False):
        panels.append(_quantity(str(quantity), rows_of, models))
    below = f"{plain(table.attrs['note'])}. Dotted: the baseline (pre-LN, softmax)."
    return Drawing("Remedies side by side", below, panels, 150, columns=COLUMNS, same_y=True)


def _quantity(name: str, table: DataFrame, models: list[str]) -> Panel:
    """A quantity of all models that have it."""
    columns = table[["value", "low", "high"]]
    value, low, high = columns.to_numpy(float).T
    labels = list(map(_short, table["model"]))
    texts = []
    places = list(map(models.index, labels))
    colours = [INK if label == "baseline" else BLUE for label in labels]
    for v, a, b in zip(value, low, high, strict=True):
        texts.append(f"{number(v)} [{number(a)}, {number(b)}]")
    points = Points(value, places, low, high, colour=colours, texts=texts)
    # The baseline is what the others are read against.
    marks: list[Mark] = [points]
    if "baseline" in labels:
        marks.append(Rule(x=value[labels.index("baseline")]))
    positive = (low > 0).all()
    far_apart = bool(positive and value.max() / value.min() > WIDE)
    x = Axis(log=far_apart, labels=6)
    return Panel(name, x, rows(models), marks, row=19)


def _dispersion(curve: DataArray) -> Drawing:
    """The largest share of a head's weight by the number of keys, a line a model."""
    ns = curve["n"].values
    shares = curve.sel(statistic="largest share")
    marks: list[Mark] = []
    for name, colour in zip(curve.indexes["model"], COLOURS, strict=False):
        line = Line(
            ns,
            shares.sel(model=name).values,
            name=_short(name),
            colour=colour,
            symbol="circle",
            size=6,
            hover="n = {x}: {y:.3g}",
        )
        marks.append(line)
    guide = ns[0] * float(shares.max()) / ns
    marks.append(Line(ns, guide, name="1 / n", colour=GREY, dash="dot", width=1, hover=""))
    x = Axis("keys n", ns.min() / 1.1, ns.max() * 1.1, log=True)
    y = Axis("largest share of a head's weight", log=True)
    title = "Does attention disperse as the context grows?"
    below = plain(curve.attrs["note"])
    panel = Panel("", x, y, marks)
    return Drawing(title, below, [panel], height=380)
