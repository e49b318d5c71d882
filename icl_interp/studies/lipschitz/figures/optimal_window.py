"""The report's figure of one window: the loss against its width, and M, whitened."""

from collections.abc import Sequence

import numpy as np
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import BLUE, GREEN, GREY, INK, PALE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Matrix, Panel, Points, Zone
from icl_interp.figures.text import number, tested_by
from icl_interp.results import numbers_in
from icl_interp.studies.lipschitz.claims.window import width
from icl_interp.studies.lipschitz.measurements import unit, window_losses

PARTS = {  # colour, dash and width of each line
    "loss": (BLUE, "solid", 1.8),
    "bias": (GREY, "dash", 1.2),
    "noise": (GREY, "dot", 1.2),
}
LOWEST = 1e-12  # of logarithmic axes
MOST_NUMBERS = 8  # rows of M up to which cells hold their numbers


def optimal_window(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """The loss of windows w I with the model's w and the best, and the model's whitened M."""
    curve = results.get(window_losses.window_loss)
    matrix = results.get(unit.kernel)
    if matrix is None or window_losses.optimum not in results:
        return None
    panels = [_matrix(matrix)]
    if curve is not None:
        panels.insert(0, _loss(curve, results, facts))
    below = tested_by("lipschitz_window", findings)
    return Drawing("The attention window", below, panels)


FIGURE = ReportFigure(
    optimal_window,
    "On the left: the mean squared error of windows M = w Σ⁻¹ for this task. A wide window (small "
    "w) averages examples at which the target has other values (bias), a narrow one averages few "
    "of them (noise). The diamond is the best window; in the band the error is within 1 % of it. "
    "The circle is the error with the model's M, at its w. On the right: the model's M for inputs "
    "that are scaled to the unit sphere. By Lemma 1 it has one number on the diagonal and zeros "
    "elsewhere.",
)


def _loss(curve: DataArray, results: Results, facts: Facts) -> Panel:
    """Loss, bias and noise; the windows that are no worse than the best as a band; w and w*."""
    found = numbers_in(results[window_losses.optimum])
    flat = found["flat low"], found["flat high"]
    marks: list[Mark] = [Zone(x=flat, colour=PALE, opacity=0.5)]
    ws = curve["w"].values
    hover = "w = {x:.3g}: {y:.4g}"
    for part, (colour, dash, thick) in PARTS.items():
        loss = curve.sel(part=part).values
        line = Line(ws, loss, name=part, colour=colour, dash=dash, width=thick, hover=hover)
        marks.append(line)

    # The best window, and the model's M, whose error is known in units of that of the best.
    means = results[window_losses.matrix_losses].mean("group")
    model = float(means.sel(matrix=window_losses.MODEL))
    best = float(means.sel(matrix=window_losses.BEST))
    least = found["loss"]
    losses = curve.sel(part="loss").values
    high = max(float(losses.max()), least)
    marks.append(_mark("best window, w*", found["w*"], least, GREEN, "diamond"))
    own = width(results, facts)
    if own > 0:  # else it lies on no logarithmic axis
        paid = model / best * least
        high = max(high, paid)
        marks.append(_mark("the model's M", own, paid, INK, "circle-open"))

    # The axis holds the loss: bias and noise go to 0 on either side, and leave the panel.
    x = Axis("w, wide windows to narrow ones", log=True, labels=5)
    low = float(losses.min())
    y = Axis("squared error", low / 4, 2 * high, log=True, least=LOWEST)
    return Panel("Error against the width of the window", x, y, marks, width=2.0)


def _mark(name: str, w: float, loss: float, colour: str, symbol: str) -> Points:
    hover = "w = {x:.4g}: {y:.4g}"
    return Points(
        [w], [loss], name=name, colour=colour, symbol=symbol, size=11, edge=2, hover=hover
    )


def _matrix(result: DataArray) -> Panel:
    """Whitened M as a table of colours with its numbers.

    w I has one number on its diagonal and 0 elsewhere.
    """
    m = result.sel(matrix="whitened").values
    names = list(map(str, result["row"].values))
    size = float(np.abs(m).max()) or 1.0
    texts = None
    if len(m) <= MOST_NUMBERS:
        texts = [[number(value, 2) for value in row] for row in m]
    x = Axis("coordinate of the query")
    y = Axis("of the example")
    hover = "row {row}, column {column}: {z:.4g}"
    matrix = Matrix(m, names, names, -size, size, texts=texts, hover=hover)
    return Panel("M, whitened", x, y, [matrix])
