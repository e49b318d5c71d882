"""The claims of `implicit_update` with content: steps descend, and their size vanishes."""

from collections.abc import Mapping

import numpy as np
from xarray import DataArray

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import (
    Condition,
    Criterion,
    Estimate,
    Found,
    Precondition,
    at_least,
    at_most,
)
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap, slope
from icl_interp.studies.implicit_update.claims.rank_one import RANK_ONE_CLAIM
from icl_interp.studies.implicit_update.measurements.updates import (
    FOREIGN,
    LABEL,
    OTHER,
    OTHER_MOST,
    OWN,
    OWN_MOST,
    SIZE,
    WITHOUT,
    excluded,
    identity,
    steps,
)

# Cosines with the own example's descent step, of the largest that there is.
ALIGNED = 0.3
ASIDE = 0.1
MORE = 0.1  # by which it exceeds that with another example
# Slopes of log size in log n. An average of n terms changes by about 1 / n: it has -1.
FALLS = -0.5
STAYS = -0.25
# Sizes, of those where the labels are of other functions.
SMALLER = 0.5
ALIKE = 0.8
LAST = 1 / 3  # of the steps, at which sizes are compared
MATTERS = 0.01  # of the labels' variance
FLOOR = 1e-24  # of the largest squared size: smaller ones are rounding
TINY = float(np.finfo(float).tiny)
ALIGNMENT = "alignment"
EXCESS = "excess"
SLOPE = "slope"
RATIO = "ratio"
EFFECT = "effect"
USED = Precondition(
    EFFECT,
    at_least(MATTERS),
    "The update of the matrix hardly matters: without it predictions change by {value:.2g} of the "
    f"labels' variance ({MATTERS:g} needed).",
)


def effect(results: Results) -> float:
    """Mean squared change of predictions where the bias alone is put in, of the labels' variance.

    It has no error: it says whether there is anything to ask.
    """
    result = results[identity].isel(removed=0)
    changes = result.sel(number=WITHOUT).values
    variance = float(result.sel(number=LABEL).values.var())
    return float(np.mean(changes**2)) / max(variance, TINY)


def cosine(result: DataArray, own: bool = True) -> Interval:
    """Mean cosine over steps and prompts, over the mean of the largest ones."""
    found, most = _means(result, own)
    return bootstrap(lambda a, b: a / np.maximum(b, TINY), found, most)


def excess(result: DataArray) -> Interval:
    """By how much the cosine with the own example exceeds that with another."""

    def statistic(*means: np.ndarray) -> np.ndarray:
        own, most, other, its = means
        return own / np.maximum(most, TINY) - other / np.maximum(its, TINY)

    return bootstrap(statistic, *_means(result, True), *_means(result, False))


def _means(result: DataArray, own: bool) -> tuple[np.ndarray, np.ndarray]:
    names = (OWN, OWN_MOST) if own else (OTHER, OTHER_MOST)
    means = result.mean("examples")
    return means.sel(number=names[0]).values, means.sel(number=names[1]).values


def falling(result: DataArray, name: str = SIZE) -> Interval:
    """Slope of the log of the root mean square size in the log of the number of examples."""
    squares = result.sel(number=name).transpose("unit", "examples").values ** 2
    n = np.log(result["examples"].values.astype(float))
    least = max(FLOOR * squares.max(), TINY)
    return bootstrap(lambda mean: slope(n, np.log(np.maximum(mean, least)) / 2), squares)


def ratio(result: DataArray) -> Interval:
    """Root mean square size of late steps over that with labels of other functions."""
    n_late = max(1, round(LAST * result.sizes["examples"]))
    late = result.isel(examples=slice(-n_late, None))
    squares = (late**2).mean("examples")
    own = squares.sel(number=SIZE).values
    foreign = squares.sel(number=FOREIGN).values
    return bootstrap(lambda a, b: np.sqrt(a / np.maximum(b, TINY)), own, foreign)


def descent(results: Results, facts: Facts) -> dict[str, Found]:
    """The effect, how well steps are aligned, and by how much better than with another example."""
    result = results[steps]
    return {EFFECT: effect(results), ALIGNMENT: cosine(result), EXCESS: excess(result)}


def vanishing(results: Results, facts: Facts) -> dict[str, Found]:
    """How sizes fall, and how small they end beside those with labels of other functions."""
    result = results[steps]
    return {EFFECT: effect(results), SLOPE: falling(result), RATIO: ratio(result)}


def of_descent(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The cosine with another example, and each step's."""
    result = results[steps]
    rows = []
    for n in result["examples"].values.tolist():
        one = result.sel(examples=[n])
        other = cosine(one, False).value
        rows.append({"examples": n, "own": cosine(one).value, "other": other})
    most = float(result.sel(number=OWN_MOST).mean())
    return Remarks(
        scope="these weights, queries in distribution, and the examples of their own prompts; "
        "cosines are of W and not of the bias",
        caveat=f"With another example of the prompt it is {cosine(result, False).value:.2f}; the "
        f"plain cosine can be {most:.2f} at most.",
        details=tuple(rows),
    )


def of_vanishing(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The slope where nothing can be learned."""
    foreign = falling(results[steps], FOREIGN)
    return Remarks(
        scope="these weights, and prompts of up to the trained length",
        caveat=f"With labels of other functions the slope is {foreign.value:.2f}; an average has "
        "about -1.",
    )


DESCENT_CLAIM = Claim(
    id="implicit_update.descent_steps",
    kind="learning",
    statement="Each example moves the implicit weights along the descent step of its own loss.",
    denied="Examples hardly move the implicit weights along the descent steps of their losses.",
    question="algorithm",
    quote=Quote(
        "Each example in the prompt acts as one step of online gradient descent on the implicit "
        "weights, which are close to those of explicit descent on the same examples.",
        "Dherin, Munn, Mazzawi, Wunder & Gonzalvo (2025), a paraphrase",
        "We could not read the paper's own words. By accounts of others its Proposition 3.1 writes "
        "the steps as descent on a loss that is made from the steps themselves, which is true of "
        "any sequence. A later version finds a high cosine with explicit descent, without a "
        "threshold. We ask for the squared loss of the example that a step takes in.",
    ),
    reads="what the last MLP reads, and gradients",
    criterion=Criterion(
        (
            Condition(
                ALIGNMENT,
                "cosine with the descent step of the own example",
                at_least(ALIGNED),
                at_most(ASIDE),
            ),
            Condition(EXCESS, "the same less that with another example", at_least(MORE)),
        ),
        (USED,),
        terms="The implicit weights are those of the last MLP's first matrix with the update that "
        "stands for the examples so far. The loss is that of the next example, which the model "
        "with these weights reads alone. Cosines are means over steps and prompts, over the mean "
        "of the largest that an update of rank one at the query can have. Hidden units are weighed "
        "by how much predictions depend on them.",
    ),
    measurements=(identity, steps),
    control=(identity, steps),
    aspects=("kind of task", "depth", "weight maps"),
    evidence=descent,
    remarks=of_descent,
    excluded=excluded,
    of_numbers=True,
    figures=("implicit_steps",),
)
VANISH_CLAIM = Claim(
    id="implicit_update.steps_vanish",
    kind="learning",
    statement="Steps of the implicit weights vanish with more examples of a function, and not by "
    "averaging alone.",
    denied="Steps of the implicit weights do not vanish, or no faster than where nothing can be "
    "learned.",
    question="algorithm",
    quote=Quote(
        "The gradient updates decrease and vanish as the prompt grows, as those of a converging "
        "gradient descent do.",
        "Dherin, Munn, Mazzawi, Wunder & Gonzalvo (2025), a paraphrase",
        "We could not read the paper's own words. By accounts of others it shows that the mean "
        "size of steps falls to nearly 0 over 100 trials, and gives no rule. An average of "
        "anything has steps of size 1 / n, so we also ask that steps end smaller than where each "
        "label is of another function.",
    ),
    reads="what the last MLP reads",
    criterion=Criterion(
        (
            Condition(
                SLOPE,
                "slope of log step size in log number of examples",
                at_most(FALLS),
                at_least(STAYS),
            ),
            Condition(
                RATIO,
                "size of late steps over that with labels of other functions",
                at_most(SMALLER),
                at_least(ALIKE),
                scale="log",
            ),
        ),
        (USED,),
        terms="The size of a step is that of its change of hidden units at the query, which are "
        "weighed by how much predictions depend on them. Late steps are the last third.",
    ),
    measurements=(identity, steps),
    control=(identity, steps),
    aspects=("kind of task", "depth", "weight maps"),
    evidence=vanishing,
    remarks=of_vanishing,
    excluded=excluded,
    of_numbers=True,
    figures=("implicit_steps",),
)
CLAIMS = (RANK_ONE_CLAIM, DESCENT_CLAIM, VANISH_CLAIM)
