"""The claim that layers are worth steps of gradient descent."""

from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import bootstrap
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
from icl_interp.studies.autoregression.measurements.unit import PAPER, SOURCE

AS_GOOD, WORSE = 1.25, 2.0  # error of the model over that of as many steps as it has layers

DEPTH = Criterion(
    "mean squared error of the model at late points, over that of as many steps of gradient "
    f"descent as it has layers, at their best constant size: <= {AS_GOOD:g} / >= {WORSE:g}; and at "
    f"the late point where it is largest: <= {WORSE:g}",
    (
        Condition("ratio", (0.0, AS_GOOD), (WORSE, INF), scale="log"),
        Condition("worst ratio", (0.0, WORSE), None, scale="log"),
    ),
    (
        Precondition(
            "layers",
            (1, INF),
            "No layer that predictions depend on is left for steps, after one that makes augmented "
            "tokens.",
        ),
    ),
)


def ratio(result: DataArray, n_steps: int) -> Estimate:
    """Error of the model over that of this many steps, all late points together."""
    own, theirs = _errors(result, n_steps)
    found = bootstrap(lambda a, b: _over(a.mean(-1), b.mean(-1)), own, theirs, positive=True)
    return Estimate.of("error over that of as many gradient steps as layers", found)


def worst_ratio(result: DataArray, n_steps: int) -> Estimate:
    """The same at the late point where it is largest."""
    name = "error over that of as many gradient steps as layers, at the worst late point"
    return worst(name, _over, *_errors(result, n_steps), positive=True)[0]


def quantities(result: DataArray, n_steps: int) -> dict[str, Estimate]:
    """What the criterion asks for."""
    return {"ratio": ratio(result, n_steps), "worst ratio": worst_ratio(result, n_steps)}


def _errors(result: DataArray, n_steps: int) -> tuple[np.ndarray, np.ndarray]:
    own, theirs = (
        result.sel(who=who).transpose("unit", "point").values for who in (MODEL, str(n_steps))
    )
    return own, theirs


def _over(own: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(own, TINY) / np.maximum(theirs, TINY))


def matched(result: DataArray) -> str:
    """How many steps the model is worth, in words."""
    own = float(result.sel(who=MODEL).mean())
    errors = {n_steps: float(result.sel(who=str(n_steps)).mean()) for n_steps in STEPS}
    reached = [n_steps for n_steps, error in errors.items() if own <= error]
    if not reached:
        return "less than one step"
    most = max(reached)
    return f"{most} step{'s' * (most > 1)}" + (" or more" if most == max(STEPS) else "")


def evidence(results: Results, facts: Facts) -> Evidence:
    """Is the model at late points as good as gradient descent with a step for each layer?"""
    result, n_left = results[descent], layers_left(facts, results[in_use])
    n_layers = max(n_left, 1)
    asked = {
        **quantities(result, n_layers),
        "layers": Estimate.exactly("layers that can take steps", n_left),
    }
    own, least = (float(result.sel(who=who).mean()) for who in (MODEL, SQUARES))
    steps = f"{n_layers} step{'s' * (n_layers > 1)}"
    says = answer(
        DEPTH,
        asked,
        "At late points the model does at least as well as gradient descent with a step for each "
        "layer.",
        "At late points the model does worse than gradient descent with a step for each of its "
        "layers.",
        "at late points the model does as well as gradient descent with a step for each layer",
    )
    decided = DEPTH.decide(asked).condition
    if decided and decided.quantity == "worst ratio":
        says += (
            f" At one late point its mean squared error is {asked['worst ratio'].value:.3g} times "
            f"that of {steps} "
        )
        says += f"of the best constant size (asked: at most {WORSE:g})."
    else:
        threshold = bound(DEPTH, asked, "ratio", f"at most {AS_GOOD:g}", f"at least {WORSE:g}")
        says += (
            f" Its mean squared error is {asked['ratio'].value:.3g} times that of {steps} of the "
            "best constant size "
        )
        says += f"({threshold})."
    caveat = (
        f"It is worth {matched(result)}; its error is {own:.3g}, and least squares has {least:.3g}."
    )
    return Evidence(
        asked,
        says,
        scope="these weights, in distribution, each of the last quarter of the points; layers that "
        "write nothing are not counted, and on plain states the first one is not, since it has to "
        "put the state before beside each state",
        control=quantities(results.control[descent], n_layers),
        details=(
            *details(result),
            {"who": "model", "error": own},
            {"who": "least squares", "error": least},
        ),
        caveat=caveat,
    )


def details(result: DataArray) -> tuple[dict[str, Any], ...]:
    """A row for each number of steps."""
    return tuple(
        {
            "steps": n_steps,
            "error": float(result.sel(who=str(n_steps)).mean()),
            "model / steps": found.value,
        }
        | {"low": found.low, "high": found.high}
        for n_steps in STEPS
        for found in (ratio(result, n_steps),)
    )


DEPTH_CLAIM = Claim(
    id="autoregression.descent_depth",
    question="algorithm",
    short="The model does as well as descent with a step a layer.",
    quote=Quote(
        "We find out that even though the first Transformer layers are competitive with gradient "
        "descent, the latter outperforms the Transformer by order of magnitudes when [there are "
        "more layers]. [...] In contrast, [...] a full Transformer [...] outperforms gradient "
        "descent and has a similar trend, as shown in Figure 10.",
        f"{PAPER}, section 6 and appendix B, Figures 5 and 10",
        "The paper compares means over all positions; we compare each late one, since before d "
        "transitions nobody can predict, and take the best constant step size with which descent "
        "diverges on no prompt. For many layers of linear attention the paper itself expects that "
        "the claim fails.",
    ),
    kind="learning",
    statement="At late points a model is at least as good as gradient descent with a step for each "
    "of its layers",
    source=f"{SOURCE}, section 6, Figures 5 and 10",
    criterion=DEPTH,
    measurements=(descent, in_use),
    control=(descent,),
    aspects=("depth", "single head", "single layer"),
    evidence=evidence,
    excluded=needs_layers_for_steps,
    learned=not_learned,
    figures=("autoregression_descent",),
)
