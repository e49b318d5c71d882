"""The claim of `lipschitz` on other Lipschitz constants than that of training.

A model pays there what its window pays.
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
from icl_interp.analyses.natural import Region
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.lipschitz.claims.window import never_asked
from icl_interp.studies.lipschitz.measurements.transfer_errors import (
    BEST,
    FACTORS,
    MODEL,
    RESCALED,
    TRAINED,
    exact,
    needs_layer_and_sphere,
    transfer,
)

# Factors between the model's risk and that of theory's window for L, either way.
AS_THEORY = 1.25
OTHERWISE = 1.5
ELSEWHERE = tuple(factor for factor in FACTORS if factor != 1)
HOME = "at L"
# Conditions on the L' that are drawn, in the order of `SPANS`.
DRAWN = ("drawn below L", "drawn above L")
TINY = float(np.finfo(float).tiny)


def key(factor: float) -> str:
    """The name of a condition: where the model is tested."""
    if factor == 1:
        return HOME
    if factor in FACTORS:
        return f"at {factor:g} L"
    return DRAWN[0] if factor < 1 else DRAWN[1]


def tested(result: DataArray) -> list[float]:
    """The L' / L at which the model was tested, from the smallest up."""
    return sorted(map(float, result.indexes["L' / L"]))


def _condition(quantity: str) -> Condition:
    return Condition(
        quantity,
        f"error against the best window's, {quantity}",
        at_most(AS_THEORY, least=1.0),
        at_least(OTHERWISE),
        unit="times",
        scale="log",
    )


QUANTITIES = (*map(key, ELSEWHERE), *DRAWN)
AT_HOME = Precondition(
    HOME,
    at_most(AS_THEORY, least=1.0),
    "Already at its own L the model's error is a factor of {value:.2g} off that of the "
    f"best window (at most {AS_THEORY:g} allowed).",
)
CRITERION = Criterion(
    tuple(map(_condition, QUANTITIES)),
    (AT_HOME,),
    terms="The best window is the one that theory gives for the L of training. Errors are mean "
    "squares on the same prompts of another L. The number is the larger one over the smaller.",
)


def ratio(result: DataArray, factor: float, who: str, over: str) -> Interval:
    """Mean squared error of one over that of another at L' = factor L, on the same prompts."""

    def quotient(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        return np.maximum(mine, TINY) / np.maximum(theirs, TINY)

    here = result.sel({"L' / L": factor})
    mine = here.sel(who=who).values
    theirs = here.sel(who=over).values
    return bootstrap(quotient, mine, theirs, positive=True)


def either_way(interval: Interval) -> Interval:
    """A ratio as the factor between two numbers, whichever is the larger.

    It is 1 where they are equal, and above 1 otherwise.
    """

    def turned(ends: Region) -> Region:
        low, high = ends
        most = max(high, 1 / low)
        if low <= 1 <= high:
            return 1.0, most
        return min(_off(low), _off(high)), most

    value = _off(interval.value)
    low, high = turned((interval.low, interval.high))
    return Interval(
        value,
        low,
        high,
        se=interval.se / interval.value * value,
        tails=tuple(map(turned, interval.tails)),
        positive=True,
        extremes=tuple(map(turned, interval.extremes)),
    )


def factors(result: DataArray) -> dict[str, Interval]:
    """The model's error over that of theory's window for L, either way, at every L'."""
    found = {}
    for factor in tested(result):
        times = ratio(result, factor, MODEL, TRAINED)
        found[key(factor)] = either_way(times)
    return found


def evidence(results: Results, facts: Facts) -> Mapping[str, Found]:
    """Whether the model pays at other L what theory's window for its own L pays."""
    return factors(results[transfer])


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Where it is farthest from theory, and whether the size of the labels is the cause."""
    result = results[transfer]
    rows = details(result, results[exact])
    worst = max(rows, key=lambda row: _off(row["model / window for L"]))
    place = worst["tested at"]
    factor = worst["L' / L"]
    times = worst["model / window for L"]
    scaled = ratio(result, factor, RESCALED, TRAINED)
    if _off(times) >= OTHERWISE:
        caveat = (
            f"At {place}, with labels rescaled to training size, it is {scaled.value:.3g} times, "
            f"{_cause(scaled)}"
        )
    else:
        caveat = (
            f"It is farthest off at {place}, {times:.3g} times, and "
            f"{worst['model pays']:.3g} times the least error that is possible there."
        )
    return Remarks(
        estimate=found[key(factor)],
        scope="these weights, this task's n, d and noise; four L' on a grid and two drawn from L "
        "/ 10 to 10 L; errors against f(x_q) without noise",
        caveat=caveat,
        causal={
            "intervention": "labels divided by L' / L before the model reads them, its prediction "
            "multiplied by that",
            "at": place,
            "effect": scaled.value,
            "low": scaled.low,
            "high": scaled.high,
            "unit": "error over that of the best window for L",
        },
        details=rows,
    )


def _off(times: float) -> float:
    return max(times, 1 / times)


def _cause(scaled: Interval) -> str:
    if max(scaled.high, 1 / scaled.low) <= OTHERWISE:
        return "so the model fails by their size, not by its window."
    return "so their size alone does not explain it."


def details(result: DataArray, known: DataArray) -> tuple[dict[str, Any], ...]:
    """A row for each L': what the model and theory's windows pay there."""
    rows = []
    for factor in tested(result):
        place = f"{factor:g} L"
        if factor not in FACTORS:
            place += " (drawn)"
        paid = ratio(result, factor, MODEL, BEST)
        window = ratio(result, factor, TRAINED, BEST)
        model = ratio(result, factor, MODEL, TRAINED)
        rescaled = ratio(result, factor, RESCALED, TRAINED)
        theory = known.sel({"L' / L": factor})
        bound = theory.sel(number="printed bound / least risk")
        row = {
            "tested at": place,
            "L' / L": factor,
            "model pays": paid.value,
            "low": paid.low,
            "high": paid.high,
            "theory": float(theory.sel(number="ratio")),
            "window for L, same prompts": window.value,
            "model / window for L": model.value,
            "model, labels rescaled / window for L": rescaled.value,
            "printed bound / least risk": float(bound),
        }
        rows.append(row)
    return tuple(rows)


TRANSFER_CLAIM = Claim(
    id="lipschitz.transfer",
    question="functions",
    statement="At other Lipschitz constants the model's error is that of the best window for its "
    "own constant.",
    denied="At another Lipschitz constant the model's error is not that of the best window for "
    "its own constant.",
    quote=Quote(
        "Shared Lipschitzness across (train, test) is both necessary and sufficient for ICL. [...] "
        "Suppose M is pretrained on the loss induced by D(F_L^+). [...] if it is tested on "
        "D(F_L'^+), L(M) ≥ L'² (σ²/(nL²))^(2/(d+2))"
        " for L' > L (worse dependence on L'), (nL²/σ²)^(2/(2(d+2))) / n for L' ≤ L (no benefit of "
        "L')",
        "Collins et al. (2024), slides by A. Mokhtari, 'Generalization Guarantees' and Theorem 3",
        "The orders of size that the slides print decide nothing at one n; for large n the first "
        "is false and the second lacks σ². We compute exactly the error at L' of the best window "
        "for L, and ask whether the model has the same. This is narrower than the theorem, which "
        "only gives bounds. It is wider because layers with a norm and an MLP count too, and so "
        "do predictors without weights.",
    ),
    kind="learning",
    reads="outputs",
    criterion=CRITERION,
    measurements=(transfer, exact),
    control=(transfer,),
    aspects=("single layer", "kind of task"),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_layer_and_sphere,
    learned=never_asked,
    figures=("lipschitz_transfer",),
)
