"""The claim of `limits` that LayerNorm causes the failure: how much of it is gone once norms are frozen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses.claim import LEARNED_R2, Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.limits.claims.layernorm import needs_norm
from icl_interp.studies.limits.measurements import far
from icl_interp.studies.limits.measurements.failure import FUNCTIONS, NEAR, QUERIES, SCALES, failure

DECIDING = ("query x 10", "query x 1000")
FAR_X = QUERIES["query x 1000"]
NAME = "share of the failure that freezing removes (phi)"


def relative_error(errors: DataArray, arm: str, place: str) -> Interval:
    """Squared error over that of the mean of the law of functions."""
    arrays = (errors.sel(arm=a, place=place).values for a in (arm, "law mean"))
    return bootstrap(lambda e, law: e / law, *arrays, positive=True)


def removed(errors: DataArray, arm: str, place: str) -> Interval:
    """Phi = (e - e_frozen) / (e - e_in): the share of the failure that is gone in an arm.

    e is the relative error intact at a place, e_frozen that in the arm, e_in that in distribution.
    """

    def phi(
        intact: np.ndarray, frozen: np.ndarray, law: np.ndarray, near: np.ndarray, near_law: np.ndarray
    ) -> np.ndarray:
        return (intact - frozen) / (intact - law * near / near_law)

    arrays = [errors.sel(arm=a, place=place).values for a in ("intact", arm, "law mean")]
    arrays += [errors.sel(arm=a, place=NEAR).values for a in ("intact", "law mean")]
    return bootstrap(phi, *arrays)


def _cost(errors: DataArray) -> Estimate:
    """The relative error in distribution with norms frozen, at the scale at which it is largest."""
    frozen = np.stack([errors.sel(arm=arm, place=NEAR).values for arm in SCALES], -1)
    law = errors.sel(arm="law mean", place=NEAR).values
    largest = bootstrap(lambda e, guess: e.max(-1) / guess, frozen, law, positive=True)
    return Estimate.of("error in distribution, frozen, over that of the law's mean", largest)


@dataclass(frozen=True)
class Place:
    """What is found at one place: intervals of phi by freezing scale, of e intact, and of phi of the sham."""

    phi: Mapping[str, Interval]
    error: Interval
    sham: Interval | None

    @classmethod
    def of(cls, errors: DataArray, place: str) -> "Place":
        """From `far/failure`. Where the context is unusual nothing of the freeze's size is a sham."""
        phi = {arm: removed(errors, arm, place) for arm in SCALES}
        sham = None if place in FUNCTIONS else removed(errors, "sham", place)
        return cls(phi, relative_error(errors, "intact", place), sham)


def quantities(places: Sequence[Place], cost: Estimate) -> dict[str, Estimate]:
    """What the criterion asks for, over some places and every scale at which norms were frozen.

    Phi's own value is that of the last place at the mean scale; e and the sham have that of the worst place.
    """
    fails = sorted((place.error for place in places), key=lambda e: e.low)
    sham = sorted((place.sham for place in places if place.sham), key=lambda e: -abs(e.value))
    found = {
        "phi": Estimate.spanning(NAME, [phi for place in reversed(places) for phi in place.phi.values()]),
        "fails": Estimate.spanning("error over that of the law's mean", fails),
        "cost": cost,
    }
    return found | ({"sham": Estimate.spanning("phi of the sham", sham)} if sham else {})


def _row(errors: DataArray, name: str, place: Place, cost: Estimate) -> dict[str, Any]:
    """The verdict at one place, with what it rests on; errors are relative to that of the law's mean."""
    asked = quantities((place,), cost)
    decision = CRITERION.decide(asked)
    row: dict[str, Any] = {
        "place": name,
        "answer": decision.verdict,
        "because": decision.failed or "",
        "phi, lowest": asked["phi"].low,
        "phi, highest": asked["phi"].high,
        "error": place.error.value,
        **({"sham": place.sham.value} if place.sham else {}),
    }
    mean = errors.sel(place=name).mean("unit")
    for arm, phi in place.phi.items():
        row |= {f"phi, {arm}": phi.value, f"phi, {arm}, low": phi.low, f"phi, {arm}, high": phi.high}
        row[f"error, {arm}"] = float(mean.sel(arm=arm) / mean.sel(arm="law mean"))
    # 1 + s^2 / E[a^2] where frozen f has a slope s that ignores the context, and functions are a x. Measured at queries
    # of one place only.
    if name in QUERIES:
        row["error, context-free"] = float(mean.sel(arm="context-free") / mean.sel(arm="law mean"))
    return row


def causes_failure(results: Results, facts: Facts) -> Evidence:
    """How much of the failure is gone once the norms are frozen? This is the paper's central inference."""
    errors = results[failure]
    cost, places = _cost(errors), {name: Place.of(errors, name) for name in (*QUERIES, *FUNCTIONS)}
    found = quantities([places[name] for name in DECIDING], cost)
    found["learned"] = Estimate.exactly("R2 in distribution", facts.r2)
    rows = {name: _row(errors, name, place, cost) for name, place in places.items()}
    phi = found["phi"]
    answer = "Open" if CRITERION.decide(found).failed else _answer(phi)
    near, out = (rows[place] for place in DECIDING)
    frozen = [row[f"error, {arm}"] for row in (near, out) for arm in SCALES]
    others = "; ".join(
        f"{place}: {row['phi, lowest']:.2g} to {row['phi, highest']:.2g} ({row['answer']})"
        for place, row in rows.items()
        if place not in DECIDING
    )
    says = (
        f"{answer}: at queries 10 and 1,000 half-widths out freezing every norm at the query removes {phi.low:.3g} to "
        f"{phi.high:.3g} of the failure, over five freezing scales (1: all of it; from 0.5 on supports, up to 0.2 "
        f"contradicts). Relative to guessing the mean function the squared error is {near['error']:.2f} and "
        f"{out['error']:.2f} intact, {min(frozen):.3g} to {max(frozen):.3g} frozen; at 1,000 a frozen output that "
        f"ignores its context has {out['error, context-free']:.3g}. Elsewhere phi is, {others}."
    )
    relative = {key: out[f"error{name}"] for key, name in (("intact", ""), ("frozen", ", mean"))}
    relative["context-free"] = out["error, context-free"]
    if results[far.counterpart].sizes["unit"]:
        ratio = far_ratio(results[far.counterpart], results[far.norm_arms].sel(arm="law mean"), facts.x_unit)
        relative["trained without"] = ratio.value
        says += f" A model trained without a norm has {ratio.value:.2f} at 1,000."
    causal = {
        "intervention": "freeze every norm's scale at the query position, at five in-distribution scales",
        "effect": phi.value,
        "sham effect": found["sham"].value,
        "far error / law mean": relative,
        "cost": {"largest error in distribution, frozen / law mean": cost.value},
    }
    return Evidence(
        found,
        says,
        scope="these weights, this task; the query alone, or the function, out of distribution",
        causal=causal,
        twin={"phi": _of_twin(results.twin, facts)},
        details=tuple(rows.values()),
    )


def _answer(phi: Estimate) -> str:
    condition = CRITERION.conditions[0]
    if phi.within(condition.supports):
        return "Yes, mostly"
    return "No" if phi.within(condition.contradicts) else "Open"


def _at(curve: DataArray, x_unit: float) -> np.ndarray:
    """Squared error of each unit at |x| = FAR_X units, the mean of both directions."""
    values = curve.sel(statistic="squared error").values
    return values[:, np.isclose(np.abs(curve["x"].values), FAR_X * x_unit)].mean(-1)


def far_ratio(curve: DataArray, other: DataArray, x_unit: float) -> Interval:
    """The squared error at |x| = FAR_X units over that of another arm (`far/norm arms`)."""
    return bootstrap(lambda e, law: e / law, _at(curve, x_unit), _at(other, x_unit), positive=True)


def _of_twin(twin: Results, facts: Facts) -> Estimate:
    """Phi of an untrained twin at 1,000 half-widths, its error in distribution counted as 0: it has learned nothing."""
    intact, frozen = (_at(twin[far.norm_arms].sel(arm=arm), facts.x_unit) for arm in ("intact", "frozen"))
    return Estimate.of(NAME, bootstrap(lambda e, f: (e - f) / e, intact, frozen))


CRITERION = Criterion(
    "phi = (e - e_frozen) / (e - e_in) with every norm frozen at the query, at queries of 10 and 1,000 half-widths and "
    "every one of five scales: >= 0.5 / <= 0.2; e is the squared error over that of the mean of the law of functions. "
    f"Asked where R2 > {LEARNED_R2}, e >= 0.5, e frozen in distribution <= 0.1 and |phi| of the sham <= 0.05",
    (Condition("phi", (0.5, INF), (-INF, 0.2)),),
    (
        Precondition(
            "learned",
            (LEARNED_R2, INF),
            "But the model has not learned its task (R2 {value:.2f}), so it has no success to lose.",
            optional=True,
        ),
        Precondition("fails", (0.5, INF), "But it does not fail there: the error is {value:.2f} of that guess's."),
        Precondition(
            "cost",
            (-INF, 0.1),
            "But frozen norms spoil it in distribution too: the error is {value:.2f} of that guess's.",
        ),
        Precondition(
            "sham",
            (-0.05, 0.05),
            "But to freeze the context's norms alone removes {value:.2f}, so the instrument disturbs.",
            optional=True,
        ),
    ),
)

LAYERNORM_CAUSES_FAILURE_CLAIM = Claim(
    id="limits.layernorm_causes_failure",
    question="far from the data",
    short="LayerNorm causes the model to fail far from the data.",
    quote=Quote(
        "By constraining the magnitude of internal activations, it prevents the model from extrapolating "
        "beyond the range seen during training, thereby limiting generalization, especially in high-input"
        " regimes.",
        "Naim & Asher (2025), section 5, before Table 1",
        "In Table 1 the paper compares models trained with and without LayerNorm on functions with coefficients up to "
        "10; the inputs stay inside [-1, 1]. We keep one model, freeze the scale of every LayerNorm at the query, and "
        "let queries 10 and 1,000 half-widths out decide; nearer queries and larger functions are listed. Section 6 "
        "itself says that removing LayerNorm does not restore in-context learning for such queries.",
    ),
    kind="learning",
    statement="LayerNorm is what makes a trained model fail far from the data: without it most of the failure is gone",
    source="Naim & Asher (2025), section 5 (Table 1) and section 6",
    criterion=CRITERION,
    measurements=(failure, far.norm_arms, far.counterpart),
    twin=(far.norm_arms,),
    evidence=causes_failure,
    of_numbers=True,
    excluded=needs_norm,
    figures=("growth",),
)
