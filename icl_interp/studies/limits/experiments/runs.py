"""Arms of runs: those of one recipe that differ in their seed.

Here are their errors, and whether they may be compared.

Whether a kind of training is better is a question about trainings, so seeds are what is exchanged,
and not functions: `analyses.permutation` has the intervals. How far two kinds must differ, and what
runs were trained equally well, is as the claims about kinds of training have it.
"""

from collections.abc import Sequence

import numpy as np

from icl_interp.analyses import permutation
from icl_interp.analyses.claim import LEARNED_R2
from icl_interp.analyses.criterion import Estimate, Precondition
from icl_interp.experiments import errors
from icl_interp.experiments.base import Model, Results
from icl_interp.experiments.setup import Setup
from icl_interp.resampling import Interval
from icl_interp.studies.limits.claims.kinds import LARGER, SMALLER, TRAINED_EQUALLY

N_SEEDS = 5
# Times: from these on one kind has smaller errors than another, or larger ones.
LOWER = SMALLER
HIGHER = LARGER
LEARNED = Precondition(
    "least R2", (LEARNED_R2, 1.0), "The least R² in distribution is {value:.2f}."
)
COMPARABLE = (LEARNED, TRAINED_EQUALLY)


def seeds(recipe: str) -> tuple[Model, ...]:
    """Five runs at the scale at which they come with the package; two at smoke, one at the paper's.

    >>> [model.name for model in seeds("affine") if "paper" in model.scales]
    ['affine']
    """
    first = Model(recipe)
    second = Model(recipe, 1, ("smoke", "small"))
    more = [Model(recipe, seed, ("small",)) for seed in range(2, N_SEEDS)]
    return first, second, *more


def errors_by_sigma(results: Results, models: Sequence[Model]) -> dict[float, list[float]]:
    """The errors of those of these runs that are here, by sigma."""
    found: dict[float, list[float]] = {}
    for model in models:
        for row in errors.rows_of(results, "errors", predictor=model.name):
            at_sigma = found.setdefault(row["sigma"], [])
            at_sigma.append(row["error"])
    return found


def times(one: Sequence[float], other: Sequence[float]) -> Interval:
    """Geometric mean of one arm's errors over another's, with an exact permutation interval."""
    first = np.array(one, dtype=float)
    second = np.array(other, dtype=float)
    return permutation.ratio(first, second)


def comparable(arms: Sequence[Sequence[float]]) -> dict[str, Estimate]:
    """What `COMPARABLE` asks of arms: that all runs have learned, and none is far from the median.

    Args:
        arms: error rates of the runs of each in distribution: errors over those of predicting 0.
    """
    rates = np.concatenate([np.asarray(arm, dtype=float) for arm in arms])
    least_r2 = 1 - rates.max()
    # How many times a rate is above the median or below it, whichever is more.
    logs = np.log(rates / np.median(rates))
    farthest = np.exp(np.abs(logs).max())
    r2 = Estimate.exactly(LEARNED.quantity, least_r2)
    spread = Estimate.exactly("farthest error rate / median, either way", farthest, "times")
    return {LEARNED.quantity: r2, TRAINED_EQUALLY.quantity: spread}


def own_r2(setup: Setup, name: str) -> float:
    """R2 of a model on the law that it was trained on: 1 - its error / that of predicting 0."""
    law = setup.models[name].task
    each = setup.errors([name], law, (1.0,))
    means = each.mean("function").sel(sigma=1.0)
    own = float(means.sel(predictor=name).values)
    zero = float(means.sel(predictor="zero").values)
    return 1 - own / zero
