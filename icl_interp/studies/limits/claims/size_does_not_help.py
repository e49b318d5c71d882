"""The claim of `limits` that a larger model is no better beyond the training range."""

import numpy as np

from icl_interp.analyses.answer import bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import Condition, Criterion, Decision, Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.permutation import ratio
from icl_interp.resampling import Interval
from icl_interp.studies.limits.claims import kinds
from icl_interp.studies.limits.claims.far_words import NO, YES
from icl_interp.studies.limits.claims.kinds import SCOPE, TIMES, Arm
from icl_interp.studies.limits.measurements import seeds
from icl_interp.studies.limits.measurements.shift import OWN_ERROR, SIGMAS

MARGIN = 1.5  # times, either way: errors of two widths within it are equal
APART = 0.45  # times: 1 / 1.5 less two standard errors of eight seeds a width at half the sample
WIDTHS = 8  # seeds of each width


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
    (Condition("ratio", "", (1 / MARGIN, MARGIN), (0.0, APART), scale="log"),),
    kinds.preconditions(WIDTHS),
    terms=(
        "Squared error of the wider models over that of the narrower ones, on functions 2, 5 and 10 "
        f"times as large as in training (geometric mean), {WIDTHS} seeds of each width. Supported if "
        f"it is between {1 / MARGIN:.2f} and {MARGIN} times. Contradicted if it is at most {APART} "
        "times."
    ),
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
