"""Figures of reports on one layer.

They show products of heads, weights of positions, and errors without parts of them.
"""

from collections.abc import Sequence

import numpy as np
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.drawing import Drawing
from icl_interp.figures.text import tested_by
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.autoregression.claims import identity, spare, start
from icl_interp.studies.autoregression.figures.panels import as_map, in_rows
from icl_interp.studies.autoregression.measurements import (
    distinct_heads,
    position_weights,
    pruned_heads,
    start_states,
    unit,
)

ERROR = "error / squared length"


def heads(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """|cosine| of a_h and b_h' for every two complex heads."""
    stored = results.get(unit.heads)
    if stored is None or identity.needs_as_many_heads(facts):
        return None
    values = distinct_heads.cosines(identity.as_many(results, facts)).numpy()
    names = [str(h + 1) for h in range(len(values))]
    hover = "a of head {row}, b of head {column}: {z:.3g}"
    panel = as_map(values, names, hover, "head h' (value side, b)", "head h (key side, a)")
    below = tested_by("autoregression_heads", findings)
    return Drawing("Key and value diagonals of heads", below, [panel])


def positions(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """P, and errors where some of its weights are changed."""
    p = results.get(unit.positions)
    found: dict[str, Interval] = {}
    for one in (position_weights.positions_cut, position_weights.positions_averaged):
        if (stored := results.get(one)) is not None:
            found |= _errors(stored)
    if p is None or not found:
        return None
    names = [str(i) for i in p["query"].values]
    # No token reads a later one.
    shown = np.where(np.tri(len(names), dtype=bool), p.values, np.nan)
    weights = as_map(
        shown,
        names,
        "query {row}, key {column}: {z:.3g}",
        "token that is read",
        "last token",
        size=float(np.abs(p.values).max()) or 1.0,
        title="Weights P",
    )
    errors = in_rows(found, ERROR, "Error with other weights")
    below = tested_by("autoregression_positions", findings)
    return Drawing("Weights of positions", below, [weights, errors])


def pruned(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """Errors with all heads, with the needed number of them, and with none."""
    arms = results.get(pruned_heads.pruned)
    if arms is None or spare.needs_spare_heads(facts):
        return None
    below = tested_by("autoregression_pruned", findings)
    return Drawing("Fewer heads", below, [in_rows(_errors(arms), ERROR)])


def other_starts(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """Errors from the task's own start and from others."""
    arms = results.get(start_states.starts)
    if arms is None or start.needs_fixed_start(facts):
        return None
    below = tested_by("autoregression_starts", findings)
    return Drawing("Other first states", below, [in_rows(_errors(arms), ERROR)])


def _errors(arms: DataArray) -> dict[str, Interval]:
    """Mean normalised error and its interval, by arm."""
    found = {}
    for arm in arms.indexes["arm"]:
        name = (
            str(arm).replace(" weights ", "\nweights ").replace(" by the means", "\nby the means")
        )
        found[name] = bootstrap(lambda error: error.mean(-1), arms.sel(arm=arm).values)
    return found


FIGURES = {
    "autoregression_heads": ReportFigure(
        heads,
        "The size of the product of a_h (rows) and b_h' (columns) over their lengths, for complex "
        "heads. Zeros off the diagonal are the identity a_h . b_h' = 0.",
    ),
    "autoregression_positions": ReportFigure(
        positions,
        "On the left is P: the factor on the weight of a token (column), for each last token "
        "(row), both counted from 0. On the right is the squared error over the next state's "
        "squared length, with the unchanged P and with other weights in its place.",
    ),
    "autoregression_pruned": ReportFigure(
        pruned,
        "The squared error over the next state's squared length with all heads, with the best "
        "subset of as many as suffice (chosen on other functions), and with none. What is pruned "
        "writes its mean at each position.",
    ),
    "autoregression_starts": ReportFigure(
        other_starts,
        "The squared error over the next state's squared length, from the task's own s_0 and from "
        "others, with keys divided by |s_0i|^2 and with unchanged heads.",
    ),
}
