"""Scores from errors: the error rate, R^2 and shares of it, relative to the references' errors."""

import math
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from icl_interp import resampling
from icl_interp.baselines import reference
from icl_interp.baselines.law import uninformed
from icl_interp.baselines.reference import NOTHING
from icl_interp.resampling import r_squared

Errors = Float[np.ndarray, " function"]  # a mean squared error for each function


def error_scores(errors: Mapping[str, Errors], name: str) -> dict[str, float]:
    """A predictor's error, error rate and R^2.

    All that vary with the sample are resampled together.

    Args:
        errors: of predictors on the same prompts, by name; those of references among them.
        name: of the predictor.
    """
    own = errors[name]
    error = resampling.bootstrap(lambda mean: mean, own, positive=True)
    found = {"error": error.value, "low": error.low, "high": error.high}
    best = reference.best_of(errors)
    if best:
        found |= _error_rate(own, errors[best], errors[NOTHING])

    # Labels of 0 have no variance to explain.
    found["r2"] = math.nan
    nothing = errors[uninformed(errors)]
    variance = float(nothing.mean())
    if variance:
        missed = error.value / variance
        found["r2"] = 1 - missed
    return found


def _error_rate(own: Errors, best: Errors, zero: Errors) -> dict[str, float]:
    """Error / |best - zero|, with its interval; NaN where the best is no better than zero."""
    found: dict[str, float] = dict.fromkeys(("error_rate", "rate_low", "rate_high"), math.nan)
    if not best.mean() < zero.mean():
        return found

    def rate(own: np.ndarray, best: np.ndarray, zero: np.ndarray) -> np.ndarray:
        span = np.abs(best - zero)
        return own / span

    interval = resampling.bootstrap(rate, own, best, zero, positive=True)
    found["error_rate"] = interval.value
    found["rate_low"] = interval.low
    found["rate_high"] = interval.high
    return found


def explained(
    name: str, own: Errors, nothing: Errors, best: Errors | None = None
) -> dict[str, float]:
    """Where errors lie between those without examples (0) and the best ones (1), with the interval.

    The interval is over functions.

    Args:
        name: of the share; its interval is under `name_low` and `name_high`.
        own: errors of the predictor.
        nothing: errors of the prediction without examples.
        best: errors of the best prediction; 0 by default, which makes the share R^2.
    """
    if best is None:
        best = np.zeros_like(own)

    def share(own: np.ndarray, nothing: np.ndarray, best: np.ndarray) -> np.ndarray:
        missed = own - best
        possible = nothing - best
        return r_squared(missed, possible, empty=math.nan)

    interval = resampling.bootstrap(share, own, nothing, best)
    found = {name: interval.value}
    found[f"{name}_low"] = interval.low
    found[f"{name}_high"] = interval.high
    return found
