"""What layers do: predictions depth by depth, and errors without a part.

It also shows how much of the last prediction is there before.
"""

from collections.abc import Sequence

import numpy as np
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import BLUE, GREEN, GREY, INK, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Points, Rule, Zone, rows
from icl_interp.figures.style import VERDICTS, ranged
from icl_interp.figures.text import number, plain, tested_by
from icl_interp.resampling import Interval
from icl_interp.studies.limits.claims.attention import ratio
from icl_interp.studies.limits.claims.last_layer import MAINLY, seen_by
from icl_interp.studies.limits.claims.patterns import ALIKE
from icl_interp.studies.limits.measurements import ablation
from icl_interp.studies.limits.measurements import lens as measured_lens
from icl_interp.studies.limits.measurements import patterns as measured_patterns
from icl_interp.studies.limits.measurements.ablation import ALL, BLIND, NOTHING, QUERY
from icl_interp.studies.limits.measurements.lens import LENSES
from icl_interp.studies.limits.measurements.patterns import LARGEST

MOST_LISTED = 5  # depths up to which each has its place in the legend
FLOOR = -0.5  # of the axis of R2: a lens can be worse than a constant by any amount
LOWEST = 1e-7  # of the axis of errors
PALE_BLUE = "#B9D3E6"
LENS_LOOKS = {
    "logit": ("logit lens", ORANGE, "square-open", "dot"),
    "affine": ("affine read-out", BLUE, "circle", "solid"),
}
ARM_LOOKS = {
    ALL: ("at every position", GREEN, "circle"),
    QUERY: ("at the query's token", INK, "diamond-open"),
}
ROWS = {
    "intact": "unchanged",
    "no attention": "no attention",
    "no MLP": "no MLPs",
    "reordered": "context reordered",
    "MLP only": "other: MLP only",
    "attention only": "other: no MLPs",
    "with MLP": "other: with MLPs",
    BLIND: "no prompt",
}
MEANING = {
    "intact": "the unchanged model",
    "no attention": "outputs of all heads replaced by their mean",
    "no MLP": "outputs of all MLPs replaced by their mean",
    "reordered": "the examples in another order (a control intervention)",
    "MLP only": "a matched model with MLPs only",
    "attention only": "a matched model without MLPs",
    "with MLP": "a matched model with MLPs",
    BLIND: "the best guess without the prompt: the mean over all functions at the query",
}
# Label, meaning, interval by points.
Row = tuple[str, str, dict[str, Interval]]


def layers(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """As many panels as can be shown: predictions, R2, ablated errors and patterns.

    The first two are by depth, errors by what is ablated, patterns by degree.
    """
    panels = []
    # Each panel needs a measurement of its own, which not every model has.
    curves = results.get(measured_lens.curves)
    if curves is not None:
        panels.append(_curves(curves))
    lens = results.get(measured_lens.lens)
    if lens is not None:
        panels.append(_lens(lens))
    whole = results.get(ablation.without_attention)
    if whole is not None:
        parts = results.get(ablation.ablated)
        panels.append(_errors(_arms(whole, parts)))
    patterns = results.get(measured_patterns.distances)
    if patterns is not None:
        panels.append(_patterns(patterns))
    if not panels:
        return None
    return Drawing("What the layers do", tested_by("layers", findings), panels, height=280)


FIGURE = ReportFigure(
    layers,
    "Only panels that apply to the model are drawn. One prompt, depth by depth: what the model's "
    "own read-out (the logit lens) makes of the stream after each layer, as the query moves. "
    "Prediction there already: the share of the final prediction's variance that can be read "
    "after each layer, by the logit lens, and by the best affine read-out, which is fitted to "
    "other functions and finds a prediction in any basis. For the claim the latter must lie in "
    "the shaded zone, and as little must be left without the last layer. Errors without a part: "
    "relative to always predicting 0, with the outputs of a part of the model replaced by their "
    "mean, at every position or at the query's token alone. Degrees: how far apart their mean "
    "attention patterns are, in units of the distance between two prompts of one degree; shaded "
    "counts as alike.",
)


def _curves(curves: DataArray) -> Panel:
    """What the logit lens reads over x after each block, in the first context, and the function."""
    x = curves["x"].values
    first = curves.sel(context=0)
    names = [name for name in curves.indexes["what"] if name != "f"]
    n_layers = len(names) - 1
    hover = "x = {x:.3g}: {y:.4g}"
    marks: list[Mark] = []
    for depth, name in enumerate(names):
        colour = _shade(depth / max(1, n_layers))
        width = 1.8
        dash = ("dot", "dash", "dashdot")[depth % 3]
        # What the model predicts in the end stands out.
        if depth == n_layers:
            colour = BLUE
            width = 2.6
            dash = "solid"
        line = Line(
            x,
            first.sel(what=name).values,
            name=after(depth, n_layers),
            colour=colour,
            width=width,
            dash=dash,
            hover=hover,
            listed=len(names) <= MOST_LISTED or depth in (0, n_layers),
        )
        marks.append(line)
    truth = first.sel(what="f").values
    marks.append(Line(x, truth, name="the function", colour=INK, width=1.2, hover=hover))
    # Early depths may lie anywhere: the axis holds what is predicted in the end, and as much again
    # around it.
    final = first.sel(what=names[-1]).values
    low, high = ranged([*truth.tolist(), *final.tolist()])
    half = 0.5 * (high - low)
    query = Axis("x of the query")
    prediction = Axis("prediction", low - half, high + half)
    return Panel("One prompt, depth by depth", query, prediction, marks, width=1.5)


def after(depth: int, n_layers: int) -> str:
    """How far through the model a prediction is read; layers are counted from 0."""
    if depth == n_layers:
        return "prediction"
    return "before any layer" if depth == 0 else f"after layer {depth - 1}"


def _shade(share: float) -> str:
    """From pale to full blue."""
    channels = []
    for start in (1, 3, 5):
        pale = int(PALE_BLUE[start : start + 2], 16)
        full = int(BLUE[start : start + 2], 16)
        between = round(pale + share * (full - pale))
        channels.append(f"{between:02X}")
    return "#" + "".join(channels)


def _lens(lens: DataArray) -> Panel:
    """R2 of both lenses at each depth; the zone is what the claim reads, before the last layer."""
    n_depths = len(lens.indexes["depth"])
    marks: list[Mark] = []
    # With one layer there is nothing before the last, so no zone.
    if n_depths > 2:
        ends = (n_depths - 2.35, n_depths - 1.65)
        marks.append(Zone(ends, (FLOOR, MAINLY), VERDICTS["supported"].pale))
    for name in LENSES:
        word, colour, symbol, dash = LENS_LOOKS[name]
        values = []
        lows = []
        highs = []
        texts = []
        for depth in range(n_depths):
            r2 = seen_by(lens, name, depth)
            values.append(r2.value)
            lows.append(r2.low)
            highs.append(r2.high)
            texts.append(f"{after(depth, n_depths - 1)}<br>R² = {_interval(r2)}")
        line = Line(
            range(n_depths),
            values,
            lows,
            highs,
            name=word,
            colour=colour,
            symbol=symbol,
            dash=dash,
            width=1.6,
            texts=texts,
        )
        marks.append(line)
    x = Axis("layers read", -0.3, n_depths - 0.7, whole=True)
    y = Axis("share of the prediction, R²", FLOOR, 1.06, least=FLOOR)
    return Panel("Prediction there already", x, y, marks)


def _interval(one: Interval) -> str:
    """A value with its ends, in words."""
    return f"{number(one.value)} [{number(one.low)}, {number(one.high)}]"


def _arms(whole: DataArray, parts: DataArray | None) -> list[Row]:
    """Error rates of the model, of the model without a part, and of those beside it.

    They come in this order.
    """
    sources = dict.fromkeys(whole.indexes["arm"], whole)
    if parts is not None:
        sources |= dict.fromkeys(parts.indexes["arm"], parts)
    # Single layers come between the parts of the model and the controls.
    blocks = [arm for arm in sources if arm.startswith("block ")]
    order = ["intact", "no attention", "no MLP", *blocks, "reordered"]
    order += ["MLP only", "attention only", "with MLP", BLIND]
    found: list[Row] = []
    for arm in order:
        if arm not in sources:
            continue
        label = ROWS.get(arm, "")
        meaning = MEANING.get(arm, "")
        if arm in blocks:
            layer = int(arm.split()[1])
            label = f"no layer {layer}"
            meaning = f"outputs of layer {layer} replaced by their mean"
        rates = _rates(whole, sources[arm], arm, parts)
        found.append((label, meaning, rates))
    return found


def _rates(
    whole: DataArray, source: DataArray, arm: str, parts: DataArray | None
) -> dict[str, Interval]:
    """Error rates of an arm: at every position, and at the query's token where it is edited."""
    edited = arm == "no attention" or source is parts
    rates = {}
    for points in (ALL, QUERY):
        if points == QUERY and not edited:
            continue
        errors = source.sel(arm=arm, points=points).values
        if np.isfinite(errors).all():
            rates[points] = ratio(source, arm, NOTHING, points, reference=whole)
    return rates


def _errors(arms: list[Row]) -> Panel:
    """A row for each arm."""
    marks: list[Mark] = [Rule(x=1)]
    for points, (word, colour, symbol) in ARM_LOOKS.items():
        # Not every arm was measured both ways, so rows are found arm by arm.
        places = []
        values = []
        lows = []
        highs = []
        texts = []
        for place, (_, meaning, found) in enumerate(arms):
            if points not in found:
                continue
            rate = found[points]
            places.append(place)
            values.append(rate.value)
            lows.append(rate.low)
            highs.append(rate.high)
            texts.append(f"{plain(meaning)}<br>{_interval(rate)}")
        shown = Points(
            values,
            places,
            lows,
            highs,
            name=word,
            colour=colour,
            symbol=symbol,
            size=9,
            texts=texts,
        )
        marks.append(shown)
    x = Axis("error / error of predicting 0", log=True, least=LOWEST, labels=5)
    y = rows([label for label, _, _ in arms])
    return Panel("Errors without a part", x, y, marks, row=24)


def _patterns(patterns: DataArray) -> Panel:
    """The largest distance of mean patterns over pairs of degrees, layer by layer.

    The same with degrees shuffled stands beside it.
    """
    depths = [layer for layer in patterns.indexes["layer"] if layer != LARGEST]
    at = patterns.sel(pair=LARGEST, layer=depths)
    ratios = at.sel(statistic="ratio").values
    low = at.sel(statistic="low").values
    high = at.sel(statistic="high").values
    shuffled = at.sel(statistic="shuffled").values
    x = [int(depth) + 1 for depth in depths]
    y = "two degrees / two prompts"
    marks: list[Mark] = [
        Zone(y=(0, ALIKE), colour=VERDICTS["supported"].pale),
        Points(x, ratios, low, high, name=y, size=9, listed=False),
        Points(x, shuffled, name="degrees shuffled", colour=GREY, symbol="diamond-open"),
    ]
    top = float(np.nanmax([1.3 * ALIKE, *(1.1 * high)]))
    layer = Axis("layer", 0.5, len(x) + 0.5, whole=True)
    return Panel("Patterns", layer, Axis(y, 0, top), marks, width=0.75)
