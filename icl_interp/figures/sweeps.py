"""A sweep: the error in distribution of each run, with its interval, a row a run."""

import numpy as np
from pandas import DataFrame

from icl_interp.figures.drawing import Axis, Drawing, Panel, Points, rows
from icl_interp.figures.render import render
from icl_interp.figures.style import Figure

COUNTED = ("supported", "contradicted", "inconclusive")
LEAST = 1e-12  # smaller errors are drawn here
ROW = 24  # pixels


def errors(table: DataFrame) -> Figure | None:
    """A dot a run; None where no run has come to its end.

    Args:
        table: of a sweep, with columns "run", "state", "error", "low" and "high".
    """
    done = table[table["state"] == "done"]
    if done.empty:
        return None
    places = np.arange(len(done))
    dots = Points(done["error"], places, done["low"], done["high"], hover="{x:.3g}")
    x = Axis("squared error in distribution", log=True, least=LEAST)
    panel = Panel("", x, rows([str(name) for name in done["run"]]), [dots])
    below = "Each row is a run, with the 95 % interval of its error over functions."
    return render(Drawing("Errors of the runs", below, [panel], 80 + ROW * len(done)))
