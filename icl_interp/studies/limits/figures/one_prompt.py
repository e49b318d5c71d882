"""One prompt at a time, chosen by a slider: as its query goes far, and layer by layer."""

from collections.abc import Sequence

import numpy as np
from plotly.graph_objects import Figure
from xarray import DataArray

from icl_interp.analyses import example_prompts
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import BLUE, GREY, INK, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Note, Panel, Points, Zone
from icl_interp.figures.slider import same_ends, stepped
from icl_interp.figures.style import ranged
from icl_interp.figures.text import number
from icl_interp.studies.limits.figures.far_query import until_it_leaves
from icl_interp.studies.limits.figures.layers import after
from icl_interp.studies.limits.measurements import far, lens

HOVER = "x = {x:.4g}<br>{y:.6g}"
BOUNDED = 100.0  # times what examples reach: from where on an axis is logarithmic
DOTTED = {"colour": INK, "width": 1.2, "dash": "dot"}


def far_prompts(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """The examples of one prompt, its function, and the prediction as the query goes far."""
    contexts, examples = results.get(far.contexts), results.get(example_prompts.points)
    if contexts is None or examples is None:
        return None
    contexts = contexts.sortby("x")
    xs = contexts["x"].values
    shown = [k for k in examples.indexes["context"] if k in contexts.indexes["context"]]
    model = contexts.sel(context=shown, curve="model").values
    values = examples.sel(of="y").values
    low, high = ranged([*model.ravel().tolist(), *values.ravel().tolist()])
    # Where predictions grow without bound, a linear axis would hide the examples.
    largest = float(np.abs(values).max()) or 1.0
    bounded = float(np.abs(model).max()) <= BOUNDED * largest
    y = Axis("f(x)", symlog=0.0 if bounded else 10.0 ** np.floor(np.log10(largest)))
    threshold = float(np.abs(xs[xs != 0]).min())
    drawings = {}
    for k in shown:
        one = contexts.sel(context=k)
        truth = until_it_leaves(one.sel(curve="truth").values[None], low, high)[0]
        marks = _far_marks(xs, one.sel(curve="model").values, truth, examples.sel(context=k), facts)
        x = Axis(
            f"query x (symmetric-log: linear within ±{number(threshold)})",
            symlog=threshold,
            labels=12,
            low=float(xs[0]),
            high=float(xs[-1]),
        )
        below = "Choose the prompt with the slider. The axis spans all predictions."
        title = "One prompt, as its query goes far from the data"
        drawings[str(k)] = Drawing(title, below, [Panel(x=x, y=y, marks=marks)], 340)
    return stepped(same_ends(drawings, low, high), "prompt ")


def _far_marks(
    xs: np.ndarray, model: np.ndarray, truth: np.ndarray, examples: DataArray, facts: Facts
) -> list[Mark]:
    marks: list[Mark] = []
    if trained := facts.trained_range:
        middle = (trained[0] + trained[1]) / 2
        marks += [Zone(x=trained), Note("trained range", x=middle, at="bottom", colour=GREY)]
    x, y = examples.sel(of="x").values, examples.sel(of="y").values
    marks.append(Line(xs, truth, name="the function", hover=HOVER, **DOTTED))
    marks.append(Line(xs, model, name="prediction", colour=BLUE, width=2.4, hover=HOVER))
    marks.append(Points(x, y, name="examples in the prompt", colour=ORANGE, hover=HOVER))
    return marks


def lens_by_layer(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """What the read-out makes of the stream after each layer, one layer at a time."""
    curves = results.get(lens.curves)
    if curves is None:
        return None
    first = curves.sel(context=0)
    x = curves["x"].values
    names = [name for name in curves.indexes["what"] if name != "f"]
    truth, last = first.sel(what="f").values, first.sel(what=names[-1]).values
    # Early depths may lie anywhere: the axis holds what is predicted in the end, and as much again.
    low, high = ranged([*truth.tolist(), *last.tolist()])
    half = 0.5 * (high - low)
    drawings = {}
    for depth, name in enumerate(names):
        read = first.sel(what=name).values
        marks: list[Mark] = [
            Line(x, truth, name="the function", hover=HOVER, **DOTTED),
            Line(x, last, name="prediction", colour=GREY, width=1.2, hover=HOVER),
            Line(x, read, name="read so far", colour=BLUE, width=2.6, hover=HOVER),
        ]
        panel = Panel(
            x=Axis("x of the query", float(x.min()), float(x.max())), y=Axis("f(x)"), marks=marks
        )
        below = "Choose the layer with the slider. One prompt, as its query moves."
        drawings[after(depth, len(names) - 1)] = Drawing(
            "What the stream says, layer by layer", below, [panel], 300
        )
    return stepped(same_ends(drawings, low - half, high + half))


FAR = ReportFigure(
    far_prompts,
    "One prompt at a time: its examples, the function that they show (dotted), and what the model "
    "predicts as the query moves, in both directions. All other points of the prompt stay where "
    "they are.",
)
LENS = ReportFigure(
    lens_by_layer,
    "What the model's own read-out makes of the stream after each layer (the logit lens), for one "
    "prompt whose query moves over the inputs' interval. Grey: what the model predicts in the end.",
)
