"""A power curve: the verdicts on models that one number takes from a false claim to a true one."""

import math

from pandas import DataFrame

from icl_interp.figures.drawing import Axis, Bars, Drawing, Mark, Panel
from icl_interp.figures.render import render
from icl_interp.figures.style import VERDICTS, Figure
from icl_interp.figures.text import number, plain

HEIGHT = 190  # pixels of the bars
SHOWN = {
    "contradicted": "contradicted",
    "undecided": "inconclusive",
    "supported": "supported",
}  # column: its look


def power_curve(table: DataFrame, title: str, moved: str) -> Figure:
    """A bar for each value of the dial: the share of its draws with each verdict.

    Below each bar stand the value and what was measured.

    Args:
        table: as `experiments.power.curve` gives it.
        title: above the figure.
        moved: the quantity that was measured, in words.
    """
    rows = table.to_dict("records")
    ticks = {}
    for place, row in enumerate(rows):
        ticks[float(place)] = f"{number(row['value'])}\n{_measured(row['measured'])}"
    marks: list[Mark] = []
    for column, verdict in SHOWN.items():
        look = VERDICTS[verdict]
        bars = Bars(
            list(ticks),
            table[column] / table["draws"],
            name=f"{look.sign} {look.word}",
            colour=look.pale if verdict == "inconclusive" else look.colour,
            hover="{y:.0%}",
            stacked=True,
            edge=0.5,
        )
        marks.append(bars)
    below = (
        f"{rows[0]['draws']} draws a value. Below each bar: the value, and the median of the "
        f"measured {plain(moved)}."
    )
    x = Axis(str(rows[0]["dial"]), ticks=ticks)
    panel = Panel("", x, Axis("share of draws", 0, 1, format=".0%"), marks)
    return render(Drawing(title, below, [panel], HEIGHT))


def _measured(value: float) -> str:
    return "not measured" if math.isnan(value) else number(value)
