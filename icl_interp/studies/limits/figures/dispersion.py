"""Attention over many tokens: does a pattern become uniform, or only spread out?"""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.graph_objects import Figure

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.relevance import relevance, relevant
from icl_interp.figures.style import (
    GREY,
    INK,
    PALE,
    VERDICTS,
    finish,
    joined,
    log_axis,
    panel_title,
    place,
    traces_of,
)
from icl_interp.figures.text import plain, tested_by
from icl_interp.studies.limits.claims import uniform as limits_uniform
from icl_interp.studies.limits.claims.uniform import BEYOND, UNIFORM

FIRST, LAST = (86, 180, 233), (0, 44, 84)  # the first layer's colour and the last one's


def dispersion(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """Entropy deficit and largest weight of every head against the number of tokens; measured, then resampled."""
    curve = results.get(limits_uniform.dispersion)
    if curve is None:
        return None
    names = list(curve.indexes["head"])
    counted = set(relevant(results, facts)) if relevance in results else set(names)
    trained = len(curve["n"].values) - len(
        BEYOND
    )  # lengths measured directly; the rest comes from resampled scores
    figure = go.Figure()
    domains = (0, 0.46), (0.56, 1)
    place(figure, *domains)
    for axis, statistic, title in (
        ("", "deficit", "log n − entropy (nats)"),
        ("2", "max weight", "largest weight"),
    ):
        values = curve.sel(statistic=statistic).values
        _curves(figure, curve["n"].values, values, names, counted, trained, axis, statistic)
        positive = values[values > 0]
        low, high = (
            (float(positive.min()) / 1.5, float(positive.max()) * 1.5)
            if positive.size
            else (0.01, 1.0)
        )
        if axis == "":
            low, high = min(low, UNIFORM / 2), max(high, UNIFORM * 2)
        else:
            low = min(low, 0.8 / float(curve["n"].values.max()))
        figure.update_layout(
            {
                f"xaxis{axis}": log_axis(
                    "tokens n",
                    float(curve["n"].values.min()) / 1.15,
                    float(curve["n"].values.max()) * 1.15,
                ),
                f"yaxis{axis}": log_axis(title, low, high, 8),
            }
        )
        if trained > 0:
            edge = float(curve["n"].values[trained - 1])
            figure.add_shape(
                type="line",
                xref=f"x{axis}",
                x0=edge,
                x1=edge,
                yref=f"y{axis} domain",
                y0=0,
                y1=1,
                layer="below",
                line={"color": PALE, "width": 1},
            )
            figure.add_annotation(
                text="trained length",
                xref=f"x{axis}",
                x=float(np.log10(edge)),
                xshift=4,
                xanchor="left",
                yref=f"y{axis} domain",
                y=1,
                yanchor="top",
                showarrow=False,
                font={"size": 11, "color": GREY},
            )
    _threshold(figure)
    figure.add_trace(
        go.Scatter(
            x=curve["n"].values,
            y=1 / curve["n"].values,
            mode="lines",
            name="uniform: 1/n",
            hoverinfo="skip",
            legendrank=3000,
            xaxis="x2",
            yaxis="y2",
            line={"color": INK, "width": 1.2, "dash": "dot"},
        )
    )
    panel_title(figure, "Distance from a uniform average", domains[0])
    panel_title(figure, "Largest weight on any token", domains[1])
    below = tested_by("dispersion", findings) + f"<br>A line a head; {plain(curve.attrs['note'])}."
    finish(
        figure, "Does attention become a uniform average over many tokens?", below, 320, l=72, r=24
    )
    return figure.update_layout(hovermode="closest")


def _curves(
    figure: Figure,
    xs: np.ndarray,
    values: np.ndarray,
    names: list[str],
    counted: set[str],
    trained: int,
    axis: str,
    statistic: str,
) -> None:
    """One trace a layer and kind: heads are joined with gaps, so that a large model stays light."""
    layer_of = [int(name.split(".")[0]) for name in names]
    layers = sorted(set(layer_of))
    for keep in (False, True):
        for i, layer in enumerate(layers):
            chosen = [
                n
                for n, name in enumerate(names)
                if layer_of[n] == layer and (name in counted) == keep
            ]
            if not chosen:
                continue
            colour = _shade(i, len(layers)) if keep else PALE
            label = f"layer {layer}" if keep else "not sure to matter"
            first = axis == "" and (keep or label not in {t.name for t in traces_of(figure)})
            for dash, part in (
                ("solid", slice(0, trained)),
                ("dash", slice(max(trained - 1, 0), None)),
            ):
                y = joined(values[chosen, part])
                who = np.repeat(
                    [plain(names[n]) for n in chosen], values[chosen, part].shape[1] + 1
                )[: len(y)]
                figure.add_trace(
                    go.Scatter(
                        x=joined(np.broadcast_to(xs[part], (len(chosen), len(xs[part])))),
                        y=y,
                        text=who,
                        name=label,
                        legendgroup=label,
                        showlegend=first and dash == "solid",
                        mode="lines",
                        xaxis=f"x{axis}",
                        yaxis=f"y{axis}",
                        line={"color": colour, "width": 1.7 if keep else 1.2, "dash": dash},
                        legendrank=1000 + i if keep else 1900,
                        hovertemplate=f"head %{{text}}<br>n = %{{x}}<br>{statistic} "
                        "%{y:.3g}<extra></extra>",
                    )
                )


def _shade(i: int, n: int) -> str:
    """From light to dark blue with depth."""
    t = i / (n - 1) if n > 1 else 1.0
    return "rgb({},{},{})".format(
        *(round(a + t * (b - a)) for a, b in zip(FIRST, LAST, strict=True))
    )


def _threshold(figure: Figure) -> None:
    look = VERDICTS["supported"]
    figure.add_shape(
        type="line",
        xref="x domain",
        x0=0,
        x1=1,
        yref="y",
        y0=UNIFORM,
        y1=UNIFORM,
        layer="below",
        line={"color": look.colour, "width": 1.5, "dash": "dash"},
    )
    figure.add_annotation(
        text=f"uniform below {UNIFORM}",
        xref="x domain",
        x=1,
        xanchor="right",
        yref="y",
        y=float(np.log10(UNIFORM)),
        yanchor="bottom",
        showarrow=False,
        font={"size": 11, "color": look.ink},
        bgcolor="rgba(255,255,255,0.8)",
    )
