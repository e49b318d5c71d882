"""The claim of `lipschitz` on the directions of the window.

Directions that the functions do not depend on are ignored.
"""

import numpy as np
from xarray import DataArray

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
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
    SOURCE,
    fit_of,
    kernel,
    needs_sphere,
    scores,
    scores_by_function,
    task_in,
)

LITTLE, MUCH = 0.05, 0.2  # share of M's squared entries outside col(B)
ALIGNED, ASKEW = 0.2, 0.5  # sine of the largest principal angle
HARMLESS, HARMFUL = (
    0.05,
    0.2,
)  # share of what attention achieves that goes with the irrelevant directions
NEEDED, SPARE = 0.8, 0.5  # and with the relevant ones
SELECTS = 0.1  # share of the error with equal weights that the head's own attention takes off
TINY = 1e-9

DIRECTIONS = Criterion(
    (
        Condition("energy", "", (0.0, LITTLE), (MUCH, 1.0)),
        Condition("angle", "", (0.0, ALIGNED), (ASKEW, 1.0)),
        Condition("lost with irrelevant", "", (-INF, HARMLESS), (HARMFUL, INF)),
        Condition("lost with relevant", "", (NEEDED, INF), (-INF, SPARE)),
    ),
    (
        Precondition(
            "selects",
            (SELECTS, INF),
            "Attention takes only {value:.2g} of the error off that equal weights have, so there "
            f"is nothing to lose ({SELECTS:g} needed).",
        ),
        IS_KERNEL,
        *TIED,
    ),
    terms=(
        "share of the query-key matrix M (of its squared entries) outside the directions col(B) that "
        f"the functions depend on: <= {LITTLE:g} / >= {MUCH:g}; sine of the largest principal angle "
        f"between the k leading left singular vectors of M and col(B): <= {ALIGNED:g} / >= {ASKEW:g}; "
        "of what attention takes off the error with equal weights, the share that is lost when "
        f"attention is not shown the irrelevant directions: <= {HARMLESS:g} / >= {HARMFUL:g}; when it "
        f"is not shown the relevant ones: >= {NEEDED:g} / <= {SPARE:g}"
    ),
)


def lost(result: DataArray, arm: str) -> Interval:
    """The share of what attention achieves over equal weights that is lost in an arm.

    Units are resampled.
    """
    arms = (result.sel(arm=name).values for name in (INTACT, arm, UNIFORM))
    return bootstrap(
        lambda own, cut, even: (cut - own) / np.maximum(even - own, TINY * even), *arms
    )


def selects(result: DataArray) -> Interval:
    """The share of the error with equal weights that attention takes off."""
    arms = (result.sel(arm=name).values for name in (INTACT, UNIFORM))
    return bootstrap(lambda own, even: 1 - own / np.maximum(even, TINY), *arms)


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


def _of_weights(own: Results) -> dict[str, Estimate]:
    found = numbers_in(own[subspace])
    return {
        "energy": Estimate.exactly(
            "share of M in irrelevant directions", np.clip(found["energy outside"], 0, 1)
        ),
        "angle": Estimate.exactly(
            "sine of the largest angle between M's directions and the relevant ones",
            np.clip(found["distance"], 0, 1),
        ),
    }


def _number(quantity: str, found: dict[str, Estimate], rank: int) -> str:
    """The sentence about the quantity that decided; where all did, about the share of M."""
    if quantity == "angle":
        threshold = bound(
            DIRECTIONS, found, quantity, f"at most {ALIGNED:g}", f"at least {ASKEW:g}"
        )
        return (
            f"The largest angle between the directions of the query-key matrix and the {rank} "
            f"relevant ones has the sine {found[quantity].value:.3g} ({threshold})."
        )
    if quantity == "energy":
        threshold = bound(
            DIRECTIONS, found, quantity, f"at most {100 * LITTLE:g} %", f"at least {100 * MUCH:g} %"
        )
        share = percent(found[quantity].value)
        return f"Of the query-key matrix {share} % lies in irrelevant directions ({threshold})."
    names, asked, against = {
        "lost with irrelevant": (
            "irrelevant ones",
            f"at most {100 * HARMLESS:g} %",
            f"at least {100 * HARMFUL:g} %",
        ),
        "lost with relevant": (
            f"{rank} relevant ones",
            f"at least {100 * NEEDED:g} %",
            f"at most {100 * SPARE:g} %",
        ),
    }[quantity]
    return (
        f"When it is not shown the {names}, attention loses {percent(found[quantity].value)} % of "
        f"its gain over equal weights ({bound(DIRECTIONS, found, quantity, asked, against)})."
    )


def evidence(results: Results, facts: Facts) -> Evidence:
    """Does attention ignore what the functions ignore?"""
    found, arms, task = numbers_in(results[subspace]), results[projected], task_in(facts)
    irrelevant, relevant = lost(arms, NO_IRRELEVANT), lost(arms, NO_RELEVANT)
    errors = {str(name): float(arms.sel(arm=name).values.mean()) for name in arms.indexes["arm"]}
    quantities = {
        **_of_weights(results),
        "lost with irrelevant": Estimate.of(
            "share of the gain lost without irrelevant directions", irrelevant
        ),
        "lost with relevant": Estimate.of(
            "share of the gain lost without relevant directions", relevant
        ),
        "selects": Estimate.of("share of the error that attention takes off", selects(arms)),
        "fit": fit_of(results[scores_by_function]),
        **tied(results[tied_window]),
    }
    says = answer(
        DIRECTIONS,
        quantities,
        "Attention ignores the directions that the functions do not depend on.",
        "Attention does not act only in the directions that the functions depend on.",
        "attention ignores the directions that the functions do not depend on",
    )
    decided = DIRECTIONS.decide(quantities).condition
    says += " " + _number(decided.quantity if decided else "energy", quantities, task.rank)
    caveat = (
        f"Without the {task.rank} relevant directions attention loses {percent(relevant.value)} % "
        "of its gain."
    )
    if decided and decided.quantity in ("angle", "lost with relevant"):
        caveat = (
            f"Of the query-key matrix {percent(quantities['energy'].value)} % lies in irrelevant "
            "directions."
        )
    places = {"inside col(B)": ("c", "best c"), "outside col(B)": ("c'", "best c'")}
    weights = (
        {
            "directions": place,
            "the model's M": found[own],
            "M of least loss, without the theorem's bound": found[best],
        }
        for place, (own, best) in places.items()
    )
    return Evidence(
        quantities,
        says,
        scope="these weights, this task, the query of in-distribution prompts",
        causal={
            "intervention": "attention as if the irrelevant directions of every input were 0; "
            "values as they are",
            "share lost": irrelevant.value,
            "low": irrelevant.low,
            "high": irrelevant.high,
            "the same of the relevant directions": relevant.value,
        },
        control=_of_weights(results.control),
        details=(
            *(
                {
                    "test condition": "unchanged model" if name == INTACT else name,
                    "squared error": value,
                }
                for name, value in errors.items()
            ),
            *weights,
        ),
        caveat=caveat,
    )


IRRELEVANT_DIRECTIONS_CLAIM = Claim(
    id="lipschitz.irrelevant_directions",
    question="attention",
    short="Attention ignores the directions that the functions do not depend on.",
    quote=Quote(
        "Suppose n = 2 or σ = 0. Then for some C = Ω(1), any optimal solution M* of the ICL "
        "pretraining loss induced by the task distribution D(F_B^lin) optimized over the set M := "
        "{M : M = M^T, ‖B^T M B‖₂ ≤ C} satisfies, for c ∈ (0, C], M* = c B B^T. ... softmax attn "
        "window depends only on projections onto col(B)",
        "Collins et al. (2024), slides by A. Mokhtari, 'Results Part II', Theorem 4 (Informal)",
        "The theorem is about minimisers under a bound C on B^T M B. Without the bound it is false "
        "for long prompts and little noise: there a window that also looks at irrelevant "
        "directions has less loss. Training has no such bound. We ask trained weights, at any "
        "noise, for nonlinear functions of B^T x as well, and we also ask what happens when "
        "attention is not shown the directions.",
    ),
    kind="learning",
    statement="Directions that the functions do not depend on are ignored by attention: M acts "
    "within col(B) alone",
    source=f"{SOURCE}, Theorem 4",
    criterion=DIRECTIONS,
    measurements=(scores, scores_by_function, kernel, tied_window, directions, subspace, projected),
    control=(subspace,),
    about_weights=True,
    aspects=("single layer", "single head", "kind of task"),
    evidence=evidence,
    excluded=needs_irrelevant,
    learned=never_asked,
    figures=("lipschitz_directions",),
)
