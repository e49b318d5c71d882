"""What the claims of `limits` about degrees share: error rates, and how they are compared.

An error rate is the mean squared error divided by that of predicting 0 on the same points. Least
squares that knows the degree makes no error on these clean data, so this is r = eps / |eps* - eps0|
of Naim & Asher (2025), section 3.3.
"""

from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses.criterion import Condition, Estimate, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.natural import plain
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import make_array
from icl_interp.studies.limits.measurements.classes import polynomial_in

# Largest over smallest error rate; the paper's own differ by up to 2.1 between degrees (its Table
# 2).
ALIKE = 3.0
# From here on they differ. Both regions once met at 3. With 128 units of 8 prompts the extent over
# degrees has a standard error of 0.07 decades, at half the sample 0.10: two of these, 0.2, are a
# factor of 1.6.
APART = 5.0
LOW = 0.1  # error rate up to which a class counts as learned in context: R2 > 0.9
RESOLUTION = 1e-6  # rates below this count as equal: float32 and the sample tell no more
SCOPE = "these weights, this task, functions and inputs in distribution"


def trained_degrees(facts: Facts) -> list[int]:
    """Degrees from 1 up that the model was trained on; a constant is no class in the paper."""
    degrees = set(polynomial_in(facts).degrees)
    return sorted(degrees - {0})


def only_class(facts: Facts) -> str | None:
    """What a model was trained on that knows one degree at most, in words; None for others."""
    trained = trained_degrees(facts)
    if len(trained) > 1:
        return None
    return f"degree {trained[0]} only" if trained else "constants only"


Cell = tuple[str, int]  # a predictor and the degree it is measured on


def errors_of_cells(
    result: DataArray, cells: list[Cell], points: str
) -> tuple[np.ndarray, np.ndarray]:
    """Errors of (predictor, degree), and of zero on the same classes: each (function, cell)."""
    errors = []
    of_zero = []
    for who, degree in cells:
        error, zero = _errors(result, who, f"degree {degree}", points)
        errors.append(error)
        of_zero.append(zero)
    return np.stack(errors, -1), np.stack(of_zero, -1)


def _errors(
    result: DataArray, predictor: str, name: str, points: str
) -> tuple[np.ndarray, np.ndarray]:
    """Errors of a predictor and of zero on a class, by function."""
    there = result.sel({"class": name, "points": points})
    return there.sel(predictor=predictor).values, there.sel(predictor="zero").values


def _rates(error: np.ndarray, zero: np.ndarray) -> np.ndarray:
    return np.asarray(error / np.maximum(zero, np.finfo(float).tiny))


def log_rates(error: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """log10 of error rates, none below the resolution."""
    return np.log10(np.maximum(_rates(error, zero), RESOLUTION))


def rate(result: DataArray, predictor: str, name: str, points: str = "own") -> Interval:
    """Error rate of a predictor on a class, with its interval over functions."""
    return bootstrap(_rates, *_errors(result, predictor, name, points))


def highest_rate(cells: tuple[np.ndarray, np.ndarray]) -> Interval:
    """The highest error rate of several cells, with its interval."""
    return bootstrap(lambda e, z: _rates(e, z).max(-1), *cells)


def rate_rows(result: DataArray, cells: list[Cell]) -> list[dict[str, Any]]:
    """Error rate of each cell with its interval, and on late points."""
    rows = []
    for who, degree in cells:
        name = f"degree {degree}"
        late = rate(result, who, name, "late")
        rows.append(rate_row(result, who, name))
        rows[-1]["on late points"] = late.value
    return rows


def rate_row(result: DataArray, predictor: str, name: str) -> dict[str, Any]:
    """Error rate of a predictor on a class with its interval."""
    found = rate(result, predictor, name)
    row: dict[str, Any] = {"class": name, "predictor": predictor}
    row["error rate"] = found.value
    row["low"] = found.low
    row["high"] = found.high
    return row


def graft(result: DataArray, control: DataArray) -> DataArray:
    """The result with the model replaced by its untrained control, which has no companions."""
    values = result.values.copy()
    row = result.indexes["predictor"].get_loc("model")
    classes = list(result.indexes["class"])
    values[row] = np.nan
    for name in control.indexes["class"]:
        its = control.sel({"predictor": "model", "class": name})
        values[row, classes.index(name)] = its.values
    return make_array(values, result.indexes)


def may_be_too_high(highest: Estimate) -> str:
    """Says of the highest error rate that it may be too high to count as learned, if it may be."""
    if highest.high <= LOW:
        return ""
    return (
        f"The interval of the highest reaches {plain(highest.high)}, and a degree counts as "
        f"learned only up to {LOW}."
    )


HIGHEST = Condition(
    "highest", "highest squared error relative to predicting 0", at_most(LOW), scale="log"
)
