"""Figure 3 of Naim & Asher (2025): error rate against sigma, a model for each degree."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from pandas import DataFrame

from icl_interp.analyses.claim import LEARNED_R2
from icl_interp.analyses.criterion import Precondition
from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.errors import SIGMAS
from icl_interp.experiments.presets import polynomials
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_most, none_of, note, statement
from icl_interp.resampling import Interval
from icl_interp.results import Result
from icl_interp.studies.limits.claims.error_rates import ALIKE
from icl_interp.studies.limits.claims.matches_least_squares import FAR, NEAR
from icl_interp.studies.limits.experiments import settings
from icl_interp.studies.limits.experiments.figure2 import compare_rates, factor_text
from icl_interp.studies.limits.experiments.printed import PAPER
from icl_interp.studies.limits.experiments.table2 import BY_DEGREE

GAUSSIAN = {1: "affine_gaussian", 2: "degree_2_gaussian", 3: "degree_3_gaussian"}

# Predicting 0 is alike on all degrees, and as good as itself: what says something are models that
# do better.
RATE = "largest error rate"

ALIKE_RATES = at_most(
    "error rate / error rate",
    ALIKE,
    None,
    Precondition(
        RATE,
        (0.0, 0.5),
        "The largest rate is {value:.2f}, so near that of predicting 0 that all models are alike "
        "there.",
    ),
)

COMPARED = (1, 3, 10)  # sigmas at which degrees are compared

RISES = none_of("models whose error rate falls somewhere")

# Proposition 1, counted: the rule of the claim `limits.matches_least_squares`. Least squares makes
# no error at sigma 1, and the error is relative to predicting 0.
MATCHES = at_most("largest error rate at sigma 1", NEAR, FAR)

WIDE = "affine_wide"

WIDER_HELPS = 1.25  # an error that width makes smaller by less than this counts as not improved

WIDTH = none_of("sigmas at which width helps")


def run_figure3(setup: Setup) -> dict[str, Result]:
    """M1 to M6, each on its own degree; at the paper's scale also M1 at twice the width."""
    results: dict[str, Result] = {"errors": own_degrees(setup, BY_DEGREE, "uniform")}
    narrow = BY_DEGREE[1]
    if setup.has(WIDE, narrow):
        task = polynomials(setup.preset, 1)
        matrix = setup.errors([WIDE, narrow], task, SIGMAS)
        results["width"] = errors.ratios(matrix, [(WIDE, narrow)])
    return results


def own_degrees(setup: Setup, models: dict[int, str], law: str) -> DataFrame:
    """Errors of each model on the degree that it was trained on."""
    tables = []
    for degree, name in models.items():
        if setup.has(name):
            task = polynomials(setup.preset, degree, law)
            matrix = setup.errors([name], task, SIGMAS)
            tables.append(errors.table(matrix, degree=degree))
    return errors.joined(tables)


# The rows of one model, by sigma.
Curve = dict[float, Mapping[str, Any]]


def states_rates(results: Results) -> tuple[Statement, ...]:
    """Are degrees alike, and does the error rate rise with sigma?

    Models that have not learned are left out.
    """
    curves = _curves(results)
    if not curves:
        return (note("None of the models is at hand."),)
    first = SIGMAS[0]
    each = ", ".join(f"{name} {curve[first]['error_rate']:.2g}" for name, curve in curves.items())
    lines = [note(f"Error rates at sigma {first}: {each}.")]
    if not _any_gaussian(curves):
        lines.append(_proposition_1(_rows_at(curves, first)))
    # At sigma 1 every model is on the law that it was trained on.
    learned = {}
    left_out = []
    for name, curve in curves.items():
        r2 = curve[first]["r2"]
        if r2 > LEARNED_R2:
            learned[name] = curve
        else:
            left_out.append(f"{name} ({r2:.2f})")
    if left_out:
        text = (
            f"Left out of what follows, as R² at sigma {first} is not above {LEARNED_R2:g}: "
            f"{', '.join(left_out)}."
        )
        lines.append(note(text))
    if len(learned) > 1:
        lines += _alike(learned)
    if learned:
        lines.append(_rises(learned))
    lines += _width(results)
    lines += map(note, errors.in_numbers(compare_rates(results)))
    lines += _beyond_zero(curves)
    return tuple(lines)


def _rows_at(curves: Mapping[str, Curve], sigma: float) -> list[Mapping[str, Any]]:
    """The row of each model at this sigma."""
    return [curve[sigma] for curve in curves.values()]


def _column(rows: Iterable[Mapping[str, Any]], key: str) -> list[float]:
    """One number of each row."""
    return [row[key] for row in rows]


def _curves(results: Results) -> dict[str, Curve]:
    """The rows of each model by sigma, without the references."""
    curves: dict[str, Curve] = {}
    for row in errors.rows_of(results, "errors"):
        name = row["predictor"]
        if name in ("least squares", "zero"):
            continue
        curve = curves.setdefault(name, {})
        curve[row["sigma"]] = row
    return curves


def _any_gaussian(curves: Mapping[str, Curve]) -> bool:
    """Whether some of the models were trained on Gaussian coefficients."""
    return bool(curves.keys() & set(GAUSSIAN.values()))


def _alike(learned: Mapping[str, Curve]) -> list[Statement]:
    """By how much the error rates of the degrees differ, sigma by sigma."""
    lines = []
    for sigma in COMPARED:
        here = _rows_at(learned, sigma)
        factor = _factor(here)
        text = (
            f"at sigma {sigma} the error rates of the degrees, one run of each, differ by a "
            f'factor of {factor_text(factor)} ("roughly the same").'
        )
        if sigma == SIGMAS[0] and not _any_gaussian(learned):
            text += " The paper prints two decimals, all 0.0 there."
        largest = max(_column(here, "error_rate"))
        lines.append(statement(text, ALIKE_RATES, factor, given={RATE: largest}))
    return lines


def _rises(learned: Mapping[str, Curve]) -> Statement:
    """For how many models the error rate rises with every step of sigma."""
    n_rising = 0
    for curve in learned.values():
        rates = [curve[sigma]["error_rate"] for sigma in SIGMAS]
        n_rising += all(np.diff(rates) > 0)
    text = f"the error rate rises with every step of sigma for {n_rising} of {len(learned)} models."
    return statement(text, RISES, len(learned) - n_rising)


def _beyond_zero(curves: Mapping[str, Curve]) -> list[Statement]:
    """The models that are somewhere worse than predicting 0."""
    worse = []
    for name, curve in curves.items():
        if max(_column(curve.values(), "error_rate")) > 1:
            worse.append(name)
    if not worse:
        return []
    text = (
        f"Beyond the zero predictor (error rate above 1) somewhere up to sigma {SIGMAS[-1]}: "
        f"{', '.join(worse)}."
    )
    return [note(text)]


def _proposition_1(rows: Sequence[Mapping[str, Any]]) -> Statement:
    """How many of the models err as little as least squares on polynomials of their degree."""
    n_close = 0
    rates = []
    for row in rows:
        n_close += row["rate_high"] <= NEAR
        rates.append(Interval(row["error_rate"], row["rate_low"], row["rate_high"]))
    text = (
        f"Proposition 1: {n_close} of {len(rows)} models are in line with least squares on "
        f"polynomials of their degree, one run of each: their error rate is at most {NEAR}."
    )
    return statement(text, MATCHES, *rates)


def _factor(rows: Sequence[Mapping[str, Any]]) -> Interval:
    """Largest over smallest error rate; the interval is what the intervals of all of them allow."""
    rates = _column(rows, "error_rate")
    lows = _column(rows, "rate_low")
    highs = _column(rows, "rate_high")
    value = max(rates) / min(rates)
    least = max(1.0, max(lows) / min(highs))
    most = max(highs) / min(lows)
    return Interval(value, least, most)


def _width(results: Results) -> list[Statement]:
    """Section 5, footnote 3, about the size of models.

    The paper: "increasing model size from 22.5M to 38M parameters did not significantly improve".
    """
    rows = [row for row in errors.rows_of(results, "width") if row["sigma"] > 1]
    if not rows:
        return []
    improved = -np.log10(WIDER_HELPS)
    better = [row["sigma"] for row in rows if row["high"] < improved]
    where = f"at sigma {errors.sigmas_text(better)}" if better else "at no sigma from 2 to 10"
    text = (
        f"twice the width makes the error smaller by more than {WIDER_HELPS - 1:.0%} {where} (one "
        "run of each)."
    )
    return [statement(text, WIDTH, len(better))]


FIGURE3_EXPERIMENT = Experiment(
    "limits.figure3",
    "Error rate against sigma, a model for each degree",
    f"{PAPER}, section 5, Figure 3",
    (*(Model(name) for name in BY_DEGREE.values()), Model(WIDE, scales=("paper",))),
    run_figure3,
    states_rates,
    compare_rates,
    settings=settings.SETTINGS["figure3"],
)
