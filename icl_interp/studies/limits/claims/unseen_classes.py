"""The claim of `limits` that classes which were not trained on are learned as well as others.

Degrees are a list that anybody knows beforehand. So of models that are asked about degrees not
trained on, polynomials of drawn powers are asked for as well: each function has its own choice.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

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
from icl_interp.studies.limits.claims.error_rates import (
    ALIKE,
    APART,
    HIGHEST,
    SCOPE,
    Cell,
    errors_of_cells,
    graft,
    highest_rate,
    log_rates,
    may_be_too_high,
    only_class,
    rate_row,
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
    if reason := needs_polynomials(facts):
        return reason
    only = only_class(facts)
    if only is None:
        return None
    return (
        f"The claim is about models trained on several degrees; this model was trained on {only}."
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


CRITERION = Criterion(
    (
        Condition(
            "ratio",
            "error on unseen degrees over that on the reference, both relative to predicting 0",
            at_most(math.log10(ALIKE)),
            at_least(math.log10(APART)),
            unit="log10",
        ),
        Condition(
            "drawn",
            "error on drawn powers over that on the largest trained degree, both relative to "
            "predicting 0",
            at_most(math.log10(ALIKE)),
            at_least(math.log10(APART)),
            unit="log10",
            denied="On polynomials of randomly drawn powers, on which it was not trained, the "
            "model makes much larger errors.",
        ),
        HIGHEST,
    ),
    (
        Precondition(
            "unseen",
            at_least(1),
            "Prompts are too short to score a degree that was not trained on.",
        ),
    ),
    terms="Unseen degrees lie below the largest one trained on; if there is none, the next degree "
    "above counts. The reference is a matched model trained on that degree, or else the model "
    "itself on the nearest degrees that it was trained on. The degree with the largest number "
    "counts.",
)


class Degrees(NamedTuple):
    """Degrees of which the claim is asked.

    Attributes:
        inside: not trained on, below the largest that was.
        outside: the next one after that, if it is scored.
        references: what each of those that decide is compared with.
        largest: trained on.
    """

    inside: list[int]
    outside: list[int]
    references: list[list[Cell]]
    largest: int

    @classmethod
    def of(cls, facts: Facts, result: DataArray) -> "Degrees":
        """Those that are scored; none where the largest degree trained on is not."""
        measured = result.indexes["class"]
        largest = trained_degrees(facts)[-1]
        inside = [d for d in unseen_inside(polynomial_in(facts)) if f"degree {d}" in measured]
        outside = [largest + 1] if f"degree {largest + 1}" in measured else []
        if f"degree {largest}" not in measured:
            return cls([], outside, [], largest)
        references = [_reference(facts, result, d) for d in inside or outside]
        return cls(inside, outside, references, largest)

    @property
    def unseen(self) -> list[int]:
        """Those that decide."""
        return (self.inside or self.outside)[: len(self.references)]


def _rates(result: DataArray, degrees: Degrees) -> dict[str, Found]:
    """What the criterion asks for: ratios to references, and the highest of the model's rates."""
    error, zero = errors_of_cells(result, [("model", d) for d in degrees.unseen], "own")
    drawn = {"class": DRAWN, "points": "own"}
    mine = result.sel({"predictor": "model", **drawn}).values
    nothing = result.sel({"predictor": "zero", **drawn}).values
    every = (np.column_stack([error, mine]), np.column_stack([zero, nothing]))
    return {
        "ratio": _worst_ratio(result, degrees.unseen, degrees.references, "own"),
        "drawn": _drawn_ratio(result, degrees.largest),
        "highest": highest_rate(every),
    }


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """Error rates on degrees not trained on, and on drawn powers, over those of references."""
    result = results[errors]
    degrees = Degrees.of(facts, result)
    found: dict[str, Found] = {"unseen": len(degrees.unseen)}
    return found | _rates(result, degrees) if degrees.unseen else found


def untrained(results: Results, facts: Facts) -> dict[str, Found]:
    """The same of an untrained model, beside the companions that are references."""
    result = results[errors]
    degrees = Degrees.of(facts, result)
    beside = graft(result, results.control[errors])
    return _rates(beside, degrees) if degrees.unseen else {}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The references in words, and every error rate."""
    result = results[errors]
    degrees = Degrees.of(facts, result)
    if not degrees.unseen:
        return Remarks()
    measured = result.indexes["class"]
    asked = sorted({*degrees.inside, *trained_degrees(facts)})
    mine: list[Cell] = [("model", d) for d in asked if f"degree {d}" in measured]
    matched = [c for cells in degrees.references for c in cells if c[0] != "model"]
    where = "degrees below" if degrees.inside else "a degree above"
    return Remarks(
        scope=f"{SCOPE}, {where} the largest trained on",
        caveat=may_be_too_high(found["highest"]) or _references(degrees),
        details=(
            *rate_rows(result, mine),
            *rate_rows(result, matched),
            *_outside(result, degrees.outside),
        ),
    )


def _references(degrees: Degrees) -> str:
    """What the unseen degrees are compared with; where all were trained on, that none is unseen."""
    if not degrees.inside:
        return (
            f"The model was trained on all degrees up to {degrees.largest}, so this is about the "
            "next one above."
        )
    against = []
    for degree, cells in zip(degrees.unseen, degrees.references, strict=True):
        own = all(who == "model" for who, _ in cells)
        reference = (
            f"its own on {_list([d for _, d in cells])}" if own else "a matched model trained on it"
        )
        against.append(f"degree {degree}, {reference}")
    return f"The reference is, for {'; '.join(against)}."


def _list(degrees: list[int]) -> str:
    return ("degrees " if len(degrees) > 1 else "degree ") + " and ".join(map(str, degrees))


def _outside(result: DataArray, degrees: list[int]) -> list[dict[str, Any]]:
    """Error rates on polynomials of drawn powers, and on classes outside the trained family.

    No function of the trained family belongs to such a class. Beside the latter stands least
    squares in that family.
    """
    rows = [rate_row(result, "model", DRAWN)]
    for name in [*(f"degree {d}" for d in degrees), OUTSIDE]:
        for who in ("model", "least squares"):
            rows.append(rate_row(result, who, name))
    return rows


UNSEEN_CLASSES_CLAIM = Claim(
    id="limits.unseen_classes",
    question="functions",
    statement="The model learns polynomials that it was not trained on about as well as those "
    "that it was.",
    denied="On a degree that it was not trained on the model makes much larger errors.",
    quote=Quote(
        "Transformer models with this training, both with and without an MLP component, exhibited "
        "performance on unseen degrees comparable to models fully trained on these degrees.",
        "Naim & Asher (2025), section 4.3, with Figure 2 (trained on degrees 1, 3 and 5, tested on "
        "2 and 4)",
        "We allow a factor of 3 between the errors relative to predicting 0. Where no model "
        "trained on the unseen degree is at hand, we compare with the model's own errors on the "
        "nearest degrees it was trained on. Beside unseen degrees we test polynomials of randomly "
        "drawn powers.",
    ),
    kind="learning",
    reads="outputs",
    criterion=CRITERION,
    measurements=(errors,),
    control=(errors,),
    aspects=("kind of task",),
    evidence=evidence,
    remarks=remarks,
    untrained=untrained,
    excluded=_of_one_degree,
    figures=("classes",),
)
