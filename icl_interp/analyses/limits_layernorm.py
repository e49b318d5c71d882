"""The claims of `limits` about LayerNorm: it saturates f, it is the cause of that, it is the cause of the failure."""

import numpy as np

from icl_interp.analyses import far
from icl_interp.analyses.verdicts import Claim, Criterion, Estimate, Facts, Judgement, Results, register
from icl_interp.resampling import Interval, bootstrap, slope
from icl_interp.results import Curve

CONSTANT = 1e-9  # half-width r of the certificate up to which the output is a constant
FAR_X = 1e3  # where the failure is read: past every onset seen, and the ratio of errors no longer changes
SCOPE = "these weights, this task, the query arm (context in distribution), "


def needs_norm(facts: Facts) -> str | None:
    """Why a claim about LayerNorm cannot apply."""
    kind = facts["config"]["normalization_type"]
    if kind is None:
        return "the model has no normalisation"
    if kind == "RMS":
        return "the model normalises by the root mean square, which does not centre; the claim is about LayerNorm"
    if kind == "Tanh":
        return "the model squashes by tanh and divides by no scale; the claim is about LayerNorm"
    return None


def needs_growth(facts: Facts) -> str | None:
    """Why LayerNorm cannot be what a far query meets first."""
    if facts["config"].get("embed_bound") is None:
        return needs_norm(facts)
    return needs_norm(facts) or "tokens are read in as bounded vectors (embed_bound): no LayerNorm sees the query grow"


# ---- saturation -----------------------------------------------------------------------------------------------------


def _changes(ends: np.ndarray) -> np.ndarray:
    """Squared change of f over each of the last two decades: (direction, decade, function), mean over contexts."""
    return np.square(np.diff(ends, axis=1)).mean(-1)


def _change_in_r(ends: np.ndarray, r: float) -> Interval:
    """Largest root mean square change per decade over both directions, in units of the certificate's half-width."""
    per_function = np.moveaxis(_changes(ends), -1, 0)
    return bootstrap(lambda mean: np.sqrt(mean).max((-1, -2)) / r, per_function)


def _measured_onset(intact: Curve, level: np.ndarray, r: float) -> float:
    """Smallest |x| from which f stays within 0.05 r of its last value, in both directions; inf if it never does."""
    onsets = []
    for sign in (1, -1):
        keep = np.sign(intact.x) == sign
        xs, f = np.abs(intact.x[keep]), intact.at(statistic="mean")[:, keep]
        order = np.argsort(xs)
        gap = np.sqrt(np.square(f[:, order] - level[int(sign < 0)][:, None]).mean(0))
        outside = np.flatnonzero(gap > 0.05 * r)
        last = outside[-1] + 1 if len(outside) else 0
        onsets.append(xs[order][last] if last < len(xs) else np.inf)
    return float(max(onsets))


def judge_saturation(results: Results, facts: Facts) -> Judgement:
    """Does f stop changing, and at the value that the weights alone predict?"""
    weights = results["far/certificate"].rows()[0]
    c, r = weights["c"], weights["r"]
    ends = results["far/ends"].values
    plateau = bootstrap(lambda mean: mean, ends[0, -1].mean(-1))
    estimate = Estimate.of("plateau at +inf", plateau, "f")
    if not r > CONSTANT:
        reason = f"constant output: the read-out after the last LayerNorm admits the value {c:.6g} only (r = {r:.1g})."
        unknown = Estimate("change of f per decade", float("nan"), float("nan"), float("nan"), "r")
        return Judgement(estimate, reason, "inconclusive", test=unknown)
    change = _change_in_r(ends, r)
    test = Estimate.of("change of f per decade", change, "r")
    closed = np.array([weights["plateau +"], weights["plateau -"]])
    pre_norm = facts["config"]["norm_position"] == "pre"
    distance = np.sqrt(np.square(ends[:, -1] - closed[:, None, None]).mean((1, 2))) / r
    measured = ends[:, -1].mean((1, 2))
    reason = f"f changes by {change.value:.2g} r per decade (interval up to {change.high:.2g}) over 1e4 .. 1e6; "
    verdict = "inconclusive"
    if pre_norm and not np.isfinite(closed).all():
        reason += "but centring removes the read-in, so the query's size never reaches a LayerNorm: nothing saturates."
    elif pre_norm and weights["onset"] > far.LINE[0]:
        reason += f"but the predicted onset, |x| = {weights['onset']:.1e}, lies beyond the range."
    elif change.low > 0.05:
        verdict, reason = "contradicted", reason + "it does not level off."
    elif change.high <= 0.01 and (not pre_norm or distance.max() <= 0.01):
        verdict = "supported"
        apart = float(ends[:, -1].std((1, 2)).max())
        beside = f"within {distance.max():.2g} r of the closed form"
        if not pre_norm:
            beside = f"on average over contexts, which differ there by {apart:.2g} (sd; no closed form, post-norm)"
        reason += f"it levels off at {measured[0]:.4f} and {measured[1]:.4f}, {beside}."
    else:
        reason += f"distance to the closed form {distance.max():.2g} r: neither clearly level nor clearly not."
    onset = _measured_onset(results["far/intact"], ends[:, -1].mean(-1), r)
    details = [
        {"direction": d, "measured": float(m), "closed form": float(f), "distance in r": float(x)}
        for d, m, f, x in zip("+-", measured, closed, distance, strict=True)
    ]
    details.append({"c": c, "r": r, "measured onset": onset, "predicted onset": weights["onset"]})
    details += [{"norm": name, "E_sigma": value} for name, value in elasticities(results["far/norm scales"]).items()]
    twin = results["twin/far/ends"].values
    twin_r = results["twin/far/certificate"].rows()[0]["r"]
    return Judgement(
        estimate, reason, verdict, SCOPE + "|x| = 1e4 .. 1e6", test,
        twin=Estimate.of("change of f per decade", _change_in_r(twin, twin_r), "r"), details=tuple(details),
    )  # fmt: skip


def elasticities(scales: Curve) -> dict[str, float]:
    """E_sigma = d log sigma / d log |x| of every norm over 1e4 .. 1e6, mean of both directions: 1 where it grows."""
    values = {}
    for name in scales.axes["norm"]:
        curve, each = scales.at(norm=name), []
        for sign in (1, -1):
            keep = (sign * scales.x >= 1e4) & (sign * scales.x <= 1e6)
            each.append(float(slope(np.log(np.abs(scales.x[keep])), curve[keep])))
        values[name] = float(np.mean(each))
    return values


# ---- causes saturation ----------------------------------------------------------------------------------------------


def exponents(square: np.ndarray, xs: np.ndarray) -> np.ndarray:
    """Growth exponent d log |f| / d log |x| of the root mean square, the mean of both directions.

    Args:
        square: mean square of f, `(..., x)`.
    """
    each = []
    for sign in (1, -1):
        keep = np.sign(xs) == sign
        each.append(slope(np.log(np.abs(xs[keep])), 0.5 * np.log(np.maximum(square[..., keep], 1e-300))))
    return np.asarray(np.mean(each, axis=0))


def _growth(square: np.ndarray, xs: np.ndarray) -> np.ndarray:
    """`exponents`, 0 where f decays: a plateau at 0 is a plateau, and leaving it for another is no growth."""
    return np.maximum(exponents(square, xs), 0.0)


def _exponent_gap(arms: Curve) -> Interval:
    frozen, intact = (arms.at(arm=arm, statistic="mean square") for arm in ("frozen", "intact"))
    return bootstrap(lambda a, b: _growth(a, arms.x) - _growth(b, arms.x), frozen, intact)


def _plain(exponent: float) -> str:
    """Two decimals, and no sign on a zero."""
    return f"{round(exponent, 2) + 0.0:.2f}"


def judge_causes_saturation(results: Results, facts: Facts) -> Judgement:
    """Does f grow again once the norms' scales are frozen at the query?"""
    arms = results["far/norm arms"]
    gap = _exponent_gap(arms)
    single = {
        arm: float(exponents(arms.at(arm=arm, statistic="mean square").mean(0), arms.x))
        for arm in arms.axes["arm"] if arm != "zero predictor"
    }  # fmt: skip
    built = results["far/sufficiency"]
    inserted = {arm: float(exponents(built.at(arm=arm).mean(0), built.x)) for arm in built.axes["arm"]}
    cost = {arm: float(results["far/cost"].at(arm=arm).mean()) for arm in ("intact", "frozen")}
    each = {name: value for name, value in single.items() if name not in ("intact", "frozen", "sham")}
    enough = [name for name, value in each.items() if value - max(single["intact"], 0.0) > 0.8]
    reason = (
        f"the growth exponent over 1e3 .. 1e5 is {_plain(single['intact'])} intact and {_plain(single['frozen'])} with "
        f"every norm frozen at the query (sham, context positions only: {_plain(single['sham'])}); alone, "
        + (f"{', '.join(enough)} suffices." if enough else "no norm suffices.")
    )
    weights, verdict = results["far/certificate"].rows()[0], None
    if weights["r"] <= CONSTANT:
        verdict, reason = "inconclusive", f"constant output: f is {weights['c']:.6g} whatever the norms do."
    elif weights["onset"] > arms.x.max():
        verdict = "inconclusive"
        reason += f" But the predicted onset of saturation, |x| = {weights['onset']:.1e}, lies beyond the range."
    causal = {
        "intervention": "freeze every norm's scale at the query position, at its in-distribution mean",
        "effect": single["frozen"] - single["intact"], "intact": single["intact"], "frozen": single["frozen"],
        "sham": single["sham"], "each norm alone": each,
        "sufficiency": {"untrained without norm": inserted["intact"], "LayerNorm inserted": inserted["norm inserted"]},
        "cost": {"in-distribution error intact": cost["intact"], "frozen": cost["frozen"]},
    }  # fmt: skip
    twin = Estimate.of("growth exponent, frozen - intact", _exponent_gap(results["twin/far/norm arms"]))
    estimate = Estimate.of("growth exponent, frozen - intact", gap)
    return Judgement(estimate, reason, verdict, SCOPE + "|x| = 1e3 .. 1e5", causal=causal, twin=twin)


# ---- causes failure -------------------------------------------------------------------------------------------------


def _far_error(curve: Curve, **arm: str) -> np.ndarray:
    """Squared error of each function at |x| = FAR_X, both directions."""
    values = curve.at(statistic="squared error", **arm)
    return values[:, np.isclose(np.abs(curve.x), FAR_X)].mean(-1)


def _log_ratio(a: np.ndarray, b: np.ndarray) -> Interval:
    return bootstrap(lambda x, y: np.log10(x / y), a, b)


def _sign(interval: Interval) -> int:
    """1 or -1 where an interval lies on one side of 0, further from it than rounding reaches, else 0."""
    return int(interval.low > 1e-9) - int(interval.high < -1e-9)


def judge_causes_failure(results: Results, facts: Facts) -> Judgement:
    """Is the error far out smaller without the norm? (The paper's central inference.)"""
    arms, other = results["far/norm arms"], results["far/counterpart"]
    zero, intact, frozen = (_far_error(arms, arm=arm) for arm in ("zero predictor", "intact", "frozen"))
    ratio = _log_ratio(frozen, intact)
    relative = {"intact": float(intact.mean() / zero.mean()), "frozen": float(frozen.mean() / zero.mean())}
    reason = (
        f"at |x| = {FAR_X:.0e} the error relative to the zero predictor is {relative['intact']:.2f} intact and "
        f"{relative['frozen']:.2f} with the norms frozen"
    )
    # An error that freezing leaves as it is, but for rounding, lies in neither region.
    verdict = None if _sign(ratio) else "inconclusive"
    if len(other.axes["function"]):
        without = _far_error(other)
        relative["trained without"] = float(without.mean() / zero.mean())
        second = _log_ratio(without, intact)
        reason += f"; {relative['trained without']:.2f} for the model trained without normalisation"
        if _sign(second) != _sign(ratio):
            verdict, reason = "inconclusive", reason + ": the two ways of removing the norm do not agree"
    else:
        reason += "; no model trained without normalisation was at hand (pass companions=)"
    causal = {
        "intervention": "freeze every norm's scale at the query position; train without normalisation",
        "effect": ratio.value, "far error / zero predictor": relative,
        "sham": float(_far_error(arms, arm="sham").mean() / zero.mean()),
    }  # fmt: skip
    estimate = Estimate.of("far error, frozen / intact", ratio, "log10")
    fresh = (_far_error(results["twin/far/norm arms"], arm=arm) for arm in ("frozen", "intact"))
    twin = Estimate.of("far error, frozen / intact", _log_ratio(*fresh), "log10")
    scope = SCOPE + f"|x| = {FAR_X:.0e}, paired by function"
    return Judgement(estimate, reason + ".", verdict, scope, causal=causal, twin=twin)


INF = float("inf")

register(
    Claim(
        id="limits.layernorm_saturation",
        kind="architecture",
        statement="Far from the data LayerNorm makes the output level off at boundary values that the weights fix",
        source="Naim & Asher (2025), section 5 and Proposition 6",
        criterion=Criterion(
            "change of f per decade over the last two decades <= 0.01 r, and within 0.01 r of the closed form (pre-LN) "
            "/ change > 0.05 r; r is the half-width of the output certificate",
            supported=(-INF, 0.01), contradicted=(0.05, INF), scale="log",
        ),
        measurements=(far.certificate, far.ends, far.intact, far.contexts, far.norm_scales),
        twin=(far.ends, far.certificate),
        judge=judge_saturation,
        excluded=needs_growth,
        figures=("far_query",),
    )
)  # fmt: skip

register(
    Claim(
        id="limits.layernorm_causes_saturation",
        kind="architecture",
        statement="LayerNorm is what makes the output level off: with its scale frozen the output grows again",
        source="Naim & Asher (2025), Proposition 6; causal test ours",
        criterion=Criterion(
            "growth exponent of f over 1e3 .. 1e5, frozen minus intact: > 0.8 / < 0.2",
            supported=(0.8, INF), contradicted=(-INF, 0.2),
        ),
        measurements=(far.certificate, far.norm_arms, far.sufficiency, far.cost),
        twin=(far.norm_arms,),
        judge=judge_causes_saturation,
        excluded=needs_norm,
        figures=("growth",),
    )
)  # fmt: skip

register(
    Claim(
        id="limits.layernorm_causes_failure",
        kind="architecture",
        statement="LayerNorm is what makes the model fail far from the data: without it the far error is smaller",
        source="Naim & Asher (2025), section 5 (Table 1) and section 6",
        criterion=Criterion(
            "far error without the norm (frozen; and trained without, where there is one) over intact, log10: "
            "below 0 / above 0",
            supported=(-INF, 0.0), contradicted=(0.0, INF),
        ),
        measurements=(far.norm_arms, far.counterpart),
        twin=(far.norm_arms,),
        judge=judge_causes_failure,
        excluded=needs_norm,
        figures=("growth",),
    )
)  # fmt: skip
