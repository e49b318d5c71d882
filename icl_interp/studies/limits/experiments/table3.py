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
NEAR = SIGMAS[0]
FAR = SIGMAS[-1]
STEP = at_least("error / error", HIGHER, LOWER, *COMPARABLE)
ORDER = statements.share(
    "share of pairs of training intervals (by sigma) in the paper's order", *COMPARABLE
)
# Errors of the runs, by training interval and sigma.
Arms = Mapping[str, Mapping[float, list[float]]]
# R2 of the runs on the law that they were trained on, by training interval.
R2 = Mapping[str, list[float]]


def run(setup: Setup) -> dict[str, Result]:
    """Errors of every run, means by interval, and each run's R2 on the law of its training."""
    names = {}
    every = []
    for interval, models in RUNS.items():
        names[interval] = setup.among([model.name for model in models])
        every += names[interval]
    task = polynomials(setup.preset, 1)
    each = setup.errors(every, task, SIGMAS)
    pooled = errors.pooled(each, names)
    results: dict[str, Result] = {"errors": errors.table(pooled)}
    # An error near says little of a wide training, so each run is also tried on its own law.
    rows = []
    for interval, arm in names.items():
        for name in arm:
            r2 = own_r2(setup, name)
            rows.append({"trained on": interval, "model": name, "r2": r2})
    if rows:
        results["own range"] = table_of_rows(rows, "on the law that the model was trained on")
    return results


def compare(results: Results) -> DataFrame | None:
    """The paper's four rows."""
    rows = []
    for interval in RUNS:
        paper = printed.errors("limits.table3", trained_on=interval)
        ours = errors.rows_of(results, "errors", predictor=interval)
        rows += errors.side_by_side(paper, ours, **{"trained on": interval})
    what = "inputs on U(-1, 1) for all; ours: means over runs, intervals over functions"
    return errors.as_table(rows, f"{printed.SOURCES['limits.table3']}; {what}")


def states(results: Results) -> tuple[Statement, ...]:
    """Accuracy near, reach far out, and the order between.

    A model that has not learned is left out, and a statement says of what.
    """
    r2 = {}
    here = {}
    learned = {}
    for interval, models in RUNS.items():
        rows = errors.rows_of(results, "own range", **{"trained on": interval})
        if not rows:
            continue
        r2[interval] = [row["r2"] for row in rows]
        here[interval] = errors_by_sigma(results, models)
        if min(r2[interval]) > LEARNED_R2:
            learned[interval] = here[interval]
    if len(learned) < 2:
        text = (
            "Fewer than two of the kinds of model are at hand and have learned, so nothing is "
            "compared."
        )
        return (note(text),)
    # Near, the wider interval should have the larger errors, and far out the narrower one.
    lines = []
    for narrow, wide in pairwise(learned):
        lines.append(_step(here, r2, NEAR, wide, narrow))
    for narrow, wide in pairwise(learned):
        lines.append(_step(here, r2, FAR, narrow, wide))
    lines.append(_order(learned, r2))
    n = ", ".join(f"{len(arm[NEAR])} on {interval}" for interval, arm in learned.items())
    lines.append(
        note(f"Runs of each kind: {n}. What decides are exact permutation intervals over runs.")
    )
    # A kind that has not learned still stands beside the narrowest interval.
    narrowest = next(iter(here))
    for interval in here:
        if interval not in learned:
            lines.append(_step(here, r2, NEAR, interval, narrowest))
    lines.append(_growth(learned))
    # The paper's numbers are compared with those of kinds that have learned.
    whole = compare(results)
    rows = []
    if whole is not None:
        rows = [row for row in whole.to_dict("records") if row["trained on"] in learned]
    numbers = errors.in_numbers(errors.as_table(rows, ""))
    lines += map(note, numbers)
    return tuple(lines)


def _comparable(r2: R2, *intervals: str) -> dict[str, Estimate]:
    """Whether the runs trained on these intervals may be compared."""
    rates = []
    for interval in intervals:
        rates.append([1 - value for value in r2[interval]])
    return comparable(rates)


def _step(arms: Arms, r2: R2, sigma: float, worse: str, better: str) -> Statement:
    """At one sigma, the interval that should have the larger errors against the other."""
    found = times(arms[worse][sigma], arms[better][sigma])
    value = errors.plainly(found.value)
    low = errors.plainly(found.low)
    high = errors.plainly(found.high)
    text = (
        f"at sigma {sigma:g}, trained on {worse} models have {value} [{low}, {high}] times the "
        f"error of those trained on {better}."
    )
    quantity = STEP.conditions[0].quantity
    evidence = {quantity: Estimate.of(quantity, found)}
    return Statement(text, STEP, evidence | _comparable(r2, worse, better))


def _order(arms: Arms, r2: R2) -> Statement:
    """Every pair of intervals at every sigma, against the paper's order."""
    paper = {interval: printed.errors("limits.table3", trained_on=interval) for interval in arms}
    same = 0
    other = []
    unclear = 0
    for a, b in combinations(arms, 2):
        for sigma in SIGMAS:
            paper_a = paper[a][sigma]
            paper_b = paper[b][sigma]
            # Two printed decimals can be the same, and then they have no order.
            if paper_a == paper_b:
                continue
            ratio = times(arms[a][sigma], arms[b][sigma])
            if ratio.low <= 1 <= ratio.high:
                unclear += 1
            elif (ratio.value < 1) == (paper_a < paper_b):
                same += 1
            else:
                other.append(f"{a} against {b} at sigma {sigma}")
    total = same + len(other) + unclear
    which = f" ({', '.join(other)})" if other else ""
    text = (
        f"{same} of {total} pairs of training intervals (by sigma) stand in the paper's order, "
        f"{len(other)} in the opposite one{which}, and {unclear}, which count both ways, are "
        "unclear."
    )
    quantity = ORDER.conditions[0].quantity
    share = statements.share_of(quantity, same, unclear, total)
    return Statement(text, ORDER, {quantity: share} | _comparable(r2, *arms))


def _growth(arms: Arms) -> Statement:
    """How far the error of each kind of model rises from the nearest sigma to the farthest."""
    growth = []
    for interval, arm in arms.items():
        ratio = times(arm[FAR], arm[NEAR])
        decades = float(np.log10(ratio.value))
        growth.append(f"{interval} {decades:.1f}")
    each = ", ".join(growth)
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
