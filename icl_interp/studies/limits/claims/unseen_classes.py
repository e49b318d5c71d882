"""The claim of `limits` that classes which were not trained on are learned as well as others.

Degrees are a list that anybody knows beforehand. So of models that are asked about degrees not
trained on, polynomials of drawn powers are asked for as well: each function has its own choice.
"""

import math
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
from icl_interp.studies.limits.claims.error_rates import (
    ALIKE,
    APART,
    HIGHEST,
    LOW,
    SCOPE,
    Cell,
    as_factor,
    errors_of_cells,
    graft,
    highest_rate,
    log_rates,
    may_be_too_high,
    rate,
    rate_rows,
    trained_degrees,
)
from icl_interp.studies.limits.measurements.classes import (
    DRAWN,
    OUTSIDE,
    errors,
    needs_polynomials,
    polynomial_in,
    singles,
    unseen_inside,
)


def _of_one_degree(facts: Facts) -> str | None:
    """Why the claim excludes a model that was trained on one degree only; None for others.

    The paper speaks of models that were trained on several degrees and asked about those between.
    """
    reason = needs_polynomials(facts)
    if reason:
        return reason
    trained = trained_degrees(facts)
    if len(trained) > 1:
        return None
    which = f"degree {trained[0]} only" if trained else "constants only"
    return (
        f"The claim is about models trained on several degrees; this model was trained on {which}."
    )


def _reference(facts: Facts, result: DataArray, degree: int) -> list[Cell]:
    """What an unseen degree is compared with: a companion trained on it.

    Without such a companion, it is the model on the nearest degrees that it was trained on.
    """
    roles = singles(facts.companions)
    if degree in roles:
        return [(str(roles[degree]), degree)]
    trained = [d for d in trained_degrees(facts) if f"degree {d}" in result.indexes["class"]]
    below, above = [d for d in trained if d < degree], [d for d in trained if d > degree]
    return [("model", d) for d in ([below[-1]] if below else []) + ([above[0]] if above else [])]


def _worst_ratio(
    result: DataArray, unseen: list[int], references: list[list[Cell]], points: str
) -> Interval:
    """Largest over unseen degrees of error rate / the reference's, log10.

    Of several references the geometric mean counts.
    """
    arrays = [errors_of_cells(result, [("model", d)], points) for d in unseen]
    arrays += [errors_of_cells(result, cells, points) for cells in references]
    n = len(unseen)

    def worst(*means: np.ndarray) -> np.ndarray:
        logs = [log_rates(means[2 * i], means[2 * i + 1]).mean(-1) for i in range(2 * n)]
        return np.max([logs[i] - logs[n + i] for i in range(n)], axis=0)

    return bootstrap(worst, *(array for pair in arrays for array in pair))


def _drawn_ratio(result: DataArray, largest: int) -> Interval:
    """Error rate on polynomials of drawn powers over that on the largest trained degree, log10."""
    cells = [
        result.sel({"predictor": who, "class": name, "points": "own"}).values
        for name in (DRAWN, f"degree {largest}")
        for who in ("model", "zero")
    ]
    return bootstrap(lambda e, z, e_own, z_own: log_rates(e, z) - log_rates(e_own, z_own), *cells)


def _quantities(
    result: DataArray, unseen: list[int], references: list[list[Cell]], largest: int
) -> dict[str, Estimate]:
    """What the criterion asks for: ratios to references, and the highest of the model's rates."""
    ratio = _worst_ratio(result, unseen, references, "own")
    error, zero = errors_of_cells(result, [("model", d) for d in unseen], "own")
    drawn = (
        result.sel({"predictor": who, "class": DRAWN, "points": "own"}).values
        for who in ("model", "zero")
    )
    every = [np.column_stack([mine, its]) for mine, its in zip((error, zero), drawn, strict=True)]
    name = "highest error on unseen degrees and drawn powers, relative to predicting 0"
    return {
        "ratio": Estimate.of(
            "error on unseen degrees / error on the reference, both relative to predicting 0",
            ratio,
            "log10",
        ),
        "drawn": Estimate.of(
            "error on drawn powers / error on the largest degree trained on, both relative to "
            "predicting 0",
            _drawn_ratio(result, largest),
            "log10",
        ),
        "highest": Estimate.of(name, highest_rate((every[0], every[1]))),
    }


def unseen_classes(results: Results, facts: Facts) -> Evidence:
    """Is the model as good on degrees that it was not trained on as models are that were?"""
    result = results[errors]
    trained, measured = trained_degrees(facts), result.indexes["class"]
    inside = [d for d in unseen_inside(polynomial_in(facts)) if f"degree {d}" in measured]
    outside = [d for d in [trained[-1] + 1] if f"degree {d}" in measured]
    unseen = inside or outside
    quantities = {"unseen": Estimate.exactly("unseen degrees that can be scored", len(unseen))}
    if not unseen or f"degree {trained[-1]}" not in measured:
        quantities["unseen"] = Estimate.exactly("unseen degrees that can be scored", 0)
        return Evidence(quantities, "")
    references = [_reference(facts, result, d) for d in unseen]
    found = _quantities(result, unseen, references, trained[-1])
    words = [
        "a matched model trained on it"
        if cells[0][0] != "model"
        else f"its own on {_list([d for _, d in cells])}"
        for cells in references
    ]
    against = "; ".join(f"degree {d}, {word}" for d, word in zip(unseen, words, strict=True))
    first = answer(
        UNSEEN_CLASSES,
        quantities | found,
        f"The model learns the classes asked ({_list(unseen)}; polynomials of drawn powers), on "
        "which it was not trained, about as well as others.",
        {
            "ratio": "On a degree that it was not trained on the model makes much larger errors.",
            "drawn": "On polynomials of drawn powers, on which it was not trained, the model makes "
            "much larger errors.",
        },
        f"the model learns classes that it was not trained on ({_list(unseen)}; drawn powers) as "
        "well as others",
    )
    limits = f"at most {ALIKE:g}", f"at least {APART:g}"
    degrees, drawn = (
        f"{as_factor(found[key].value)} times "
        f"({bound(UNSEEN_CLASSES, quantities | found, key, *limits)})"
        for key in ("ratio", "drawn")
    )
    says = (
        f"{first} Relative to predicting 0 its error is up to {degrees} and {drawn} that of the "
        "reference."
    )
    caveat = f"The reference is, for {against}; for drawn powers, its own on degree {trained[-1]}."
    if found["highest"].high > LOW:
        caveat = may_be_too_high(found["highest"])
    elif not inside:
        caveat = (
            f"All degrees up to {trained[-1]} were trained on, so this is about what lies outside."
        )
    every = [("model", d) for d in inside + trained if f"degree {d}" in measured]
    scope = SCOPE + (
        ", degrees below the largest trained on"
        if inside
        else ", a degree above the largest trained on"
    )
    return Evidence(
        quantities | found,
        says,
        caveat=caveat,
        scope=scope,
        control=_quantities(
            graft(result, results.control[errors]), unseen, references, trained[-1]
        ),
        details=(
            *rate_rows(result, sorted(every, key=lambda c: c[1])),
            *rate_rows(result, [c for cells in references for c in cells if c[0] != "model"]),
            *_outside(result, outside),
        ),
    )


def _list(degrees: list[int]) -> str:
    return ("degrees " if len(degrees) > 1 else "degree ") + " and ".join(map(str, degrees))


def _outside(result: DataArray, degrees: list[int]) -> list[dict[str, Any]]:
    """Error rates on polynomials of drawn powers, and on classes outside the trained family.

    No function of the trained family belongs to such a class. Beside the latter stands least
    squares in that family.
    """
    rows = []
    for name in [DRAWN, *(f"degree {d}" for d in degrees), OUTSIDE]:
        for who in ("model", "least squares")[: 1 if name == DRAWN else 2]:
            found = rate(result, who, name)
            rows.append(
                {
                    "class": name,
                    "predictor": who,
                    "error rate": found.value,
                    "low": found.low,
                    "high": found.high,
                }
            )
    return rows


UNSEEN_CLASSES = Criterion(
    (
        Condition("ratio", "", (-INF, math.log10(ALIKE)), (math.log10(APART), INF)),
        Condition("drawn", "", (-INF, math.log10(ALIKE)), (math.log10(APART), INF)),
        HIGHEST,
    ),
    (
        Precondition(
            "unseen", (1, INF), "Prompts are too short to score a degree that was not trained on."
        ),
    ),
    terms=(
        "squared error divided by that of predicting 0, on each degree not trained on (below the "
        "largest trained on; where none is, the next one), over that of a matched model trained on it, "
        "else over its own on the nearest trained ones, the largest; and on polynomials of powers that "
        "are drawn, over its own on the largest degree trained on: both at most a factor of "
        f"{ALIKE:g}, and no error above {LOW} of predicting 0 / one at least a factor of {APART:g}"
    ),
)

UNSEEN_CLASSES_CLAIM = Claim(
    id="limits.unseen_classes",
    question="functions",
    short="Models learn in context polynomials of degrees not seen in training.",
    quote=Quote(
        "Transformer models with this training, both with and without an MLP component, exhibited "
        "performance on unseen degrees comparable to models fully trained on these degrees.",
        "Naim & Asher (2025), section 4.3, with Figure 2 (trained on degrees 1, 3 and 5, tested on "
        "2 and 4)",
        "We allow a factor of 3 between the errors relative to predicting 0. Where no model "
        "trained on the unseen degree is at hand, we compare with the model's own errors on the "
        "nearest degrees it was trained on. Beside degrees we ask for polynomials of drawn powers.",
    ),
    kind="learning",
    statement="The model learns in context classes of polynomials that it was not trained on",
    source="Naim & Asher (2025), section 4.3 and Figure 2",
    criterion=UNSEEN_CLASSES,
    measurements=(errors,),
    control=(errors,),
    aspects=("kind of task",),
    evidence=unseen_classes,
    excluded=_of_one_degree,
    figures=("classes",),
)
