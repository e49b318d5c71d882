"""The claims of `mixtures`: a model is Bayes on its mixture, and outside of it no better."""

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
    BAYES,
    BEST,
    INSIDE,
    LENGTHS,
    MODEL,
    OUTSIDE,
    SIZE,
    distance,
    distances,
)
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


def laws_in(result: DataArray) -> list[str]:
    """Names of the single laws."""
    end = distance("")
    found = []
    for of in result.indexes["of"]:
        law = of.removesuffix(end)
        if law not in (of, MODEL):
            found.append(law)
    return found


def apart(result: DataArray, who: list[str]) -> Interval:
    """The squared distance from the Bayes predictor of the nearest of some, of the mean square."""
    names = list(map(distance, who))
    squares = means(result, INSIDE, names)
    size = means(result, INSIDE, SIZE)
    return bootstrap(lambda d, s: d.min(-1) / s, squares, size)


def nearer(result: DataArray) -> Interval:
    """The model's squared distance over that of the nearest single law, both over all lengths."""
    names = list(map(distance, laws_in(result)))
    of_laws = means(result, INSIDE, names)
    own = means(result, INSIDE, distance(MODEL))
    size = means(result, INSIDE, SIZE)

    def statistic(d: np.ndarray, laws: np.ndarray, s: np.ndarray) -> np.ndarray:
        nearest = laws.min(-1)
        return d / np.maximum(nearest, SMALL * s)

    return bootstrap(statistic, own, of_laws, size)


def knowing(result: DataArray) -> list[str]:
    """Names of the predictors that know families of the mixture, or all of it."""
    found = [BAYES, *laws_in(result)]
    found.remove(ONE)
    return found


def room(here: DataArray) -> Interval:
    """What can be gained over them on combinations, of the mean square on the mixture."""
    names = knowing(here)
    known = means(here, OUTSIDE, names)
    best = means(here, OUTSIDE, BEST)
    size = means(here, INSIDE, SIZE)

    def statistic(k: np.ndarray, b: np.ndarray, s: np.ndarray) -> np.ndarray:
        nearest = k.min(-1)
        return (nearest - b) / s

    return bootstrap(statistic, known, best, size)


def gain(here: DataArray) -> Interval:
    """The share of that which the model has: 0 for the best of them, and 1 for all of it."""
    names = knowing(here)
    known = means(here, OUTSIDE, names)
    best = means(here, OUTSIDE, BEST)
    own = means(here, OUTSIDE, MODEL)

    def statistic(k: np.ndarray, b: np.ndarray, e: np.ndarray) -> np.ndarray:
        nearest = k.min(-1)
        possible = np.maximum(nearest - b, SMALL * nearest)
        return (nearest - e) / possible

    return bootstrap(statistic, known, best, own)


def of_bayes(results: Results, facts: Facts) -> Mapping[str, Found]:
    """D after each number of examples, and how far single laws are."""
    return on_mixture(results[distances])


def on_mixture(result: DataArray) -> dict[str, Interval]:
    """What `mixtures.bayes_predictor` asks for, of squares as `distances` gives them."""
    laws = laws_in(result)
    found = {}
    found["apart"] = apart(result, laws)
    found["nearer"] = nearer(result)
    for length in result.indexes["length"]:
        here = result.sel(length=length)
        found[length] = apart(here, [MODEL])
    return found


def of_outside(results: Results, facts: Facts) -> Mapping[str, Found]:
    """The share of the possible gain after each number of examples that leaves room for one."""
    return on_combinations(results[distances])


def on_combinations(result: DataArray) -> dict[str, Interval]:
    """What `mixtures.no_better_outside` asks for, of squares as `distances` gives them."""
    found = {}
    rooms = []
    inside = []
    for length in result.indexes["length"]:
        here = result.sel(length=length)
        its = room(here)
        rooms.append(its)
        near = apart(here, [MODEL])
        inside.append(near)
        if its.low >= ROOM:
            found[length] = gain(here)
    found["room"] = max(rooms, key=lambda one: one.low)
    found["inside"] = max(inside, key=lambda one: one.high)
    return found


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The length where the number is largest, and all means over the mean square of f(x)."""
    # Means over those of f(x) squared on the mixture.
    mean = results[distances].mean("unit")
    size = mean.sel(functions=INSIDE, of=SIZE)
    shares = mean / size
    names = shares.indexes["of"]
    rows = []
    for functions in (INSIDE, OUTSIDE):
        for length in shares.indexes["length"]:
            here = shares.sel(functions=functions, length=length)
            each = zip(names, here.values.tolist(), strict=True)
            row = {"functions": functions, "examples": length}
            rows.append(row | dict(each))
    asked = [length for length in LENGTHS if length in found]
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
    for length in LENGTHS:
        words = f"{name} after {length}"
        one = Condition(length, words, at_most(good), at_least(bad), unit, optional=True)
        found.append(one)
    return tuple(found)


SHARED: dict[str, Any] = {
    "kind": "learning",
    "reads": "outputs",
    "measurements": (distances,),
    "control": (distances,),
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
                f"{{value:.2g}} {OF_SQUARE} could be gained, and {ROOM:g} is needed for sure).",
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
