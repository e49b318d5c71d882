"""The figures of `linear_attention.length_spike`.

They show what untrained positions do beyond the trained length.
"""

from collections.abc import Mapping

from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.colours import BLUE, COLOURS, GREEN, INK, ORANGE, PURPLE, SKY
from icl_interp.figures.drawing import Axis, Drawing, Mark, Panel
from icl_interp.results import Result
from icl_interp.studies.linear_attention.figures.curves import (
    LEAST_ERROR,
    examples,
    law,
    least_squares,
    trained_length,
    with_band,
)

BEST = "least squares"
WITHOUT = "trained without"
LOOKS = {
    "as they are": INK,
    "drawn anew": PURPLE,
    "mean trained": BLUE,
    "last trained": GREEN,
    "used again": ORANGE,
    "trained alone": SKY,
    WITHOUT: INK,
}


def length_spike(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Two figures: replacing the untrained positions, and the rise by test law."""
    curves = {}
    for name, result in results.items():
        if isinstance(result, DataArray):
            curves[name] = result
    if not curves:
        return {}
    return {"positions": _positions(curves), "tests": _by_test(curves)}


def _positions(curves: Mapping[str, DataArray]) -> Drawing:
    """A panel for each model, on the law that it was trained on."""
    tested = {}
    lows = []
    highs = []
    for name, curve in curves.items():
        test = "random, c = 1" if "random" in name else "fixed"
        own = curve.sel(test=test)
        tested[f"{name}, on {law(test)}"] = own
        # Least squares may leave the axis, which is the same in all panels.
        means = own.sel(statistic="mean", positions=own["positions"] != BEST)
        lows.append(float(means.min()))
        highs.append(float(means.max()))
    low = min(lows) / 1.5
    high = max(highs) * 1.5
    y = Axis("error / E[y²]", low, high, log=True, least=LEAST_ERROR)
    panels = []
    for title, curve in tested.items():
        x = examples(_length(curve))
        panels.append(Panel(title, x, y, _replaced(curve)))
    below = (
        "Position vectors beyond N (dashed line) were never trained: left as they are, replaced by "
        "trained ones of the same kind of token, drawn anew, or trained with all else fixed. "
        "Bands: 95 % over blocks of prompts."
    )
    title = "Beyond the trained length: what untrained positions do"
    return Drawing(title, below, panels, height=380, same_y=True)


def _replaced(curve: DataArray) -> list[Mark]:
    """A line for each way to replace positions, and least squares."""
    n = _length(curve)
    kinds = curve.indexes["positions"]
    marks: list[Mark] = [trained_length(n)]
    for how in kinds:
        if how == BEST:
            best = curve.sel(positions=how, statistic="mean")
            marks.append(least_squares(best["M"].values, best.values))
            continue
        # Edits change nothing up to N: they are drawn from there on.
        first = 0 if how == kinds[0] else n - 1
        shown = curve.sel(positions=how).isel(M=slice(first, None))
        # The title of its panel says what was trained without positions.
        marks += with_band(shown, how, LOOKS[how], listed=how != WITHOUT)
    return marks


def _by_test(curves: Mapping[str, DataArray]) -> Drawing:
    """A panel for each model: positions as they are, relative to the error at N."""
    panels = []
    for name, curve in curves.items():
        n = _length(curve)
        # Relative to the error at N, on each test law.
        own = curve.isel(positions=0)
        at_n = own.sel(statistic="mean", M=n)
        relative = own / at_n
        marks: list[Mark] = [trained_length(n)]
        for test, colour in zip(own.indexes["test"], COLOURS, strict=False):
            words = f"tested on {law(test)}"
            marks += with_band(relative.sel(test=test), words, colour)

        # The axis holds the rise; errors of short prompts may leave it.
        beyond = relative.isel(M=slice(n, None))
        highest = 1.3 * float(beyond.max())
        y = Axis("error / error at N", 0.1, max(3.0, highest), log=True)
        panels.append(Panel(name, examples(n), y, marks))
    below = (
        "Positions as they are, error relative to the error at M = N (dashed): does the rise "
        "shrink at higher variance?"
    )
    return Drawing("The rise beyond N, by test law", below, panels, height=340)


def _length(curve: DataArray) -> int:
    """N, up to twice of which errors are measured."""
    return len(curve["M"]) // 2
