"""The claim that layers are worth steps of gradient descent."""

from collections.abc import Mapping
from typing import Any

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
from icl_interp.studies.autoregression.claims.map import not_learned
from icl_interp.studies.autoregression.measurements.descent_steps import (
    STEPS,
    descent,
    layers_left,
    needs_layers_for_steps,
)
from icl_interp.studies.autoregression.measurements.lengths import worst
from icl_interp.studies.autoregression.measurements.maps import MODEL, SQUARES, TINY
from icl_interp.studies.autoregression.measurements.parts import in_use
from icl_interp.studies.autoregression.measurements.unit import PAPER

AS_GOOD = 1.25  # error of the model over that of as many steps as it has layers
WORSE = 2.0

RATIO = Condition(
    "ratio",
    "mean squared error over that of one gradient step for each layer",
    at_most(AS_GOOD, least=0.0),
    at_least(WORSE),
    unit="times",
    scale="log",
)
WORST_RATIO = Condition(
    "worst ratio",
    "the same ratio at the late point where it is largest",
    at_most(WORSE, least=0.0),
    unit="times",
    scale="log",
)
LAYERS = Precondition(
    "layers",
    at_least(1),
    "After the layer that makes augmented tokens no layer that predictions depend on is left for "
    "steps.",
)

CRITERION = Criterion(
    (RATIO, WORST_RATIO),
    (LAYERS,),
    terms="The steps are those of gradient descent from zero, with the best constant step size "
    "for which it diverges on no prompt. Late points are the last quarter of the prompt.",
)


def ratio(result: DataArray, n_steps: int) -> Interval:
    """Error of the model over that of this many steps, all late points together."""
    own = _errors(result, MODEL)
    theirs = _errors(result, str(n_steps))
    return bootstrap(lambda a, b: _over(a.mean(-1), b.mean(-1)), own, theirs, positive=True)


def _errors(result: DataArray, who: str) -> np.ndarray:
    return result.sel(who=who).transpose("unit", "point").values


def _over(own: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(own, TINY) / np.maximum(theirs, TINY))


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """The model's error at late points over that of as many steps as it has layers."""
    result = results[descent]
    n_left = layers_left(facts, results[in_use])
    n_steps = max(n_left, 1)
    own = _errors(result, MODEL)
    theirs = _errors(result, str(n_steps))
    at_worst = worst(_over, own, theirs, positive=True)
    return {"ratio": ratio(result, n_steps), "worst ratio": at_worst, "layers": n_left}


def mean_error(result: DataArray, who: str) -> float:
    """The mean squared error of the model, of some steps or of least squares."""
    return float(result.sel(who=who).mean())


def matched(result: DataArray) -> str:
    """How many steps the model is worth, in words."""
    own = mean_error(result, MODEL)
    reached = [n_steps for n_steps in STEPS if own <= mean_error(result, str(n_steps))]
    if not reached:
        return "less than one step"
    most = max(reached)
    if most == max(STEPS):
        return f"{most} steps or more"
    return f"{most} steps" if most > 1 else "1 step"


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """How many steps the model is worth, and what least squares would give."""
    result = results[descent]
    own = mean_error(result, MODEL)
    least = mean_error(result, SQUARES)
    rows = _by_steps(result)
    rows.append({"who": "model", "error": own})
    rows.append({"who": "least squares", "error": least})
    return Remarks(
        scope="these weights, in distribution, each of the last quarter of the points; layers "
        "that write nothing are not counted, and neither is the first one on plain states, since "
        "it has to put the previous state beside each state",
        caveat=f"It is worth {matched(result)}; its error is {own:.3g}, and least squares has "
        f"{least:.3g}.",
        details=tuple(rows),
    )


def _by_steps(result: DataArray) -> list[dict[str, Any]]:
    """A row for each number of steps."""
    rows = []
    for n_steps in STEPS:
        found = ratio(result, n_steps)
        row: dict[str, Any] = {"steps": n_steps, "error": mean_error(result, str(n_steps))}
        row |= {"model / steps": found.value, "low": found.low, "high": found.high}
        rows.append(row)
    return rows


DEPTH_CLAIM = Claim(
    id="autoregression.descent_depth",
    question="algorithm",
    statement="At late points the model does at least as well as gradient descent with a step for "
    "each layer.",
    denied="At late points the model does worse than gradient descent with a step for each of its "
    "layers.",
    quote=Quote(
        "We find out that even though the first Transformer layers are competitive with gradient "
        "descent, the latter outperforms the Transformer by order of magnitudes when [there are "
        "more layers]. [...] In contrast, [...] a full Transformer [...] outperforms gradient "
        "descent and has a similar trend, as shown in Figure 10.",
        f"{PAPER}, section 6 and appendix B, Figures 5 and 10",
        "The paper compares means over all positions. We compare each late position, since nobody "
        "can predict before d transitions were seen. We take the best constant step size for "
        "which descent diverges on no prompt. For many layers of linear attention the paper "
        "itself expects the claim to fail.",
    ),
    kind="learning",
    reads="gradients, and the parts in use",
    criterion=CRITERION,
    measurements=(descent, in_use),
    control=(descent,),
    of_control=("ratio", "worst ratio"),
    aspects=("depth", "single head", "single layer"),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_layers_for_steps,
    learned=not_learned,
    figures=("autoregression_descent",),
)
