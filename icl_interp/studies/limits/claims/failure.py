"""The claim of `limits` that LayerNorm causes the failure: how much of it frozen norms remove."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses.claim import EXPLAINS, LEARNED_R2, Claim, Remarks
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
from icl_interp.studies.limits.claims.far_words import EDGE, asked
from icl_interp.studies.limits.claims.layernorm import needs_norm
from icl_interp.studies.limits.measurements import between, far
from icl_interp.studies.limits.measurements.failure import (
    DRAWN,
    FUNCTIONS,
    NEAR,
    QUERIES,
    SCALES,
    failure,
)
from icl_interp.studies.limits.measurements.far import power

DECIDING = ("query x 10", "query x 1000")
FURTHEST = ("query x 1000", "drawn about x 1000")
FAR_X = QUERIES["query x 1000"]
# Shares of the failure whose removal supports, from the first on, or contradicts.
MOST = 0.5
LITTLE = 0.2
FAILS = 0.5  # error over that of the best guess without the prompt, from which a model fails
# The same in distribution with frozen norms, and phi of the control: both at most. The control was
# asked to stay within 0.05 at first. But what it has to rule out is that freezing anything of that
# size carries phi across the zone between LITTLE and MOST, and up to 0.1 either way cannot:
# 0.2 + 0.1 < 0.5 - 0.1. At 0.05 a model whose phi is below 0 at every scale, and whose control
# moves by 0.053, was left open in every sample.
COST = 0.1
IDLE = 0.1


def _per_unit(errors: DataArray, arm: str, place: str, as_at: str = "") -> np.ndarray:
    """Squared errors: one for each unit, or at a drawn place one for each pair of units on it.

    `as_at` tells the place where it is not `place`.
    """
    values = errors.sel(arm=arm, place=place).values
    if (as_at or place) in DRAWN:
        return between.pairs(values)
    return values


def relative_error(errors: DataArray, arm: str, place: str) -> Interval:
    """Squared error over that of the mean of the distribution of functions."""
    error = _per_unit(errors, arm, place)
    law = _per_unit(errors, "law mean", place)
    return bootstrap(_ratio, error, law, positive=True)


def _ratio(error: np.ndarray, law: np.ndarray) -> np.ndarray:
    """An error over that of the guess."""
    return error / law


def removed(errors: DataArray, arm: str, place: str) -> Interval:
    """Phi = (e - e_frozen) / (e - e_in): the share of the failure that is gone in a test condition.

    e is the relative error of the unchanged model at a place, e_frozen that in the test condition,
    e_in that of the unchanged model in distribution.
    """

    def phi(
        intact: np.ndarray,
        frozen: np.ndarray,
        law: np.ndarray,
        near: np.ndarray,
        near_law: np.ndarray,
    ) -> np.ndarray:
        gone = intact - frozen
        failure = intact - law * near / near_law
        return gone / failure

    arrays = []
    for which in ("intact", arm, "law mean"):
        arrays.append(_per_unit(errors, which, place))
    for which in ("intact", "law mean"):
        arrays.append(_per_unit(errors, which, NEAR, place))
    return bootstrap(phi, *arrays)


def _cost(errors: DataArray) -> Interval:
    """The relative error in distribution with norms frozen, at the scale at which it is largest."""
    near = errors.sel(place=NEAR)
    frozen = np.stack([near.sel(arm=arm).values for arm in SCALES], -1)
    law = near.sel(arm="law mean").values

    def largest(error: np.ndarray, guess: np.ndarray) -> np.ndarray:
        return error.max(-1) / guess

    return bootstrap(largest, frozen, law, positive=True)


@dataclass(frozen=True)
class Place:
    """Intervals at one place: phi, e intact, and the phi of the control intervention.

    The first are given by freezing scale.
    """

    phi: Mapping[str, Interval]
    error: Interval
    control_intervention: Interval | None

    @classmethod
    def of(cls, errors: DataArray, place: str) -> "Place":
        """From `far/failure`.

        Where the context is unusual nothing of the freeze's size is a control intervention.
        """
        phi = {arm: removed(errors, arm, place) for arm in SCALES}
        error = relative_error(errors, "intact", place)
        control_intervention = None
        if place not in FUNCTIONS:
            control_intervention = removed(errors, "sham", place)
        return cls(phi, error, control_intervention)


def quantities(places: Sequence[Place], cost: Interval) -> dict[str, Estimate]:
    """What the criterion asks for, over some places and every scale at which norms were frozen.

    Phi's own value is that of the last place at the mean scale; e and the control intervention have
    that of the worst place.
    """
    phi: list[Interval] = []
    for place in reversed(places):
        phi += place.phi.values()
    fails = []
    control_intervention = []
    for place in places:
        fails.append(place.error)
        if place.control_intervention:
            control_intervention.append(place.control_intervention)
    # The first of each is the one whose value is told.
    fails.sort(key=lambda error: error.low)
    control_intervention.sort(key=lambda effect: -abs(effect.value))
    found = {}
    found["phi"] = Estimate.spanning("phi", phi)
    found["fails"] = Estimate.spanning("fails", fails)
    found["cost"] = Estimate.of("cost", cost)
    if control_intervention:
        found["sham"] = Estimate.spanning("sham", control_intervention)
    return found


def _row(errors: DataArray, name: str, cost: Interval) -> dict[str, Any]:
    """The verdict at one place, with what it rests on.

    Errors are relative to that of the law's mean.
    """
    place = Place.of(errors, name)
    asked = quantities((place,), cost)
    decision = CRITERION.decide(asked)
    row: dict[str, Any] = {"place": name}
    row["answer"] = decision.verdict
    row["because"] = decision.failed or ""
    row["phi, lowest"] = asked["phi"].low
    row["phi, highest"] = asked["phi"].high
    row["error"] = place.error.value
    if place.control_intervention:
        row["sham"] = place.control_intervention.value
    mean = errors.sel(place=name).mean("unit")
    law = mean.sel(arm="law mean")
    for arm, phi in place.phi.items():
        row[f"phi, {arm}"] = phi.value
        row[f"phi, {arm}, low"] = phi.low
        row[f"phi, {arm}, high"] = phi.high
        row[f"error, {arm}"] = float(mean.sel(arm=arm) / law)
    # 1 + s^2 / E[a^2] where frozen f has a slope s that ignores the context, and functions are a x.
    # Measured at queries of one place only.
    if name in QUERIES:
        row["error, context-free"] = float(mean.sel(arm="context-free") / law)
    return row


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How much of the failure is gone once the norms are frozen: the paper's central inference."""
    errors = results[failure]
    places = [Place.of(errors, name) for name in (*DRAWN, *DECIDING)]
    found: dict[str, Found] = dict(quantities(places, _cost(errors)))
    found["learned"] = facts.learned
    return found


def untrained(results: Results, facts: Facts) -> dict[str, Interval]:
    """Phi of an untrained control at 1,000 half-widths.

    Its error in distribution counts as 0, because it has learned nothing.
    """
    arms = results.control[far.norm_arms]
    intact = _at(arms.sel(arm="intact"), facts.x_unit)
    frozen = _at(arms.sel(arm="frozen"), facts.x_unit)
    return {"phi": bootstrap(lambda e, f: (e - f) / e, intact, frozen)}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Errors with and without frozen norms, at every place."""
    errors = results[failure]
    cost = _cost(errors)
    places = (*QUERIES, *DRAWN, *FUNCTIONS)
    # Where tokens show no values, functions were not scaled.
    asked_at = [name for name in places if errors.sel(place=name, arm="intact").notnull().all()]
    rows = {name: _row(errors, name, cost) for name in asked_at}
    near = rows[DECIDING[0]]
    out = rows[DECIDING[1]]
    frozen = []
    for arm in SCALES:
        frozen.append(near[f"error, {arm}"])
        frozen.append(out[f"error, {arm}"])
    # The places in words.
    first = power(QUERIES[DECIDING[0]] * facts.x_unit)
    last = power(QUERIES[DECIDING[1]] * facts.x_unit)
    where = f"|x| = {first}, {last} and places drawn near these"
    furthest = f"{DECIDING[-1].removeprefix('query x ')} {EDGE}"
    sized = follows_from_sizes(errors)
    # Errors far out over that of the best guess without the prompt.
    relative = {}
    relative["intact"] = out["error"]
    relative["frozen"] = out["error, mean"]
    relative["context-free"] = out["error, context-free"]
    if results[far.matched].sizes["unit"]:
        guess = results[far.norm_arms].sel(arm="law mean")
        without = far_ratio(results[far.matched], guess, facts.x_unit)
        relative["trained without"] = without.value
    n_contexts = 2 * errors.sizes["unit"]
    return Remarks(
        scope=asked(facts, where, n_contexts),
        by_algebra=f"at {furthest} the truth outgrows whatever the model says" if sized else "",
        caveat=f"The squared error is {near['error']:.3g} and {out['error']:.3g} times that of "
        f"the best guess without the prompt, and with frozen norms {min(frozen):.3g} to "
        f"{max(frozen):.3g} times.",
        causal={
            "intervention": "freeze the scale of every norm at the query position, at five of its "
            "scales in distribution",
            "effect": found["phi"].value,
            "sham effect": found["sham"].value,
            "far error / law mean": relative,
            "cost": {"largest error in distribution, frozen / law mean": cost.value},
        },
        details=tuple(rows.values()),
    )


def follows_from_sizes(errors: DataArray) -> bool:
    """Whether nothing that a model of this size says could remove `LITTLE` of the failure far out.

    That counts what it says with norms intact and with norms frozen. With r the root mean square of
    a prediction less the law's mean, over that of the truth less it, its relative error lies
    between (1 - r)^2 and (1 + r)^2 (the triangle inequality), and so phi is at most the difference
    of two such ends over the failure.
    """
    for place in FURTHEST:
        mean = errors.sel(place=place).mean("unit")
        law = mean.sel(arm="law mean")
        intact = float(np.sqrt(mean.sel(arm="size") / law))
        frozen = float(np.sqrt(mean.sel(arm="size, frozen") / law))
        highest = (1 + intact) ** 2
        lowest = (1 - min(frozen, 1.0)) ** 2
        if highest - lowest > LITTLE * FAILS:
            return False
    return True


def _at(curve: DataArray, x_unit: float) -> np.ndarray:
    """Squared error of each unit at |x| = FAR_X units, the mean of both directions."""
    values = curve.sel(statistic="squared error").values
    sizes = np.abs(curve["x"].values)
    at = np.isclose(sizes, FAR_X * x_unit)
    return values[:, at].mean(-1)


def far_ratio(curve: DataArray, other: DataArray, x_unit: float) -> Interval:
    """The squared error at |x| = FAR_X units over that of another arm (`far/norm arms`)."""
    error = _at(curve, x_unit)
    of_other = _at(other, x_unit)
    return bootstrap(_ratio, error, of_other, positive=True)


CRITERION = Criterion(
    (
        Condition(
            "phi",
            "share of the failure that freezing every norm removes",
            at_least(MOST),
            at_most(LITTLE),
            unit="share",
        ),
    ),
    (
        Precondition("learned", at_least(LEARNED_R2), f"{EXPLAINS}.", optional=True),
        Precondition(
            "fails",
            at_least(FAILS),
            "The model does not fail there: its squared error is {value:.2f} times that of the "
            f"best guess without the prompt (at least {FAILS} needed).",
        ),
        Precondition(
            "cost",
            at_most(COST),
            "Frozen norms spoil the prediction in distribution too: its squared error is "
            f"{{value:.2f}} times that of the best guess without the prompt (at most {COST} "
            "allowed).",
        ),
        Precondition(
            "sham",
            (-IDLE, IDLE),
            "The control intervention, freezing the norms at the context positions, already "
            f"removes {{value:.3f}} of the failure (at most {IDLE} allowed).",
            optional=True,
        ),
    ),
    terms="The share is (e - e_frozen) / (e - e_in): e is the squared error over that of the best "
    "guess without the prompt (the mean of the distribution of functions), e_frozen the same with "
    "every norm frozen at the query, e_in that in distribution. Queries at 10 and at 1,000 "
    f"{EDGE}, queries drawn near these, and five scales of frozen norms all count.",
)

LAYERNORM_CAUSES_FAILURE_CLAIM = Claim(
    id="limits.layernorm_causes_failure",
    question="far from the data",
    statement="LayerNorm causes most of the failure far from the data.",
    denied="LayerNorm does not cause most of the failure far from the data.",
    quote=Quote(
        "By constraining the magnitude of internal activations, it prevents the model from "
        "extrapolating beyond the range seen during training, thereby limiting generalization, "
        "especially in high-input"
        " regimes.",
        "Naim & Asher (2025), section 5, before Table 1",
        "In Table 1 the paper compares models trained with and without LayerNorm on functions "
        "with coefficients up to 10; the inputs stay inside [-1, 1]. We keep one model and freeze "
        f"the scale of every LayerNorm at the query. Queries at 10 and at 1,000 {EDGE} decide; "
        "nearer queries and larger functions are in the details. Section 6 itself says that "
        "removing LayerNorm does not restore in-context learning for such queries.",
    ),
    kind="learning",
    reads="its norms, which are edited",
    criterion=CRITERION,
    measurements=(failure, far.norm_arms, far.matched),
    control=(far.norm_arms,),
    evidence=evidence,
    untrained=untrained,
    remarks=remarks,
    excluded=needs_norm,
    figures=("growth",),
)
