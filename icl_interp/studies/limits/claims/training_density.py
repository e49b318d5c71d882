"""The claim of `limits` that models are better on intervals that hold more of their training.

It is about kinds of training, so it compares groups of several seeds, one for each U(-a, a).
"""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import NamedTuple

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Found, at_least, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval
from icl_interp.studies.limits.claims import kinds
from icl_interp.studies.limits.claims.kinds import LARGER, SCOPE, SMALLER, Arm
from icl_interp.studies.limits.claims.training_intervals import (
    by_interval,
    compared,
    needs_an_interval,
    rows_left_out,
    runs_compared,
    too_few,
)
from icl_interp.studies.limits.measurements import seeds

HALF = 0.5  # share of comparisons up to which the order is not the claimed one

CRITERION = Criterion(
    (
        Condition(
            "share",
            "share of comparisons in which models that saw more of an interval err less on it",
            at_least(1.0),
            at_most(HALF),
            unit="share",
        ),
    ),
    kinds.PRECONDITIONS,
    terms="A comparison is between two training intervals, on one test interval U(-sigma, sigma). "
    "Models have seen more of it if their own interval overlaps more with it. The ends of the "
    f"share's interval count only clear comparisons, with errors at most {SMALLER} or at least "
    f"{LARGER} times those of the others.",
)


class Comparison(NamedTuple):
    """Two training intervals, the test interval, and how many times the second's errors are those.

    Attributes:
        a: of the models that saw more of the test interval.
        against: a of the models that saw less of it.
        sigma: of the test interval.
        times: errors of the first over those of the second.
    """

    a: float
    against: float
    sigma: float
    times: Interval


def overlap(a: float, sigma: float) -> float:
    """The share of U(-a, a) and U(-sigma, sigma) that they have in common.

    It is 1 less their total variation.
    """
    return min(a, sigma) / max(a, sigma)


def cells(sizes: Sequence[float], tested: Sequence[float]) -> list[tuple[int, int, float]]:
    """(arm that saw more of the test interval, arm that saw less, test interval), arms by place."""
    found = []
    for sigma in tested:
        shares = [overlap(a, sigma) for a in sizes]
        for i, j in permutations(range(len(sizes)), 2):
            if shares[i] > shares[j] * (1 + 1e-9):
                found.append((i, j, sigma))
    return found


def _all_tested(arms: Sequence[Arm], column: str) -> bool:
    """Whether runs of every arm were measured so."""
    return all(arm.tested(column) for arm in arms)


def _tested(arms: Sequence[Arm]) -> list[float]:
    """The test intervals that are those of the arms, if runs of every arm were tested there."""
    known = filter(len, arms)
    return [arm.a for arm in known if _all_tested(arms, f"both {arm.a:g}")]


def _columns(arms: Sequence[Arm]) -> list[str]:
    """The errors on these intervals: with functions and inputs scaled, and with functions alone."""
    found = []
    for prefix in ("both", "alone"):
        for sigma in _tested(arms):
            column = f"{prefix} {sigma:g}"
            if _all_tested(arms, column):
                found.append(column)
    return found


def comparisons(arms: Sequence[Arm], prefix: str, fresh: bool = False) -> list[Comparison]:
    """Of any two arms on every test interval, if they were tested there."""
    sizes = [arm.a for arm in arms]
    found = []
    for i, j, sigma in cells(sizes, _tested(arms)):
        column = f"{prefix} {sigma:g}"
        if arms[0].tested(column):
            times = kinds.times(arms[i], arms[j], column, fresh)
            found.append(Comparison(sizes[i], sizes[j], sigma, times))
    return found


def ordered(found: Sequence[Comparison]) -> Interval:
    """Share of comparisons in which the arm that saw more of the test interval errs less.

    Its ends count as many of them as are clear: low those in which errors are at most `SMALLER`
    times the other arm's, high all but those in which they are at least `LARGER` times.
    """
    smaller = 0
    clear = 0
    reverse = 0
    for one in found:
        smaller += one.times.value < 1
        clear += one.times.high <= SMALLER
        reverse += one.times.low >= LARGER
    n = len(found)
    return Interval(smaller / n, clear / n, 1 - reverse / n)


def _compared(results: Results) -> tuple[list[Arm], list[str], dict[str, Found]]:
    """The arms, the errors that are compared, and the quantities of the preconditions."""
    arms, _ = by_interval(results)
    columns = _columns(arms) or ["both"]  # where no interval was tested, no run has a number
    return arms, columns, kinds.prepared(arms, columns)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How often models are the better on an interval the more of it they were trained on."""
    arms, _, found = _compared(results)
    if kinds.comparable(found):
        found["share"] = ordered(comparisons(arms, "both"))
    return found


def untrained(results: Results, facts: Facts) -> dict[str, Found]:
    """The same of untrained models."""
    arms, columns, found = _compared(results)
    both = [column for column in columns if column.startswith("both")]
    fresh = kinds.untrained(arms, both)
    if fresh is None or not kinds.comparable(found):
        return {}
    return {"share": ordered(comparisons(fresh, "both", fresh=True))}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The runs, every comparison, and the order where functions alone are scaled."""
    arms, out = by_interval(results)
    if not kinds.comparable(found):
        return too_few(arms, out)
    rows = map(_row, comparisons(arms, "both"))
    runs = runs_compared(arms, _columns(arms))
    alone = ordered(comparisons(arms, "alone")) if len(arms) > 1 else found["share"]
    name = "in the claimed order with functions alone scaled, as in the paper's Table 3"
    table_3 = {name: alone.value}
    return Remarks(
        scope=f"{SCOPE}, inputs and functions from U(-sigma, sigma)",
        caveat=compared(arms),
        details=(*runs, *rows, table_3, *rows_left_out(out)),
    )


def _row(one: Comparison) -> kinds.Row:
    row: kinds.Row = {"trained on a": one.a, "against a": one.against}
    row["tested on U(-sigma, sigma), sigma"] = one.sigma
    row["errors, times"] = one.times.value
    row["low"] = one.times.low
    row["high"] = one.times.high
    return row


TRAINING_DENSITY_CLAIM = Claim(
    id="limits.training_density",
    question="weights and training",
    statement="Models are better on intervals that hold more of their training data.",
    denied="Models are often not better on intervals that hold more of their training data.",
    quote=Quote(
        "Models have better performance over intervals that contain a larger proportion of "
        "examples in the training distribution.",
        "Naim & Asher (2025), appendix E, Observation 3 (i), with Table 3 (appendix C)",
        "Table 3 changes the functions alone and keeps inputs inside [-1, 1]. We change both. The "
        "proportion is how much the interval of training and the interval of the test overlap. "
        "Each kind has several seeds.",
    ),
    kind="learning",
    reads="models of several kinds of training",
    beside=("interval",),
    seeds=kinds.SEEDS,
    criterion=CRITERION,
    measurements=(seeds.intervals,),
    aspects=("kind of task",),
    evidence=evidence,
    remarks=remarks,
    untrained=untrained,
    of_numbers=True,
    excluded=needs_an_interval,
    figures=("shift",),
)
