"""The claims of `limits` about LayerNorm: it saturates f, it is the cause of that, it is the cause of the failure."""

from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap, slope
from icl_interp.studies.limits.measurements import boundary, far
from icl_interp.studies.limits.measurements.far import CONSTANT, power

# |x| in units of `Lab.x_unit` where the failure is read: past every onset seen; the ratio of errors changes no more.
FAR_X = 1e3
ROUNDING = 1e-9  # of log10 of a ratio of errors: what freezing moves by no more is neither better nor worse
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


def saturation(results: Results, facts: Facts) -> Evidence:
    """Does f stop changing, and at the value that the weights alone predict?"""
    weights = results[far.certificate].iloc[0]
    c, r = weights["c"], weights["r"]
    ends = results[far.ends].values
    plateau = Estimate.of("plateau at +inf", bootstrap(lambda mean: mean, ends[0, -1].mean(-1)), "f")
    x_unit = facts.x_unit
    reached = f"{power(far.LINE[0] * x_unit)} .. {power(far.LINE[-1] * x_unit)}"
    quantities = {"half-width r": Estimate.exactly("half-width r of the certificate", r, "f")}
    if not r > CONSTANT:
        says = f"The read-out after the last LayerNorm admits the value {c:.6g} only (r = {r:.1g})."
        return Evidence(quantities, says, plateau)
    change = _change_in_r(ends, r)
    quantities["change"] = Estimate.of("change of f per decade", change, "r")
    says = f"f changes by {change.value:.2g} r per decade (interval up to {change.high:.2g}) over {reached}"
    closed = np.array([weights["plateau +"], weights["plateau -"]])
    distance = np.sqrt(np.square(ends[:, -1] - closed[:, None, None]).mean((1, 2))) / r
    measured = ends[:, -1].mean((1, 2))
    if facts.config.norm_position == "pre":
        grows = bool(np.isfinite(closed).all())
        quantities["read-in grows"] = Estimate.exactly("whether centring leaves the read-in", grows)
        if grows:
            onset = weights["onset"] / x_unit
            quantities["onset"] = Estimate.exactly("predicted onset of saturation", onset, "units of x")
            quantities["distance"] = Estimate.exactly("distance to the closed form", distance.max(), "r")
            says += (
                f"; at the end it is {measured[0]:.4f} and {measured[1]:.4f}, within {distance.max():.2g} r of the "
                "closed form"
            )
    else:
        apart = float(ends[:, -1].std((1, 2)).max())
        says += (
            f"; at the end it is {measured[0]:.4f} and {measured[1]:.4f} on average over contexts, which differ there "
            f"by {apart:.2g} (sd; no closed form, post-norm)"
        )
    details: list[dict[str, Any]] = [
        {"direction": d, "measured": float(m), "closed form": float(f), "distance in r": float(x)}
        for d, m, f, x in zip("+-", measured, closed, distance, strict=True)
    ]
    settled = _measured_onset(results[boundary.approach], r)
    details.append({"c": c, "r": r, "measured onset": settled, "predicted onset": weights["onset"]})
    scales = scale_growth(results[far.norm_scales], x_unit)
    details += [{"norm": name, "E_sigma": value} for name, value in scales.items()]
    twin_r = results.twin[far.certificate].iloc[0]["r"]
    twin = Estimate.of("change of f per decade", _change_in_r(results.twin[far.ends].values, twin_r), "r")
    return Evidence(
        quantities, says + ".", plateau, f"{SCOPE}|x| = {reached}", twin={"change": twin}, details=tuple(details)
    )


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
        xs: x, `(x,)`, in both directions.
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


def causes_saturation(results: Results, facts: Facts) -> Evidence:
    """Does f grow again once the norms' scales are frozen at the query?"""
    arms = results[far.norm_arms]
    xs = arms["x"].values
    gap = _exponent_gap(arms)
    slopes = {
        arm: float(exponents(arms.sel(arm=arm, statistic="mean square").values.mean(0), xs))
        for arm in arms.indexes["arm"]
        if arm != "zero predictor"
    }
    single = {arm: max(value, 0.0) for arm, value in slopes.items()}
    built = results[far.sufficiency]
    inserted = {
        arm: float(growth_exponent(built.sel(arm=arm).values.mean(0), built["x"].values))
        for arm in built.indexes["arm"]
    }
    cost = {arm: float(results[far.cost].sel(arm=arm).values.mean()) for arm in ("intact", "frozen")}
    each = {name: value for name, value in single.items() if name not in ("intact", "frozen", "sham")}
    enough = [name for name, value in each.items() if value - single["intact"] > 0.8]
    reached = f"{power(xs.max() / 100)} .. {power(xs.max())}"
    says = (
        f"the growth exponent over {reached} is {single['intact']:.2f} intact and {single['frozen']:.2f} with every "
        f"norm frozen at the query (sham, context positions only: {single['sham']:.2f}); alone, "
        + (f"{', '.join(enough)} suffices." if enough else "no norm suffices.")
    )
    falling = [f"{arm} like |x|^{slopes[arm]:.2f}" for arm in ("intact", "frozen", "sham") if slopes[arm] < -0.05]
    if falling:
        says += f" f falls towards 0 {', '.join(falling)}; that counts as an exponent of 0."
    weights = results[far.certificate].iloc[0]
    name = "growth exponent, frozen - intact"
    quantities = {"gap": Estimate.of(name, gap)}
    if not np.isnan(weights["r"]):
        quantities["half-width r"] = Estimate.exactly("half-width r of the certificate", weights["r"], "f")
    if not np.isnan(weights["onset"]):
        onset = weights["onset"] / facts.x_unit
        quantities["onset"] = Estimate.exactly("predicted onset of saturation", onset, "units of x")
    causal = {
        "intervention": "freeze every norm's scale at the query position, at its in-distribution mean",
        "effect": gap.value,
        "intact": single["intact"],
        "frozen": single["frozen"],
        "sham": single["sham"],
        "sham effect": single["sham"] - single["intact"],
        "each norm alone": each,
        "sufficiency": {"untrained without norm": inserted["intact"], "LayerNorm inserted": inserted["norm inserted"]},
        "cost": {"in-distribution error intact": cost["intact"], "frozen": cost["frozen"]},
    }
    twin = {"gap": Estimate.of(name, _exponent_gap(results.twin[far.norm_arms]))}
    return Evidence(quantities, says, scope=f"{SCOPE}|x| = {reached}", causal=causal, twin=twin)


# ---- causes failure -------------------------------------------------------------------------------------------------


def _far_error(curve: DataArray, x_unit: float, **arm: str) -> np.ndarray:
    """Squared error of each function at |x| = FAR_X units, both directions."""
    values = curve.sel({"statistic": "squared error", **arm}).values
    return values[:, np.isclose(np.abs(curve["x"].values), FAR_X * x_unit)].mean(-1)


def _log_ratio(a: np.ndarray, b: np.ndarray) -> Interval:
    return bootstrap(lambda x, y: np.log10(x / y), a, b)


def causes_failure(results: Results, facts: Facts) -> Evidence:
    """Is the error far out smaller without the norm? This is the paper's central inference."""
    arms, other = results[far.norm_arms], results[far.counterpart]
    x_unit = facts.x_unit
    at = f"|x| = {power(FAR_X * x_unit)}"
    zero, intact, frozen = (_far_error(arms, x_unit, arm=arm) for arm in ("zero predictor", "intact", "frozen"))
    ratios = [_log_ratio(frozen, intact)]
    relative = {"intact": float(intact.mean() / zero.mean()), "frozen": float(frozen.mean() / zero.mean())}
    says = (
        f"at {at} the error relative to the zero predictor is {relative['intact']:.2f} intact and "
        f"{relative['frozen']:.2f} with the norms frozen"
    )
    if other.sizes["function"]:
        without = _far_error(other, x_unit)
        relative["trained without"] = float(without.mean() / zero.mean())
        ratios.append(_log_ratio(without, intact))
        says += f"; {relative['trained without']:.2f} for the model trained without normalisation"
    else:
        says += "; no model trained without normalisation was at hand (pass companions=)"
    sham = float(_far_error(arms, x_unit, arm="sham").mean())
    causal = {
        "intervention": "freeze every norm's scale at the query position; train without normalisation",
        "effect": ratios[0].value,
        "far error / zero predictor": relative,
        "sham": sham / float(zero.mean()),
        "sham effect": float(np.log10(sham / intact.mean())),
    }
    fresh = (_far_error(results.twin[far.norm_arms], x_unit, arm=arm) for arm in ("frozen", "intact"))
    name = "far error, frozen / intact"
    both = "far error, frozen and trained without / intact" if len(ratios) > 1 else name
    return Evidence(
        {"ratio": Estimate.spanning(both, ratios, "log10")},
        says + ".",
        Estimate.of(name, ratios[0], "log10"),
        f"{SCOPE}{at}, paired by function",
        causal,
        twin={"ratio": Estimate.of(name, _log_ratio(*fresh), "log10")},
    )


CONSTANT_OUTPUT = Precondition(
    "half-width r",
    (CONSTANT, INF),
    "The output is constant whatever the norms do, so nothing is decided.",
    optional=True,
)
ONSET = "But the predicted onset of saturation, |x| = {value:.3g} units of x, lies beyond the range."

LAYERNORM_SATURATION_CLAIM = Claim(
    id="limits.layernorm_saturation",
    question="far from the data",
    short="LayerNorm makes the output level off far from the data.",
    quote=Quote(
        "as the nominator tends asymptotically towards a linear function at infinity it means that the "
        "ratio tends towards a constant that we have called boundary values",
        "Naim & Asher (2025), appendix G.1, proof of Proposition 6 (observed in section 5 and Figure 4)",
        "The paper proves this for one attention layer that is followed by a LayerNorm. We measure on the"
        " whole model how much the output still changes per decade of the query, from 1e4 to 1e6 units, "
        "and compare the end value with what the weights predict.",
    ),
    kind="architecture",
    statement="Far from the data LayerNorm makes the output level off at boundary values that the weights fix",
    source="Naim & Asher (2025), section 5 and Proposition 6",
    criterion=Criterion(
        "change of f per decade over the last two decades <= 0.01 r, and within 0.01 r of the closed form (pre-LN) "
        "/ change > 0.05 r; r is the half-width of the output certificate",
        (
            Condition("change", (-INF, 0.01), (0.05, INF), "log"),
            Condition("distance", (-INF, 0.01), None, "log", optional=True),
        ),
        (
            CONSTANT_OUTPUT,
            Precondition(
                "read-in grows",
                (1, 1),
                "But centring removes the read-in, so the query's size never reaches a LayerNorm.",
                optional=True,
            ),
            Precondition("onset", (-INF, far.LINE[0]), ONSET, optional=True),
        ),
    ),
    measurements=(far.certificate, far.ends, far.intact, far.contexts, far.norm_scales, boundary.approach),
    twin=(far.ends, far.certificate),
    evidence=saturation,
    of_numbers=True,
    excluded=needs_growth,
    figures=("far_query",),
)

LAYERNORM_CAUSES_SATURATION_CLAIM = Claim(
    id="limits.layernorm_causes_saturation",
    question="far from the data",
    short="LayerNorm causes the output to level off far from the data.",
    quote=Quote(
        "Layer Normalization is responsible for boundary values",
        "Naim & Asher (2025), appendix G.1, Proposition 6 (Proposition 3 in section 6 says the same)",
        "The paper trains another model without LayerNorm and finds larger outputs. We keep the trained "
        "model, freeze the scale of every LayerNorm at the query, and compare how fast the output grows "
        "from 1e3 to 1e5 units.",
    ),
    kind="architecture",
    statement="LayerNorm is what makes the output level off: with its scale frozen the output grows again",
    source="Naim & Asher (2025), Proposition 6; causal test ours",
    criterion=Criterion(
        "growth exponent of f over 1e3 .. 1e5 units (0 where f falls), frozen minus intact: > 0.8 / < 0.2",
        (Condition("gap", (0.8, INF), (-INF, 0.2)),),
        (CONSTANT_OUTPUT, Precondition("onset", (-INF, far.GROWTH.max()), ONSET, optional=True)),
    ),
    measurements=(far.certificate, far.norm_arms, far.sufficiency, far.cost),
    twin=(far.norm_arms,),
    evidence=causes_saturation,
    of_numbers=True,
    excluded=needs_norm,
    figures=("growth",),
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
        "In Table 1 the paper compares models trained with and without LayerNorm on functions with "
        "coefficients up to 10; the inputs stay inside [-1, 1]. We move the query far out and freeze the "
        "scale of every LayerNorm there; section 6 itself says that removing LayerNorm does not restore "
        "in-context learning for such queries.",
    ),
    kind="architecture",
    statement="LayerNorm is what makes the model fail far from the data: without it the far error is smaller",
    source="Naim & Asher (2025), section 5 (Table 1) and section 6",
    criterion=Criterion(
        "far error without the norm (frozen; and trained without, where there is one) over intact, log10, both: "
        "below 0 / above 0",
        (Condition("ratio", (-INF, -ROUNDING), (ROUNDING, INF)),),
    ),
    measurements=(far.norm_arms, far.counterpart),
    twin=(far.norm_arms,),
    evidence=causes_failure,
    of_numbers=True,
    excluded=needs_norm,
    figures=("growth",),
)
