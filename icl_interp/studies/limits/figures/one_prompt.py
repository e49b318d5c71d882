"""One prompt at a time, chosen by a slider: as its query goes far, and layer by layer."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from plotly.graph_objects import Figure
from xarray import DataArray

from icl_interp.analyses import example_prompts
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import BLUE, GREY, INK, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Note, Panel, Points, Zone
from icl_interp.figures.slider import Steps, same_ends, stepped
from icl_interp.figures.style import ranged
from icl_interp.figures.text import number
from icl_interp.studies.limits.figures.far_query import until_it_leaves
from icl_interp.studies.limits.figures.layers import after
from icl_interp.studies.limits.measurements import far, lens

HOVER = "x = {x:.4g}<br>{y:.6g}"
BOUNDED = 100.0  # times what examples reach: from where on an axis is logarithmic


def far_prompts(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """One prompt's function, and the prediction as its query goes far.

    Its examples are there where a report holds them (`example_prompts.points`).
    """
    contexts = results.get(far.contexts)
    if contexts is None:
        return None
    contexts = contexts.sortby("x")
    contexts = contexts.isel(context=slice(example_prompts.CONTEXTS))
    examples = results.get(example_prompts.points)
    xs = contexts["x"].values

    # One axis holds all predictions, and the function near the data. Where predictions grow without
    # bound, a linear axis would hide the examples.
    model = contexts.sel(curve="model").values
    truth = contexts.sel(curve="truth").values
    near = truth[:, np.abs(xs) <= _reach(xs, facts)]
    ends = [model.min(), model.max(), near.min(), near.max()]
    low, high = ranged([float(end) for end in ends])
    largest = float(np.abs(near).max()) or 1.0
    bounded = float(np.abs(model).max()) <= BOUNDED * largest
    y = Axis("f(x)", symlog=0.0 if bounded else _power_of_ten(largest))
    x = _query_axis(xs)
    title = "One prompt, as its query goes far from the data"
    below = "Choose the prompt with the slider. The axis spans all predictions."

    drawings = {}
    for context in contexts.indexes["context"]:
        marks = _trained(facts)
        marks += _of_prompt(contexts.sel(context=context), low, high)
        if examples is not None:
            marks.append(_dots(examples.sel(context=context)))
        panel = Panel("", x, y, marks)
        drawings[str(context)] = Drawing(title, below, [panel], 340)
    return stepped(Steps(same_ends(drawings, low, high), "prompt "))


def lens_by_layer(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """What the read-out makes of the stream after each layer, one layer at a time."""
    curves = results.get(lens.curves)
    if curves is None:
        return None
    first = curves.sel(context=0)
    names = [name for name in curves.indexes["what"] if name != "f"]
    xs = curves["x"].values
    truth = first.sel(what="f").values
    last = first.sel(what=names[-1]).values
    # Early depths may lie anywhere: the axis holds what is predicted in the end, and as much again.
    low, high = ranged([*truth.tolist(), *last.tolist()])
    half = 0.5 * (high - low)
    x = Axis("x of the query", float(xs.min()), float(xs.max()))
    title = "What the stream says, layer by layer"
    below = "Choose the layer with the slider. One prompt, as its query moves."

    drawings = {}
    for depth, name in enumerate(names):
        end = Line(xs, last, name="prediction", colour=GREY, width=1.2, hover=HOVER)
        read = first.sel(what=name).values
        now = Line(xs, read, name="read so far", colour=BLUE, width=2.6, hover=HOVER)
        panel = Panel("", x, Axis("f(x)"), [_function(xs, truth), end, now])
        step = after(depth, len(names) - 1)
        drawings[step] = Drawing(title, below, [panel], 300)
    return stepped(Steps(same_ends(drawings, low - half, high + half)))


def _query_axis(xs: Float[np.ndarray, " x"]) -> Axis:
    """Linear near 0, and logarithmic far out, in both directions."""
    away = np.abs(xs)
    least = float(away[away > 0].min())
    words = f"query x (symmetric-log: linear within ±{number(least)})"
    return Axis(words, float(xs[0]), float(xs[-1]), symlog=least, labels=12)


def _power_of_ten(value: float) -> float:
    """The largest one up to a number.

    >>> _power_of_ten(1.64)
    1.0
    """
    return float(10.0 ** np.floor(np.log10(value)))


def _trained(facts: Facts) -> list[Mark]:
    """Where training had its inputs."""
    ends = facts.trained_range
    if not ends:
        return []
    middle = (ends[0] + ends[1]) / 2
    return [Zone(x=ends), Note("trained range", x=middle, at="bottom", colour=GREY)]


def _reach(xs: Float[np.ndarray, " x"], facts: Facts) -> float:
    """How far the data go; where that is not known, the least query."""
    ends = facts.trained_range
    if ends:
        return float(np.abs(ends).max())
    return float(np.abs(xs).min())


def _of_prompt(curves: DataArray, low: float, high: float) -> list[Mark]:
    """The function where the axis shows it, and the prediction."""
    xs = curves["x"].values
    truth = curves.sel(curve="truth").values
    shown = until_it_leaves(truth[None], low, high)[0]
    model = curves.sel(curve="model").values
    line = Line(xs, model, name="prediction", colour=BLUE, width=2.4, hover=HOVER)
    return [_function(xs, shown), line]


def _dots(examples: DataArray) -> Points:
    at = examples.sel(of="x").values
    values = examples.sel(of="y").values
    return Points(at, values, name="examples in the prompt", colour=ORANGE, hover=HOVER)


def _function(xs: Float[np.ndarray, " x"], values: Float[np.ndarray, " x"]) -> Line:
    return Line(xs, values, name="the function", colour=INK, width=1.2, dash="dot", hover=HOVER)


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
