"""A claim of `mixtures`: a model is the Bayes predictor of the mixture that it was trained on."""

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
    LENGTHS,
    MODEL,
    SIZE,
    inside,
    pair,
)
from icl_interp.studies.mixtures.measurements.laws import BAYES, ONE, needs_laws

# Squared distances, of the mean square of f(x).
LIKE = 0.05
UNLIKE = 0.10
TOLD = 0.02
NEARER = 2.0  # factor of squared distances
TINY = float(np.finfo(float).tiny)
RATIO = "nearer"
WITHIN = "within"
APART = "apart"
UNIT = "of the mean square"


def distance(result: DataArray, length: str) -> Interval:
    """D: the squared distance from the Bayes predictor after so many examples."""
    here = result.sel(length=length)
    apart = here.sel(of=pair(MODEL, BAYES)).values
    square = here.sel(of=SIZE).values
    return bootstrap(lambda d, s: d / np.maximum(s, TINY), apart, square)


def rivals_in(result: DataArray) -> list[str]:
    """Names of the single laws that the result compares with."""
    start = pair(BAYES, "")
    names = [name for name in result.indexes["of"] if name.startswith(start)]
    return [name.removeprefix(start) for name in names]


def over_lengths(result: DataArray, one: str) -> np.ndarray:
    """Mean squared distances of one predictor from every rival, over all lengths: (unit, rival)."""
    names = [pair(one, rival) for rival in rivals_in(result)]
    chosen = result.sel(of=names).mean("length")
    return chosen.transpose("unit", "of").values


def smallest(above: np.ndarray, result: DataArray, below: str) -> Interval:
    """A mean over the smallest of several: which is smallest is found anew in every draw."""
    several = over_lengths(result, below)
    return bootstrap(lambda a, b: a / np.maximum(b.min(-1), TINY), above, several)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """D after each number of examples, and whether a single law is as near."""
    result = results[inside]
    found: dict[str, Found] = {}
    for length in result.indexes["length"]:
        found[length] = distance(result, length)
    every = result.mean("length")
    own = every.sel(of=pair(MODEL, BAYES)).values
    square = every.sel(of=SIZE).values
    found[RATIO] = smallest(own, result, MODEL)
    found[WITHIN] = smallest(own, result, BAYES)
    of_rivals = over_lengths(result, BAYES)
    found[APART] = bootstrap(lambda d, s: d.min(-1) / np.maximum(s, TINY), of_rivals, square)
    return found


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The length with the largest distance, and the distances of all rivals."""
    result = results[inside]
    lengths = list(result.indexes["length"])
    worst = max(lengths, key=lambda length: found[length].value)
    rows: list[dict[str, Any]] = []
    for length in lengths:
        here = result.sel(length=length).mean("unit")
        square = float(here.sel(of=SIZE))
        row: dict[str, Any] = {"examples": length, "distance": found[length].value}
        for rival in rivals_in(result):
            row[f"model, {rival}"] = float(here.sel(of=pair(MODEL, rival))) / square
            row[f"Bayes, {rival}"] = float(here.sel(of=pair(BAYES, rival))) / square
        rows.append(row)
    return Remarks(
        estimate=found[worst],
        scope="these weights, functions of the mixture; the Bayes predictor knows the noise, the "
        "laws of all families and their shares",
        caveat=f"It is farthest from the Bayes predictor after {worst}.",
        details=tuple(rows),
    )


def conditions() -> list[Condition]:
    """D after each number of examples; encodings that give the last prediction only have one."""
    asked = []
    for length in LENGTHS:
        name = f"squared distance from the Bayes predictor after {length}"
        rule = Condition(length, name, at_most(LIKE), at_least(UNLIKE), UNIT, optional=True)
        asked.append(rule)
    return asked


BAYES_PREDICTOR_CLAIM = Claim(
    id="mixtures.bayes_predictor",
    kind="learning",
    question="algorithm",
    statement="The model predicts as the Bayes predictor of the mixture that it was trained on.",
    denied="The model does not predict as the Bayes predictor of the mixture that it was trained "
    "on.",
    quote=Quote(
        "Where Bayesian inference is tractable, we find evidence that high-capacity transformers "
        "mimic the Bayesian predictor.",
        "Panwar, Ahuja & Goyal (2024), abstract",
        'Yadlowsky, Doshi & Tripuraneni (2023) find "near-optimal unsupervised model selection '
        'capabilities" (abstract). No rule for what counts as alike is in either abstract. We ask '
        "for a squared distance of at most 5 % of the mean square of f(x), and contradict from 10 "
        "% on. The model must also be nearer to the Bayes predictor than to that of any one "
        "family, and to that of one normal law for all families. These bounds were set before any "
        "trained model was measured.",
    ),
    reads="outputs",
    criterion=Criterion(
        (
            *conditions(),
            Condition(
                RATIO,
                "squared distance from the Bayes predictor over that from the nearest single law",
                at_most(1 / NEARER),
                at_least(NEARER),
                unit="times",
            ),
            Condition(
                WITHIN,
                "the same distance over that of the Bayes predictor from the nearest single law",
                at_most(1 / NEARER),
                unit="times",
            ),
        ),
        (
            Precondition(
                APART,
                at_least(TOLD),
                "A predictor that knows a single law predicts nearly as the Bayes predictor of the "
                f"mixture does (their distance is {{value:.2g}} {UNIT}, {TOLD:g} needed).",
            ),
        ),
        terms="The mean square of f(x) is that about its mean over the mixture. A single law is "
        f"that of one family, or {ONE} with the mean and variance of the whole mixture. d is the "
        "dimension of x.",
    ),
    measurements=(inside,),
    control=(inside,),
    aspects=("kind of task",),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_laws,
    figures=("mixture_distances",),
)
