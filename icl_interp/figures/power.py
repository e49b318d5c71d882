"""A power curve: how a claim is judged on models that one number takes from where it is false to where it is true."""

import math

import plotly.graph_objects as go
from pandas import DataFrame
from plotly.graph_objects import Figure

from icl_interp.figures.style import INK, VERDICTS, finish
from icl_interp.figures.text import number, plain

HEIGHT = 190  # pixels of the bars
SHOWN = {
    "contradicted": "contradicted",
    "undecided": "inconclusive",
    "supported": "supported",
}  # column: its look


def power_curve(table: DataFrame, title: str, moved: str) -> Figure:
    """A bar a value: the share of its draws with each verdict; below it the value, and what was measured.

    Args:
        table: as `experiments.power.curve` gives it.
        title: above the figure.
        moved: the quantity that was measured, in words.
    """
    rows = table.to_dict("records")
    ticks = [f"{number(row['value'])}<br>{_measured(row['measured'])}" for row in rows]
    figure = go.Figure()
    for column, verdict in SHOWN.items():
        look = VERDICTS[verdict]
        shares = [row[column] / row["draws"] for row in rows]
        figure.add_bar(
            x=list(range(len(rows))),
            y=shares,
            name=f"{look.sign} {look.word}",
            marker={
                "color": look.pale if verdict == "inconclusive" else look.colour,
                "line": {"color": INK, "width": 0.5},
            },
            hovertemplate=f"%{{y:.0%}} {look.word}<extra></extra>",
        )
    figure.update_layout(barmode="stack", bargap=0.25)
    figure.update_xaxes(
        tickvals=list(range(len(rows))), ticktext=ticks, title=plain(rows[0]["dial"])
    )
    figure.update_yaxes(title="share of draws", range=[0, 1], tickformat=".0%")
    below = (
        f"{rows[0]['draws']} draws a value. Below each bar: the value, and the median of the "
        f"measured {plain(moved)}."
    )
    return finish(figure, title, below, HEIGHT, b=92)


def _measured(value: float) -> str:
    return "not measured" if math.isnan(value) else number(value)
