"""The claims of `limits` about the interval that a model was trained on: what it covers, how far out, at what price.

They are about kinds of training, so each compares groups of several seeds (`claims.kinds`), one for
each U(-a, a).
"""

from collections.abc import Sequence
from itertools import permutations

import numpy as np

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval
from icl_interp.results import rows_in
from icl_interp.studies.limits.claims import kinds
from icl_interp.studies.limits.claims.kinds import LARGER, SCOPE, SMALLER, TIMES, Arm
from icl_interp.studies.limits.claims.layernorm import needs_growth
from icl_interp.studies.limits.measurements import seeds
from icl_interp.studies.limits.measurements.shift import SIDES, own_interval

HALF = 0.5  # share of comparisons up to which the order is not the claimed one
GROWN, SHRUNK = 1 / SMALLER, 1 / LARGER  # times: what is a fifth less or more the other way round


def _needs_an_interval(facts: Facts) -> str | None:
    if not any(role.kind == "interval" for role in facts.companions):
        return (
            "The claim compares training intervals; no matched model of another one is at hand "
            "(pass companions=)."
        )
    if own_interval(facts) is None:
        return (
            "The claim is about training on U(-a, a); this model's inputs and coefficients are not "
            "both from one."
        )
    return None


def by_interval(results: Results) -> tuple[list[Arm], str]:
    """Arms that have seeds enough, by their interval, ascending; and which others were left out, in a sentence.

    All of them, the model's own first, where that or all others have too few: then there is nothing
    to say about it.
    """
    table = results[seeds.intervals]
    arms = [Arm.of(table, name) for name in dict.fromkeys(row["arm"] for row in rows_in(table))]
    enough = [arm for arm in arms if len(arm) >= seeds.LEAST]
    out = [_left_out(arm) for arm in arms if arm not in enough]
    said = "; ".join(out)
    asked = len(enough) > 1 and any(arm.name == seeds.OWN for arm in enough)
    return (sorted(enough, key=lambda arm: arm.a) if asked else arms), said


def _left_out(arm: Arm) -> str:
    name = (
        "the model's own kind" if arm.name == seeds.OWN else arm.name.replace("interval ", "a = ")
    )
    return ", ".join(
        filter(None, (f"{name}, {len(arm)} of {seeds.LEAST} seeds", ", ".join(arm.out)))
    )


def overlap(a: float, sigma: float) -> float:
    """The share of U(-a, a) and U(-sigma, sigma) that they have in common: one less their total variation."""
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
    """The test intervals that are those of the arms, as far as runs of every arm were tested there."""
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
    """Share of comparisons in which the arm that saw more of the test interval makes the smaller errors.

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
    "share of comparisons (two training intervals, one test interval U(-sigma, sigma)) in which "
    "the models whose training interval overlaps more with the test's have the smaller errors; "
    f"clear are those in which errors are at most {SMALLER} or at least {LARGER} times the other "
    "models', unclear ones count both ways: all / at most half",
    (Condition("share", (1.0, INF), (-INF, HALF)),),
    kinds.PRECONDITIONS,
)


def density(results: Results, facts: Facts) -> Evidence:
    """Are runs the better on an interval the more of it was in their training distribution?"""
    arms, out = by_interval(results)
    columns = _columns(arms) or ["both"]  # where no interval was tested, no run has a number
    quantities = kinds.prepared(arms, columns)
    if not kinds.comparable(quantities):
        return Evidence(quantities, _too_few(arms), scope=SCOPE, details=_left_out_rows(arms, out))
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
    caveat = f"Compared are models trained on U(-a, a), a = {_listed(arms)}, {kinds.counted(arms)}."
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
        twin={"share": ordered(fresh, "both", fresh=True)[0]} if fresh else {},
        details=(
            *kinds.details(arms, [f"a = {arm.a:g}" for arm in arms], columns),
            *compared,
            table_3,
            *_left_out_rows([], out),
        ),
        caveat=caveat,
    )


def _listed(arms: Sequence[Arm]) -> str:
    return ", ".join(f"{arm.a:g}" for arm in arms)


def _too_few(arms: Sequence[Arm]) -> str:
    what = f"The model's own training interval and another one need {seeds.LEAST} seeds."
    return f"{what} {kinds.how_to_train([arm for arm in arms if len(arm) < seeds.LEAST])}"


def _left_out_rows(arms: Sequence[Arm], out: str) -> tuple[kinds.Row, ...]:
    names = [f"a = {arm.a:g}" if len(arm) else arm.name for arm in arms]
    return (*kinds.left_out(arms, names), *([{"intervals left out": out}] if out else []))


# ---- larger intervals ----------------------------------------------------------------------------

LARGER_INTERVALS = Criterion(
    "from the smallest to the largest training interval at hand: the |x| from which the prediction "
    f"is level, and the error on the smallest interval, both at least {GROWN:g} times / one of "
    f"them at most {SHRUNK:.2f} times",
    (
        Condition("onset", (GROWN, INF), (0.0, SHRUNK), "log"),
        Condition("cost", (GROWN, INF), (0.0, SHRUNK), "log"),
    ),
    (
        *kinds.PRECONDITIONS,
        Precondition(
            "no plateau",
            (0, 0),
            "Of these models {value:.0f} are not level by 1e5 times their inputs' range.",
            optional=True,
        ),
    ),
)


def onset(arm: Arm, fresh: bool = False) -> np.ndarray:
    """|x| from which the prediction of each run is level: the geometric mean of both directions."""
    return np.exp(np.mean([np.log(arm.numbers(side, fresh)) for side in SIDES], axis=0))


def larger(results: Results, facts: Facts) -> Evidence:
    """Do larger training intervals move the plateau's onset outwards, and is accuracy the price?"""
    arms, out = by_interval(results)
    first, last = (arms[0], arms[-1]) if all(map(len, arms)) else (None, None)
    column = f"both {first.a:g}" if first else ""
    quantities = kinds.prepared(arms, [column] if first else [])
    if not (first and last and kinds.comparable(quantities)):
        return Evidence(quantities, _too_few(arms), scope=SCOPE, details=_left_out_rows(arms, out))
    onsets = [onset(arm) for arm in arms]
    never = sum(int(np.isnan(found).sum()) for found in onsets)
    quantities["no plateau"] = Estimate.exactly("models whose prediction does not level off", never)
    if never:
        return Evidence(
            quantities,
            f"So nothing was compared for models trained on a = {_listed(arms)}.",
            scope=SCOPE,
            details=_left_out_rows([], out),
        )
    grown, cost = kinds.ratio(onsets[-1], onsets[0]), kinds.times(last, first, column)
    means = [float(np.exp(np.log(found).mean())) for found in onsets]
    names = (
        "|x| from which the prediction is level, largest / smallest interval",
        "error on the smallest interval, largest / smallest interval",
    )
    quantities |= {
        "onset": Estimate.of(names[0], grown, TIMES),
        "cost": Estimate.of(names[1], cost, TIMES),
    }
    first_words = answer(
        LARGER_INTERVALS,
        quantities,
        "With larger training intervals the prediction levels off farther out, at a cost in "
        "accuracy.",
        {
            "onset": "With larger training intervals the prediction does not level off farther "
            "out.",
            "cost": "Larger training intervals do not cost accuracy.",
        },
        "larger training intervals make it level off farther out, at a cost in accuracy",
    )
    onset_limits = bound(
        LARGER_INTERVALS, quantities, "onset", f"at least {GROWN:g}", f"at most {SHRUNK:.2f}"
    )
    outwards = (
        f"From a = {first.a:g} to {last.a:g} the |x| from which it is level grows "
        f"{kinds.in_brackets(grown)} times ({onset_limits})."
    )
    cost_limits = bound(
        LARGER_INTERVALS, quantities, "cost", f"at least {GROWN:g}", f"at most {SHRUNK:.2f}"
    )
    price = (
        f"The error on U(-{first.a:g}, {first.a:g}) grows {kinds.in_brackets(cost)} times "
        f"({cost_limits})."
    )
    decided = LARGER_INTERVALS.decide(quantities).condition
    if decided and decided.quantity == "cost":
        price = f"From a = {first.a:g} to {last.a:g} t{price[1:]}"
        outwards, price = (
            price,
            f"The |x| from which the prediction is level grows {kinds.in_brackets(grown)} times.",
        )
    says = f"{first_words} {outwards}"
    in_a = tuple(
        {"kind": f"a = {arm.a:g}", "level from |x| / a": x / arm.a}
        for arm, x in zip(arms, means, strict=True)
    )
    twin = {}
    if fresh := kinds.untrained((last, first), [column]):
        wide, narrow = fresh
        twin["cost"] = Estimate.of(names[1], kinds.times(wide, narrow, column, fresh=True), TIMES)
    if fresh := kinds.untrained((last, first), list(SIDES)):
        wide, narrow = (onset(arm, fresh=True) for arm in fresh)
        twin["onset"] = Estimate.of(names[0], kinds.ratio(wide, narrow), TIMES)
    return Evidence(
        quantities,
        says,
        scope=f"{SCOPE}, {kinds.counted(arms)}, the |x| measured by moving the query alone",
        twin=twin,
        details=(
            *kinds.details(arms, [f"a = {arm.a:g}" for arm in arms], [*SIDES, column]),
            *in_a,
            *_left_out_rows([], out),
        ),
        caveat=price,
    )


def _needs_an_onset(facts: Facts) -> str | None:
    return _needs_an_interval(facts) or needs_growth(facts)


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
    excluded=_needs_an_interval,
    figures=("shift",),
)

LARGER_INTERVALS_CLAIM = Claim(
    id="limits.larger_intervals",
    question="far from the data",
    short="Larger training intervals move boundary values outwards but cost accuracy.",
    quote=Quote(
        "Training with distributions over much larger intervals, for instance U(-100, 100), can "
        "extend boundary values. However, as shown in Table 3, such training comes at a "
        "substantial cost: performance deteriorates sharply across all testing scenarios we "
        "considered.",
        "Naim & Asher (2025), section 5, with Table 3 (appendix C; also appendix E, Observation 3 "
        "(ii))",
        "The paper's Table 3 gives errors only. We compare models trained on U(-a, a) for several "
        "a and measure, over several seeds, how far out the prediction levels off and the error on "
        "the smallest interval. Ours on U(-100, 100) has not learned its task and is left out.",
    ),
    kind="learning",
    statement="Training on larger intervals moves the boundary values outwards, at a cost in "
    "accuracy",
    source="Naim & Asher (2025), section 5, Table 3 and Observation 3 (ii)",
    criterion=LARGER_INTERVALS,
    measurements=(seeds.intervals,),
    aspects=("kind of task",),
    evidence=larger,
    of_numbers=True,
    excluded=_needs_an_onset,
    figures=("shift",),
)
