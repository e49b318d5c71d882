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
    reason = needs_polynomials(facts)
    if reason:
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
    below: list[Cell] = []
    above: list[Cell] = []
    for trained in trained_degrees(facts):
        if f"degree {trained}" not in result.indexes["class"]:
            continue
        if trained < degree:
            below.append(("model", trained))
        elif trained > degree:
            above.append(("model", trained))
    return below[-1:] + above[:1]


def _worst_ratio(
    result: DataArray, unseen: list[int], references: list[list[Cell]], points: str
) -> Interval:
    """Largest over unseen degrees of error rate / the reference's, log10.

    Of several references the geometric mean counts.
    """
    # Two arrays each, the errors and those of predicting 0.
    arrays = []
    for degree in unseen:
        arrays += errors_of_cells(result, [("model", degree)], points)
    for cells in references:
        arrays += errors_of_cells(result, cells, points)
    n = len(unseen)

    def worst(*means: np.ndarray) -> np.ndarray:
        logs = []
        for error, zero in zip(means[::2], means[1::2], strict=True):
            logs.append(log_rates(error, zero).mean(-1))
        ratios = [mine - reference for mine, reference in zip(logs[:n], logs[n:], strict=True)]
        return np.max(ratios, axis=0)

    return bootstrap(worst, *arrays)


def _drawn_ratio(result: DataArray, largest: int) -> Interval:
    """Error rate on polynomials of drawn powers over that on the largest trained degree, log10."""
    cells = []
    for name in (DRAWN, f"degree {largest}"):
        for who in ("model", "zero"):
            cells.append(_errors_on(result, who, name))

    def ratio(e: np.ndarray, z: np.ndarray, e_own: np.ndarray, z_own: np.ndarray) -> np.ndarray:
        return log_rates(e, z) - log_rates(e_own, z_own)

    return bootstrap(ratio, *cells)


def _errors_on(result: DataArray, who: str, name: str) -> np.ndarray:
    """The errors of a predictor on prompts of one class."""
    cell = {"predictor": who, "class": name, "points": "own"}
    return result.sel(cell).values


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
        candidates = unseen_inside(polynomial_in(facts))
        inside = [degree for degree in candidates if f"degree {degree}" in measured]
        outside = []
        if f"degree {largest + 1}" in measured:
            outside.append(largest + 1)
        if f"degree {largest}" not in measured:
            return cls([], outside, [], largest)
        references = [_reference(facts, result, degree) for degree in inside or outside]
        return cls(inside, outside, references, largest)

    @property
    def unseen(self) -> list[int]:
        """Those that decide."""
        n_decide = len(self.references)
        return (self.inside or self.outside)[:n_decide]


def _rates(result: DataArray, degrees: Degrees) -> dict[str, Found]:
    """What the criterion asks for: ratios to references, and the highest of the model's rates."""
    unseen = degrees.unseen
    cells: list[Cell] = [("model", degree) for degree in unseen]
    error, zero = errors_of_cells(result, cells, "own")
    drawn_error = _errors_on(result, "model", DRAWN)
    drawn_zero = _errors_on(result, "zero", DRAWN)
    every = (np.column_stack([error, drawn_error]), np.column_stack([zero, drawn_zero]))
    return {
        "ratio": _worst_ratio(result, unseen, degrees.references, "own"),
        "drawn": _drawn_ratio(result, degrees.largest),
        "highest": highest_rate(every),
    }


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """Error rates on degrees not trained on, and on drawn powers, over those of references."""
    result = results[errors]
    degrees = Degrees.of(facts, result)
    found: dict[str, Found] = {"unseen": len(degrees.unseen)}
    if degrees.unseen:
        found |= _rates(result, degrees)
    return found


def untrained(results: Results, facts: Facts) -> dict[str, Found]:
    """The same of an untrained model, beside the companions that are references."""
    result = results[errors]
    degrees = Degrees.of(facts, result)
    beside = graft(result, results.control[errors])
    if not degrees.unseen:
        return {}
    return _rates(beside, degrees)


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The references in words, and every error rate."""
    result = results[errors]
    degrees = Degrees.of(facts, result)
    if not degrees.unseen:
        return Remarks()
    # The model's own cells, and those of companions that are references.
    measured = result.indexes["class"]
    mine: list[Cell] = []
    for degree in sorted({*degrees.inside, *trained_degrees(facts)}):
        if f"degree {degree}" in measured:
            mine.append(("model", degree))
    matched: list[Cell] = []
    for cells in degrees.references:
        for cell in cells:
            if cell[0] != "model":
                matched.append(cell)
    where = "degrees below" if degrees.inside else "a degree above"
    details = [
        *rate_rows(result, mine),
        *rate_rows(result, matched),
        *_outside(result, degrees.outside),
    ]
    return Remarks(
        scope=f"{SCOPE}, {where} the largest trained on",
        caveat=may_be_too_high(found["highest"]) or _references(degrees),
        details=tuple(details),
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
        reference = "a matched model trained on it"
        if all(who == "model" for who, _ in cells):
            reference = f"its own on {_list([of_cell for _, of_cell in cells])}"
        against.append(f"degree {degree}, {reference}")
    return f"The reference is, for {'; '.join(against)}."


def _list(degrees: list[int]) -> str:
    """Degrees in words."""
    word = "degrees" if len(degrees) > 1 else "degree"
    return f"{word} {' and '.join(map(str, degrees))}"


def _outside(result: DataArray, degrees: list[int]) -> list[dict[str, Any]]:
    """Error rates on polynomials of drawn powers, and on classes outside the trained family.

    No function of the trained family belongs to such a class. Beside the latter stands least
    squares in that family.
    """
    rows = [rate_row(result, "model", DRAWN)]
    names = [f"degree {degree}" for degree in degrees]
    for name in (*names, OUTSIDE):
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
