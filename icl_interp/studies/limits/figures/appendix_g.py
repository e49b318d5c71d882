"""Appendix G: the algebra of a layer, checked."""

from collections.abc import Mapping

from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.colours import ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Line, Panel
from icl_interp.figures.text import plain
from icl_interp.results import Result
from icl_interp.studies.limits.figures.figure1 import HOVER

ROUNDING = 1e-12


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
