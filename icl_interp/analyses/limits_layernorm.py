"""The claims of `limits` about LayerNorm: it saturates f, it is the cause of that, it is the cause of the failure."""

import numpy as np
from xarray import DataArray

from icl_interp.analyses import boundary, far
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.far import CONSTANT, power
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.verdicts import Claim, Criterion, Estimate, Judgement, register
from icl_interp.resampling import Interval, bootstrap, slope

# |x| in units of `Lab.x_unit` where the failure is read: past every onset seen; the ratio of errors changes no more.
FAR_X = 1e3
SCOPE = "these weights, this task, the query arm (context in distribution), "


def needs_norm(facts: Facts) -> str | None:
    """Why a claim about LayerNorm cannot apply."""
    kind = facts.config.normalization_type
    if kind is None:
        return "the model has no normalisation"
    if kind == "RMS":
        return "the model normalises by the root mean square, which does not centre; the claim is about LayerNorm"
    if kind == "Tanh":
        return "the model squashes by tanh and divides by no scale; the claim is about LayerNorm"
    return None


def needs_growth(facts: Facts) -> str | None:
    """Why LayerNorm cannot be what a far query meets first."""
    if facts.config.embed_bound is None:
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


def _measured_onset(approach: DataArray, r: float) -> float:
    """|x| from which f stays within `boundary.LEVEL` r of its end, the slower direction; inf where it never does."""
    each = [boundary.onset(approach, sign, boundary.LEVEL * r).value for sign in boundary.SIGNS.values()]
    settled = max(each) < boundary.last(boundary.direction(approach, 1)[0])
    return max(each) if settled else float("inf")


def judge_saturation(results: Results, facts: Facts) -> Judgement:
    """Does f stop changing, and at the value that the weights alone predict?"""
    weights = results[far.certificate].iloc[0]
    c, r = weights["c"], weights["r"]
    ends = results[far.ends].values
    plateau = bootstrap(lambda mean: mean, ends[0, -1].mean(-1))
    estimate = Estimate.of("plateau at +inf", plateau, "f")
    x_unit = facts.x_unit
    reached = f"{power(far.LINE[0] * x_unit)} .. {power(far.LINE[-1] * x_unit)}"
    if not r > CONSTANT:
        reason = f"constant output: the read-out after the last LayerNorm admits the value {c:.6g} only (r = {r:.1g})."
        unknown = Estimate("change of f per decade", float("nan"), float("nan"), float("nan"), "r")
        return Judgement(estimate, reason, "inconclusive", test=unknown)
    change = _change_in_r(ends, r)
    test = Estimate.of("change of f per decade", change, "r")
    closed = np.array([weights["plateau +"], weights["plateau -"]])
    pre_norm = facts.config.norm_position == "pre"
    distance = np.sqrt(np.square(ends[:, -1] - closed[:, None, None]).mean((1, 2))) / r
    measured = ends[:, -1].mean((1, 2))
    reason = f"f changes by {change.value:.2g} r per decade (interval up to {change.high:.2g}) over {reached}; "
    verdict = "inconclusive"
    if pre_norm and not np.isfinite(closed).all():
        reason += "but centring removes the read-in, so the query's size never reaches a LayerNorm: nothing saturates."
    elif pre_norm and weights["onset"] > far.LINE[0] * x_unit:
        reason += f"but the predicted onset, |x| = {power(weights['onset'])}, lies beyond the range."
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
    onset = _measured_onset(results[boundary.approach], r)
    details = [
        {"direction": d, "measured": float(m), "closed form": float(f), "distance in r": float(x)}
        for d, m, f, x in zip("+-", measured, closed, distance, strict=True)
    ]
    details.append({"c": c, "r": r, "measured onset": onset, "predicted onset": weights["onset"]})
    scales = scale_growth(results[far.norm_scales], x_unit)
    details += [{"norm": name, "E_sigma": value} for name, value in scales.items()]
    twin = results.twin[far.ends].values
    twin_r = results.twin[far.certificate].iloc[0]["r"]
    return Judgement(
        estimate, reason, verdict, f"{SCOPE}|x| = {reached}", test,
        twin=Estimate.of("change of f per decade", _change_in_r(twin, twin_r), "r"), details=tuple(details),
    )  # fmt: skip


def scale_growth(scales: DataArray, x_unit: float = 1.0) -> dict[str, float]:
    """E_sigma = d log sigma / d log |x| of every norm over 1e4 .. 1e6 units, the mean of both directions.

    It is 1 where the scale grows like |x|.
    """
    values = {}
    for name in scales.indexes["norm"]:
        curve, each = scales.sel(norm=name).values, []
        for sign in (1, -1):
            size = sign * scales["x"].values / x_unit
            keep = (size > 0.99e4) & (size < 1.01e6)
            each.append(float(slope(np.log(np.abs(scales["x"].values[keep])), curve[keep])))
        values[name] = float(np.mean(each))
    return values


# ---- causes saturation ----------------------------------------------------------------------------------------------


def exponents(square: np.ndarray, xs: np.ndarray) -> np.ndarray:
    """Log-log slope d log |f| / d log |x| of the root mean square, the mean of both directions.

    Args:
        square: mean square of f, `(..., x)`.
    """
    each = []
    for sign in (1, -1):
        keep = np.sign(xs) == sign
        each.append(slope(np.log(np.abs(xs[keep])), 0.5 * np.log(np.maximum(square[..., keep], 1e-300))))
    return np.asarray(np.mean(each, axis=0))


def growth_exponent(square: np.ndarray, xs: np.ndarray) -> np.ndarray:
    """`exponents`, but 0 where f falls: a plateau at 0 is a plateau, and to leave it for another is not to grow."""
    return np.asarray(np.maximum(exponents(square, xs), 0.0))


def _exponent_gap(arms: DataArray) -> Interval:
    frozen, intact = (arms.sel(arm=arm, statistic="mean square").values for arm in ("frozen", "intact"))
    return bootstrap(
        lambda a, b: growth_exponent(a, arms["x"].values) - growth_exponent(b, arms["x"].values), frozen, intact
    )


def judge_causes_saturation(results: Results, facts: Facts) -> Judgement:
    """Does f grow again once the norms' scales are frozen at the query?"""
    arms = results[far.norm_arms]
    gap = _exponent_gap(arms)
    slopes = {
        arm: float(exponents(arms.sel(arm=arm, statistic="mean square").values.mean(0), arms["x"].values))
        for arm in arms.indexes["arm"] if arm != "zero predictor"
    }  # fmt: skip
    single = {arm: max(value, 0.0) for arm, value in slopes.items()}
    built = results[far.sufficiency]
    inserted = {
        arm: float(growth_exponent(built.sel(arm=arm).values.mean(0), built["x"].values))
        for arm in built.indexes["arm"]
    }
    cost = {arm: float(results[far.cost].sel(arm=arm).values.mean()) for arm in ("intact", "frozen")}
    each = {name: value for name, value in single.items() if name not in ("intact", "frozen", "sham")}
    enough = [name for name, value in each.items() if value - single["intact"] > 0.8]
    reached = f"{power(arms['x'].values.max() / 100)} .. {power(arms['x'].values.max())}"
    reason = (
        f"the growth exponent over {reached} is {single['intact']:.2f} intact and {single['frozen']:.2f} with every "
        f"norm frozen at the query (sham, context positions only: {single['sham']:.2f}); alone, "
        + (f"{', '.join(enough)} suffices." if enough else "no norm suffices.")
    )
    falling = [f"{arm} like |x|^{slopes[arm]:.2f}" for arm in ("intact", "frozen", "sham") if slopes[arm] < -0.05]
    if falling:
        reason += f" f falls towards 0 {', '.join(falling)}; that counts as an exponent of 0."
    weights, verdict = results[far.certificate].iloc[0], None
    if weights["r"] <= CONSTANT:
        verdict, reason = "inconclusive", f"constant output: f is {weights['c']:.6g} whatever the norms do."
    elif weights["onset"] > arms["x"].values.max():
        verdict = "inconclusive"
        reason += f" But the predicted onset of saturation, |x| = {power(weights['onset'])}, lies beyond the range."
    causal = {
        "intervention": "freeze every norm's scale at the query position, at its in-distribution mean",
        "effect": gap.value, "intact": single["intact"], "frozen": single["frozen"],
        "sham": single["sham"], "each norm alone": each,
        "sufficiency": {"untrained without norm": inserted["intact"], "LayerNorm inserted": inserted["norm inserted"]},
        "cost": {"in-distribution error intact": cost["intact"], "frozen": cost["frozen"]},
    }  # fmt: skip
    twin = Estimate.of("growth exponent, frozen - intact", _exponent_gap(results.twin[far.norm_arms]))
    estimate = Estimate.of("growth exponent, frozen - intact", gap)
    scope = f"{SCOPE}|x| = {reached}"
    return Judgement(estimate, reason, verdict, scope, causal=causal, twin=twin)


# ---- causes failure -------------------------------------------------------------------------------------------------


def _far_error(curve: DataArray, x_unit: float, **arm: str) -> np.ndarray:
    """Squared error of each function at |x| = FAR_X units, both directions."""
    values = curve.sel(statistic="squared error", **arm).values
    return values[:, np.isclose(np.abs(curve["x"].values), FAR_X * x_unit)].mean(-1)


def _log_ratio(a: np.ndarray, b: np.ndarray) -> Interval:
    return bootstrap(lambda x, y: np.log10(x / y), a, b)


def _sign(interval: Interval) -> int:
    """1 or -1 where an interval lies on one side of 0, further from it than rounding reaches, else 0."""
    return int(interval.low > 1e-9) - int(interval.high < -1e-9)


def judge_causes_failure(results: Results, facts: Facts) -> Judgement:
    """Is the error far out smaller without the norm? (The paper's central inference.)"""
    arms, other = results[far.norm_arms], results[far.counterpart]
    x_unit = facts.x_unit
    at = f"|x| = {power(FAR_X * x_unit)}"
    zero, intact, frozen = (_far_error(arms, x_unit, arm=arm) for arm in ("zero predictor", "intact", "frozen"))
    ratio = _log_ratio(frozen, intact)
    relative = {"intact": float(intact.mean() / zero.mean()), "frozen": float(frozen.mean() / zero.mean())}
    reason = (
        f"at {at} the error relative to the zero predictor is {relative['intact']:.2f} intact and "
        f"{relative['frozen']:.2f} with the norms frozen"
    )
    # An error that freezing leaves as it is, but for rounding, lies in neither region.
    verdict = None if _sign(ratio) else "inconclusive"
    if len(other.indexes["function"]):
        without = _far_error(other, x_unit)
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
        "sham": float(_far_error(arms, x_unit, arm="sham").mean() / zero.mean()),
    }  # fmt: skip
    estimate = Estimate.of("far error, frozen / intact", ratio, "log10")
    fresh = (_far_error(results.twin[far.norm_arms], x_unit, arm=arm) for arm in ("frozen", "intact"))
    twin = Estimate.of("far error, frozen / intact", _log_ratio(*fresh), "log10")
    scope = f"{SCOPE}{at}, paired by function"
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
        measurements=(far.certificate, far.ends, far.intact, far.contexts, far.norm_scales, boundary.approach),
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
            "growth exponent of f over 1e3 .. 1e5 units (0 where f falls), frozen minus intact: > 0.8 / < 0.2",
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
