"""The claim of `lipschitz` on other Lipschitz constants than that of training.

A model pays there what its window pays.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
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
from icl_interp.studies.lipschitz.measurements.unit import SOURCE

AS_THEORY, OTHERWISE = (
    1.25,
    1.5,
)  # factors between the model's risk and that of theory's window for L, either way
ELSEWHERE = tuple(factor for factor in FACTORS if factor != 1)
HOME = "at L"
DRAWN = (
    "drawn below L",
    "drawn above L",
)  # conditions on the L' that are drawn, in the order of `SPANS`
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


TRANSFER = Criterion(
    tuple(
        Condition(name, "", (1.0, AS_THEORY), (OTHERWISE, INF), scale="log")
        for name in (*(key(factor) for factor in ELSEWHERE), *DRAWN)
    ),
    (
        Precondition(
            HOME,
            (1.0, AS_THEORY),
            "Already at its own L the model's error is a factor of {value:.2g} off that of the "
            f"best window (at most {AS_THEORY:g} allowed).",
        ),
    ),
    terms=(
        "factor between the model's mean squared error at another Lipschitz constant L' and that of "
        "the window that is best for the L of training, by theory, either way, on the same prompts: <= "
        f"{AS_THEORY:g} at every L' asked, {', '.join(f'{f:g} L' for f in ELSEWHERE)} and two that are "
        f"drawn, one below L and one above / >= {OTHERWISE:g} at one"
    ),
)


def ratio(result: DataArray, factor: float, who: str, over: str) -> Interval:
    """Mean squared error of one over that of another at L' = factor L, on the same prompts."""
    mine, theirs = (result.sel({"L' / L": factor, "who": one}).values for one in (who, over))
    return bootstrap(
        lambda a, b: np.maximum(a, TINY) / np.maximum(b, TINY), mine, theirs, positive=True
    )


def either_way(name: str, interval: Interval) -> Estimate:
    """A ratio as the factor between two numbers, whichever is the larger.

    It is 1 where they are equal, and above 1 otherwise.
    """

    def turned(low: float, high: float) -> tuple[float, float]:
        return (1.0 if low <= 1 <= high else min(max(low, 1 / low), max(high, 1 / high))), max(
            high, 1 / low
        )

    tails, extremes = (
        tuple(turned(*ends) for ends in many) for many in (interval.tails, interval.extremes)
    )
    value = max(interval.value, 1 / interval.value)
    plain = Estimate(
        name,
        value,
        *turned(interval.low, interval.high),
        tails=tails,
        positive=True,
        extremes=extremes,
    )
    return replace(plain, se=interval.se / interval.value * value)


def factors(result: DataArray, who: str = MODEL) -> dict[str, Estimate]:
    """What the criterion asks for, at every L'.

    It is the model's error over that of theory's window for L.
    """
    name = "factor between the model's error and that of the best window for L, either way"
    return {
        key(factor): either_way(f"{name}, {_where(factor)}", ratio(result, factor, who, TRAINED))
        for factor in tested(result)
    }


def _where(factor: float) -> str:
    place = HOME if factor == 1 else f"at {factor:g} L"
    return place if factor in FACTORS else f"{place} (drawn)"


def evidence(results: Results, facts: Facts) -> Evidence:
    """Does the model pay at other L what theory's window for its own L pays?"""
    result, known = results[transfer], results[exact]
    quantities, rows = factors(result), details(result, known)
    worst = max(
        rows, key=lambda row: max(row["model / window for L"], 1 / row["model / window for L"])
    )
    says = answer(
        TRANSFER,
        quantities,
        "At the other Lipschitz constants asked the model's error is that of the best window for "
        "its own.",
        "At another Lipschitz constant the model's error is not that of the best window for its "
        "own.",
        "the model's error at other Lipschitz constants is that of the best window for its own "
        "constant L",
    )
    at = key(worst["L' / L"])
    threshold = bound(
        TRANSFER,
        quantities,
        at,
        f"within a factor of {AS_THEORY:g}",
        f"off by {OTHERWISE:g} or more",
    )
    says += (
        f" It is farthest from theory at {worst['tested at']}: {worst['model / window for L']:.3g} "
        f"times the error of this window ({threshold})."
    )
    where = worst["L' / L"]
    scaled = ratio(result, where, RESCALED, TRAINED)
    if max(worst["model / window for L"], 1 / worst["model / window for L"]) >= OTHERWISE:
        caveat = f"With labels rescaled to training size it is {scaled.value:.3g} times, " + _cause(
            scaled
        )
    else:
        most = max(rows, key=lambda row: row["model pays"])
        caveat = (
            f"At {most['tested at']} it is {most['model pays']:.3g} times the least error that is "
            "possible there."
        )
    return Evidence(
        quantities,
        says,
        estimate=quantities[at],
        scope="these weights, this task's n, d and noise; the L' asked, four on a grid and two "
        "drawn from L / 10 to 10 L; errors against f(x_q) itself",
        causal={
            "intervention": "labels divided by L' / L before the model reads them, its prediction "
            "multiplied by that",
            "at": worst["tested at"],
            "effect": scaled.value,
            "low": scaled.low,
            "high": scaled.high,
            "unit": "error over that of the best window for L",
        },
        control=factors(results.control[transfer]),
        details=rows,
        caveat=caveat,
    )


def _cause(scaled: Interval) -> str:
    if max(scaled.high, 1 / scaled.low) <= OTHERWISE:
        return "so the model fails by their size, not by its window."
    return "so their size alone does not explain it."


def details(result: DataArray, known: DataArray) -> tuple[dict[str, Any], ...]:
    """A row for each L': what the model and theory's windows pay there."""
    rows = []
    for factor in tested(result):
        paid, same, window = (
            ratio(result, factor, *pair)
            for pair in ((MODEL, BEST), (MODEL, TRAINED), (TRAINED, BEST))
        )
        rows.append(
            {
                "tested at": f"{factor:g} L" + " (drawn)" * (factor not in FACTORS),
                "L' / L": factor,
                "model pays": paid.value,
                "low": paid.low,
                "high": paid.high,
                "theory": float(known.sel({"L' / L": factor, "number": "ratio"})),
                "window for L, same prompts": window.value,
                "model / window for L": same.value,
                "model, labels rescaled / window for L": ratio(
                    result, factor, RESCALED, TRAINED
                ).value,
                "printed bound / least risk": float(
                    known.sel({"L' / L": factor, "number": "printed bound / least risk"})
                ),
            }
        )
    return tuple(rows)


TRANSFER_CLAIM = Claim(
    id="lipschitz.transfer",
    question="functions",
    short="At another Lipschitz constant the model has the error that theory predicts.",
    quote=Quote(
        "Shared Lipschitzness across (train, test) is both necessary and sufficient for ICL. [...] "
        "Suppose M is pretrained on the loss induced by D(F_L^+). [...] if it is tested on "
        "D(F_L'^+), L(M) ≥ L'² (σ²/(nL²))^(2/(d+2))"
        " for L' > L (worse dependence on L'), (nL²/σ²)^(2/(2(d+2))) / n for L' ≤ L (no benefit of "
        "L')",
        "Collins et al. (2024), slides by A. Mokhtari, 'Generalization Guarantees' and Theorem 3",
        "The printed orders decide nothing at one n, and for large n the first is false and the "
        "second lacks σ². We compute exactly what the best window for L pays at L', and ask "
        "whether the model pays as much. This is narrower than the theorem, which bounds, and "
        "wider: layers with a norm and an MLP count too.",
    ),
    kind="learning",
    statement="Tested at another Lipschitz constant L', a model trained at L has the error of the "
    "best window for L",
    source=f"{SOURCE}, Theorem 3",
    criterion=TRANSFER,
    measurements=(transfer, exact),
    control=(transfer,),
    aspects=("single layer", "kind of task"),
    evidence=evidence,
    excluded=needs_layer_and_sphere,
    learned=never_asked,
    figures=("lipschitz_transfer",),
)
