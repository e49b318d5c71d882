"""The claim on the map that a model makes of its context.

It is the map that the propositions name.
"""

from dataclasses import replace
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
from icl_interp.studies.autoregression.measurements.unit import PAPER, SOURCE, not_above, process_in

NEAR, FAR = 0.1, 0.3  # share of the mean square of predictions that the form leaves unexplained
BESIDE, AS_FAR = 0.25, 1.0  # of the distance between the form and its nearest rival
MOST = 4.0  # no distance is larger: |f - g|^2 <= (|f| + |g|)^2
APART = 0.02  # the least distance between the form and its nearest rival
LEARNED = 0.5  # R2: a single gradient step on a short prompt never comes near 0.9
not_learned = not_above(LEARNED)
NAMES = {
    STEP: "one step of gradient descent on the prompt",
    TURN: "turning the last state by the ratio of the last two",
}

KINDS = {ON_PATH: "on the path", ELSEWHERE: "distance", BETWEEN: "nearby", RESIZED: "other sizes"}
WORDS = {
    "on the path": "With the prompt's own last state",
    "distance": "With another prompt's last state",
    "nearby": "With a last state between its own and another",
    "other sizes": "With a last state that is longer or shorter",
}

MAP = Criterion(
    (
        Condition("distance", "", (0.0, NEAR), (FAR, INF)),
        Condition("on the path", "", (0.0, NEAR), (FAR, INF)),
        Condition("beside rivals", "", (0.0, BESIDE), (AS_FAR, INF), scale="log"),
        # No prompt of the law ends so: a model that does otherwise there is no counterexample, and
        # no example either.
        Condition("nearby", "", (0.0, NEAR), None),
        # The other form is no function of the last state's size: minimisers of the loss differ
        # there.
        Condition("other sizes", "", (0.0, NEAR), None, optional=True),
    ),
    (
        Precondition(
            "apart",
            (APART, INF),
            "On these prompts another map predicts nearly the same as the predicted one (their "
            f"distance is {{value:.2g}}, {APART:g} needed).",
        ),
    ),
    terms=(
        "mean squared distance between the predictions of the model and of the predicted map, over the "
        "larger of their mean "
        "squares, after prompts of the length where it is largest: with the last state replaced by "
        "that of another prompt, "
        f"and with the prompt's own: <= {NEAR:g} / >= {FAR:g} each; with one between the two, and for "
        "gradient steps with "
        f"one that is longer or shorter: <= {NEAR:g}; and, after the longest prompts, over the "
        "distance between the "
        f"predicted map and the nearest other map: <= {BESIDE:g} / >= {AS_FAR:g}"
    ),
)


def interval(result: DataArray, form: str, last: str = ELSEWHERE, who: str = MODEL) -> Interval:
    """The distance between predictions and a form."""
    parts = result.sel({"last state": last, "who": who, "form": form}).values
    return bootstrap(lambda *means: distance(np.stack(means), LOWEST.get(form, -np.inf)), *parts)


def rivals(result: DataArray, form: str) -> dict[str, float]:
    """The distance of each other form that there is from this one, largest last."""
    values = {
        who: interval(result, form, who=who).value for who in result.indexes["form"] if who != form
    }
    return dict(
        sorted(
            ((who, value) for who, value in values.items() if np.isfinite(value)),
            key=lambda one: one[1],
        )
    )


def everywhere(result: DataArray, form: str) -> dict[str, tuple[Estimate, int]]:
    """The distance to the form, and the length of prompts at which it is largest.

    Both are given by kind of last state; the distance is the one at that length.
    """
    lowest, found = LOWEST.get(form, -np.inf), {}
    for last, key in KINDS.items():
        if last == RESIZED and form != STEP:
            continue
        parts = result.sel({"last state": last}).transpose("moment", "unit", "points").values
        name = f"distance to the predicted map, last state {last}"
        one, at = worst(
            name,
            lambda *means: distance(np.stack(means), lowest),
            *parts,
            unit="of the mean square",
            positive=True,
        )
        found[key] = replace(one, high=min(one.high, MOST)), int(result.indexes["points"][at])
    return found


def quantities(
    longest: DataArray, lengths: DataArray, form: str
) -> tuple[dict[str, Estimate], str]:
    """What the criterion asks for, and the nearest rival."""
    nearest = next(iter(rivals(longest, form)))
    own, other = (
        longest.sel({"last state": ELSEWHERE, "who": who, "form": form}).values
        for who in (MODEL, nearest)
    )
    lowest, n = LOWEST.get(form, -np.inf), len(own)

    def over(*means: np.ndarray) -> np.ndarray:
        mine, its = (distance(np.stack(part), lowest) for part in (means[:n], means[n:]))
        return mine / np.maximum(its, TINY)

    ratio = bootstrap(over, *own, *other)
    return {
        **{key: one for key, (one, _) in everywhere(lengths, form).items()},
        "beside rivals": Estimate.of(
            "distance to the predicted map / that between it and the nearest other map", ratio
        ),
        "apart": Estimate.of(
            "distance between the predicted map and the nearest other map",
            bootstrap_of(longest, form),
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
    result, lengths = results[in_context_map], results[map_at_every_length]
    form = form_in_use(process_in(facts), facts.encoding, results[in_use])
    asked, nearest = quantities(result, lengths, form)
    points = {key: at for key, (_, at) in everywhere(lengths, form).items()}
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
    key = decided.quantity if decided else "distance"
    if key == "beside rivals":
        threshold = bound(MAP, asked, key, f"at most {BESIDE:g}", f"at least {AS_FAR:g}")
        says += (
            f" Its distance from this map is {asked[key].value:.3g} times that between this map "
            "and the "
            f"nearest other one, {nearest} ({threshold})."
        )
    else:
        threshold = bound(MAP, asked, key, f"at most {100 * NEAR:g} %", f"at least {100 * FAR:g} %")
        says += (
            f" {WORDS[key]} its distance is up to {_percent(asked[key].value)} % of the mean "
            "square, "
            f"after {points[key]} states ({threshold})."
        )
    caveat = f"The nearest map is: {closest} ({_percent(own[closest])} %)."
    moved = asked["distance"]
    return Evidence(
        asked,
        says,
        scope=f"these weights, after prompts of {min(lengths.indexes['points'])} to "
        f"{max(lengths.indexes['points'])} states; the step size is chosen for each length so that "
        "it is nearest",
        causal={
            "intervention": "the last state replaced by that of another prompt",
            "effect": moved.value,
            "low": moved.low,
            "high": moved.high,
            "unit": "distance to the predicted map, of the mean square of predictions, at the "
            "worst length",
            "with its own last state": asked["on the path"].value,
        },
        control=quantities(
            results.control[in_context_map], results.control[map_at_every_length], form
        )[0],
        details=(*rows, *by_length(lengths, form)),
        caveat=caveat,
    )


def by_length(lengths: DataArray, form: str) -> tuple[dict[str, Any], ...]:
    """A row for each length of the prompt: the model's distance from the predicted map."""
    lowest, rows = LOWEST.get(form, -np.inf), []
    means = lengths.mean("unit")
    for points in lengths.indexes["points"]:
        one = means.sel(points=points)
        distances = {
            last: float(distance(one.sel({"last state": last}).values, lowest)) for last in KINDS
        }
        rows.append({"states": int(points), **distances})
    return tuple(rows)


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
        "we first show that a trained one-layer linear Transformer implements one step of gradient "
        "descent for the minimization of an inner objective function when considering augmented "
        "tokens. When the tokens are not augmented, we characterize the global minima of a "
        "one-layer diagonal linear multi-head Transformer.",
        f"{PAPER}, Abstract; Propositions 2, 3 and 6",
        "Wider: any model of these shapes is asked, with any weights, scores and distribution of "
        "W, and two layers on plain states, the first of which may make augmented tokens. Layers "
        "that write nothing are not counted. On paths all good maps agree, so that they are "
        "compared with other last states too, which training never showed. The step size is chosen "
        "to fit, for each length of the prompt.",
    ),
    kind="learning",
    statement="What a model makes of the last state is what the propositions predict: one step of "
    "gradient descent for augmented states, the ratio of the last two states for plain ones with "
    "matrices that commute",
    source=f"{SOURCE}, Propositions 1, 2, 3 and 6",
    criterion=MAP,
    measurements=(in_context_map, map_at_every_length, in_use),
    control=(in_context_map, map_at_every_length),
    aspects=("depth", "single layer", "single head", "kind of task"),
    evidence=evidence,
    excluded=needs_predicted_form,
    learned=not_learned,
    figures=("autoregression_map",),
)
