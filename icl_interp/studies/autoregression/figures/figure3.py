"""The figure of `autoregression.figure3`.

It shows weights of the best run of two settings, and where all runs end.
"""

from collections.abc import Mapping

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments.errors import rows_of
from icl_interp.figures.colours import BLUE, INK, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Mark, Matrix, Note, Panel, Points, Rule
from icl_interp.figures.text import markup, plain
from icl_interp.results import Result
from icl_interp.studies.autoregression.experiments.figure3 import PAIRED, UNITARY, by_setting
from icl_interp.studies.autoregression.experiments.models import FOUND

LOWEST = 1e-12  # a loss below is drawn there: what is left is rounding
# The parts of a unit, and their titles.
PARTS = {
    "A": markup("A"),
    "B": markup("B"),
    "BᵀA": markup("p<sub>T</sub> BᵀA"),
    "P": markup("P / p<sub>T</sub>"),
}
LOOKS = {UNITARY: (BLUE, "circle"), PAIRED: (ORANGE, "diamond")}


def figure3(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Two figures: weights as the paper shows them, and the end of every run by setting."""
    drawn = {}
    laws = []
    for law in LOOKS:
        wanted = {f"{part}, {law}" for part in PARTS}
        if wanted <= results.keys():
            laws.append(law)
    if laws:
        drawn["figure3"] = _weights(results, laws)
    runs = rows_of(results, "runs")
    if runs:
        drawn["runs"] = _runs(runs)
    return drawn


def _weights(results: Mapping[str, Result], laws: list[str]) -> Drawing:
    panels = []
    notes = []
    for law in laws:
        for part, title in PARTS.items():
            found = results[f"{part}, {law}"]
            assert isinstance(found, DataArray)
            heading = markup("{}: {}", law, title) if part == "A" else title
            panel = _matrix(heading, found, part)
            panels.append(panel)
        # What stands before the colon says which setting it is.
        whole = str(results[f"P, {law}"].attrs["note"])
        note, _, _ = whole.partition(":")
        notes.append(plain(note))
    below = (
        f"The run of least loss of each setting. {'. '.join(notes)}. p<sub>T</sub> is the weight "
        "of the last token in the longest prompt: B<sup>T</sup>A and P can be scaled against each "
        "other, so both are shown in units of it."
    )
    title = "Weights of a unit after gradient descent on the exact loss"
    return Drawing(title, below, panels, height=190, columns=len(PARTS))


def _matrix(title: str, found: DataArray, part: str) -> Panel:
    rows, columns = map(str, found.dims)
    down, across = ("query", "token") if part == "P" else (rows, columns)
    sizes = np.abs(found.values)
    largest = float(sizes.max()) or 1.0
    matrix = Matrix(
        found.values,
        found[rows].values.tolist(),
        found[columns].values.tolist(),
        -largest,
        largest,
        bar="",
        hover=f"{down} {{row}}, {across} {{column}}: {{z:.3g}}",
    )
    x = Axis(across, labels=5)
    y = Axis(down, labels=5)
    return Panel(title, x, y, [matrix])


def _runs(rows: list[dict]) -> Drawing:
    of_setting = by_setting(rows, "law", "d", "H")
    marks: list[Mark] = [Rule(y=FOUND, words="a minimum is found below")]
    names = {}
    for i, (setting, own) in enumerate(of_setting.items()):
        law, d, n_heads = setting
        names[float(i)] = f"d = {d}\nH = {n_heads}"
        ends = np.array([row["loss"] for row in own])
        places = i + np.linspace(-0.3, 0.3, len(own))
        held = np.isfinite(ends)  # the others diverged
        colour, symbol = LOOKS[law]
        points = Points(places[held], ends[held], name=law, colour=colour, symbol=symbol)
        found = sum(row["found"] for row in own)
        count = Note(f"{found} of {len(own)}", x=i, at="top", colour=INK)
        marks += [points, count]
    x = Axis("d coordinates, H heads", -0.5, len(of_setting) - 0.5, ticks=names)
    y = Axis("loss over that of predicting 0", LOWEST / 3, 10, log=True, least=LOWEST)
    below = (
        "A mark is a random start. The numbers on top count the starts that find a minimum. "
        "Losses below 10<sup>−12</sup> are rounding and drawn there; runs that diverged are not "
        "drawn."
    )
    panel = Panel(x=x, y=y, marks=marks)
    return Drawing("Where gradient descent ends, by the number of heads", below, [panel], 340)
