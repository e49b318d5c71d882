"""Table 3 of Naim & Asher (2025): models trained on wider intervals, tested on U(-1, 1)."""

from collections.abc import Mapping
from itertools import combinations, pairwise

import numpy as np
from pandas import DataFrame

from icl_interp.analyses.claim import LEARNED_R2
from icl_interp.analyses.criterion import Estimate
from icl_interp.experiments import errors, statements
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.errors import SIGMAS
from icl_interp.experiments.presets import polynomials
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_least, note
from icl_interp.results import Result, table_of_rows
from icl_interp.studies.limits.experiments import printed, settings
from icl_interp.studies.limits.experiments.printed import PAPER
from icl_interp.studies.limits.experiments.runs import (
    COMPARABLE,
    HIGHER,
    LOWER,
    comparable,
    errors_by_sigma,
    own_r2,
    seeds,
    times,
)

RUNS = {
    "U(-1,1)": seeds("affine"),
    "U(-5,5)": seeds("affine_u5"),
    "U(-10,10)": seeds("affine_u10"),
    "U(-100,100)": (Model("affine_u100"),),
}
NEAR, FAR = SIGMAS[0], SIGMAS[-1]
STEP = at_least("error / error", HIGHER, LOWER, *COMPARABLE)
ORDER = statements.share(
    "share of pairs of training intervals (by sigma) in the paper's order", *COMPARABLE
)
Arms = Mapping[
    str, Mapping[float, list[float]]
]  # errors of the runs, by training interval and sigma
R2 = Mapping[str, list[float]]  # of the runs, on the law that they were trained on


def run(setup: Setup) -> dict[str, Result]:
    """Errors of every run, means by interval, and each run's R2 on the law of its training."""
    names = {
        interval: setup.among([model.name for model in models]) for interval, models in RUNS.items()
    }
    every = [name for arm in names.values() for name in arm]
    results: dict[str, Result] = {
        "errors": errors.table(
            errors.pooled(setup.errors(every, polynomials(setup.preset, 1), SIGMAS), names)
        )
    }
    rows = [
        {"trained on": interval, "model": name, "r2": own_r2(setup, name)}
        for interval, arm in names.items()
        for name in arm
    ]
    return results | (
        {"own range": table_of_rows(rows, "on the law that the model was trained on")}
        if rows
        else {}
    )


def compare(results: Results) -> DataFrame | None:
    """The paper's four rows."""
    rows = []
    for interval in RUNS:
        ours = errors.rows_of(results, "errors", predictor=interval)
        rows += errors.side_by_side(
            printed.errors("limits.table3", trained_on=interval), ours, **{"trained on": interval}
        )
    what = "inputs on U(-1, 1) for all; ours: means over runs, intervals over functions"
    return errors.as_table(rows, f"{printed.SOURCES['limits.table3']}; {what}")


def states(results: Results) -> tuple[Statement, ...]:
    """Accuracy near, reach far out, and the order between.

    A model that has not learned is left out, and a statement says of what.
    """
    r2 = {
        i: [row["r2"] for row in errors.rows_of(results, "own range", **{"trained on": i})]
        for i in RUNS
    }
    here = {
        interval: errors_by_sigma(results, RUNS[interval])
        for interval, found in r2.items()
        if found
    }
    learned = {interval: arm for interval, arm in here.items() if min(r2[interval]) > LEARNED_R2}
    if len(learned) < 2:
        return (
            note(
                "Fewer than two of the kinds of model are at hand and have learned, so nothing is "
                "compared."
            ),
        )
    steps = list(pairwise(learned))
    n = ", ".join(f"{len(arm[NEAR])} on {interval}" for interval, arm in learned.items())
    lines = [
        *(_step(here, r2, NEAR, wide, narrow) for narrow, wide in steps),
        *(_step(here, r2, FAR, narrow, wide) for narrow, wide in steps),
        _order(learned, r2),
        note(f"Runs of each kind: {n}. What decides are exact permutation intervals over runs."),
        *(
            _step(here, r2, NEAR, interval, next(iter(here)))
            for interval in here
            if interval not in learned
        ),
        _growth(learned),
    ]
    whole = compare(results)
    rows = (
        []
        if whole is None
        else [row for row in whole.to_dict("records") if row["trained on"] in learned]
    )
    return (*lines, *map(note, errors.in_numbers(errors.as_table(rows, ""))))


def _comparable(r2: R2, *intervals: str) -> dict[str, Estimate]:
    return comparable([[1 - value for value in r2[interval]] for interval in intervals])


def _step(arms: Arms, r2: R2, sigma: float, worse: str, better: str) -> Statement:
    """At one sigma, the interval that should have the larger errors against the other."""
    found = times(arms[worse][sigma], arms[better][sigma])
    value, low, high = map(errors.plainly, (found.value, found.low, found.high))
    text = (
        f"at sigma {sigma:g}, trained on {worse} models have {value} [{low}, {high}] times the "
        f"error of those trained on {better}."
    )
    (condition,) = STEP.conditions
    evidence = {
        condition.quantity: Estimate.of(condition.quantity, found),
        **_comparable(r2, worse, better),
    }
    return Statement(text, STEP, evidence)


def _order(arms: Arms, r2: R2) -> Statement:
    """Every pair of intervals at every sigma, against the paper's order."""
    paper = {interval: printed.errors("limits.table3", trained_on=interval) for interval in arms}
    same, other, unclear = 0, [], 0
    for a, b in combinations(arms, 2):
        for sigma in SIGMAS:
            if paper[a][sigma] == paper[b][sigma]:
                continue
            i = times(arms[a][sigma], arms[b][sigma])
            if i.low <= 1 <= i.high:
                unclear += 1
            elif (i.value < 1) == (paper[a][sigma] < paper[b][sigma]):
                same += 1
            else:
                other.append(f"{a} against {b} at sigma {sigma}")
    total, which = same + len(other) + unclear, f" ({', '.join(other)})" if other else ""
    text = (
        f"{same} of {total} pairs of training intervals (by sigma) stand in the paper's order, "
        f"{len(other)} in the opposite one{which}, and {unclear}, which count both ways, are "
        "unclear."
    )
    quantity = ORDER.conditions[0].quantity
    return Statement(
        text,
        ORDER,
        {quantity: statements.share_of(quantity, same, unclear, total), **_comparable(r2, *arms)},
    )


def _growth(arms: Arms) -> Statement:
    growth = {i: float(np.log10(times(arm[FAR], arm[NEAR]).value)) for i, arm in arms.items()}
    each = ", ".join(f"{interval} {value:.1f}" for interval, value in growth.items())
    return note(f"Decades that the error rises from sigma {NEAR} to {FAR}: {each}.")


TABLE3_EXPERIMENT = Experiment(
    "limits.table3",
    "Squared error by training interval: wider ones reach further and cost accuracy",
    f"{PAPER}, appendix C, Table 3",
    tuple(model for models in RUNS.values() for model in models),
    run,
    states,
    compare,
    settings=settings.SETTINGS["table3"],
)
