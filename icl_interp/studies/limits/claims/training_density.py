"""The claim of `limits` that models are better on intervals that hold more of their training.

It is about kinds of training, so it compares groups of several seeds, one for each U(-a, a).
"""

from collections.abc import Sequence
from itertools import permutations

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval
from icl_interp.studies.limits.claims import kinds
from icl_interp.studies.limits.claims.kinds import LARGER, SCOPE, SMALLER, Arm
from icl_interp.studies.limits.claims.training_intervals import (
    by_interval,
    listed,
    needs_an_interval,
    rows_left_out,
    too_few,
)
from icl_interp.studies.limits.measurements import seeds

HALF = 0.5  # share of comparisons up to which the order is not the claimed one


def overlap(a: float, sigma: float) -> float:
    """The share of U(-a, a) and U(-sigma, sigma) that they have in common.

    It is 1 less their total variation.
    """
    return min(a, sigma) / max(a, sigma)


def cells(sizes: Sequence[float], tested: Sequence[float]) -> list[tuple[int, int, float]]:
    """(arm that saw more of the test interval, arm that saw less, test interval), arms by place."""
    return [
        (i, j, sigma)
        for sigma in tested
        for i, j in permutations(range(len(sizes)), 2)
        if overlap(sizes[i], sigma) > overlap(sizes[j], sigma) * (1 + 1e-9)
    ]


def _tested(arms: Sequence[Arm]) -> list[float]:
    """The test intervals that are those of the arms, if runs of every arm were tested there."""
    return [
        arm.a for arm in arms if len(arm) and all(other.tested(f"both {arm.a:g}") for other in arms)
    ]


def _columns(arms: Sequence[Arm]) -> list[str]:
    """The errors on these intervals: with functions and inputs scaled, and with functions alone."""
    names = [f"{prefix} {sigma:g}" for prefix in ("both", "alone") for sigma in _tested(arms)]
    return [name for name in names if all(arm.tested(name) for arm in arms)]


def ordered(
    arms: Sequence[Arm], prefix: str, fresh: bool = False
) -> tuple[Estimate, list[tuple[tuple[float, float, float], Interval]]]:
    """Share of comparisons in which the arm that saw more of the test interval errs less.

    Its ends count as many of them as are clear: low those in which errors are at most `SMALLER`
    times the other arm's, high all but those in which they are at least `LARGER` times. Beside it
    the comparisons: the two training intervals, the test interval, and how many times the errors of
    the first are those of the second.
    """
    sizes, found = [arm.a for arm in arms], []
    for i, j, sigma in cells(sizes, _tested(arms)):
        column = f"{prefix} {sigma:g}"
        if arms[0].tested(column):
            found.append(
                ((sizes[i], sizes[j], sigma), kinds.times(arms[i], arms[j], column, fresh))
            )
    n = len(found)
    smaller = sum(one.value < 1 for _, one in found) / n
    clear = sum(one.high <= SMALLER for _, one in found) / n
    reversed_ = sum(one.low >= LARGER for _, one in found) / n
    return Estimate(
        "comparisons in the claimed order", smaller, clear, 1 - reversed_, "share"
    ), found


DENSITY = Criterion(
    (Condition("share", "", (1.0, INF), (-INF, HALF)),),
    kinds.PRECONDITIONS,
    terms=(
        "share of comparisons (two training intervals, one test interval U(-sigma, sigma)) in which "
        "the models whose training interval overlaps more with the test's have the smaller errors; "
        f"clear are those in which errors are at most {SMALLER} or at least {LARGER} times the other "
        "models', unclear ones count both ways: all / at most half"
    ),
)


def density(results: Results, facts: Facts) -> Evidence:
    """Are runs the better on an interval the more of it was in their training distribution?"""
    arms, out = by_interval(results)
    columns = _columns(arms) or ["both"]  # where no interval was tested, no run has a number
    quantities = kinds.prepared(arms, columns)
    if not kinds.comparable(quantities):
        return Evidence(quantities, too_few(arms), scope=SCOPE, details=rows_left_out(arms, out))
    found, pairs = ordered(arms, "both")
    alone, _ = ordered(arms, "alone") if len(arms) > 1 else (found, [])
    quantities["share"] = found
    first = answer(
        DENSITY,
        quantities,
        "Models are better on intervals that hold more of their training data.",
        "Models are often not better on intervals that hold more of their training data.",
        "models are better on intervals that hold more of their training data",
    )
    says = (
        f"{first} In {found.value:.0%} of {len(pairs)} comparisons on one test interval, clearly "
        f"in {found.low:.0%}, models that saw more of it have the smaller errors "
        f"({bound(DENSITY, quantities, 'share', 'all', f'at most {HALF:.0%}')})."
    )
    caveat = f"Compared are models trained on U(-a, a), a = {listed(arms)}, {kinds.counted(arms)}."
    fresh = kinds.untrained(arms, [column for column in columns if column.startswith("both")])
    compared = tuple(
        {
            "trained on a": i,
            "against a": j,
            "tested on U(-sigma, sigma), sigma": sigma,
            "errors, times": one.value,
            "low": one.low,
            "high": one.high,
        }
        for (i, j, sigma), one in pairs
    )
    table_3 = {
        "in the claimed order with functions alone scaled, as in the paper's Table 3": alone.value
    }
    return Evidence(
        quantities,
        says,
        scope=f"{SCOPE}, inputs and functions from U(-sigma, sigma)",
        control={"share": ordered(fresh, "both", fresh=True)[0]} if fresh else {},
        details=(
            *kinds.details(arms, [f"a = {arm.a:g}" for arm in arms], columns),
            *compared,
            table_3,
            *rows_left_out([], out),
        ),
        caveat=caveat,
    )


TRAINING_DENSITY_CLAIM = Claim(
    id="limits.training_density",
    question="weights and training",
    short="Models are better on intervals that hold more of their training data.",
    quote=Quote(
        "Models have better performance over intervals that contain a larger proportion of "
        "examples in the training distribution.",
        "Naim & Asher (2025), appendix E, Observation 3 (i), with Table 3 (appendix C)",
        "Table 3 changes the functions alone and keeps inputs inside [-1, 1]. We change both, and "
        "take as"
        " the proportion how much the interval of training and the interval of the test overlap. "
        "Each kind has several seeds.",
    ),
    kind="learning",
    statement="Models are better on intervals that hold more of their training distribution",
    source="Naim & Asher (2025), Observation 3 and Table 3",
    criterion=DENSITY,
    measurements=(seeds.intervals,),
    aspects=("kind of task",),
    evidence=density,
    of_numbers=True,
    excluded=needs_an_interval,
    figures=("shift",),
)
