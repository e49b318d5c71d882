"""The figures of `autoregression.figure5` and `autoregression.figure10`.

They show late errors by layers and by steps.
"""

from collections.abc import Mapping
from functools import partial
from operator import itemgetter

import numpy as np
from pandas import DataFrame

from icl_interp.experiments.errors import columns_of, rows_of
from icl_interp.figures.colours import BLUE, GREY, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Points
from icl_interp.results import Result

DESCENT = "gradient descent"
BELOW = (
    "Squared error at the last quarter of the prompt, with 95 % intervals: before d transitions no "
    "method can know W. One trained model for each number of layers, on orthogonal matrices and "
    "augmented tokens; the same matrices for all."
)


def _layers(
    results: Mapping[str, Result], comparison: DataFrame | None, name: str, title: str, colour: str
) -> dict[str, Drawing]:
    """One panel: error against the number of layers, or of steps."""
    rows = rows_of(results, "errors")
    if not rows:
        return {}
    marks: list[Mark] = []
    # Each number of steps and of layers, with its interval.
    words = f"{DESCENT}, best constant step size"
    marks += _curve(rows, DESCENT, words, GREY, "dash", "circle-open")
    marks += _curve(rows, "layers", title, colour, "solid", "circle")
    # The numbers themselves are the ticks.
    (numbers,) = columns_of(rows, "number")
    ticks = {}
    for number in np.unique(numbers):
        ticks[number] = f"{number:g}"
    least = numbers.min() / 1.15
    most = numbers.max() * 1.15
    x = Axis("layers, or steps of gradient descent", least, most, log=True, ticks=ticks)
    y = Axis("error over that of predicting 0", log=True, least=1e-12)
    heading = f"{title} against steps of gradient descent"
    panel = Panel(x=x, y=y, marks=marks)
    drawing = Drawing(heading, BELOW, [panel], height=340)
    return {name: drawing}


def _curve(
    rows: list[dict], what: str, words: str, colour: str, dash: str, symbol: str
) -> list[Mark]:
    """A line through the errors of one kind, and their intervals."""
    own = [row for row in rows if row["what"] == what]
    own.sort(key=itemgetter("number"))
    number, error, low, high = columns_of(own, "number", "error", "low", "high")
    line = Line(number, error, name=words, colour=colour, dash=dash)
    points = Points(number, error, low, high, words, colour, symbol, listed=False)
    return [line, points]


figure5 = partial(_layers, name="figure5", title="Layers of linear attention", colour=BLUE)
figure10 = partial(
    _layers, name="figure10", title="Layers of softmax attention and MLP", colour=ORANGE
)
