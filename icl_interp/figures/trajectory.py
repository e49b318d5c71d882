"""A run along its training: error, influence of examples, roles of heads, and verdicts."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from icl_interp.figures.colours import BLUE, COLOURS, INK, ORANGE, PALE
from icl_interp.figures.drawing import Axis, Band, Drawing, Line, Mark, Matrix, Panel, Rule
from icl_interp.figures.style import VERDICTS

BELOW = (
    "Each snapshot is measured like a trained model, on the same prompts. Bands: 95 % intervals "
    "over functions. Roles: the largest score of any head, 0 by chance."
)
# From contradicted by way of open to supported.
SCALE = ((0.0, ORANGE), (0.5, PALE), (1.0, BLUE))
PLACES = {"contradicted": -1.0, "inconclusive": 0.0, "supported": 1.0}
SHOWN = ("row times labels", "sum of weights", "distance")  # of influence: the rows of one scale
ROW = 24  # pixels of a claim


def drawn(
    name: str,
    error: pd.DataFrame,
    verdicts: pd.DataFrame,
    roles: pd.DataFrame | None,
    influence: pd.DataFrame | None,
) -> Drawing:
    """The tables of a `Trajectory`, a panel each where there is one."""
    steps = error["step"].tolist()
    # Error first, then what explains it, then what is said of it. The error has a panel to itself,
    # whose title names it.
    curve = _curve(error, "", INK)
    panels = [_panel("Error", "error (predicting 0 is 1)", steps, curve)]
    if influence is not None:
        marks = _influence(influence)
        panels.append(_panel("Influence of examples", "value", steps, marks))
    if roles is not None and np.isfinite(roles["score"].to_numpy()).any():
        marks = _largest(roles)
        panels.append(_panel("Roles of heads", "largest score", steps, marks))
    height = 320
    if len(verdicts):
        panels.append(_verdicts(verdicts))
        n_claims = len(set(verdicts["claim"]))
        height = max(height, 60 + ROW * n_claims)
    title = f"{name} along its training"
    return Drawing(title, BELOW, panels, height=height, columns=2)


def _panel(title: str, words: str, steps: Sequence[int], marks: Sequence[Mark]) -> Panel:
    """Curves over steps, on a logarithmic axis that also holds step 0."""
    later = [float(step) for step in steps if step > 0]
    first = later[0] if later else 1.0
    x = Axis("step", symlog=first)
    y = Axis(words)
    return Panel(title, x, y, marks)


def _curve(table: pd.DataFrame, name: str, colour: str) -> list[Mark]:
    steps = table["step"].to_numpy(dtype=float)
    low = table["low"].to_numpy()
    high = table["high"].to_numpy()
    values = table["value"].to_numpy()
    band = Band(steps, low, high, colour=colour)
    line = Line(steps, values, name=name, colour=colour, symbol="circle")
    return [band, line]


def _influence(influence: pd.DataFrame) -> list[Mark]:
    marks: list[Mark] = [Rule(y=0.0)]
    for name, colour in zip(SHOWN, COLOURS, strict=False):
        rows = influence.loc[influence["name"] == name]
        marks += _curve(rows, name, colour)
    return marks


def _largest(roles: pd.DataFrame) -> list[Mark]:
    """For each role the largest score of any head, at each step."""
    marks: list[Mark] = [Rule(y=0.0)]
    best = roles.pivot_table(index="step", columns="role", values="score", aggfunc="max")
    steps = best.index.to_numpy(dtype=float)
    # Lines of one legend look different: other colours than those of influence first, and squares.
    colours = COLOURS[len(SHOWN) :] + COLOURS[: len(SHOWN)]
    for role, colour in zip(best.columns, colours, strict=False):
        scores = best[role].to_numpy()
        line = Line(steps, scores, name=str(role), colour=colour, symbol="square")
        marks.append(line)
    return marks


def _verdicts(verdicts: pd.DataFrame) -> Panel:
    """A square for each claim and step; white where a claim does not apply."""
    claims = verdicts["claim"].unique().tolist()
    steps = verdicts["step"].unique().tolist()
    table = verdicts.pivot(index="claim", columns="step", values="verdict")
    # Numbers for the colours, and signs, so that nothing is said by colour alone.
    values = []
    signs = []
    for claim in claims:
        found = table.loc[claim, steps].tolist()
        values.append([PLACES.get(one, np.nan) for one in found])
        signs.append([VERDICTS[one].sign for one in found])
    names = [str(step) for step in steps]
    hover = "{row}, step {column}"
    look = {"low": -1.0, "high": 1.0, "colours": SCALE, "texts": signs, "hover": hover}
    squares = Matrix(values, claims, names, **look)
    x = Axis("step")
    return Panel("Verdicts", x, marks=[squares])
