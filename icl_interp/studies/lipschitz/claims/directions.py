"""The claim of `lipschitz` on the directions of the window.

Directions that the functions do not depend on are ignored.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from xarray import DataArray

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
from icl_interp.analyses.tie import TIED, tied
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import numbers_in
from icl_interp.studies.lipschitz.claims.window import IS_KERNEL, never_asked, percent
from icl_interp.studies.lipschitz.measurements.prediction import tied_window
from icl_interp.studies.lipschitz.measurements.relevant_directions import (
    INTACT,
    NO_IRRELEVANT,
    NO_RELEVANT,
    UNIFORM,
    directions,
    projected,
    subspace,
)
from icl_interp.studies.lipschitz.measurements.unit import (
    fit_of,
    kernel,
    needs_sphere,
    scores,
    scores_by_function,
    task_in,
)

LITTLE = 0.05  # share of M's squared entries outside col(B)
MUCH = 0.2
ALIGNED = 0.2  # sine of the largest principal angle
ASKEW = 0.5
HARMLESS = 0.05  # share of what attention achieves that goes with the irrelevant directions
HARMFUL = 0.2
NEEDED = 0.8  # share that goes with the relevant ones
SPARE = 0.5
SELECTS = 0.1  # share of the error with equal weights that the head's own attention takes off
TINY = 1e-9

CRITERION = Criterion(
    (
        Condition(
            "energy",
            "share of the query-key matrix in irrelevant directions",
            at_most(LITTLE, least=0.0),
            at_least(MUCH, most=1.0),
            unit="share",
        ),
        Condition(
            "angle",
            "sine of the largest angle between the matrix's directions and the relevant ones",
            at_most(ALIGNED, least=0.0),
            at_least(ASKEW, most=1.0),
        ),
        Condition(
            "lost with irrelevant",
            "share of attention's gain that is lost without the irrelevant directions",
            at_most(HARMLESS),
            at_least(HARMFUL),
            unit="share",
        ),
        Condition(
            "lost with relevant",
            "share of attention's gain that is lost without the relevant directions",
            at_least(NEEDED),
            at_most(SPARE),
            unit="share",
        ),
    ),
    (
        Precondition(
            "selects",
            at_least(SELECTS),
            "Attention takes off only {value:.2g} of the error that equal weights have "
            f"({SELECTS:g} needed), so there is nothing to lose.",
        ),
        IS_KERNEL,
        *TIED,
    ),
    terms="The relevant directions are those that the functions depend on, col(B). The matrix's "
    "share is that of its squared entries, and its directions are its leading left singular "
    "vectors. Attention's gain is how much smaller the error is than with equal weights. "
    "Attention is without some directions where it is not shown them.",
)


def lost(result: DataArray, arm: str) -> Interval:
    """The share of what attention achieves over equal weights that is lost in an arm.

    Units are resampled.
    """

    def share(own: np.ndarray, cut: np.ndarray, even: np.ndarray) -> np.ndarray:
        gain = np.maximum(even - own, TINY * even)
        return (cut - own) / gain

    return bootstrap(share, *(result.sel(arm=name).values for name in (INTACT, arm, UNIFORM)))


def selects(result: DataArray) -> Interval:
    """The share of the error with equal weights that attention takes off."""
    own = result.sel(arm=INTACT).values
    even = result.sel(arm=UNIFORM).values
    return bootstrap(lambda a, b: 1 - a / np.maximum(b, TINY), own, even)


def needs_irrelevant(facts: Facts) -> str | None:
    """Why there are no directions that the functions do not depend on."""
    if reason := needs_sphere(facts):
        return reason
    task = task_in(facts)
    asked = (
        "The claim is about functions of fewer directions than the inputs have (`directions` < "
        f"{task.dim})"
    )
    return None if task.rank < task.dim else asked


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """Where the matrix acts, and what attention loses without either kind of directions."""
    of_weights = numbers_in(results[subspace])
    arms = results[projected]
    return {
        "energy": float(np.clip(of_weights["energy outside"], 0, 1)),
        "angle": float(np.clip(of_weights["distance"], 0, 1)),
        "lost with irrelevant": lost(arms, NO_IRRELEVANT),
        "lost with relevant": lost(arms, NO_RELEVANT),
        "selects": selects(arms),
        "fit": fit_of(results[scores_by_function]),
        **tied(results[tied_window]),
    }


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """What else decides, and what happens when attention is not shown some directions."""
    relevant = found["lost with relevant"]
    irrelevant = found["lost with irrelevant"]
    decided = CRITERION.decide(found).condition
    if decided and decided.quantity in ("angle", "lost with relevant"):
        share = percent(found["energy"].value)
        caveat = f"{share} % of the query-key matrix lies in irrelevant directions."
    else:
        rank = task_in(facts).rank
        share = percent(relevant.value)
        caveat = f"Without the {rank} relevant directions attention loses {share} % of its gain."
    # Errors in each arm, and the matrix beside the one of least loss.
    arms = results[projected]
    rows: list[dict[str, Any]] = []
    for arm in arms.indexes["arm"]:
        name = "unchanged model" if arm == INTACT else str(arm)
        error = float(arms.sel(arm=arm).values.mean())
        rows.append({"test condition": name, "squared error": error})
    numbers = numbers_in(results[subspace])
    for place, name in (("inside col(B)", "c"), ("outside col(B)", "c'")):
        rows.append(
            {
                "directions": place,
                "the model's M": numbers[name],
                "M of least loss, without the theorem's bound": numbers[f"best {name}"],
            }
        )
    return Remarks(
        scope="these weights, this task, the query of in-distribution prompts",
        caveat=caveat,
        causal={
            "intervention": (
                "attention computed as if the irrelevant directions of every input were 0; values "
                "unchanged"
            ),
            "share lost": irrelevant.value,
            "low": irrelevant.low,
            "high": irrelevant.high,
            "the same for the relevant directions": relevant.value,
        },
        details=tuple(rows),
    )


IRRELEVANT_DIRECTIONS_CLAIM = Claim(
    id="lipschitz.irrelevant_directions",
    question="attention",
    statement="Attention ignores the directions that the functions do not depend on.",
    denied="Attention does not act only in the directions that the functions depend on.",
    quote=Quote(
        "Suppose n = 2 or σ = 0. Then for some C = Ω(1), any optimal solution M* of the ICL "
        "pretraining loss induced by the task distribution D(F_B^lin) optimized over the set M := "
        "{M : M = M^T, ‖B^T M B‖₂ ≤ C} satisfies, for c ∈ (0, C], M* = c B B^T. ... softmax attn "
        "window depends only on projections onto col(B)",
        "Collins et al. (2024), slides by A. Mokhtari, 'Results Part II', Theorem 4 (Informal)",
        "The theorem is about minimisers under a bound C on B^T M B. Without the bound it is "
        "false for long prompts and little noise: there a window that also looks at irrelevant "
        "directions has less loss. Training has no such bound. We test trained weights, at any "
        "noise, and for nonlinear functions of B^T x as well. We also test what happens when "
        "attention is not shown the directions.",
    ),
    kind="learning",
    reads="weights and scores of the head",
    criterion=CRITERION,
    measurements=(scores, scores_by_function, kernel, tied_window, directions, subspace, projected),
    control=(subspace,),
    of_control=("energy", "angle"),
    about_weights=True,
    aspects=("single layer", "single head", "kind of task"),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_irrelevant,
    learned=never_asked,
    figures=("lipschitz_directions",),
)
