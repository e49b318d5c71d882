"""The claim of `limits` that training without a norm helps most near the domain's boundary."""

import numpy as np

from icl_interp.analyses.answer import bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Decision, Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.permutation import ratio
from icl_interp.resampling import Interval
from icl_interp.studies.limits.claims import kinds
from icl_interp.studies.limits.claims.far_words import NO, YES
from icl_interp.studies.limits.claims.kinds import LARGER, SCOPE, SMALLER, TIMES, Arm
from icl_interp.studies.limits.claims.norms import WITH, WITHOUT, arms_of, needs_the_other_norm
from icl_interp.studies.limits.measurements import seeds
from icl_interp.studies.limits.measurements.shift import INSIDE

INNER, EDGE = (
    0.5,
    0.9,
)  # shares of the half-width: the inner half of the domain, and what lies near its boundary

NEAR = Criterion(
    (
        Condition("edge", "", (0.0, SMALLER), (LARGER, INF), scale="log"),
        Condition("edge over inner", "", (0.0, SMALLER), (LARGER, INF), scale="log"),
    ),
    kinds.PRECONDITIONS,
    terms=(
        "Squared error of models trained without normalisation, over that of models trained with it: "
        f"near the boundary (|x| at least {EDGE} times the half-width of the inputs' interval), and "
        f"that factor over the one in the inner half. Supported if both are at most {SMALLER} times. "
        f"Contradicted if one is at least {LARGER} times."
    ),
)


def regions(arm: Arm, fresh: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Mean squared error of each run near the boundary and in the inner half of the domain."""
    edge = np.mean([arm.numbers(f"inside {x:g}", fresh) for x in INSIDE if x >= EDGE], axis=0)
    inner = np.mean([arm.numbers(f"inside {x:g}", fresh) for x in INSIDE if x <= INNER], axis=0)
    return edge, inner


def gains(without: Arm, normed: Arm, fresh: bool = False) -> tuple[Interval, Interval, Interval]:
    """Errors without over with a norm: near the boundary, in the inner half, and their ratio.

    The ratio is the first over the second.
    """
    (edge, inner), (edge_n, inner_n) = regions(without, fresh), regions(normed, fresh)
    return ratio(edge, edge_n), ratio(inner, inner_n), ratio(edge / inner, edge_n / inner_n)


def near(results: Results, facts: Facts) -> Evidence:
    """Are runs without a norm better near the boundary of the domain, and more so than inside?"""
    arms = arms_of(results, seeds.inside.name, facts)
    columns = [f"inside {x:g}" for x in INSIDE]
    quantities = kinds.prepared(arms, columns)
    if not kinds.comparable(quantities):
        too_few = kinds.needed(arms, (WITHOUT, WITH))
        return Evidence(
            quantities, too_few, scope=SCOPE, details=kinds.left_out(arms, (WITHOUT, WITH))
        )
    edge, inner, more = gains(*arms)
    rises = [float(np.exp(np.log(e / i).mean())) for e, i in map(regions, arms)]

    def quantity(edge: Interval, more: Interval) -> dict[str, Estimate]:
        return {
            "edge": Estimate.of(
                "squared error without / with normalisation, near the boundary", edge, TIMES
            ),
            "edge over inner": Estimate.of("that factor / the one in the inner half", more, TIMES),
        }

    quantities |= quantity(edge, more)
    decision = NEAR.decide(quantities)
    at_edge = (
        f"Near the boundary the squared error without normalisation is {kinds.in_brackets(edge)} "
        "times that with it "
        f"({bound(NEAR, quantities, 'edge', f'at most {SMALLER}', f'at least {LARGER}')}; "
        f"{kinds.counted(arms)})."
    )
    inside = (
        f"That factor is {kinds.in_brackets(more)} times the one in the inner half (asked: at most "
        f"{SMALLER})."
    )
    if decision.condition and decision.condition.quantity == "edge over inner":
        limits = bound(
            NEAR, quantities, "edge over inner", f"at most {SMALLER}", f"at least {LARGER}"
        )
        at_edge, inside = (
            "The factor between the squared errors without and with it is "
            f"{kinds.in_brackets(more)} times as large near the boundary as in the inner half "
            f"({limits}; {kinds.counted(arms)}).",
            f"Near the boundary it is {kinds.in_brackets(edge)}.",
        )
    says = f"{_most_near_the_boundary(decision)} {at_edge}"
    control = {}
    if fresh := kinds.untrained(arms, columns):
        edge_control, _, more_control = gains(*fresh, fresh=True)
        control = quantity(edge_control, more_control)
    by_kind = [
        {"kind": name, "squared error near the boundary / in the inner half": rise}
        for name, rise in zip((WITHOUT, WITH), rises, strict=True)
    ]
    return Evidence(
        quantities,
        says,
        scope=f"{SCOPE}, the query within the inputs' interval",
        control=control,
        details=(
            *kinds.details(arms, (WITHOUT, WITH), columns),
            *by_kind,
            {
                "error without / with normalisation, inner half": inner.value,
                "low": inner.low,
                "high": inner.high,
            },
        ),
        caveat=inside,
    )


def _most_near_the_boundary(decision: Decision) -> str:
    if decision.failed:
        return (
            "So it cannot be told whether training without normalisation helps most near the "
            "boundary."
        )
    if decision.verdict == YES:
        return (
            "Models trained without normalisation make smaller errors near the boundary of the "
            "inputs' interval, and gain most there."
        )
    if decision.verdict == NO and decision.condition and decision.condition.quantity == "edge":
        return (
            "Models trained without normalisation make larger errors near the boundary of the "
            "inputs' interval."
        )
    if decision.verdict == NO:
        return (
            "Training without normalisation helps less near the boundary of the inputs' interval "
            "than inside."
        )
    return (
        "The seeds do not decide whether training without normalisation helps most near the "
        "boundary."
    )


ERROR_NEAR_BOUNDARY_CLAIM = Claim(
    id="limits.error_near_boundary",
    question="weights and training",
    short="Removing normalisation helps most near the boundaries of the input domain.",
    quote=Quote(
        "As a result, the model is able to approximate certain functions more accurately, "
        "especially near"
        " the boundaries of the input domain, where layer normalization would otherwise constrain "
        "the output.",
        "Naim & Asher (2025), section 5, before Observation 2",
        "The paper gives no errors by position in the domain. We compare models with and without "
        "normalisation, several seeds of each, in the outer tenth of the domain and in its inner "
        "half.",
    ),
    kind="learning",
    statement="Without normalisation functions are followed better, especially near the boundaries "
    "of the domain",
    source="Naim & Asher (2025), section 5, before Observation 2",
    criterion=NEAR,
    measurements=(seeds.inside,),
    aspects=("kind of task",),
    evidence=near,
    excluded=needs_the_other_norm,
    figures=("shift",),
)
