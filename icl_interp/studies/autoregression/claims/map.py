"""The claim that the map which a model makes of its context is the one that the propositions name."""

from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.autoregression.measurements.maps import (
    ELSEWHERE,
    LOWEST,
    MODEL,
    ON_PATH,
    STEP,
    TINY,
    TURN,
    distance,
    in_context_map,
    needs_predicted_form,
    predicted_form,
)
from icl_interp.studies.autoregression.measurements.unit import PAPER, SOURCE, not_above

NEAR, FAR = 0.1, 0.3  # share of the mean square of predictions that the form leaves unexplained
BESIDE, AS_FAR = 0.25, 1.0  # of the distance between the form and its nearest rival
APART = 0.02  # the least distance between the form and its nearest rival
LEARNED = 0.5  # R2: a single gradient step on a short prompt never comes near 0.9
not_learned = not_above(LEARNED)
NAMES = {
    STEP: "one step of gradient descent on the prompt",
    TURN: "turning the last state by the ratio of the last two",
}

MAP = Criterion(
    "with the last state replaced by that of another prompt: mean squared distance between the predictions of the "
    f"model and of the predicted map, over the larger of their mean squares: <= {NEAR:g} / >= {FAR:g}; and over the "
    f"distance between the predicted map and the nearest other map: <= {BESIDE:g} / >= {AS_FAR:g}",
    (
        Condition("distance", (0.0, NEAR), (FAR, INF)),
        Condition("beside rivals", (0.0, BESIDE), (AS_FAR, INF), scale="log"),
    ),
    (
        Precondition(
            "apart",
            (APART, INF),
            "On these prompts another map predicts nearly the same as the predicted one (their distance is "
            f"{{value:.2g}}, {APART:g} needed).",
        ),
    ),
)


def interval(result: DataArray, form: str, last: str = ELSEWHERE, who: str = MODEL) -> Interval:
    """The distance between predictions and a form."""
    parts = result.sel({"last state": last, "who": who, "form": form}).values
    return bootstrap(lambda *means: distance(np.stack(means), LOWEST.get(form, -np.inf)), *parts)


def rivals(result: DataArray, form: str) -> dict[str, float]:
    """The distance of each other form that there is from this one, largest last."""
    values = {who: interval(result, form, who=who).value for who in result.indexes["form"] if who != form}
    return dict(sorted(((who, value) for who, value in values.items() if np.isfinite(value)), key=lambda one: one[1]))


def quantities(result: DataArray, form: str) -> tuple[dict[str, Estimate], str]:
    """What the criterion asks for, and the nearest rival."""
    nearest = next(iter(rivals(result, form)))
    own, other = (result.sel({"last state": ELSEWHERE, "who": who, "form": form}).values for who in (MODEL, nearest))
    lowest, n = LOWEST.get(form, -np.inf), len(own)

    def over(*means: np.ndarray) -> np.ndarray:
        mine, its = (distance(np.stack(part), lowest) for part in (means[:n], means[n:]))
        return mine / np.maximum(its, TINY)

    ratio = bootstrap(over, *own, *other)
    return {
        "distance": Estimate.of("distance to the predicted map", interval(result, form), "of the mean square"),
        "beside rivals": Estimate.of(
            "distance to the predicted map / that between it and the nearest other map", ratio
        ),
        "apart": Estimate.of(
            "distance between the predicted map and the nearest other map", bootstrap_of(result, form)
        ),
    }, nearest


def bootstrap_of(result: DataArray, form: str) -> Interval:
    """The distance between a form and its nearest rival."""
    return interval(result, form, who=next(iter(rivals(result, form))))


def _percent(share: float) -> str:
    """A share in percent; what is rounding is 0."""
    return f"{100 * share:.3g}" if share > 1e-8 else "0"


def evidence(results: Results, facts: Facts) -> Evidence:
    """Is what the model makes of a last state what the predicted map makes of it?"""
    result, form = results[in_context_map], predicted_form(facts)
    asked, nearest = quantities(result, form)
    rows = details(result)
    own = {row["map"]: row["distance"] for row in rows}
    closest = min(own, key=lambda name: own[name])
    says = answer(
        MAP,
        asked,
        f"The model makes the predicted map of its context: {NAMES[form]}.",
        f"The model does not make the predicted map of its context, {NAMES[form]}.",
        f"the model makes the predicted map of its context, {NAMES[form]}",
    )
    decided = MAP.decide(asked).condition
    if decided and decided.quantity == "beside rivals":
        threshold = bound(MAP, asked, "beside rivals", f"at most {BESIDE:g}", f"at least {AS_FAR:g}")
        says += (
            f" Its distance from this map is {asked['beside rivals'].value:.3g} times that between this map and the "
            f"nearest other one, {nearest} ({threshold})."
        )
    else:
        threshold = bound(MAP, asked, "distance", f"at most {100 * NEAR:g} %", f"at least {100 * FAR:g} %")
        says += (
            f" With another prompt's last state its distance from this map is {_percent(asked['distance'].value)} "
            f"% of the predictions' mean square ({threshold})."
        )
    caveat = f"Of all maps compared it is nearest to: {closest} ({_percent(own[closest])} %)."
    path = interval(result, form, ON_PATH)
    moved = asked["distance"]
    return Evidence(
        asked,
        says,
        scope="these weights, predictions after the longest prompts; the step size is chosen so that it is nearest",
        causal={
            "intervention": "the last state replaced by that of another prompt",
            "effect": moved.value,
            "low": moved.low,
            "high": moved.high,
            "unit": "distance to the predicted map, of the mean square of predictions",
            "with its own last state": path.value,
        },
        twin=quantities(results.twin[in_context_map], form)[0],
        details=rows,
        caveat=caveat,
    )


def details(result: DataArray) -> tuple[dict[str, Any], ...]:
    """A row for each form: the model's distance from it."""
    rows = []
    for form in result.indexes["form"]:
        found = interval(result, form)
        if np.isfinite(found.value):
            row = {"map": form, "distance": found.value, "low": found.low, "high": found.high}
            rows.append({**row, "on the path": interval(result, form, ON_PATH).value})
    return tuple(rows)


MAP_CLAIM = Claim(
    id="autoregression.implicit_map",
    question="algorithm",
    short="The model makes the predicted map of its context.",
    quote=Quote(
        "we first show that a trained one-layer linear Transformer implements one step of gradient descent for the "
        "minimization of an inner objective function when considering augmented tokens. When the tokens are not "
        "augmented, we characterize the global minima of a one-layer diagonal linear multi-head Transformer.",
        f"{PAPER}, Abstract; Propositions 2, 3 and 6",
        "Wider: any model of these shapes is asked, with any weights, scores and distribution of W, and two layers on "
        "plain states, the first of which may make augmented tokens. Narrower: on paths all good maps agree, so that "
        "they are compared with another last state, which training never showed. The step size is chosen to fit.",
    ),
    kind="learning",
    statement="What a model makes of the last state is what the propositions predict: one step of gradient descent for "
    "augmented states, the ratio of the last two states for plain ones with matrices that commute",
    source=f"{SOURCE}, Propositions 1, 2, 3 and 6",
    criterion=MAP,
    measurements=(in_context_map,),
    twin=(in_context_map,),
    aspects=("depth", "single layer", "single head", "kind of task"),
    evidence=evidence,
    excluded=needs_predicted_form,
    learned=not_learned,
    figures=("autoregression_map",),
)
