"""The claim of `linear_attention` that the loss meets the PL inequality (Lemma 5.4)."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from icl_interp.analyses import tie
from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import (
    Condition,
    Criterion,
    Estimate,
    Found,
    Precondition,
    at_least,
    at_most,
)
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.tie import TIED
from icl_interp.studies.linear_attention.claims.weights import MIN_POINTS, TIED_TERMS
from icl_interp.studies.linear_attention.measurements.setting import (
    needs_path,
    task_in,
    trained_landscape,
)
from icl_interp.studies.linear_attention.measurements.tied import tied
from icl_interp.studies.linear_attention.measurements.weights import path

# Squared gradient over its bound from which the inequality fails: losses have rounding, and so has
# this.
PL_FAILS = 0.5
AT_REST = 1e-9  # excess over the least loss below which differences of losses are rounding

CRITERION = Criterion(
    (
        Condition(
            "ratio",
            "smallest squared gradient over its bound, of all snapshots",
            at_least(0.0),
            at_most(math.log10(PL_FAILS)),
            unit="log10",
        ),
    ),
    (
        *TIED,
        Precondition(
            "usable snapshots",
            at_least(MIN_POINTS),
            "Only {value:.0f} snapshots do better than predicting 0 and are not yet at the minimum "
            f"({MIN_POINTS} needed).",
        ),
    ),
    terms="The bound is mu times the loss above its minimum, with mu from Lemma 5.4 for what has "
    "been gained at that snapshot. Only snapshots that do better than predicting 0 and are not "
    f"yet at the minimum count. {TIED_TERMS}",
)


class Path(NamedTuple):
    """What the inequality compares, at the snapshots that it can be asked of."""

    steps: np.ndarray
    square: np.ndarray
    bound: np.ndarray
    excess: np.ndarray

    @property
    def ratio(self) -> np.ndarray:
        """The squared gradient over its bound."""
        return self.square / self.bound


def usable(results: Results, facts: Facts) -> Path:
    """The snapshots that do better than predicting 0 and are not yet at the minimum."""
    curve = results[path]
    where = trained_landscape(task_in(facts))
    least = float(where.minimum + where.label_moment / 2)
    bound = curve.sel(quantity="PL bound").values
    excess = curve.sel(quantity="excess").values
    kept = np.isfinite(bound) & (bound > 0) & (excess > AT_REST * least)
    square = curve.sel(quantity="squared gradient").values
    return Path(curve["step"].values[kept], square[kept], bound[kept], excess[kept])


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """The least squared gradient over its bound, where enough snapshots can be asked."""
    ratio = usable(results, facts).ratio
    found: dict[str, Found] = {"usable snapshots": len(ratio), **tie.tied(results[tied])}
    if len(ratio) >= MIN_POINTS:
        found["ratio"] = math.log10(max(float(ratio.min()), 1e-300))
    return found


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Where the gradient is the least, and all of the path."""
    if "ratio" not in found:
        return Remarks()
    asked = usable(results, facts)
    at = f"at step {asked.steps[asked.ratio.argmin()]:.0f}"
    if asked.ratio.min() < 1:
        caveat = (
            f"This is {at}: the lemma is about another start, and from this one the gradient "
            "becomes small away from the minimum."
        )
    else:
        caveat = (
            f"This is {at}; the median of {len(asked.ratio)} snapshots is "
            f"{np.median(asked.ratio):.3g}."
        )
    rows = []
    for step, square, bound, excess in zip(*asked, strict=True):
        row = {"|grad L|^2": float(square), "mu x excess": float(bound), "excess": float(excess)}
        rows.append({"step": float(step), **row})
    scope = "the snapshots of this run; exact losses and gradients"
    if task_in(facts).random_covariance:
        scope += (
            "; for random covariances the bound is that of the lemma with expectations, in w22 and "
            "W11 alone"
        )
    return Remarks(scope, caveat, details=tuple(rows))


PL_INEQUALITY_CLAIM = Claim(
    id="linear_attention.pl_inequality",
    question="weights and training",
    statement="The loss meets the Polyak-Lojasiewicz inequality at every snapshot that was tested.",
    denied="The loss does not meet the Polyak-Lojasiewicz inequality throughout training.",
    quote=Quote(
        "Finally, we show that although the optimization problem is non-convex, a "
        "Polyak-Łojasiewicz (PL)"
        " inequality holds, which implies that gradient flow converges to a global minimum.",
        "Zhang, Frei & Bartlett (2023), in Wu's slides (2025), 'Sketch of proof', last item (the "
        "lemma itself: Lemma 5.4, slide 47)",
        "The inequality says that the squared gradient is at least μ times the excess of the loss "
        "over its minimum; μ > 0 is a constant given in the lemma. The lemma is about gradient "
        "flow from a special start (w21 = 0, u² = |U|²); we check the inequality at the snapshots "
        "of a real training. The gradient is that in the weights as they stand, so it depends on "
        "how large the value matrix is beside the query-key matrix.",
    ),
    kind="architecture",
    reads="weights of the layer during training",
    criterion=CRITERION,
    measurements=(path, tied),
    about_weights=True,
    aspects=("balance", "single layer", "single head", "kind of task"),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_path,
    figures=("linear_attention",),
)
