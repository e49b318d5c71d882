"""Windows that models of a family learned, at other L and other noise."""

from collections.abc import Sequence

import numpy as np

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import BLUE, GREEN, GREY, INK, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Points
from icl_interp.figures.text import plain, tested_by
from icl_interp.studies.lipschitz.claims.window_adapts import grids
from icl_interp.studies.lipschitz.measurements import window_family

COLOURS = (GREEN, BLUE, ORANGE)
LOWEST = 1e-3  # the model's w, which may be 0 or less, is drawn there at the lowest


def family(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """Windows of all runs of a kind against L, a colour a noise; the best windows as lines."""
    table = results.get(window_family.family)
    if table is None:
        return None
    own, best, noises, lipschitz = grids(table)
    if not len(own):
        return None
    by_l: list[Mark] = []
    by_best: list[Mark] = []
    for i, noise in enumerate(noises):
        colour = COLOURS[i % len(COLOURS)]
        name = f"σ = {noise:g}"
        optimum = np.exp(best[0, i])
        learned = np.exp(own[:, i])  # (run, L)
        by_l.append(_best(lipschitz, optimum, name, colour))
        by_l.append(_runs(lipschitz, learned, name, colour))
        by_best.append(_runs(optimum, learned, name, colour))
    mine = table[table["run"] == window_family.THIS]
    w = mine["w"]
    hover = "w* = {x:.3g}: w = {y:.3g}"
    model = Points(mine["best"], w, name="this model", colour=INK, symbol="x", size=10, hover=hover)

    # On the dotted line the learned window is the best one.
    every = np.stack([own, best])
    both = np.exp([every.min(), every.max()])
    equal = Line(both, both, colour=GREY, dash="dot", width=1, hover="")
    x = Axis("L", log=True)
    y = Axis("w, wide windows to narrow ones", log=True)
    left = Panel("Against L", x, y, by_l)
    x = Axis("best window w*", log=True)
    y = Axis("learned window w", log=True, least=LOWEST)
    right = Panel("Against the best window", x, y, [equal, *by_best, model])
    panels = [left, right]
    note = plain(table.attrs["note"])
    below = f"{tested_by('lipschitz_family', findings)}<br>{note}."
    return Drawing("Windows learned at other L and other noise", below, panels)


FIGURE = ReportFigure(
    family,
    "A dot is a training run: the window w that it learned, a colour for each standard deviation "
    "σ of the label noise. A large w is a narrow window. Dashed lines are the windows w* with the "
    "least loss. On the right, dots on the dotted line have learned w*; the cross is this model.",
)


def _best(lipschitz: np.ndarray, optimum: np.ndarray, noise: str, colour: str) -> Line:
    """The best windows at one noise."""
    name = f"{noise}, w*"
    hover = "L = {x:g}: w* = {y:.3g}"
    return Line(lipschitz, optimum, name=name, colour=colour, dash="dash", width=1.4, hover=hover)


def _runs(xs: np.ndarray, learned: np.ndarray, noise: str, colour: str) -> Points:
    """The windows of all runs at one noise: `learned` is (run, L), xs has a number for each L."""
    x = np.tile(xs, len(learned))
    y = learned.ravel()
    name = f"{noise}, runs"
    hover = "{x:.3g}: w = {y:.3g}"
    return Points(x, y, name=name, colour=colour, size=6, opacity=0.6, edge=0, hover=hover)
