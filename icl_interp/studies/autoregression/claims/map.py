"""The claim on the map that a model makes of its context.

It is the map that the propositions name.
"""

from collections.abc import Mapping
from dataclasses import replace
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
from icl_interp.studies.autoregression.measurements.lengths import worst
from icl_interp.studies.autoregression.measurements.maps import (
    BETWEEN,
    ELSEWHERE,
    LOWEST,
    MODEL,
    ON_PATH,
    RESIZED,
    STEP,
    TINY,
    TURN,
    distance,
    form_in_use,
    in_context_map,
    map_at_every_length,
    needs_predicted_form,
)
from icl_interp.studies.autoregression.measurements.parts import in_use
from icl_interp.studies.autoregression.measurements.unit import PAPER, not_above, process_in

NEAR = 0.1  # share of the mean square of predictions that the form leaves unexplained
FAR = 0.3
BESIDE = 0.25  # of the distance between the form and its nearest rival
AS_FAR = 1.0
MOST = 4.0  # no distance is larger: |f - g|^2 <= (|f| + |g|)^2
APART = 0.02  # the least distance between the form and its nearest rival
LEARNED = 0.5  # R2: a single gradient step on a short prompt never comes near 0.9
UNIT = "of the mean square"
not_learned = not_above(LEARNED)
NAMES = {
    STEP: "one step of gradient descent on the prompt",
    TURN: "turning the last state by the ratio of the last two",
}

KINDS = {ON_PATH: "on the path", ELSEWHERE: "distance", BETWEEN: "nearby", RESIZED: "other sizes"}

FOREIGN = Condition(
    "distance",
    "distance from the predicted map with another prompt's last state",
    at_most(NEAR, least=0.0),
    at_least(FAR),
    unit=UNIT,
)
ON_PATHS = Condition(
    "on the path",
    "distance from the predicted map with the prompt's own last state",
    at_most(NEAR, least=0.0),
    at_least(FAR),
    unit=UNIT,
)
BESIDE_RIVALS = Condition(
    "beside rivals",
    "distance from the predicted map over that of its nearest rival",
    at_most(BESIDE, least=0.0),
    at_least(AS_FAR),
    unit="times",
    scale="log",
)
# No prompt of the law ends so: a model that does otherwise there is no counterexample, and
# no example either.
NEARBY = Condition(
    "nearby",
    "distance from the predicted map with a last state between its own and another",
    at_most(NEAR, least=0.0),
    unit=UNIT,
)
# The other form is no function of the last state's size: minimisers of the loss differ
# there.
OTHER_SIZES = Condition(
    "other sizes",
    "distance from the predicted map with a longer or shorter last state",
    at_most(NEAR, least=0.0),
    unit=UNIT,
    optional=True,
)
RIVAL_APART = Precondition(
    "apart",
    at_least(APART),
    "On these prompts another map gives nearly the same as the predicted one (their distance is "
    f"{{value:.2g}}, {APART:g} needed).",
)

CRITERION = Criterion(
    (FOREIGN, ON_PATHS, BESIDE_RIVALS, NEARBY, OTHER_SIZES),
    (RIVAL_APART,),
    terms="The predicted map is one step of gradient descent for augmented states, and the ratio "
    "of the last two states for plain states with matrices that commute. Distances are mean "
    "squared differences of predictions, over the larger of their mean squares, for the length of "
    "prompts where they are largest. The rival is the nearest other map, after the longest "
    "prompts. Longer and shorter last states are tested for gradient steps only.",
)


def lowest_of(form: str) -> float:
    """The lowest step size that a form may have."""
    return LOWEST.get(form, -np.inf)


def _parts(result: DataArray, last: str, who: str, form: str) -> np.ndarray:
    return result.sel({"last state": last, "who": who, "form": form}).values


def interval(result: DataArray, form: str, last: str = ELSEWHERE, who: str = MODEL) -> Interval:
    """The distance between predictions and a form."""
    lowest = lowest_of(form)
    parts = _parts(result, last, who, form)
    return bootstrap(lambda *means: distance(np.stack(means), lowest), *parts)


def nearest_rival(result: DataArray, form: str) -> str:
    """The other form that is nearest to this one."""
    distances = {}
    for who in result.indexes["form"]:
        found = interval(result, form, who=who)
        if who != form and np.isfinite(found.value):
            distances[who] = found.value
    return min(distances, key=distances.__getitem__)


def everywhere(result: DataArray, form: str) -> dict[str, Estimate]:
    """The distance to the form after prompts of the length where it is largest.

    There is one for each kind of last state.
    """
    lowest = lowest_of(form)
    found = {}
    for last, key in KINDS.items():
        if last == RESIZED and form != STEP:
            continue
        parts = result.sel({"last state": last}).transpose("moment", "unit", "points").values
        one = worst(lambda *means: distance(np.stack(means), lowest), *parts, positive=True)
        found[key] = replace(one, high=min(one.high, MOST))
    return found


def beside(result: DataArray, form: str, rival: str) -> Interval:
    """The model's distance from a form over that of a rival."""
    lowest = lowest_of(form)
    of_model = _parts(result, ELSEWHERE, MODEL, form)
    of_rival = _parts(result, ELSEWHERE, rival, form)
    n = len(of_model)

    def ratio(*means: np.ndarray) -> np.ndarray:
        own = distance(np.stack(means[:n]), lowest)
        other = distance(np.stack(means[n:]), lowest)
        return own / np.maximum(other, TINY)

    return bootstrap(ratio, *of_model, *of_rival)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """The model's distance from the predicted map, and that of the map's nearest rival."""
    longest = results[in_context_map]
    form = form_in_use(process_in(facts), facts.encoding, results[in_use])
    rival = nearest_rival(longest, form)
    return {
        **everywhere(results[map_at_every_length], form),
        "beside rivals": beside(longest, form, rival),
        "apart": interval(longest, form, who=rival),
    }


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Which map is predicted, and which is nearest."""
    lengths = results[map_at_every_length]
    form = form_in_use(process_in(facts), facts.encoding, results[in_use])
    rows = _by_map(results[in_context_map])
    nearest = min(rows, key=lambda row: row["distance"])
    others = f"the nearest map tested is {nearest['map']}"
    if nearest["map"] == form:
        others = "no other map tested is nearer"
    moved = found["distance"]
    points = lengths.indexes["points"]
    return Remarks(
        scope=f"these weights, after prompts of {min(points)} to {max(points)} states; the step "
        "size is chosen for each length so that it is nearest",
        caveat=f"The predicted map is {NAMES[form]}; {others}.",
        causal={
            "intervention": "the last state replaced by that of another prompt",
            "effect": moved.value,
            "low": moved.low,
            "high": moved.high,
            "unit": "distance to the predicted map, of the mean square of predictions, at the "
            "worst length",
            "with its own last state": found["on the path"].value,
        },
        details=(*rows, *_by_length(lengths, form)),
    )


def _by_length(lengths: DataArray, form: str) -> list[dict[str, Any]]:
    """A row for each length of the prompt: the model's distance from the predicted map."""
    lowest = lowest_of(form)
    means = lengths.mean("unit")
    rows = []
    for points in lengths.indexes["points"]:
        row: dict[str, Any] = {"states": int(points)}
        for last in KINDS:
            parts = means.sel({"points": points, "last state": last}).values
            row[last] = float(distance(parts, lowest))
        rows.append(row)
    return rows


def _by_map(result: DataArray) -> list[dict[str, Any]]:
    """A row for each form: the model's distance from it."""
    rows = []
    for form in result.indexes["form"]:
        found = interval(result, form)
        if not np.isfinite(found.value):
            continue
        row = {"map": form, "distance": found.value, "low": found.low, "high": found.high}
        row["on the path"] = interval(result, form, ON_PATH).value
        rows.append(row)
    return rows


MAP_CLAIM = Claim(
    id="autoregression.implicit_map",
    question="algorithm",
    statement="From its context the model makes the map that the propositions predict.",
    denied="From its context the model does not make the map that the propositions predict.",
    quote=Quote(
        "we first show that a trained one-layer linear Transformer implements one step of gradient "
        "descent for the minimization of an inner objective function when considering augmented "
        "tokens. When the tokens are not augmented, we characterize the global minima of a "
        "one-layer diagonal linear multi-head Transformer.",
        f"{PAPER}, Abstract; Propositions 2, 3 and 6",
        "Our test is wider: it takes any model of these shapes, with any weights, scores and "
        "distribution of W, and also two layers on plain states, the first of which may make "
        "augmented tokens. Layers that write nothing are not counted. On paths all good maps "
        "agree, so we compare them at other last states too, which training never showed. The "
        "step size is fitted for each length of the prompt.",
    ),
    kind="learning",
    reads="gradients, and the parts in use",
    criterion=CRITERION,
    measurements=(in_context_map, map_at_every_length, in_use),
    control=(in_context_map, map_at_every_length),
    aspects=("depth", "single layer", "single head", "kind of task"),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_predicted_form,
    learned=not_learned,
    figures=("autoregression_map",),
)
