"""The figures of `autoregression.figure5` and `autoregression.figure10`.

They show late errors by layers and by steps.
"""

from collections.abc import Mapping
from functools import partial

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
    looks = (
        (DESCENT, f"{DESCENT}, best constant size of steps", GREY, "dash", "circle-open"),
        ("layers", title, colour, "solid", "circle"),
    )
    for what, words, ink, dash, symbol in looks:
        shown = sorted((row for row in rows if row["what"] == what), key=lambda row: row["number"])
        number, error, low, high = columns_of(shown, "number", "error", "low", "high")
        marks.append(Line(number, error, name=words, colour=ink, dash=dash))
        marks.append(Points(number, error, low, high, words, ink, symbol, listed=False))
    numbers = sorted({row["number"] for row in rows})
    x = Axis(
        "layers, or steps of gradient descent",
        numbers[0] / 1.15,
        numbers[-1] * 1.15,
        log=True,
        ticks={number: str(number) for number in numbers},
    )
    y = Axis("error over that of predicting 0", log=True, least=1e-12)
    panel = Panel(x=x, y=y, marks=marks)
    return {name: Drawing(f"{title} against steps of gradient descent", BELOW, [panel], height=340)}


figure5 = partial(_layers, name="figure5", title="Layers of linear attention", colour=BLUE)
figure10 = partial(
    _layers, name="figure10", title="Layers of softmax attention and MLP", colour=ORANGE
)
