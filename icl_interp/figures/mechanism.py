"""The report's figures on the mechanism: where the prediction arises, what each head looks at."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from xarray import DataArray

from icl_interp.analyses import mechanism, relevance
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.descriptions import number
from icl_interp.figures.colours import BLUE, INK, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Matrix, Panel, Rule
from icl_interp.figures.roles import by_head
from icl_interp.results import make_array

IN_A_ROW = 4  # panels of patterns
MOST = 16  # panels of patterns
SQUARE = 210  # pixels of a panel of patterns
LETTERS = 16  # squares in a row, up to which each shows its number
LEAST = 1e-3  # of what predicting 0 would cost, where the axis of errors ends at the latest
WHERE = (
    "First, shares of the prediction's variance that each part writes straight into the read-out, "
    "with the scale of the last norm held. The shares add up to 1; a part with a negative one "
    "works against the others. The rest is what biases of attention write: it varies with that "
    "scale only. If predictions are vectors, they are shares of the summed variance of all "
    "coordinates. Second, what happens when a head's output is replaced by its mean over prompts: "
    "the factor on the squared error, or, for a model that has not learned its task, the change "
    "of the prediction in u, the standard deviation of predictions (for vectors: the length of "
    "the change, in units of the root of the summed variances of the coordinates). Then, where "
    "labels can be changed alone, activation patching: the model reads prompts whose labels are "
    "those of another function, one head's output is taken from the prompt with the old labels, "
    "and the share says how much of the way back the prediction goes. Heads that only work "
    "together have small shares each, and shares need not add up to 1. Last, the logit lens, "
    "which reads the residual stream after each layer as the read-out would."
)
PATTERNS = (
    "Mean attention weights over prompts in distribution. Tokens are named by what they show: x "
    "and y for the inputs and values of the context, in their order. A head that looks for "
    "content has an even mean pattern, since the matching token differs from prompt to prompt."
)

ROLES = (
    "Where each head's attention goes, in distribution: the share of its weight on certain "
    "tokens, beyond what these would get if weights were even. Labels: from the query to tokens "
    "that show a label. Duplicates: from the query to an example with the same input. Pairs a "
    "value with its input: from a label's token to the token of its input. Previous token: from "
    "each token to the one before. Neighbours: how well the order of the query's weights follows "
    "the order of distances, nearest first (a rank correlation). Position only: the share of the "
    "unevenness of weights that is the same in all prompts. Weights say where a head looks, not "
    "whether the prediction needs it: for that see the figure of needed heads, above."
)


def where(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """Who writes the prediction, which heads it needs, and after which layer it is there."""
    curve = results.get(mechanism.lens)
    if curve is None:
        return None
    panels: list[Panel] = []
    # What each part writes.
    if mechanism.attribution in results:
        shares = mechanism.pooled(results[mechanism.attribution], results.get(mechanism.variance))
        panels.append(_map("Who writes it", "share", _by_part(shares)))
    # What is lost without each head.
    if relevance.relevance in results:
        on_error = facts.has_learned
        what = "error, ×" if on_error else "change, u"
        without = _ablated(results[relevance.relevance], on_error)
        panels.append(_map("Which heads it needs", what, without))
    # What each head brings back.
    patched = results.get(mechanism.patching)
    if patched is not None and np.isfinite(patched.values).any():
        panels.append(_map("Which heads carry it", "share of the change", _carried(patched)))
    panels.append(_lens(curve))
    below = "The prediction at the query, in distribution. Layers and heads are counted from 0."
    return Drawing("Where the prediction is made", below, panels, height=230)


def _by_part(shares: DataArray) -> DataArray:
    """Shares as a matrix of layers by parts.

    The read-in stands on a row of its own, above, and the rest below.
    """
    # Parts are called "head 1.2", "MLP 1", or by a name of one word.
    alone: dict[str, float] = {}
    written: dict[tuple[int, str], float] = {}
    for part in map(str, shares.indexes["part"]):
        share = float(shares.sel(part=part))
        if part in (mechanism.READ_IN, mechanism.REST):
            alone[part] = share
        elif part.startswith("MLP "):
            written[int(part.removeprefix("MLP ")), "MLP"] = share
        else:
            layer, head = part.removeprefix("head ").split(".")
            written[int(layer), head] = share
    layers = sorted({layer for layer, _ in written})
    columns = list(dict.fromkeys(column for _, column in written))

    # Rows from the read-in to the rest; what does not exist is NaN.
    nowhere = [math.nan] * (len(columns) - 1)
    rows = {mechanism.READ_IN: []}
    for layer in layers:
        rows[str(layer)] = [written.get((layer, column), math.nan) for column in columns]
    for name in (mechanism.READ_IN, mechanism.REST):
        if name in alone:
            rows[name] = [alone[name], *nowhere]
    return make_array(list(rows.values()), {"layer": list(rows), "head": columns})


def _ablated(found: DataArray, on_error: bool) -> DataArray:
    """The effect of mean ablation of each head.

    It is a factor on the mean error, or else the change of the prediction in units of u.
    """
    values = relevance.without_each(found, on_error)
    return _by_layer_and_head(values)


def _carried(found: DataArray) -> DataArray:
    """The share of the change that each head carries."""
    shares = found.sel(statistic="share").values.tolist()
    return _by_layer_and_head(dict(zip(found.indexes["head"], shares, strict=True)))


def _by_layer_and_head(values: Mapping[str, float]) -> DataArray:
    """Numbers of heads such as "1.2", as a matrix of layers by heads."""
    layers: dict[str, None] = {}
    heads: dict[str, None] = {}
    for name in values:
        layer, head = name.split(".")
        layers[layer] = None
        heads[head] = None
    numbers = np.array(list(values.values())).reshape(len(layers), len(heads))
    return make_array(numbers, {"layer": list(layers), "head": list(heads)})


def _map(title: str, what: str, values: DataArray) -> Panel:
    """Squares with numbers in them; what does not exist has none."""
    numbers = values.values
    # Factors on an error run over decades: their colours follow the logarithm.
    factors = what.startswith("error")
    shade = np.log10(np.maximum(numbers, 1.0)) if factors else numbers
    largest = float(np.abs(shade[np.isfinite(shade)]).max(initial=0.0))
    texts = None
    if numbers.shape[1] <= LETTERS:
        texts = [list(map(_short, row)) for row in numbers.tolist()]
    layers = list(map(str, values["layer"].values))
    heads = list(map(str, values["head"].values))
    matrix = Matrix(
        shade,
        layers,
        heads,
        high=max(largest, 0.01) if factors else None,
        texts=texts,
        shown=numbers,
        hover="layer {row}, head {column}: {z:.3g}",
    )
    return Panel(f"{title} ({what})", Axis("head"), Axis("layer"), [matrix])


def _short(v: float) -> str:
    """A number for a square: two digits, and none for what does not exist.

    >>> _short(0.3123), _short(704.2), _short(5.84), _short(-1e-5), _short(math.nan)
    ('0.31', '704', '5.8', '0', '')
    """
    if math.isnan(v):
        return ""
    if abs(v) < 1:
        return "0" if abs(v) < 0.005 else f"{v:.2f}"
    return f"{v:.0f}" if abs(v) >= 10 else f"{v:.1f}"


def _lens(curve: DataArray) -> Panel:
    """The prediction that the stream holds after each layer.

    One curve is its error, the other its distance from the last prediction.
    """
    means = curve.mean("unit")
    depth = means.indexes["depth"].to_numpy().astype(float)
    marks: list[Mark] = []
    for name, words, colour, dash in (
        ("error", "error", BLUE, "solid"),
        ("distance", "distance from the model's prediction", ORANGE, "dash"),
    ):
        with np.errstate(divide="ignore", invalid="ignore"):
            # A task whose values are all 0 leaves nothing to draw.
            values = (means.sel(statistic=name) / means.sel(statistic="zero")).values
        held = values > 0  # the last prediction is its own: no distance on a logarithmic axis
        line = Line(depth[held], values[held], name=words, colour=colour, dash=dash)
        marks.append(replace(line, symbol="circle", size=6))
    marks.append(Rule(y=1.0, name="predicting 0", colour=INK, width=1.2))
    x = Axis("layers passed", -0.2, float(depth[-1]) + 0.2, whole=True)
    y = Axis("squared / error of predicting 0", log=True, holds=(LEAST,), labels=5)
    return Panel("What the stream holds (logit lens)", x, y, marks)


def patterns(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """Mean attention weights, with a panel for each head.

    Where there are many heads, or only the query's row is known, each head has a row instead.
    """
    weights = results.get(mechanism.patterns)
    if weights is None:
        return None
    each = weights.stack(place=("layer", "head"), create_index=False).transpose("place", ...)
    names = []
    for layer in weights["layer"].values:
        names += [f"{layer}.{head}" for head in weights["head"].values]
    keys = weights.indexes["key"].tolist()
    if weights.sizes["query"] > 1 and len(names) <= MOST:
        in_a_row = min(IN_A_ROW, weights.sizes["head"])
        return _squares(dict(zip(names, each, strict=True)), in_a_row)
    # The query's row alone, a head below the other.
    rows = each.sel(query="query").values
    matrix = Matrix(rows, names, keys, bar="weight", hover="head {row}, token {column}: {z:.3g}")
    below = (
        "Mean attention of the query on every token. A head is named by its layer and its place in "
        "it, from 0."
    )
    panel = Panel("", Axis("token"), Axis("head"), [matrix])
    height = max(180, 16 * len(names))
    return Drawing("What the query looks at", below, [panel], height)


def roles(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """What the attention of each head goes to; None where weights are no shares (linear ones)."""
    found = results.get(mechanism.roles)
    if found is None:
        return None
    scores = found.sel(statistic="score")
    if not np.isfinite(scores).any():
        return None
    heads = scores.indexes["head"].tolist()
    columns = scores.indexes["role"].tolist()
    return by_head(scores.values, heads, columns)


def _squares(every: Mapping[str, DataArray], columns: int) -> Drawing:
    """Query against key, a panel a head, on one scale of colours."""
    largest = max(float(np.abs(one).max()) for one in every.values())
    signed = any(bool((one < 0).any()) for one in every.values())
    panels = []
    for i, (name, one) in enumerate(every.items()):
        matrix = Matrix(
            one.values,
            one.indexes["query"].tolist(),
            one.indexes["key"].tolist(),
            low=-largest if signed else 0.0,
            high=largest,
            bar="weight" if i == len(every) - 1 else None,
            hover="{row} looks at {column}: {z:.3g}",
        )
        panels.append(Panel(f"head {name}", marks=[matrix]))
    below = f"Rows: query token. Columns: key token. Means over prompts; {_sums(every)}."
    return Drawing("What each head looks at", below, panels, SQUARE, columns, same_y=True)


def _sums(every: Mapping[str, DataArray]) -> str:
    """What rows of weights add up to: 1 under softmax, other numbers under linear attention."""
    parts = []
    for weights in every.values():
        parts.append(np.nansum(weights.values, axis=-1).ravel())
    sums = np.concatenate(parts)
    if np.allclose(sums, 1, atol=1e-3):
        return "rows sum to 1"
    return f"rows sum to {number(float(sums.min()), 2)} to {number(float(sums.max()), 2)}"
