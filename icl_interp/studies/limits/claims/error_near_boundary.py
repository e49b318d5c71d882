"""The claim of `limits` that training without a norm helps most near the domain's boundary."""

from collections.abc import Mapping

import numpy as np

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Found, at_least, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.permutation import ratio
from icl_interp.resampling import Interval
from icl_interp.studies.limits.claims import kinds
from icl_interp.studies.limits.claims.kinds import LARGER, SCOPE, SMALLER, TIMES, Arm
from icl_interp.studies.limits.claims.norms import WITH, WITHOUT, arms_of, needs_the_other_norm
from icl_interp.studies.limits.measurements import seeds
from icl_interp.studies.limits.measurements.shift import INSIDE

# Shares of the half-width: the inner half of the domain, and what lies near its boundary.
INNER = 0.5
EDGE = 0.9
COLUMNS = [f"inside {x:g}" for x in INSIDE]

CRITERION = Criterion(
    (
        Condition(
            "edge",
            "squared error without normalisation over that with it, near the boundary",
            at_most(SMALLER, least=0.0),
            at_least(LARGER),
            unit=TIMES,
            scale="log",
        ),
        Condition(
            "edge over inner",
            "ratio of errors without and with normalisation: that near the boundary, over that "
            "inside",
            at_most(SMALLER, least=0.0),
            at_least(LARGER),
            unit=TIMES,
            scale="log",
            denied="Training without normalisation helps less near the boundary of the inputs' "
            "interval than inside.",
        ),
    ),
    kinds.PRECONDITIONS,
    terms=f"Near the boundary means that |x| is at least {EDGE} times the half-width of the "
    f"inputs' interval, and inside that it is at most {INNER} times. Numbers are ratios of "
    "geometric means over seeds.",
)


def regions(arm: Arm, fresh: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Mean squared error of each run near the boundary and in the inner half of the domain."""
    edge = []
    inner = []
    for x, column in zip(INSIDE, COLUMNS, strict=True):
        errors = arm.numbers(column, fresh)
        if x >= EDGE:
            edge.append(errors)
        if x <= INNER:
            inner.append(errors)
    return np.mean(edge, axis=0), np.mean(inner, axis=0)


def gains(without: Arm, normed: Arm, fresh: bool = False) -> tuple[Interval, Interval, Interval]:
    """Errors without over with a norm: near the boundary, in the inner half, and their ratio.

    The ratio is the first over the second.
    """
    edge, inner = regions(without, fresh)
    edge_n, inner_n = regions(normed, fresh)
    at_edge = ratio(edge, edge_n)
    inside = ratio(inner, inner_n)
    return at_edge, inside, ratio(edge / inner, edge_n / inner_n)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """Errors without over with a norm near the boundary, and over the same inside."""
    arms = arms_of(results, seeds.inside.name, facts)
    found = kinds.prepared(arms, COLUMNS)
    if kinds.comparable(found):
        found["edge"], _, found["edge over inner"] = gains(*arms)
    return found


def untrained(results: Results, facts: Facts) -> dict[str, Found]:
    """The same of untrained models."""
    arms = arms_of(results, seeds.inside.name, facts)
    fresh = kinds.untrained(arms, COLUMNS)
    if fresh is None or not kinds.comparable(evidence(results, facts)):
        return {}
    own, other = fresh
    edge, _, over_inner = gains(own, other, fresh=True)
    return {"edge": edge, "edge over inner": over_inner}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The runs, how much their errors rise towards the boundary, and the ratio inside."""
    arms = arms_of(results, seeds.inside.name, facts)
    if not kinds.comparable(found):
        return kinds.too_few(arms, (WITHOUT, WITH))
    rows = []
    for name, arm in zip((WITHOUT, WITH), arms, strict=True):
        edge, inner = regions(arm)
        logarithms = np.log(edge / inner)
        rise = float(np.exp(logarithms.mean()))
        rows.append({"kind": name, "squared error near the boundary / in the inner half": rise})
    _, inside, _ = gains(*arms)
    last = {"error without / with normalisation, inner half": inside.value}
    last["low"] = inside.low
    last["high"] = inside.high
    runs = kinds.details(arms, (WITHOUT, WITH), COLUMNS)
    return Remarks(
        scope=f"{SCOPE}, the query within the inputs' interval",
        caveat=kinds.compared(arms),
        details=(*runs, *rows, last),
    )


ERROR_NEAR_BOUNDARY_CLAIM = Claim(
    id="limits.error_near_boundary",
    question="weights and training",
    statement="Without normalisation models err less near the boundary of the inputs, and gain "
    "most there.",
    denied="Models trained without normalisation make larger errors near the boundary of the "
    "inputs' interval.",
    quote=Quote(
        "As a result, the model is able to approximate certain functions more accurately, "
        "especially near the boundaries of the input domain, where layer normalization would "
        "otherwise constrain the output.",
        "Naim & Asher (2025), section 5, before Observation 2",
        "The paper gives no errors by position in the domain. We compare models with and without "
        "normalisation, several seeds of each, in the outer tenth of the domain and in its inner "
        "half.",
    ),
    kind="learning",
    reads="models of several kinds of training",
    beside=("no norm", "with norm"),
    seeds=kinds.SEEDS,
    criterion=CRITERION,
    measurements=(seeds.inside,),
    aspects=("kind of task",),
    evidence=evidence,
    remarks=remarks,
    untrained=untrained,
    excluded=needs_the_other_norm,
    figures=("shift",),
)
