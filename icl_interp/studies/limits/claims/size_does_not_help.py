"""The claim of `limits` that a larger model is no better beyond the training range."""

from collections.abc import Mapping

import numpy as np

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Found, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.natural import measured
from icl_interp.analyses.permutation import ratio
from icl_interp.studies.limits.claims import kinds
from icl_interp.studies.limits.claims.kinds import SCOPE, TIMES, Arm
from icl_interp.studies.limits.measurements import seeds
from icl_interp.studies.limits.measurements.shift import OWN_ERROR, SIGMAS

MARGIN = 1.5  # times, either way: errors of two widths within it are equal
APART = 0.45  # times: 1 / 1.5 less two standard errors of eight seeds a width at half the sample
WIDTHS = 8  # seeds of each width
WIDER = "wider"
NARROWER = "narrower"
COLUMNS = [f"functions {sigma:g}" for sigma in SIGMAS]  # the first is as in training

CRITERION = Criterion(
    (
        Condition(
            "ratio",
            "squared error of wider models over that of narrower ones, on scaled functions",
            (1 / MARGIN, MARGIN),
            at_most(APART, least=0.0),
            unit=TIMES,
            scale="log",
        ),
    ),
    kinds.preconditions(WIDTHS),
    terms="Scaled functions are 2, 5 and 10 times as large as in training. The number is a ratio "
    "of geometric means over these and over seeds.",
)


def _other(results: Results) -> str:
    """The arm that the model's own is compared with."""
    names = set(results[seeds.functions]["arm"])
    return NARROWER if NARROWER in names and WIDER not in names else WIDER


def _arms(results: Results) -> tuple[Arm, Arm]:
    """The wider models and the narrower ones."""
    table = results[seeds.functions]
    other = _other(results)
    mine = Arm.of(table, seeds.OWN)
    beside = Arm.of(table, other)
    return (beside, mine) if other == WIDER else (mine, beside)


def _on_scaled(arm: Arm) -> np.ndarray:
    """The error of each run on scaled functions: a geometric mean over scales."""
    logarithms = [np.log(arm.numbers(column)) for column in COLUMNS[1:]]
    return np.asarray(np.exp(np.mean(logarithms, axis=0)))


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How many times the errors of narrower models on scaled functions those of wider ones are."""
    wider, narrower = _arms(results)
    found = kinds.prepared((wider, narrower), COLUMNS, least=WIDTHS)
    if kinds.comparable(found):
        found["ratio"] = ratio(_on_scaled(wider), _on_scaled(narrower))
    return found


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The runs, what is missing, and the ratio in distribution."""
    arms = _arms(results)
    if not kinds.comparable(found):
        return Remarks(
            scope=SCOPE,
            open_because=_needed(results),
            details=kinds.left_out(arms, (WIDER, NARROWER)),
        )
    within = measured(kinds.times(*arms, OWN_ERROR), TIMES)
    worse = found["ratio"].low > MARGIN
    return Remarks(
        scope=f"{SCOPE}, functions scaled",
        caveat=f"The groups have {kinds.counted(arms)}; in distribution the number is {within}.",
        open_because="The wider models make larger errors." if worse else "",
        details=kinds.details(arms, (WIDER, NARROWER), COLUMNS),
    )


def _needed(results: Results) -> str:
    """How many seeds of either width are at hand, and how to train the others."""
    table = results[seeds.functions]
    other = _other(results)
    mine = Arm.of(table, seeds.OWN)
    n_other = len(Arm.of(table, other))
    called = "a narrower one" if other == NARROWER else "another one"
    counts = f"{len(mine)} of {WIDTHS} of this width and {n_other} of {WIDTHS} of {called}"
    at_hand = f"Seeds at hand: {counts}."
    return f"{at_hand} {kinds.HOW_TO_TRAIN}"


SIZE_DOES_NOT_HELP_CLAIM = Claim(
    id="limits.size_does_not_help",
    question="far from the data",
    statement="Wider models are no better beyond the training range: both widths have similar "
    "errors.",
    denied="Wider models are better beyond the training range.",
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
    reads="models of several sizes",
    beside=(NARROWER,),
    seeds=WIDTHS,
    criterion=CRITERION,
    measurements=(seeds.functions,),
    aspects=("kind of task",),
    evidence=evidence,
    remarks=remarks,
    excluded=kinds.scalable,
    figures=("shift",),
)
