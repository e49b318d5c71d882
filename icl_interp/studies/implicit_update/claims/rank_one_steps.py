"""The claims of `implicit_update`: an update of rank one, and steps that go along descent."""

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
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.implicit_update.measurements import updates
from icl_interp.studies.implicit_update.measurements.updates import excluded, identity, steps

PAPER = "Dherin, Munn, Mazzawi, Wunder & Gonzalvo (2025)"
# Differences of predictions, of the labels' standard deviation or of the largest prediction.
SAME = 1e-6
DIFFERENT = 1e-3
# Cosines with the own example's descent step, of the largest that there is.
ALIGNED = 0.3
ASIDE = 0.1
MORE = 0.1  # by which it exceeds that with other examples
MATTERS = 0.01  # of the labels' variance
TINY = float(np.finfo(float).tiny)
DIFFERENCE = "difference"
SPREAD = "spread"
EFFECT = "effect"
ALIGNMENT = "alignment"
EXCESS = "excess"


def of_identity(results: Results, facts: Facts) -> dict[str, Found]:
    """The largest difference between both predictions: of every prompt, without error."""
    result = results[identity]
    apart = result.sel(number=updates.APART)
    labels = result.sel(number=updates.LABEL)
    said = result.sel(number=updates.SAID)
    spread = float(labels.std())
    largest = float(abs(apart).max())
    # Beside predictions that are far larger than labels, rounding is as large as labels.
    unit = max(spread, float(abs(said).max()))
    return {SPREAD: spread, DIFFERENCE: largest / unit if unit else 0.0}


def by_algebra(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """That the verdict follows from the form of the update."""
    return Remarks(
        scope="the query of each prompt, whose update is its own",
        by_algebra="(W + (W d) a' / |a|^2) a = W (a + d) for all W, a and d",
    )


def effect(results: Results) -> float:
    """Mean squared change of predictions with the bias alone, of the labels' variance."""
    result = results[identity]
    changes = result.sel(number=updates.WITHOUT).values
    variance = float(result.sel(number=updates.LABEL).values.var())
    return float(np.mean(changes**2)) / max(variance, TINY)


def cosine(result: DataArray, names: tuple[str, ...], less: tuple[str, ...] = ()) -> Interval:
    """Mean cosine over steps and prompts, of the mean of the largest ones; less another one."""
    means = result.mean("examples").sel(number=[*names, *less]).transpose("number", "unit")
    return bootstrap(_share, *means.values)


def _share(mean: np.ndarray, most: np.ndarray, *less: np.ndarray) -> np.ndarray:
    own = mean / np.maximum(most, TINY)
    return own - _share(*less) if less else own


def of_steps(results: Results, facts: Facts) -> dict[str, Found]:
    """The effect, how well steps are aligned, and by how much better than with other examples."""
    result = results[steps]
    alignment = cosine(result, updates.OWN)
    excess = cosine(result, updates.OWN, updates.OTHER)
    return {EFFECT: effect(results), ALIGNMENT: alignment, EXCESS: excess}


def beside(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The cosine with other examples, and the largest there is."""
    result = results[steps]
    other = cosine(result, updates.OTHER).value
    most = float(result.sel(number=updates.OWN[1]).mean())
    return Remarks(
        scope="these weights, queries in distribution, and the examples of their own prompts; "
        "cosines are of W and not of the bias",
        caveat=f"With later examples it is {other:.2f}; the cosine before scaling can be at most "
        f"{most:.2f}.",
    )


RANK_ONE_CLAIM = Claim(
    id="implicit_update.rank_one",
    kind="architecture",
    statement="At the query, examples act as a rank-one update of the last MLP's first matrix and "
    "a bias update.",
    denied="At the query, examples do not act as a rank-one update of a matrix and an update of a "
    "bias.",
    question="algorithm",
    quote=Quote(
        "In this work, we show that the stacking of a self-attention layer with an MLP, allows the "
        "transformer block to implicitly modify the weights of the MLP layer according to the "
        "context.",
        f"{PAPER}, abstract",
        "We quote the sentence word for word. According to others, the rank, the formula and the "
        "bias are in Theorem 2.2 and a theorem of the appendix. The claim is an identity, true of "
        "every network.",
    ),
    reads="what the last MLP reads",
    criterion=Criterion(
        (
            Condition(
                DIFFERENCE,
                "largest difference of predictions, over the labels' standard deviation or the "
                "largest prediction",
                at_most(SAME),
                at_least(DIFFERENT),
                unit="share",
                scale="log",
            ),
        ),
        (Precondition(SPREAD, at_least(TINY), "All labels at the query are the same."),),
        terms="The update is computed from what the MLP reads at the query with all examples and "
        "with none. The model then reads the query alone under the update.",
    ),
    measurements=(identity,),
    control=(identity,),
    aspects=("kind of task",),
    evidence=of_identity,
    remarks=by_algebra,
    excluded=excluded,
    of_numbers=True,
    figures=("implicit_steps",),
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
        f"{PAPER}, a paraphrase",
        "We could not read the paper's own words. According to others, its Proposition 3.1 writes "
        "the steps as descent on a loss that is made from the steps themselves, which can be done "
        "for any sequence. A later version finds a high cosine with explicit descent, and gives "
        "no threshold. We take the squared loss of the example that a step takes in.",
    ),
    reads="what the last MLP reads, and gradients",
    criterion=Criterion(
        (
            Condition(
                ALIGNMENT,
                "cosine of a step with the descent step of its own example",
                at_least(ALIGNED),
                at_most(ASIDE),
            ),
            Condition(EXCESS, "the same cosine minus the one with later examples", at_least(MORE)),
        ),
        (
            Precondition(
                EFFECT,
                at_least(MATTERS),
                "The update of the matrix hardly matters: without it predictions change by "
                f"{{value:.2g}} of the labels' variance ({MATTERS:g} needed).",
            ),
        ),
        terms="The implicit weights are the last MLP's first matrix plus the update that stands "
        "for the examples so far. A step is their change by the next example. The loss of an "
        "example is half the squared error where the model reads its input alone, with the "
        "weights before the step. The control keeps each step and takes the losses of up to three "
        "later examples, each of which could have been the next one in another order. Cosines are "
        "means over steps and prompts, divided by the mean of the largest that a rank-one update "
        "at the query can have. Hidden units are weighted by how much predictions depend on them.",
    ),
    measurements=(identity, steps),
    control=(identity, steps),
    aspects=("kind of task", "depth", "weight maps"),
    evidence=of_steps,
    remarks=beside,
    excluded=excluded,
    of_numbers=True,
    figures=("implicit_steps",),
)
CLAIMS = (RANK_ONE_CLAIM, DESCENT_CLAIM)
