"""The figure of `autoregression.figure3`: weights of the best run of two settings, and where all runs end."""

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go
from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments.errors import rows_of
from icl_interp.figures.grid import Drawn, add_line, add_matrix, add_panel, add_rule, spans
from icl_interp.figures.style import BLUE, ORANGE, finish, log_axis
from icl_interp.figures.text import plain
from icl_interp.results import Result
from icl_interp.studies.autoregression.experiments.figure3 import PAIRED, UNITARY
from icl_interp.studies.autoregression.experiments.models import FOUND

LOWEST = 1e-12  # a loss below is drawn there: what is left is rounding
PARTS = ("A", "B", "BᵀA", "P")


def figure3(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """Two figures: weights as the paper shows them, and the end of every run by setting."""
    drawn = {}
    laws = [law for law in (UNITARY, PAIRED) if all(f"{part}, {law}" in results for part in PARTS)]
    if laws:
        drawn["figure3"] = _weights(results, laws)
    if rows_of(results, "runs"):
        drawn["runs"] = _runs(results)
    return drawn


def _weights(results: Mapping[str, Result], laws: list[str]) -> go.Figure:
    figure, columns, rows = go.Figure(), spans(len(PARTS), 0.11), spans(len(laws), 0.2)[::-1]
    for r, law in enumerate(laws):
        for c, part in enumerate(PARTS):
            matrix = results[f"{part}, {law}"]
            assert isinstance(matrix, DataArray)
            title = {"BᵀA": "p<sub>T</sub> BᵀA", "P": "P / p<sub>T</sub>"}.get(part, part)
            bar = {
                "x": columns[c][1] + 0.005,
                "y": sum(rows[r]) / 2,
                "len": rows[r][1] - rows[r][0] + 0.04,
            }
            add_matrix(
                figure,
                r * len(PARTS) + c,
                columns[c],
                rows[r],
                f"{plain(law)}: {title}" if c == 0 else title,
                matrix,
                scale=bar,
                labels=("query", "token") if part == "P" else None,
            )
    notes = "<br>".join(
        plain(str(results[f"P, {law}"].attrs["note"]).partition(":")[0]) for law in laws
    )
    below = (
        f"The run of least loss of each setting. {notes}<br>p<sub>T</sub> is the weight of the "
        "last token in the longest prompt: B<sup>T</sup>A and P can be scaled against each other, "
        "so both are shown in units of it."
    )
    return finish(
        figure,
        "Weights of a unit after gradient descent on the exact loss",
        below,
        230 * len(laws) + 80,
    )


def _runs(results: Mapping[str, Result]) -> go.Figure:
    rows = rows_of(results, "runs")
    settings = list(dict.fromkeys((row["law"], row["d"], row["H"]) for row in rows))
    figure = go.Figure()
    names = [f"{plain(law)}<br>d = {d}, {heads} heads" for law, d, heads in settings]
    axis = {"tickmode": "array", "tickvals": list(range(len(names))), "ticktext": names}
    x = {**axis, "range": [-0.5, len(names) - 0.5]}
    y = log_axis("loss over that of predicting 0", LOWEST / 3, 3)
    add_panel(figure, 0, (0, 1), (0, 1), "", x, y)
    for i, setting in enumerate(settings):
        own = [row for row in rows if (row["law"], row["d"], row["H"]) == setting]
        ends = np.array([row["loss"] for row in own])
        held = np.isfinite(ends)
        places = i + np.linspace(-0.3, 0.3, len(own))
        colour = BLUE if setting[0] == UNITARY else ORANGE
        add_line(
            figure,
            0,
            str(setting[0]),
            places[held],
            np.maximum(ends[held], LOWEST),
            colour,
            legend=setting[0] not in {law for law, _, _ in settings[:i]},
            mode="markers",
            marker={
                "color": colour,
                "size": 8,
                "symbol": "circle" if setting[0] == UNITARY else "diamond",
            },
        )
        found = sum(row["found"] for row in own)
        figure.add_annotation(
            x=i,
            y=1,
            yref="paper",
            text=f"{found} of {len(own)}",
            showarrow=False,
            yanchor="top",
            font={"size": 12},
        )
    add_rule(figure, 0, FOUND, (-0.5, len(names) - 0.5), "a minimum is found below")
    below = (
        "A mark is a random start. On top how many of them find a minimum. Losses below "
        "10<sup>−12</sup> are rounding and drawn there; runs that diverged are not drawn."
    )
    return finish(figure, "Where gradient descent ends, by the number of heads", below, 340, b=80)
