"""Figure 3 of Naim & Asher (2025): error rate against sigma, a model for each degree."""

from collections.abc import Mapping, Sequence
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
    if setup.has(WIDE, BY_DEGREE[1]):
        matrix = setup.errors([WIDE, BY_DEGREE[1]], polynomials(setup.preset, 1), SIGMAS)
        results["width"] = errors.ratios(matrix, [(WIDE, BY_DEGREE[1])])
    return results


def own_degrees(setup: Setup, models: dict[int, str], law: str) -> DataFrame:
    """Errors of each model on the degree that it was trained on."""
    tables = [
        errors.table(
            setup.errors([name], polynomials(setup.preset, degree, law), SIGMAS), degree=degree
        )
        for degree, name in models.items()
        if setup.has(name)
    ]
    return errors.joined(tables)


def states_rates(results: Results) -> tuple[Statement, ...]:
    """Are degrees alike, and does the error rate rise with sigma?

    Models that have not learned are left out.
    """
    stored = [
        row
        for row in errors.rows_of(results, "errors")
        if row["predictor"] not in ("least squares", "zero")
    ]
    if not stored:
        return (note("None of the models is at hand."),)
    curves: dict[str, dict[float, Mapping[str, Any]]] = {}
    for row in stored:
        curves.setdefault(row["predictor"], {})[row["sigma"]] = row
    first, last = SIGMAS[0], SIGMAS[-1]
    each = ", ".join(f"{name} {curve[first]['error_rate']:.2g}" for name, curve in curves.items())
    lines = [note(f"Error rates at sigma {first}: {each}.")]
    if not curves.keys() & set(GAUSSIAN.values()):
        lines.append(_proposition_1([curve[first] for curve in curves.values()]))
    # At sigma 1 every model is on the law that it was trained on.
    learned = {name: curve for name, curve in curves.items() if curve[first]["r2"] > LEARNED_R2}
    if len(learned) < len(curves):
        left_out = ", ".join(
            f"{k} ({c[first]['r2']:.2f})" for k, c in curves.items() if k not in learned
        )
        lines.append(
            note(
                f"Left out of what follows, as R² at sigma {first} is not above {LEARNED_R2:g}: "
                f"{left_out}."
            )
        )
    if len(learned) > 1:
        printed_too = not learned.keys() & set(GAUSSIAN.values())
        for sigma in COMPARED:
            here = [curve[sigma] for curve in learned.values()]
            factor = _factor(here)
            text = (
                f"at sigma {sigma} the error rates of the degrees, one run of each, differ by a "
                f'factor of {factor_text(factor)} ("roughly the same").'
                + (
                    " The paper prints two decimals, all 0.0 there."
                    if sigma == first and printed_too
                    else ""
                )
            )
            largest = max(row["error_rate"] for row in here)
            lines.append(statement(text, ALIKE_RATES, factor, given={RATE: largest}))
    if learned:
        rises = [
            k for k, c in learned.items() if all(np.diff([c[s]["error_rate"] for s in SIGMAS]) > 0)
        ]
        text = (
            f"the error rate rises with every step of sigma for {len(rises)} of {len(learned)} "
            "models."
        )
        lines.append(statement(text, RISES, len(learned) - len(rises)))
    lines += _width(results)
    lines += map(note, errors.in_numbers(compare_rates(results)))
    worse = [
        name
        for name, curve in curves.items()
        if max(row["error_rate"] for row in curve.values()) > 1
    ]
    if worse:
        lines.append(
            note(
                f"Beyond the zero predictor (error rate above 1) somewhere up to sigma {last}: "
                f"{', '.join(worse)}."
            )
        )
    return tuple(lines)


def _proposition_1(rows: Sequence[Mapping[str, Any]]) -> Statement:
    """How many of the models err as little as least squares on polynomials of their degree."""
    close = [row for row in rows if row["rate_high"] <= NEAR]
    rates = [Interval(row["error_rate"], row["rate_low"], row["rate_high"]) for row in rows]
    text = (
        f"Proposition 1: {len(close)} of {len(rows)} models are in line with least squares on "
        f"polynomials of their degree, one run of each: their error rate is at most {NEAR}."
    )
    return statement(text, MATCHES, *rates)


def _factor(rows: Sequence[Mapping[str, Any]]) -> Interval:
    """Largest over smallest error rate; the interval is what the intervals of all of them allow."""
    value, low, high = (
        [row[key] for row in rows] for key in ("error_rate", "rate_low", "rate_high")
    )
    return Interval(max(value) / min(value), max(1.0, max(low) / min(high)), max(high) / min(low))


def _width(results: Results) -> list[Statement]:
    """Section 5, footnote 3, about the size of models.

    The paper: "increasing model size from 22.5M to 38M parameters did not significantly improve".
    """
    rows = [row for row in errors.rows_of(results, "width") if row["sigma"] > 1]
    if not rows:
        return []
    better = [row["sigma"] for row in rows if row["high"] < -np.log10(WIDER_HELPS)]
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
