"""The figure of `linear_attention.trap`: random starts that end at the rank-one point."""

from collections.abc import Mapping

from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.colours import COLOURS
from icl_interp.figures.drawing import Axis, Bars, Drawing, Panel
from icl_interp.figures.text import plain
from icl_interp.results import Result


def trap(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """A bar for each N, in groups by the spread of the starts."""
    ends = results.get("ends")
    if not isinstance(ends, DataArray):
        return {}
    spreads = [f"{spread:g}" for spread in ends.indexes["spread"]]
    bars = []
    for n, colour in zip(ends.indexes["N"], COLOURS, strict=False):
        shares = ends.sel(N=n, end="rank one").values
        hover = "spread {text}: {y:.0%}"
        bars.append(Bars(range(len(spreads)), shares, f"N = {n}", colour, hover, texts=spreads))
    x = Axis("spread of the initial weights", ticks=dict(enumerate(spreads)))
    panel = Panel(x=x, y=Axis("share at the rank-one point", 0, 1), marks=bars)
    title = "Random starts that end at a stationary point of rank one"
    return {"trap": Drawing(title, plain(ends.attrs["note"]), [panel], height=340)}
