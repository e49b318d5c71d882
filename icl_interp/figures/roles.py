"""The roles of heads, a row each."""

import math
import textwrap
from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from plotly.graph_objects import Figure

from icl_interp.errors import InputError
from icl_interp.figures.drawing import Drawing, Matrix, Panel
from icl_interp.figures.render import render

NARROW = 10  # letters of a line below a column
BELOW = (
    "Attention beyond chance: 0 is chance, 1 means that all of it goes there. Neighbours: minus "
    "the rank correlation of weight and distance. Empty: no score."
)


def head_roles(table: pd.DataFrame) -> Figure:
    """A square for each head and role.

    Args:
        table: what `probes.roles` gave.

    Raises:
        InputError: another table.

    >>> import icl_interp
    >>> table = icl_interp.probes.roles(icl_interp.load("affine_attn_only"))
    >>> len(head_roles(table).data[0].y) == len(table.groupby(["layer", "head"]))
    True
    """
    missing = {"layer", "head", "role", "score"} - set(table.columns)
    if missing:
        raise InputError(f"a table of probes.roles is drawn, but this one has no {sorted(missing)}")
    scores = table.pivot_table(
        index=["layer", "head"], columns="role", values="score", dropna=False
    )
    names = [f"layer {layer}, head {head}" for layer, head in scores.index]
    return render(by_head(scores.to_numpy(), names, list(scores.columns)))


def by_head(
    scores: Float[np.ndarray, "head role"], heads: Sequence[str], roles: Sequence[str]
) -> Drawing:
    """The scores of heads as squares with numbers; what is NaN has none."""
    texts = [list(map(_short, row)) for row in scores.tolist()]
    names = ["<br>".join(textwrap.wrap(role, NARROW)) for role in roles]
    squares = Matrix(scores, heads, names, low=-1.0, high=1.0, bar="score", texts=texts)
    panel = Panel("", marks=[squares])
    return Drawing("What heads do", BELOW, [panel], height=60 + 26 * len(heads))


def _short(score: float) -> str:
    """A score for a square; none for what has no score.

    >>> _short(0.871), _short(-0.001), _short(math.nan)
    ('0.87', '0.00', '')
    """
    return "" if math.isnan(score) else f"{round(score, 2) + 0.0:.2f}"
