"""The claims of `limits` about leaving the training range: what a norm and width change there and before.

They are about kinds of training, so each compares groups of several seeds (`claims.kinds`).
"""

import numpy as np

from icl_interp.analyses.answer import bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Decision, Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.permutation import ratio
from icl_interp.checkpoints.companions import Role
from icl_interp.resampling import Interval
from icl_interp.studies.limits.claims import kinds
from icl_interp.studies.limits.claims.far_words import NO, YES
from icl_interp.studies.limits.claims.kinds import LARGER, SCOPE, SMALLER, TIMES, Arm
from icl_interp.studies.limits.measurements import seeds
from icl_interp.studies.limits.measurements.shift import INSIDE, OWN_ERROR, SIGMAS

MARGIN = 1.5  # times, either way: errors of two widths within it are equal
APART = 0.45  # times: 1 / 1.5 less two standard errors of eight seeds a width at half the sample
WIDTHS = 8  # seeds of each width
INNER, EDGE = (
    0.5,
    0.9,
)  # shares of the half-width: the inner half of the domain, and what lies near its boundary
WITHOUT, WITH = "no norm", "with norm"


def _arms(results: Results, measurement: str, facts: Facts) -> tuple[Arm, Arm]:
    """Runs without and with a norm."""
    table = results[measurement]
    if facts.config.normalization_type:
        return Arm.of(table, WITHOUT), Arm.of(table, seeds.OWN)
    return Arm.of(table, seeds.OWN), Arm.of(table, WITH)


def _needs_the_other_norm(facts: Facts) -> str | None:
    if reason := kinds.scalable(facts):
        return reason
    role = WITHOUT if facts.config.normalization_type else WITH
    if Role(role) in facts.companions:
        return None
    what = "without" if role == WITHOUT else "with"
    return (
        f"The claim compares training with and without normalisation; no matched model {what} it "
        "is at hand (pass companions=)."
    )


# ---- no norm is better ---------------------------------------------------------------------------

NO_NORM = Criterion(
    "Squared error in distribution of models trained without normalisation, over that of models "
    f"trained with it, on one common sample. Supported if it is at most {SMALLER} times. "
    f"Contradicted if it is at least {LARGER} times.",
    (Condition("ratio", (0.0, SMALLER), (LARGER, INF), "log"),),
    kinds.PRECONDITIONS,
)


def no_norm(results: Results, facts: Facts) -> Evidence:
    """Are runs without a norm the better ones in distribution?"""
    arms = _arms(results, seeds.functions.name, facts)
    columns = [f"functions {s:g}" for s in SIGMAS]
    quantities = kinds.prepared(arms, columns, apart=True)
    if not kinds.comparable(quantities):
        too_few = kinds.needed(arms, (WITHOUT, WITH))
        return Evidence(
            quantities, too_few, scope=SCOPE, details=kinds.left_out(arms, (WITHOUT, WITH))
        )
    found = {s: kinds.times(*arms, f"functions {s:g}") for s in SIGMAS}
    name = "squared error without / with normalisation"
    quantities["ratio"] = Estimate.of(name, found[1.0], TIMES)
    scales, factors = (
        ", ".join(each)
        for each in zip(*((f"{s:g}", f"{found[s].value:.2f}") for s in SIGMAS[1:]), strict=True)
    )
    threshold = bound(
        NO_NORM, quantities, "ratio", f"at most {SMALLER} times", f"at least {LARGER} times"
    )
    says = (
        f"{_better(NO_NORM.decide(quantities))} Their squared error is "
        f"{kinds.in_brackets(found[1.0])} times that of models with normalisation ({threshold}; "
        f"{kinds.counted(arms)})."
    )
    caveat = f"On functions {scales} times as large as in training it is {factors} times that."
    scaled = [
        {"functions scaled by": s, name: i.value, "low": i.low, "high": i.high}
        for s, i in found.items()
        if s != 1
    ]
    twin = {}
    if fresh := kinds.untrained(arms, [OWN_ERROR]):
        own, other = fresh
        twin["ratio"] = Estimate.of(name, kinds.times(own, other, OWN_ERROR, fresh=True), TIMES)
    return Evidence(
        quantities,
        says,
        quantities["ratio"],
        f"{SCOPE}, in distribution",
        twin=twin,
        details=(*kinds.details(arms, (WITHOUT, WITH), columns), *scaled),
        caveat=caveat,
    )


def _better(decision: Decision) -> str:
    if decision.failed:
        return (
            "So it cannot be told whether models trained without normalisation make smaller errors "
            "in distribution."
        )
    if decision.verdict == YES:
        return "In distribution models trained without normalisation make smaller errors."
    if decision.verdict == NO:
        return "In distribution models trained without normalisation make larger errors."
    return (
        "The seeds do not decide whether models trained without normalisation make smaller errors "
        "in distribution."
    )


# ---- especially near the boundaries of the domain ------------------------------------------------

NEAR = Criterion(
    "Squared error of models trained without normalisation, over that of models trained with it: "
    f"near the boundary (|x| at least {EDGE} times the half-width of the inputs' interval), and "
    f"that factor over the one in the inner half. Supported if both are at most {SMALLER} times. "
    f"Contradicted if one is at least {LARGER} times.",
    (
        Condition("edge", (0.0, SMALLER), (LARGER, INF), "log"),
        Condition("edge over inner", (0.0, SMALLER), (LARGER, INF), "log"),
    ),
    kinds.PRECONDITIONS,
)


def regions(arm: Arm, fresh: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Mean squared error of each run near the boundary and in the inner half of the domain."""
    edge = np.mean([arm.numbers(f"inside {x:g}", fresh) for x in INSIDE if x >= EDGE], axis=0)
    inner = np.mean([arm.numbers(f"inside {x:g}", fresh) for x in INSIDE if x <= INNER], axis=0)
    return edge, inner


def gains(without: Arm, normed: Arm, fresh: bool = False) -> tuple[Interval, Interval, Interval]:
    """Errors without over with a norm: near the boundary, in the inner half, and the first over the second."""
    (edge, inner), (edge_n, inner_n) = regions(without, fresh), regions(normed, fresh)
    return ratio(edge, edge_n), ratio(inner, inner_n), ratio(edge / inner, edge_n / inner_n)


def near(results: Results, facts: Facts) -> Evidence:
    """Are runs without a norm better near the boundary of the domain, and more so than inside?"""
    arms = _arms(results, seeds.inside.name, facts)
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
    twin = {}
    if fresh := kinds.untrained(arms, columns):
        edge_twin, _, more_twin = gains(*fresh, fresh=True)
        twin = quantity(edge_twin, more_twin)
    by_kind = [
        {"kind": name, "squared error near the boundary / in the inner half": rise}
        for name, rise in zip((WITHOUT, WITH), rises, strict=True)
    ]
    return Evidence(
        quantities,
        says,
        scope=f"{SCOPE}, the query within the inputs' interval",
        twin=twin,
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


# ---- size ----------------------------------------------------------------------------------------


def size(results: Results, facts: Facts) -> Evidence:
    """Are errors on shifted functions the same for two widths?"""
    table = results[seeds.functions]
    role = next((name for name in ("wider", "narrower") if name in set(table["arm"])), "wider")
    large, small = (role, seeds.OWN) if role == "wider" else (seeds.OWN, role)
    arms = Arm.of(table, large), Arm.of(table, small)
    columns = [f"functions {s:g}" for s in SIGMAS]
    quantities = kinds.prepared(arms, columns, least=WIDTHS)
    if not kinds.comparable(quantities):
        counts = " and ".join(
            f"{len(Arm.of(table, name))} of {WIDTHS} of {said}" for name, said in _called(role)
        )
        widths = kinds.how_to_train([Arm.of(table, seeds.OWN)], "model.d_model=32")
        return Evidence(
            quantities,
            f"Seeds at hand: {counts}. {widths}",
            scope=SCOPE,
            details=kinds.left_out(arms, ("wider", "narrower")),
        )
    errors = [
        np.exp(np.mean([np.log(arm.numbers(column)) for column in columns[1:]], axis=0))
        for arm in arms
    ]
    found, within = ratio(*errors), kinds.times(*arms, OWN_ERROR)
    quantities["ratio"] = Estimate.of("squared error of wider / narrower models", found, TIMES)
    threshold = bound(
        SIZE, quantities, "ratio", f"{1 / MARGIN:.2f} to {MARGIN}", f"at most {APART}"
    )
    says = (
        f"{_size_helps(SIZE.decide(quantities), found)} On functions scaled by 2, 5 and 10 the "
        f"squared error of the wider models is {kinds.in_brackets(found)} times that of the "
        f"narrower ones ({threshold}; {kinds.counted(arms)})."
    )
    return Evidence(
        quantities,
        says,
        quantities["ratio"],
        f"{SCOPE}, functions scaled",
        details=kinds.details(arms, ("wider", "narrower"), columns),
        caveat=f"In distribution it is {kinds.in_brackets(within)} times.",
    )


def _size_helps(decision: Decision, found: Interval) -> str:
    if decision.failed:
        return "So it cannot be told whether wider models are better beyond the training range."
    if decision.verdict == YES:
        return "Wider models are no better beyond the training range: both widths err alike."
    if decision.verdict == NO:
        return "Wider models are better beyond the training range."
    if found.low > MARGIN:
        return "It is not decided whether width has no influence: wider models are worse."
    return "The seeds do not decide whether wider models are better beyond the training range."


def _called(role: str) -> list[tuple[str, str]]:
    return [
        (seeds.OWN, "this width"),
        (role, f"a {role} one" if role == "narrower" else "another one"),
    ]


SIZE = Criterion(
    "Squared error of the wider models over that of the narrower ones, on functions 2, 5 and 10 "
    f"times as large as in training (geometric mean), {WIDTHS} seeds of each width. Supported if "
    f"it is between {1 / MARGIN:.2f} and {MARGIN} times. Contradicted if it is at most {APART} "
    "times.",
    (Condition("ratio", (1 / MARGIN, MARGIN), (0.0, APART), "log"),),
    kinds.preconditions(WIDTHS),
)

NO_NORM_BETTER_CLAIM = Claim(
    id="limits.no_norm_better",
    question="weights and training",
    short="In distribution a model without normalisation makes smaller errors.",
    quote=Quote(
        "Transformers without normalization can achieve better performance.",
        "Naim & Asher (2025), section 5, Observation 2, with Table 1",
        "The observation says 'can' and Table 1 has one model of each kind; the paragraphs before "
        "it limit the claim to inputs and functions as in training. There we compare several seeds "
        "of each kind and ask for errors that are at least a fifth smaller.",
    ),
    kind="learning",
    statement="In distribution a model without normalisation is the better one",
    source="Naim & Asher (2025), Observation 2 and Table 1",
    criterion=NO_NORM,
    measurements=(seeds.functions,),
    aspects=("kind of task",),
    evidence=no_norm,
    excluded=_needs_the_other_norm,
    figures=("shift",),
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
    excluded=_needs_the_other_norm,
    figures=("shift",),
)

SIZE_DOES_NOT_HELP_CLAIM = Claim(
    id="limits.size_does_not_help",
    question="far from the data",
    short="A larger model is no better beyond the training range.",
    quote=Quote(
        "Notably, increasing model size from 22.5M to 38M parameters did not significantly improve "
        "performances, suggesting that the observed limitations are not simply due to model "
        "capacity but may reflect deeper architectural constraints.",
        "Naim & Asher (2025), section 5 (its footnote 3: embeddings of width 512 instead of 256)",
        "The paper prints no errors for the larger model. We compare eight seeds of each of two "
        "widths on functions scaled by 2, 5 and 10, and call them equal if their errors differ by "
        "less than a factor of 1.5.",
    ),
    # Untrained models of two sizes err alike too: what the claim denies is that training makes a
    # difference.
    kind="architecture",
    statement="A larger model is no better on functions beyond the training range",
    source="Naim & Asher (2025), section 5: 22.5M against 38M parameters",
    criterion=SIZE,
    measurements=(seeds.functions,),
    aspects=("kind of task",),
    evidence=size,
    excluded=kinds.scalable,
    figures=("shift",),
)
