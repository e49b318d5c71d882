"""The claims of `limits` about leaving the training range: what a norm and width change there and before.

They are about kinds of training, so each compares arms of several seeds (`claims.kinds`).
"""

import numpy as np

from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.permutation import ratio
from icl_interp.checkpoints.companions import Role
from icl_interp.resampling import Interval
from icl_interp.studies.limits.claims import kinds
from icl_interp.studies.limits.claims.kinds import LARGER, SCOPE, SMALLER, TIMES, Arm
from icl_interp.studies.limits.measurements import seeds
from icl_interp.studies.limits.measurements.shift import INSIDE, SIGMAS

MARGIN = 1.5  # times, either way: errors of two widths within it are equal
APART = 0.45  # times: 1 / 1.5 less two standard errors of eight seeds a width at half the sample
WIDTHS = 8  # seeds of each width
INNER, EDGE = 0.5, 0.9  # shares of the half-width: the inner half of the domain, and what lies near its boundary
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
    return f"no companion trained {what} normalisation is at hand (pass companions=)"


# ---- no norm is better ----------------------------------------------------------------------------------------------

NO_NORM = Criterion(
    "error in distribution of runs trained without a norm, in units of that of runs trained with one, seeds on one "
    f"common sample: at most {SMALLER} times / at least {LARGER} times",
    (Condition("ratio", (0.0, SMALLER), (LARGER, INF), "log"),),
    kinds.PRECONDITIONS,
)


def no_norm(results: Results, facts: Facts) -> Evidence:
    """Are runs without a norm the better ones in distribution?"""
    arms = _arms(results, seeds.functions.name, facts)
    quantities = kinds.prepared(arms, apart=True)
    if not kinds.can_decide(arms):
        return Evidence(quantities, f"{kinds.needed(arms, (WITHOUT, WITH))}.", scope=SCOPE)
    found = {s: kinds.times(*arms, f"functions {s:g}") for s in SIGMAS}
    shifted = ", ".join(f"{kinds.in_brackets(found[s])} at sigma {s:g}" for s in SIGMAS[1:])
    one = "functions 1"
    says = (
        f"in distribution errors without a norm are {kinds.in_brackets(found[1.0])} times those with one, "
        f"{kinds.counted(arms)} ({arms[0].listed(one)} against {arms[1].listed(one)}); with functions scaled {shifted}"
    )
    name = "error without / with a norm"
    quantities["ratio"] = Estimate.of(name, found[1.0], TIMES)
    return Evidence(
        quantities,
        says + ".",
        quantities["ratio"],
        f"{SCOPE}, in distribution",
        twin={"ratio": Estimate.of(name, kinds.times(*arms, one, fresh=True), TIMES)},
        details=kinds.details(arms, (WITHOUT, WITH), [f"functions {s:g}" for s in SIGMAS]),
    )


# ---- especially near the boundaries of the domain -------------------------------------------------------------------

NEAR = Criterion(
    f"errors of runs without a norm in units of those with one: near the boundary (|x| >= {EDGE} of the half-width) at "
    f"most {SMALLER} times, and that factor over the one in the inner half at most {SMALLER} times / one of the two at "
    f"least {LARGER} times",
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
    quantities = kinds.prepared(arms)
    if not kinds.can_decide(arms):
        return Evidence(quantities, f"{kinds.needed(arms, (WITHOUT, WITH))}.", scope=SCOPE)
    edge, inner, more = gains(*arms)
    rises = [float(np.exp(np.log(e / i).mean())) for e, i in map(regions, arms)]
    says = (
        f"near the boundary errors without a norm are {kinds.in_brackets(edge)} times those with one, in the inner "
        f"half {kinds.in_brackets(inner)} times, {kinds.counted(arms)}; from the inner half to the boundary errors "
        f"change by a factor of {rises[0]:.2g} without and {rises[1]:.2g} with a norm, so the first factor is "
        f"{kinds.in_brackets(more)} times the second"
    )

    def quantity(edge: Interval, more: Interval) -> dict[str, Estimate]:
        return {
            "edge": Estimate.of("error without / with a norm, near the boundary", edge, TIMES),
            "edge over inner": Estimate.of("that near the boundary / that in the inner half", more, TIMES),
        }

    edge_twin, _, more_twin = gains(*arms, fresh=True)
    return Evidence(
        quantities | quantity(edge, more),
        says + ".",
        scope=f"{SCOPE}, the query within the inputs' interval",
        twin=quantity(edge_twin, more_twin),
        details=kinds.details(arms, (WITHOUT, WITH), [f"inside {x:g}" for x in INSIDE]),
    )


# ---- size -----------------------------------------------------------------------------------------------------------


def size(results: Results, facts: Facts) -> Evidence:
    """Are errors on shifted functions the same for two widths?"""
    table = results[seeds.functions]
    role = next((name for name in ("wider", "narrower") if name in set(table["arm"])), "wider")
    large, small = (role, seeds.OWN) if role == "wider" else (seeds.OWN, role)
    arms = Arm.of(table, large), Arm.of(table, small)
    quantities = kinds.prepared(arms, least=WIDTHS)
    if not kinds.can_decide(arms, WIDTHS):
        counts = " and ".join(f"{len(Arm.of(table, name))} of {WIDTHS} of {said}" for name, said in _called(role))
        widths = kinds.how_to_train([Arm.of(table, seeds.OWN)], "model.d_model=32")
        return Evidence(
            quantities,
            f"seeds of two widths at hand: {counts}; nothing was compared. {widths}, and the same with another width.",
            scope=SCOPE,
        )
    columns = [f"functions {s:g}" for s in SIGMAS if s > 1]
    errors = [np.exp(np.mean([np.log(arm.numbers(column)) for column in columns], axis=0)) for arm in arms]
    found, within = ratio(*errors), kinds.times(*arms, "functions 1")
    says = (
        f"on functions scaled by 2, 5 and 10 errors of the wider models are {kinds.in_brackets(found)} times those of "
        f"the narrower ones (geometric mean), {kinds.counted(arms)}; in distribution {kinds.in_brackets(within)}"
    )
    if found.low > MARGIN:
        says += "; the wider ones are worse, which is no help, but models trained alike well would not differ so"
    quantities["ratio"] = Estimate.of("error wider / narrower", found, TIMES)
    return Evidence(
        quantities,
        says + ".",
        quantities["ratio"],
        f"{SCOPE}, functions scaled",
        details=kinds.details(arms, ("wider", "narrower"), ["functions 1", *columns]),
    )


def _called(role: str) -> list[tuple[str, str]]:
    return [(seeds.OWN, "this width"), (role, f"a {role} one" if role == "narrower" else "another one")]


NO_NORM_BETTER_CLAIM = Claim(
    id="limits.no_norm_better",
    question="weights and training",
    short="In distribution a model without normalisation makes smaller errors.",
    quote=Quote(
        "Transformers without normalization can achieve better performance.",
        "Naim & Asher (2025), section 5, Observation 2, with Table 1",
        "The observation says 'can' and Table 1 has one model of each kind; the paragraphs before it "
        "limit the claim to inputs and functions as in training. There we compare several seeds of each kind "
        "and ask for errors that are at least a fifth smaller.",
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
        "As a result, the model is able to approximate certain functions more accurately, especially near"
        " the boundaries of the input domain, where layer normalization would otherwise constrain the "
        "output.",
        "Naim & Asher (2025), section 5, before Observation 2",
        "The paper gives no errors by position in the domain. We compare models with and without "
        "normalisation, several seeds of each, in the outer tenth of the domain and in its inner half.",
    ),
    kind="learning",
    statement="Without normalisation functions are followed better, especially near the boundaries of the domain",
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
        "performances, suggesting that the observed limitations are not simply due to model capacity but "
        "may reflect deeper architectural constraints.",
        "Naim & Asher (2025), section 5 (its footnote 3: embeddings of width 512 instead of 256)",
        "The paper prints no errors for the larger model. We compare eight seeds of each of two widths on functions "
        "scaled by 2, 5 and 10, and call them equal if their errors differ by less than a factor of 1.5.",
    ),
    # Untrained models of two sizes err alike too: what the claim denies is that training makes a difference.
    kind="architecture",
    statement="A larger model is no better on functions beyond the training range",
    source="Naim & Asher (2025), section 5: 22.5M against 38M parameters",
    criterion=Criterion(
        "errors of the wider models in units of those of the narrower ones, on functions scaled by 2, 5 and 10 "
        f"(geometric mean), {WIDTHS} seeds each: from {1 / MARGIN:.2f} to {MARGIN} times / at most {APART} times",
        (Condition("ratio", (1 / MARGIN, MARGIN), (0.0, APART), "log"),),
        (kinds.seeds_needed(WIDTHS), kinds.TRAINED_ALIKE, kinds.TRAINED_EQUALLY),
    ),
    measurements=(seeds.functions,),
    aspects=("kind of task",),
    evidence=size,
    excluded=kinds.scalable,
    figures=("shift",),
)
