"""The claim of `linear_attention` that the loss meets the PL inequality (Lemma 5.4)."""

import math

import numpy as np

from icl_interp.analyses import tie
from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.tie import TIED
from icl_interp.studies.linear_attention.claims.weights import MIN_POINTS, TIED_TEXT
from icl_interp.studies.linear_attention.measurements.setting import (
    SOURCE,
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

PL = Criterion(
    (Condition("ratio", "", (0.0, INF), (-INF, math.log10(PL_FAILS))),),
    (
        *TIED,
        Precondition(
            "usable snapshots",
            (MIN_POINTS, INF),
            "Only {value:.0f} snapshots do better than predicting 0 and are not yet at the minimum "
            f"({MIN_POINTS} needed).",
        ),
    ),
    terms=(
        "squared gradient of the loss over mu times the loss above its minimum, the least over the "
        "snapshots that do better than predicting 0, mu of Lemma 5.4 with what has been gained at that "
        f"snapshot: >= 1 / <= {PL_FAILS:g}"
        f"{TIED_TEXT}"
    ),
)


def pl(results: Results, facts: Facts) -> Evidence:
    """Is the gradient as large as the lemma has it, everywhere on the way?"""
    curve = results[path]
    where = trained_landscape(task_in(facts))
    least = float(where.minimum + where.label_moment / 2)
    excess, lemma, square = (
        curve.sel(quantity=name).values for name in ("excess", "PL bound", "squared gradient")
    )
    usable = np.isfinite(lemma) & (lemma > 0) & (excess > AT_REST * least)
    n_usable = int(usable.sum())
    name = "snapshots that do better than predicting 0 and are not yet at the minimum"
    quantities = {"usable snapshots": Estimate.exactly(name, n_usable), **tie.tied(results[tied])}
    if n_usable < MIN_POINTS:
        return Evidence(
            quantities,
            "So it cannot be told whether the gradient is as large as the inequality asks. The run "
            f"kept {curve.sizes['step']} snapshots.",
        )
    ratio = square[usable] / lemma[usable]
    steps = curve["step"].values[usable]
    at = int(ratio.argmin())
    least_ratio = math.log10(max(float(ratio[at]), 1e-300))
    name = "squared gradient / bound of the Polyak-Lojasiewicz inequality, the least over snapshots"
    quantities["ratio"] = Estimate.exactly(name, least_ratio, "log10")
    says = answer(
        PL,
        quantities,
        "The loss meets the Polyak-Lojasiewicz inequality at every snapshot of training that was "
        "tested.",
        "The loss does not meet the Polyak-Lojasiewicz inequality throughout training.",
        "the loss meets the Polyak-Lojasiewicz inequality throughout training",
    )
    says += (
        f" The squared gradient is at least {ratio[at]:.3g} times the bound (at step "
        f"{steps[at]:.0f}; "
        f"{bound(PL, quantities, 'ratio', 'at least 1', f'at most {PL_FAILS:g}')})."
    )
    caveat = (
        f"In the median of {n_usable} snapshots it is {float(np.median(ratio)):.3g} times the "
        "bound."
    )
    if ratio[at] < 1:
        caveat = (
            "The lemma is about the flow from its own start; from this one the gradient becomes "
            "small away from the minimum."
        )
    rows = tuple(
        {"step": float(s), "|grad L|^2": float(g), "mu x excess": float(b), "excess": float(e)}
        for s, g, b, e in zip(steps, square[usable], lemma[usable], excess[usable], strict=True)
    )
    scope = "the snapshots of this run; exact losses and gradients"
    if task_in(facts).random_covariance:
        scope += (
            "; for random covariances the bound is that of the lemma with expectations, in w22 and "
            "W11 alone"
        )
    return Evidence(quantities, says, scope=scope, details=rows, caveat=caveat)


PL_INEQUALITY_CLAIM = Claim(
    id="linear_attention.pl_inequality",
    question="weights and training",
    short="The loss meets the Polyak-Łojasiewicz inequality throughout training.",
    quote=Quote(
        "Finally, we show that although the optimization problem is non-convex, a "
        "Polyak-Łojasiewicz (PL)"
        " inequality holds, which implies that gradient flow converges to a global minimum.",
        "Zhang, Frei & Bartlett (2023), in Wu's slides (2025), 'Sketch of proof', last item (the "
        "lemma itself: Lemma 5.4, slide 47)",
        "The inequality says that the squared gradient is at least μ times the excess of the loss "
        "over its minimum; μ > 0 is a constant given in the lemma. The lemma is about gradient "
        "flow from a special start (w21 = 0, u² = |U|²); we check the inequality at the snapshots "
        "of a real training.",
    ),
    kind="architecture",
    statement="The loss meets the Polyak-Lojasiewicz inequality throughout training: |∇L|² >= mu "
    "(L - min L)",
    source=f"{SOURCE}, Lemma 5.4",
    criterion=PL,
    measurements=(path, tied),
    about_weights=True,
    aspects=("single layer", "single head", "kind of task"),
    evidence=pl,
    excluded=needs_path,
    figures=("linear_attention",),
)
