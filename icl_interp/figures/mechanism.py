"""Figures of the report's section on the mechanism: where the prediction is made, and what each head looks at."""

import math
from collections.abc import Sequence

import numpy as np
from plotly.graph_objects import Figure
from xarray import DataArray

from icl_interp.analyses import mechanism, relevance
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.grid import (
    BLUE,
    ORANGE,
    Span,
    add_line,
    add_matrix,
    add_panel,
    add_rule,
    spans,
    suffix,
)
from icl_interp.figures.style import finish, log_axis, traces_of
from icl_interp.figures.text import plain
from icl_interp.results import make_array

IN_A_ROW, MOST = 4, 16  # panels of patterns
SQUARE = 210  # pixels of a panel of patterns
LETTERS = 16  # squares in a row, up to which each shows its number
LEAST = 1e-3  # of what predicting 0 would cost, where the axis of errors ends at the latest
WHERE = (
    "First, shares of the prediction's variance that each part writes straight into the read-out, "
    "with the scale of the last norm held. The shares add up to 1; a part with a negative one "
    "works against the others. The rest is what biases of attention write: it varies with that "
    "scale only. Of predictions that are vectors they are shares of the summed variance of all "
    "coordinates. Second, what happens when a head's output is replaced by its mean over prompts: "
    "the factor on the squared error, or, for a model that has not learned its task, the change of "
    "the prediction in u, the standard deviation of predictions (of vectors the root of the summed "
    "variances of coordinates, and the length of the change). Third, the logit lens, which reads "
    "the residual stream after each layer as the read-out would."
)
PATTERNS = (
    "Mean attention weights over prompts in distribution. Tokens are named by what they show: x "
    "and y for the inputs and values of the context, in their order. A head that looks for "
    "something, wherever that stands in the prompt, has an even mean pattern."
)


def where(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """Who writes the prediction, which heads it needs, and after which layer it is there."""
    curve = results.get(mechanism.lens)
    if curve is None:
        return None
    maps: list[tuple[str, str, DataArray]] = []
    if mechanism.attribution in results:
        shares = mechanism.pooled(results[mechanism.attribution], results.get(mechanism.variance))
        maps.append(("Who writes it", "share", _by_part(shares)))
    if relevance.relevance in results:
        on_error = facts.has_learned
        what = "error, ×" if on_error else "change, u"
        maps.append(
            ("Which heads it needs", what, _ablated(results[relevance.relevance], on_error))
        )
    figure, places = Figure(), spans(len(maps) + 1, 0.13)
    for i, (title, what, values) in enumerate(maps):
        _add_map(figure, i, places[i], title, what, values)
    _add_lens(figure, len(maps), places[-1], curve)
    below = "The prediction at the query, in distribution. Layers and heads are counted from 0."
    return finish(figure, "Where the prediction is made", below, 230, b=64)


def _by_part(shares: DataArray) -> DataArray:
    """Shares as a matrix of layers by parts.

    The read-in stands on a row of its own, above, and the rest below.
    """
    share = {str(part): float(shares.sel(part=part)) for part in shares.indexes["part"]}
    apart = [name for name in (mechanism.READ_IN, mechanism.REST) if name in share]
    written = [name.split() for name in share if name not in apart]
    layers = sorted({int(place.split(".")[0]) for _, place in written})
    columns = list(
        dict.fromkeys(place.split(".")[1] if kind == "head" else "MLP" for kind, place in written)
    )

    def at(layer: int, column: str) -> float:
        return share.get(f"MLP {layer}" if column == "MLP" else f"head {layer}.{column}", math.nan)

    rows = [[at(layer, column) for column in columns] for layer in layers]
    alone = {name: [share[name], *[math.nan] * (len(columns) - 1)] for name in apart}
    by_name = {mechanism.READ_IN: [], **dict(zip(map(str, layers), rows, strict=True)), **alone}
    return make_array(list(by_name.values()), {"layer": list(by_name), "head": columns})


def _ablated(found: DataArray, on_error: bool) -> DataArray:
    """What mean ablation of each head does: a factor on the mean error, or the change of the prediction in u."""
    means = found.sel(intervention="mean ablation").mean("unit")
    rise, moved, intact = (means.sel(statistic=name) for name in ("rise", "movement", "intact"))
    values = (rise + intact) / intact if on_error else moved**0.5
    places = [str(name).split(".") for name in values.indexes["head"]]
    layers, heads = (list(dict.fromkeys(place[i] for place in places)) for i in (0, 1))
    return make_array(
        values.values.reshape(len(layers), len(heads)), {"layer": layers, "head": heads}
    )


def _add_map(
    figure: Figure, panel: int, across: Span, title: str, what: str, values: DataArray
) -> None:
    """Squares with numbers in them; what does not exist has none."""
    numbers = values.values
    largest = float(np.abs(numbers[np.isfinite(numbers)]).max(initial=0.0))
    # Factors on an error run over decades: their colours follow the logarithm.
    factors = what.startswith("error")
    shade = values.copy(data=np.log10(np.maximum(numbers, 1.0))) if factors else values
    end = max(math.log10(largest), 0.01) if factors else largest
    signed = not factors and bool((numbers < 0).any())
    add_matrix(
        figure, panel, across, (0.0, 1.0), f"{title} ({plain(what)})", shade, end, signed=signed
    )
    for axis in "xy":
        figure.update_layout({f"{axis}axis{suffix(panel)}": {"type": "category"}})
    square = traces_of(figure)[-1]
    square.update(
        customdata=numbers, hovertemplate="layer %{y}, head %{x}: %{customdata:.3g}<extra></extra>"
    )
    if numbers.shape[1] <= LETTERS:
        text = [[_short(v) for v in row] for row in numbers.tolist()]
        square.update(text=text, texttemplate="%{text}")


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


def _add_lens(figure: Figure, panel: int, across: Span, curve: DataArray) -> None:
    """The prediction that the stream holds after each layer: its error, and how far it is from the last one."""
    means = curve.mean("unit")
    zero = means.sel(statistic="zero").values
    depth = means.indexes["depth"].to_numpy().astype(float)
    with np.errstate(
        divide="ignore", invalid="ignore"
    ):  # a task whose values are all 0 leaves nothing to draw
        lines = {name: means.sel(statistic=name).values / zero for name in ("error", "distance")}
    shown = np.concatenate([line[line > 0] for line in lines.values()])
    low = max(float(shown.min(initial=1.0)) / 2, 1e-12)
    for (name, line), colour, words in zip(
        lines.items(),
        (BLUE, ORANGE),
        ("error", "distance from the model's prediction"),
        strict=True,
    ):
        held = line > 0  # the last prediction is its own: no distance on a logarithmic axis
        dash = "solid" if name == "error" else "dash"
        add_line(figure, panel, words, depth[held], line[held], colour, dash, mode="lines+markers")
    ends = (-0.2, float(depth[-1]) + 0.2)
    add_rule(figure, panel, 1.0, ends, "predicting 0")
    vertical = log_axis(
        "squared, of predicting 0", min(low, LEAST), max(2.0, 2 * float(shown.max(initial=1.0))), 5
    )
    horizontal = {
        "title": {"text": "layers passed"},
        "range": list(ends),
        "dtick": max(1, round(depth[-1] / 6)),
    }
    add_panel(
        figure,
        panel,
        across,
        (0.0, 1.0),
        "What the stream holds (logit lens)",
        horizontal,
        vertical,
    )


def patterns(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """Mean attention weights: a panel a head, or a row a head where there are many or only the query's row is known."""
    weights = results.get(mechanism.patterns)
    if weights is None:
        return None
    layers, heads = (weights.indexes[name].tolist() for name in ("layer", "head"))
    every = [
        (layer, head, weights.sel(layer=layer, head=head)) for layer in layers for head in heads
    ]
    signed = bool((weights < 0).any())
    if weights.sizes["query"] > 1 and len(every) <= MOST:
        return _squares(every, min(IN_A_ROW, len(heads)), signed)
    rows = np.stack([one.sel(query="query").values for _, _, one in every])
    names = [f"{layer}.{head}" for layer, head, _ in every]
    matrix = make_array(rows, {"head": names, "key": weights.indexes["key"].tolist()})
    figure = Figure()
    add_matrix(
        figure,
        0,
        (0.0, 1.0),
        (0.0, 1.0),
        "",
        matrix,
        scale=_scale(),
        labels=("head", "token"),
        signed=signed,
    )
    below = (
        "Mean attention of the query on every token. A head is named by its layer and its place in "
        "it, from 0."
    )
    return finish(figure, "What the query looks at", below, max(180, 16 * len(names)), r=90)


def _squares(every: Sequence[tuple[int, int, DataArray]], columns: int, signed: bool) -> Figure:
    """Query against key, a panel a head, on one scale of colours."""
    rows = math.ceil(len(every) / columns)
    across, up = spans(columns, 0.05), spans(rows, 0.28 / rows if rows > 1 else 0.0)[::-1]
    figure, largest = Figure(), max(float(np.abs(one).max()) for _, _, one in every)
    for i, (layer, head, one) in enumerate(every):
        place = across[i % columns], up[i // columns]
        bar = _scale() if i == 0 else None
        add_matrix(figure, i, *place, f"head {layer}.{head}", one, largest, bar, ("", ""), signed)
    below = (
        "Rows: the token that looks. Columns: the token that is looked at. Means over prompts; a "
        "row adds up to 1."
    )
    return finish(figure, "What each head looks at", below, SQUARE * rows, r=90)


def _scale() -> dict[str, object]:
    return {"x": 1.01, "y": 0.5, "len": 1.0, "title": {"text": "weight"}}
