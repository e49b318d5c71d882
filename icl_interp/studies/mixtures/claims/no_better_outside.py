"""A claim of `mixtures`: outside of its mixture a model does no better than what knows the mixture.

Outside are convex combinations of one function of each family. A model that only chooses among the
families that it was trained on errs there as much as the best predictor that knows these.
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
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.mixtures.measurements.distances import (
    BEST,
    LENGTHS,
    MODEL,
    SIZE,
    inside,
    outside,
    pair,
)
from icl_interp.studies.mixtures.measurements.laws import BAYES, ONE, needs_laws

# Shares of what the best predictor of the combinations would gain.
NO_GAIN = 0.10
GAIN = 0.25
# Of the mean square of f(x): what can be gained at least, and how far from the Bayes predictor of
# the mixture a model may be on functions of the mixture.
ROOM = 0.05
NEARBY = 0.10
TINY = float(np.finfo(float).tiny)
MOST_ROOM = "room"
INSIDE = "inside"
UNIT = "of the mean square"


def errors(result: DataArray, length: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Squared errors by unit: the model's, those of what knows the mixture, and the smallest.

    The second has an axis of predictors: Bayes over the mixture, and that of each family.
    """
    here = result.sel(length=length)
    known = [who for who in result.indexes["who"] if who not in (MODEL, BEST, ONE)]
    knowing = here.sel(who=known).transpose("unit", "who").values
    return here.sel(who=MODEL).values, knowing, here.sel(who=BEST).values


def gain(result: DataArray, length: str) -> Interval:
    """The share of the possible gain over what knows the mixture that the model has.

    It is 0 for the best of what knows the mixture, and 1 for the Bayes predictor of combinations.
    """

    def statistic(own: np.ndarray, knowing: np.ndarray, best: np.ndarray) -> np.ndarray:
        nearest = knowing.min(-1)
        return (nearest - own) / np.maximum(nearest - best, TINY)

    return bootstrap(statistic, *errors(result, length))


def room(results: Results, length: str) -> Interval:
    """What can be gained over what knows the mixture, of the mean square of f(x) inside of it."""
    _, knowing, best = errors(results[outside], length)
    square = results[inside].sel(length=length, of=SIZE).values

    def statistic(of_known: np.ndarray, of_best: np.ndarray, size: np.ndarray) -> np.ndarray:
        return (of_known.min(-1) - of_best) / np.maximum(size, TINY)

    return bootstrap(statistic, knowing, best, square)


def farthest(result: DataArray) -> Interval:
    """The largest squared distance from the Bayes predictor inside the mixture over all lengths."""
    apart = result.sel(of=pair(MODEL, BAYES)).transpose("unit", "length").values
    square = result.sel(of=SIZE).transpose("unit", "length").values
    return bootstrap(lambda d, s: (d / np.maximum(s, TINY)).max(-1), apart, square)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """The share of the possible gain after each number of examples that leaves room for one."""
    result = results[outside]
    found: dict[str, Found] = {}
    rooms = []
    for length in result.indexes["length"]:
        its = room(results, length)
        rooms.append(its)
        if its.low >= ROOM:
            found[length] = gain(result, length)
    found[MOST_ROOM] = max(rooms, key=lambda its: its.low)
    found[INSIDE] = farthest(results[inside])
    return found


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Errors of the model and of every predictor after each number of examples."""
    result = results[outside]
    rows = []
    for length in result.indexes["length"]:
        rows.append(_row(results, length))
    asked = [length for length in result.indexes["length"] if length in found]
    most = max(asked, key=lambda length: found[length].value) if asked else None
    return Remarks(
        estimate=found[most] if most else None,
        scope="these weights; combinations with shares that are drawn with the sample, none more "
        "than twice another",
        caveat=f"It gains most after {most}." if most else "",
        details=tuple(rows),
    )


def _row(results: Results, length: str) -> dict[str, Any]:
    """Mean squared errors of all, of the mean square of f(x) inside the mixture."""
    square = float(results[inside].sel(length=length, of=SIZE).mean())
    here = results[outside].sel(length=length).mean("unit")
    row: dict[str, Any] = {"examples": length}
    for who in here.indexes["who"]:
        row[who] = float(here.sel(who=who)) / square
    return row


def conditions() -> tuple[Condition, ...]:
    """The share of the possible gain after each number of examples, where there is room for one."""
    asked = []
    for length in LENGTHS:
        name = f"share of the possible gain after {length}"
        rule = Condition(length, name, at_most(NO_GAIN), at_least(GAIN), optional=True)
        asked.append(rule)
    return tuple(asked)


NO_BETTER_OUTSIDE_CLAIM = Claim(
    id="mixtures.no_better_outside",
    kind="learning",
    question="functions",
    statement="On combinations of functions of its mixture the model does no better than what "
    "knows the mixture alone.",
    denied="On combinations of functions of its mixture the model does better than what knows the "
    "mixture alone.",
    quote=Quote(
        "However when presented with tasks or functions which are out-of-domain of their "
        "pretraining data, we demonstrate various failure modes of transformers and degradation of "
        "their generalization for even simple extrapolation tasks.",
        "Yadlowsky, Doshi & Tripuraneni (2023), abstract",
        "The abstract names no functions and no rule. We take convex combinations of one function "
        "of each family. A model fails there if it has at most 10 % of what could be gained over "
        "the best predictor that knows the mixture; from 25 % on the claim is contradicted. "
        "Panwar, Ahuja & Goyal (2024) see generalisation to new classes, with "
        '"deviation from the Bayesian predictor" (abstract). These bounds were set before any '
        "trained model was measured.",
    ),
    reads="outputs",
    criterion=Criterion(
        conditions(),
        (
            Precondition(
                MOST_ROOM,
                at_least(ROOM),
                "What knows the mixture predicts combinations nearly as well as can be (at most "
                f"{{value:.2g}} {UNIT} could be gained, {ROOM:g} needed).",
            ),
            Precondition(
                INSIDE,
                at_most(NEARBY),
                "On functions of the mixture itself the model is far from the Bayes predictor "
                f"({{value:.2g}} {UNIT}, at most {NEARBY:g} allowed).",
            ),
        ),
        terms="What knows the mixture alone is its Bayes predictor and that of each family; the "
        "one with the least error counts. The possible gain is its error minus that of the Bayes "
        "predictor of the combinations. It is asked for where it is at least "
        f"{ROOM:.0%} of the mean square of f(x) on the mixture. d is the dimension of x.",
    ),
    measurements=(inside, outside),
    control=(inside, outside),
    aspects=("kind of task",),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_laws,
    figures=("mixture_distances",),
)
