"""The claims of `mixtures`: a model is Bayes on its mixture, and outside of it no better."""

import itertools
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
from icl_interp.studies.mixtures.measurements import distances as measured
from icl_interp.studies.mixtures.measurements.laws import ONE, needs_laws

# Squared distances from the Bayes predictor, of the mean square of f(x).
LIKE = 0.05
UNLIKE = 0.10
APART = 0.02  # of the nearest single law: a smaller one tells nothing
# Of the distance of the nearest single law. With less than a quarter the model is nearer to the
# Bayes predictor than to that law, wherever it lies: its root is less than half of the other root.
NEARER = 0.25
# Shares of what the best predictor of combinations would gain, and how much of the mean square of
# f(x) that must be.
NO_GAIN = 0.10
GAIN = 0.25
ROOM = 0.05
SMALL = 1e-9  # of the mean square: what is less counts as this, so that no ratio is of rounding
OF_SQUARE = "of the mean square"


def means(result: DataArray, functions: str, of: str | list[str]) -> np.ndarray:
    """Squares by unit; several names make a last axis. Lengths are averaged if there are some."""
    chosen = result.sel(functions=functions, of=of)
    if "length" in chosen.dims:
        chosen = chosen.mean("length")
    return chosen.transpose("unit", ...).values


def single(result: DataArray) -> list[str]:
    """Names of the single laws."""
    others = (measured.MODEL, measured.BEST, measured.BAYES, measured.SIZE)
    return [of for of in result.indexes["of"] if of not in others and measured.BAYES not in of]


def apart(result: DataArray, *who: str) -> Interval:
    """The squared distance from the Bayes predictor of the nearest of some, of the mean square."""
    names = [measured.distance(one) for one in who]
    square = means(result, measured.INSIDE, measured.SIZE)
    return bootstrap(lambda d, s: d.min(-1) / s, means(result, measured.INSIDE, names), square)


def nearer(result: DataArray) -> Interval:
    """The model's squared distance over that of the nearest single law, both over all lengths."""
    of_laws = means(result, measured.INSIDE, [measured.distance(law) for law in single(result)])
    own = means(result, measured.INSIDE, measured.distance(measured.MODEL))
    square = means(result, measured.INSIDE, measured.SIZE)
    return bootstrap(
        lambda d, laws, s: d / np.maximum(laws.min(-1), SMALL * s), own, of_laws, square
    )


def knowing(result: DataArray) -> list[str]:
    """Names of the predictors that know families of the mixture, or all of it."""
    return [measured.BAYES, *(law for law in single(result) if law != ONE)]


def room(here: DataArray) -> Interval:
    """What can be gained over them on combinations, of the mean square on the mixture."""
    known = means(here, measured.OUTSIDE, knowing(here))
    best = means(here, measured.OUTSIDE, measured.BEST)
    square = means(here, measured.INSIDE, measured.SIZE)
    return bootstrap(lambda k, b, s: (k.min(-1) - b) / s, known, best, square)


def gain(here: DataArray) -> Interval:
    """The share of that which the model has: 0 for the best of them, and 1 for all of it."""
    known = means(here, measured.OUTSIDE, knowing(here))
    best = means(here, measured.OUTSIDE, measured.BEST)
    own = means(here, measured.OUTSIDE, measured.MODEL)

    def statistic(k: np.ndarray, b: np.ndarray, e: np.ndarray) -> np.ndarray:
        nearest = k.min(-1)
        return (nearest - e) / np.maximum(nearest - b, SMALL * nearest)

    return bootstrap(statistic, known, best, own)


def of_bayes(results: Results, facts: Facts) -> dict[str, Found]:
    """D after each number of examples, and how far single laws are."""
    result = results[measured.distances]
    found: dict[str, Found] = {"apart": apart(result, *single(result)), "nearer": nearer(result)}
    for length in result.indexes["length"]:
        found[length] = apart(result.sel(length=length), measured.MODEL)
    return found


def of_outside(results: Results, facts: Facts) -> dict[str, Found]:
    """The share of the possible gain after each number of examples that leaves room for one."""
    result = results[measured.distances]
    found: dict[str, Found] = {}
    rooms = []
    inside = []
    for length in result.indexes["length"]:
        here = result.sel(length=length)
        rooms.append(room(here))
        inside.append(apart(here, measured.MODEL))
        if rooms[-1].low >= ROOM:
            found[length] = gain(here)
    found["room"] = max(rooms, key=lambda its: its.low)
    found["inside"] = max(inside, key=lambda its: its.high)
    return found


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The length where the number is largest, and all means over the mean square of f(x)."""
    mean = results[measured.distances].mean("unit")
    shares = mean / mean.sel(functions=measured.INSIDE, of=measured.SIZE)
    rows = []
    for functions, length in itertools.product(
        shares.indexes["functions"], shares.indexes["length"]
    ):
        here = shares.sel(functions=functions, length=length)
        each = dict(zip(shares.indexes["of"], here.values.tolist(), strict=True))
        rows.append({"functions": functions, "examples": length, **each})
    asked = [length for length in measured.LENGTHS if length in found]
    most = max(asked, key=lambda length: found[length].value, default=None)
    return Remarks(
        estimate=found[most] if most else None,
        scope="these weights, prompts of up to the trained length; one number of examples, and the "
        "shares of combinations, are drawn with the sample",
        caveat=f"The number is largest after {most}." if most else "",
        details=tuple(rows),
    )


def _after(name: str, good: float, bad: float, unit: str) -> tuple[Condition, ...]:
    """A condition a number of examples. Where nothing is predicted, or nothing gained, none is."""
    found = []
    for length in measured.LENGTHS:
        words = f"{name} after {length}"
        one = Condition(length, words, at_most(good), at_least(bad), unit, optional=True)
        found.append(one)
    return tuple(found)


SHARED: dict[str, Any] = {
    "kind": "learning",
    "reads": "outputs",
    "measurements": (measured.distances,),
    "control": (measured.distances,),
    "aspects": ("kind of task",),
    "remarks": remarks,
    "excluded": needs_laws,
    "figures": ("mixture_distances",),
}
BAYES_CLAIM = Claim(
    id="mixtures.bayes_predictor",
    question="algorithm",
    statement="The model predicts as the Bayes predictor of the mixture that it was trained on.",
    denied="The model predicts otherwise than the Bayes predictor of the mixture that it was "
    "trained on.",
    quote=Quote(
        "Where Bayesian inference is tractable, we find evidence that high-capacity transformers "
        "mimic the Bayesian predictor.",
        "Panwar, Ahuja & Goyal (2024), abstract",
        'Yadlowsky, Doshi & Tripuraneni (2023) see "near-optimal unsupervised model selection '
        'capabilities" (abstract). Neither abstract says what counts as alike. Our bounds were set '
        "before any trained model was measured.",
    ),
    criterion=Criterion(
        (
            *_after("squared distance from the Bayes predictor", LIKE, UNLIKE, OF_SQUARE),
            Condition(
                "nearer",
                "mean squared distance over that of the nearest single law",
                at_most(NEARER),
                unit="times",
            ),
        ),
        (
            Precondition(
                "apart",
                at_least(APART),
                "A single law predicts nearly as the Bayes predictor of the mixture does (their "
                f"distance is {{value:.2g}} {OF_SQUARE}, {APART:g} needed).",
            ),
        ),
        terms="The mean square of f(x) is about its mean over the mixture. A single law is that of "
        "one family, or the normal law with the mixture's mean and variance. d is the dimension of "
        "x.",
    ),
    evidence=of_bayes,
    **SHARED,
)
OUTSIDE_CLAIM = Claim(
    id="mixtures.no_better_outside",
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
        "We test convex combinations of one function of each family. Panwar, Ahuja & Goyal (2024) "
        'see generalisation to new classes, a "deviation from the Bayesian predictor" (abstract). '
        "Neither abstract gives a rule. Our bounds were set before any trained model was measured.",
    ),
    criterion=Criterion(
        (
            *_after("share of the possible gain", NO_GAIN, GAIN, ""),
            Condition(
                "inside",
                "largest squared distance from the Bayes predictor on functions of the mixture",
                at_most(UNLIKE),
                unit=OF_SQUARE,
            ),
        ),
        (
            Precondition(
                "room",
                at_least(ROOM),
                "What knows the mixture predicts combinations nearly as well as can be (at most "
                f"{{value:.2g}} {OF_SQUARE} could be gained, {ROOM:g} needed).",
            ),
        ),
        terms="What knows the mixture alone is its Bayes predictor and that of each family; the "
        "one with the least error counts. The possible gain is its error minus that of the Bayes "
        "predictor of the combinations. It counts where it is at least "
        f"{ROOM:.0%} of the mean square of f(x) on the mixture.",
    ),
    evidence=of_outside,
    **SHARED,
)
CLAIMS = (BAYES_CLAIM, OUTSIDE_CLAIM)
