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


CRITERION = Criterion(
    tuple(map(_condition, (*map(key, ELSEWHERE), *DRAWN))),
    (
        Precondition(
            HOME,
            at_most(AS_THEORY, least=1.0),
            "Already at its own L the model's error is a factor of {value:.2g} off that of the "
            f"best window (at most {AS_THEORY:g} allowed).",
        ),
    ),
    terms="The best window is the one that theory gives for the L of training. Errors are mean "
    "squares on the same prompts of another L. The number is the larger one over the smaller.",
)


def ratio(result: DataArray, factor: float, who: str, over: str) -> Interval:
    """Mean squared error of one over that of another at L' = factor L, on the same prompts."""
    here = result.sel({"L' / L": factor})
    return bootstrap(
        lambda a, b: np.maximum(a, TINY) / np.maximum(b, TINY),
        here.sel(who=who).values,
        here.sel(who=over).values,
        positive=True,
    )


def either_way(interval: Interval) -> Interval:
    """A ratio as the factor between two numbers, whichever is the larger.

    It is 1 where they are equal, and above 1 otherwise.
    """

    def turned(ends: Region) -> Region:
        low, high = ends
        least = 1.0 if low <= 1 <= high else min(max(low, 1 / low), max(high, 1 / high))
        return least, max(high, 1 / low)

    value = max(interval.value, 1 / interval.value)
    return Interval(
        value,
        *turned((interval.low, interval.high)),
        se=interval.se / interval.value * value,
        tails=tuple(map(turned, interval.tails)),
        positive=True,
        extremes=tuple(map(turned, interval.extremes)),
    )


def factors(result: DataArray) -> dict[str, Interval]:
    """The model's error over that of theory's window for L, either way, at every L'."""
    return {
        key(factor): either_way(ratio(result, factor, MODEL, TRAINED)) for factor in tested(result)
    }


def evidence(results: Results, facts: Facts) -> Mapping[str, Found]:
    """Whether the model pays at other L what theory's window for its own L pays."""
    return factors(results[transfer])


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Where it is farthest from theory, and whether the size of the labels is the cause."""
    result = results[transfer]
    rows = details(result, results[exact])
    worst = max(rows, key=lambda row: _off(row["model / window for L"]))
    place = worst["tested at"]
    scaled = ratio(result, worst["L' / L"], RESCALED, TRAINED)
    if _off(worst["model / window for L"]) >= OTHERWISE:
        caveat = (
            f"At {place}, with labels rescaled to training size, it is {scaled.value:.3g} times, "
            f"{_cause(scaled)}"
        )
    else:
        caveat = (
            f"It is farthest off at {place}, {worst['model / window for L']:.3g} times, and "
            f"{worst['model pays']:.3g} times the least error that is possible there."
        )
    return Remarks(
        estimate=found[key(worst["L' / L"])],
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
        paid = ratio(result, factor, MODEL, BEST)
        theory = known.sel({"L' / L": factor})
        rows.append(
            {
                "tested at": f"{factor:g} L" + " (drawn)" * (factor not in FACTORS),
                "L' / L": factor,
                "model pays": paid.value,
                "low": paid.low,
                "high": paid.high,
                "theory": float(theory.sel(number="ratio")),
                "window for L, same prompts": ratio(result, factor, TRAINED, BEST).value,
                "model / window for L": ratio(result, factor, MODEL, TRAINED).value,
                "model, labels rescaled / window for L": ratio(
                    result, factor, RESCALED, TRAINED
                ).value,
                "printed bound / least risk": float(
                    theory.sel(number="printed bound / least risk")
                ),
            }
        )
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
