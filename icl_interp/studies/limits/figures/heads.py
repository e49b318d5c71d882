"""Heads one by one: how near each comes to a hardmax, whether it matters, and how orthogonal heads are."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.graph_objects import Figure
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.relevance import Effect, relevance, relevant
from icl_interp.analyses.relevance import effects as ablation_effects
from icl_interp.figures.style import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    PALE,
    VERDICTS,
    Marks,
    finish,
    panel_title,
    place,
    rows_axis,
)
from icl_interp.figures.text import number, plain, tested_by
from icl_interp.results import Result
from icl_interp.studies.limits.claims import softmax as limits_softmax
from icl_interp.studies.limits.claims.softmax import CONCENTRATED, TARGETS

FAR = (1e4, 1e5)  # |x| at which a hardmax is judged, in units of x
MAPS = (
    "OV: what a head writes for what it reads<br>QK: what it looks for<br>"
    "outputs: what it writes in distribution, less its mean<br>(the claim is about outputs)"
)


def heads(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """Delta of every head near and far, its effect and target; overlap of heads beside random rotations."""
    delta, overlap = results.get(limits_softmax.delta), results.get("heads/overlap")
    scored, paired = delta is not None, overlap is not None
    if not (scored or paired):
        return None
    left = (0.0, 0.5 if paired else 0.8)
    right = (0.76 if scored else 0.0, 1.0)
    figure = go.Figure()
    place(figure, *([left] if scored else []), *([right] if paired else []))
    n_rows = len(delta.indexes["head"]) if delta is not None else 4
    plot = max(280 if scored else 240, (22 if n_rows <= 24 else 15) * n_rows + 20)
    below = tested_by("heads", findings)
    if delta is not None:
        _dumbbells(figure, delta, results, facts)
        panel_title(figure, "Distance of the pattern to its hardmax", left)
        below += (
            "<br>Size of blue marks, and effect: the factor on the error in distribution when the "
            "head's attention is made uniform, or its output replaced by its mean (the larger "
            "one);<br>in a model that has not learned, the change of the prediction in u, its "
            "standard deviation in distribution."
        )
    if paired:
        _overlaps(figure, overlap, "2" if scored else "", (1 - 170 / plot, 1.0))
        panel_title(figure, "Overlap of heads within a layer", right)
        figure.add_annotation(
            text=MAPS,
            xref="paper",
            x=right[0],
            yref="paper",
            y=1 - 170 / plot,
            yshift=-52,
            yanchor="top",
            xanchor="left",
            align="left",
            showarrow=False,
            font={"size": 11, "color": GREY},
        )
    finish(figure, "What each head does", below, plot, l=64, r=24)
    return figure.update_layout(hovermode="closest")


def _counted(results: Results, facts: Facts, names: Sequence[str]) -> set[str]:
    return set(relevant(results, facts)) if relevance in results else set(names)


def effects(results: Results, facts: Facts) -> dict[str, Effect]:
    """What ablating each head does; empty where that was not measured."""
    return ablation_effects(results, facts) if relevance in results else {}


def _size(effect: Effect | None) -> float:
    """Pixels of a marker: 7, and 5 more for each factor of ten in the error, or in what the prediction moves by."""
    if effect is None:
        return 7.0
    factor = effect.value if effect.on_error else 1 + effect.value / 0.01
    return 7.0 + 5.0 * float(np.log10(max(factor, 1.0)))


def _words(effect: Effect | None) -> str:
    if effect is None:
        return ""
    return f"{number(effect.value, 2)}×" if effect.on_error else f"{number(effect.value, 2)} u"


def _dumbbells(figure: Figure, delta: DataArray, results: Results, facts: Facts) -> None:
    names = list(delta.indexes["head"])
    counted, effect = _counted(results, facts, names), effects(results, facts)
    inside = facts.trained_range or (0.0, 0.0)
    near = (delta["x"].values >= inside[0]) & (delta["x"].values <= inside[1])
    if not near.any():
        near = np.abs(delta["x"].values) == np.abs(delta["x"].values).min()
    far = np.isclose(np.abs(delta["x"].values)[:, None] / facts.x_unit, FAR).any(1)
    values = delta.sel(statistic="delta").values
    start, end = values[:, near].mean(-1), values[:, far].mean(-1)
    rows = np.arange(len(names))
    path = np.stack([start, end, np.full(len(names), np.nan)], -1).ravel()[:-1]
    figure.add_trace(
        go.Scatter(
            x=path,
            y=np.repeat(rows, 3)[:-1],
            mode="lines",
            line={"color": PALE, "width": 2},
            showlegend=False,
            hoverinfo="skip",
            xaxis="x",
            yaxis="y",
        )
    )
    targets = [_target(delta, name) for name in names]
    share = results.get(limits_softmax.concentration)
    for label, keep, symbol in (
        ("", True, "circle"),
        (", not sure to matter", False, "circle-open"),
    ):
        chosen = [i for i, name in enumerate(names) if (name in counted) == keep]
        if not chosen:
            continue
        size = [_size(effect.get(names[i])) for i in chosen]
        words = [
            _hover(names[i], start[i], end[i], effect.get(names[i]), targets[i], share)
            for i in chosen
        ]
        common = {
            "y": rows[chosen],
            "mode": "markers",
            "text": words,
            "hovertemplate": "%{text}<extra></extra>",
            "xaxis": "x",
            "yaxis": "y",
            "cliponaxis": False,
        }
        figure.add_trace(
            go.Scatter(
                x=start[chosen],
                name="in distribution",
                showlegend=keep or not counted,
                **common,
                marker={
                    "color": GREY,
                    "symbol": symbol,
                    "size": 7,
                    "line": {"color": GREY, "width": 1.3},
                    "opacity": 1,
                },
            )
        )
        figure.add_trace(
            go.Scatter(
                x=end[chosen],
                name=f"far from the data{label}",
                **common,
                marker={
                    "color": BLUE,
                    "symbol": symbol,
                    "size": size,
                    "line": {"color": "white" if keep else BLUE, "width": 1 if keep else 1.5},
                    "opacity": 1,
                },
            )
        )
    look = VERDICTS["supported"]
    figure.add_shape(
        type="rect",
        xref="x",
        x0=0,
        x1=CONCENTRATED,
        yref="y domain",
        y0=0,
        y1=1,
        fillcolor=look.pale,
        line={"width": 0},
        layer="below",
    )
    columns = ((14, "left", "far away, looks at"), (168, "right", "effect"))
    anchor = {"xref": "x domain", "x": 1}
    marks = Marks()
    for shift, side, heading in columns:
        marks.note(
            text=heading,
            xshift=shift,
            xanchor=side,
            y=1,
            yref="paper",
            yanchor="bottom",
            yshift=4,
            font={"size": 11, "color": GREY},
            **anchor,
        )
    for i, name in enumerate(names):
        rise = _words(effect.get(name))
        font = {"size": 11, "color": INK if name in counted else "#767676"}
        for (shift, side, _), text in zip(columns, (targets[i], rise), strict=True):
            marks.note(
                text=plain(text), xshift=shift, xanchor=side, y=i, yref="y", font=font, **anchor
            )
    marks.put(figure)
    figure.update_layout(
        xaxis={
            "range": [-0.02, 1.03],
            "title": {"text": f"δ = 1 − weight on the largest key (hardmax: δ ≤ {CONCENTRATED})"},
        },
        yaxis={**rows_axis(names), "title": {"text": "layer.head"}},
    )


def _target(delta: DataArray, head: str) -> str:
    """What a head attends to most at both ends of the far range."""
    share = {
        t: delta.sel(statistic=t, head=head).values[[0, -1]].mean()
        for t in TARGETS
        if t in delta.indexes["statistic"]
    }
    return max(share, key=share.__getitem__) if share else ""


def _hover(
    name: str, start: float, end: float, effect: Effect | None, target: str, share: Result | None
) -> str:
    lines = [
        f"<b>head {plain(name)}</b>",
        f"δ in distribution {number(start)}, far from the data {number(end)}",
    ]
    if share is not None:
        near, *far = share.sel(head=name).values.mean(-1)[:5]
        lines.append(
            f"a hardmax in {number(100 * near)} % of contexts in distribution, "
            f"{number(100 * min(far))} % far"
        )
    lines += [f"looks at {plain(target)}"] if target else []
    lines += (
        [f"ablated: {'error' if effect.on_error else 'change of the prediction'} {_words(effect)}"]
        if effect
        else []
    )
    return "<br>".join(lines)


def _overlaps(figure: Figure, overlap: DataArray, axis: str, domain: tuple[float, float]) -> None:
    """Every pair of heads, their mean, and what random directions give, for what heads write, look for and say."""
    maps, pairs = (
        ["OV", "QK", "outputs"],
        [p for p in overlap.indexes["pair"] if len(set(p.split(" ~ "))) == 2],
    )
    where = {"xaxis": f"x{axis}", "yaxis": f"y{axis}", "cliponaxis": False}
    each = overlap.sel(
        pair=pairs, value=maps
    ).values.T  # (map, pair); NaN for heads that write a constant
    by_chance = overlap.sel(pair=pairs, value="chance").values
    *mean, chance = (
        float(np.nanmean(row)) if np.isfinite(row).any() else float("nan")
        for row in (*each, by_chance)
    )
    rows = np.arange(len(maps))
    figure.add_trace(
        go.Scatter(
            x=each.ravel(),
            y=np.repeat(rows, len(pairs)),
            mode="markers",
            name="pair of heads",
            text=[plain(pair) for pair in pairs] * len(maps),
            marker={"symbol": "line-ns-open", "color": PALE, "size": 12, "line": {"width": 1.2}},
            hovertemplate="%{text}: %{x:.3g}<extra></extra>",
            **where,
        )
    )
    figure.add_trace(
        go.Scatter(
            x=[chance],
            y=rows[-1:],
            mode="markers",
            name="random directions",
            marker={"symbol": "square-open", "color": INK, "size": 10},
            hovertemplate="random directions, root mean square: %{x:.3g}<extra></extra>",
            **where,
        )
    )
    figure.add_trace(
        go.Scatter(
            x=mean,
            y=rows,
            mode="markers",
            name="mean of pairs",
            marker={"color": ORANGE, "size": 11},
            hovertemplate="mean %{x:.3g}<extra></extra>",
            **where,
        )
    )
    figure.update_layout(
        {
            f"xaxis{axis}": {
                "range": [-0.02, max(1.0, float(np.nan_to_num(each).max(initial=0.0))) * 1.03],
                "nticks": 6,
                "title": {"text": "overlap |⟨A, B⟩| / |A| |B| of two heads A, B"},
            },
            f"yaxis{axis}": {**rows_axis(list(maps)), "domain": domain},
        }
    )
