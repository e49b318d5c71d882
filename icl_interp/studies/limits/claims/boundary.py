"""The claims of `limits` about boundary values: reached at once, and no learning in context where inputs are large."""

import numpy as np
from xarray import DataArray

from icl_interp.analyses import scale
from icl_interp.analyses.claim import LEARNED_R2, Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap, slope
from icl_interp.studies.limits.claims.layernorm import SCOPE, needs_growth
from icl_interp.studies.limits.measurements import boundary, context, far
from icl_interp.studies.limits.measurements.context import HIGH, ROUNDING
from icl_interp.studies.limits.measurements.far import power

NO_HELP = 0.9  # error over that of the best guess without the context, from which the context is no help
HELP = 0.5  # the same ratio, below which the context helps
BOUNDED = 0.1  # growth exponent up to which f counts as bounded
DECODABLE = 0.5  # centred r2 from which a far prediction still tells the truth, however small its size
SHOWN = ("trained range", "zone", "peak", "peak at", "onset", "level", "approach rate", "E_f", "E_N", "E_sigma")
ONSET = "But the onset that the weights predict, |x| = {value:.3g} units of x, lies beyond the range measured."


# ---- at once --------------------------------------------------------------------------------------------------------

AT_ONCE = Condition("onset", (-INF, 1.0), (2.0, INF))


def decades_to_level(curve: DataArray, edge: float, level: float) -> Interval:
    """Decades from the edge of the trained range to the onset of the plateau, in the slower direction.

    Args:
        curve: `far/approach`.
        edge: the largest |x| trained on.
        level: the distance of f from its end that counts as level.
    """
    parts = [boundary.direction(curve, sign) for sign in boundary.SIGNS.values()]
    gap = curve.sel(statistic="gap").values

    def slower(*means: np.ndarray) -> np.ndarray:
        each = [boundary.settles(xs, np.sqrt(m), level) for m, (xs, _) in zip(means, parts, strict=True)]
        return np.log10(np.max(each, axis=0) / edge)

    return bootstrap(slower, *(gap[:, keep] for _, keep in parts))


def _moves(curve: DataArray, intact: DataArray, edge: float) -> float:
    """How far f is from its end within the trained range, or how far apart its two ends are: the larger one."""
    gap, inside = curve.sel(statistic="gap").values.mean(0), np.abs(curve["x"].values) <= edge
    mean, xs = intact.sel(statistic="mean").values.mean(0), intact["x"].values
    apart = float(abs(mean[xs.argmax()] - mean[xs.argmin()]))
    return max(float(np.sqrt(gap[inside].max(initial=0.0))), apart)


def _drift(beyond: DataArray, u: float) -> Interval:
    """How much f still changes from 1e6 to 1e9 units, in u: root mean square, the larger of both directions."""
    change = np.square((beyond.values[:, 2] - beyond.values[:, 0]) / u).mean(-1)  # (direction, unit)
    return bootstrap(lambda m: np.sqrt(m.max(-1)), change.T)


def _of_twin(twin: Results, edge: float) -> Estimate | None:
    """The onset of an untrained twin; None where its output is constant."""
    u = scale.u(twin)
    onset = decades_to_level(twin[boundary.approach_decades], edge, boundary.LEVEL * u) if u > 0 else None
    return onset and Estimate.of("onset of the plateau beyond the trained range", onset, "decades")


def boundary_immediate(results: Results, facts: Facts) -> Evidence:
    """How far beyond the training range does f reach its boundary value, and how much do contexts still differ?"""
    table, curve, intact = results[boundary.boundary], results[boundary.approach], results[far.intact]
    u, edge = scale.u(results), facts.x_unit
    end_x, last_x = 1e6 * edge, boundary.LAST * edge
    scope = f"{SCOPE}|x| = {0.1 * edge:g} .. {power(end_x)}"
    largest = float(np.sqrt(intact.sel(statistic="mean square").values.max()))
    quantities = {"scale": Estimate.exactly("u over the size of f", u / largest if largest else 0.0, "relative")}
    if not u > ROUNDING * largest:
        return Evidence(quantities, "", scope=scope)
    onset = decades_to_level(curve, edge, boundary.LEVEL * u)
    found = Estimate.of("onset of the plateau beyond the trained range", onset, "decades")
    quantities |= {
        "moves": Estimate.exactly("change of f along the query", _moves(curve, intact, edge) / u, "u"),
        "reached": Estimate("onset", 10**onset.value, 10**onset.low, 10**onset.high, "units of x"),
        "drift": Estimate.of("change of f from 1e6 to 1e9 units", _drift(results[context.beyond], u), "u"),
        "onset": found,
    }
    if not np.isnan(predicted := results[far.certificate].iloc[0]["onset"] / edge):
        quantities["predicted onset"] = Estimate.exactly("predicted onset of saturation", predicted, "units of x")
    rows = {(row["direction"], row["quantity"]): row for row in table.to_dict("records")}
    near, end = (
        [[rows[d, f"{what}{s}"]["value"] for d in boundary.SIGNS] for s in ("", ", spread")]
        for what in ("one decade out", "level")
    )
    if onset.value >= np.log10(boundary.LAST):
        says = (
            f"f does not settle within {boundary.LEVEL} u of its value at {power(end_x)} before |x| = {power(last_x)} "
            f"(u = {u:.3g}, its standard deviation in distribution)"
        )
    else:
        at_once = "at once" if onset.value <= 1 else "not at once" if onset.value > 2 else "neither at once nor late"
        says = (
            f"The boundary value comes {at_once}: f stays within {boundary.LEVEL} u of it from |x| = "
            f"{10**onset.value * edge:.3g} on, {onset.value:.2g} decades beyond the trained range (u = {u:.3g}, its "
            f"standard deviation in distribution; at once is within 1 decade, late beyond 2). One decade out f is "
            f"{near[0][0]:.3g} and {near[0][1]:.3g} on average (at {power(end_x)} {end[0][0]:.3g} and {end[0][1]:.3g}) "
            f"and contexts differ by {max(near[1]):.2g} (at {power(end_x)} by {max(end[1]):.2g})"
        )
    twin = _of_twin(results.twin, edge)
    return Evidence(
        quantities,
        says + ".",
        found,
        scope,
        twin={"onset": twin} if twin else {},
        details=tuple({"direction": d, **{q: rows[d, q]["value"] for q in SHOWN}} for d in boundary.SIGNS),
    )


# ---- no learning in context at a high norm --------------------------------------------------------------------------


def relative_error(used: DataArray, *groups: np.ndarray) -> Interval:
    """Error over that of the better guess without the context, in the group of queries where the context helps most.

    The guesses: the law's mean, and one curve for all contexts (f averaged over other units' contexts).

    Args:
        used: `context/use`.
        groups: which queries are averaged, by place; the smallest ratio of all groups counts, in every draw.
    """
    names = ("squared error", "law's mean", "context-free", "size")
    parts = [np.stack([used.sel(statistic=s).values[:, at].mean(-1) for s in names], -1) for at in groups]

    def smallest(*means: np.ndarray) -> np.ndarray:
        # Where all functions are one the law's mean is exact up to rounding, and the ratio is large, not 0 / 0.
        guesses = [np.maximum(m[..., 1:3].min(-1), 1e-24 * m[..., 3] + 1e-200) for m in means]
        return np.min([m[..., 0] / guess for m, guess in zip(means, guesses, strict=True)], axis=0)

    return bootstrap(smallest, *parts, positive=True)


def decodable(used: DataArray, at: np.ndarray) -> Interval:
    """Squared correlation of f and the truth over prompts, the mean over queries; 0 where f's spread is rounding."""
    names = ("f", "truth", "f squared", "truth squared", "product")
    parts = [used.sel(statistic=s).values[:, at] for s in names]
    size = used.sel(statistic="f size").values[:, at].mean(0)
    told = parts[2].mean(0) > ROUNDING**2 * size

    def squared(f: np.ndarray, t: np.ndarray, ff: np.ndarray, tt: np.ndarray, ft: np.ndarray) -> np.ndarray:
        variances = np.maximum(ff - f**2, 0.0) * np.maximum(tt - t**2, 0.0)
        return np.where(told & (variances > 0), (ft - f * t) ** 2 / np.maximum(variances, 1e-300), 0.0).mean(-1)

    return bootstrap(squared, *parts)


def swapped(used: DataArray, at: np.ndarray) -> Interval:
    """Error with the contexts of another unit over the error with a prompt's own."""
    own, other = (used.sel(statistic=s).values[:, at].mean(-1) for s in ("squared error", "swapped"))
    return bootstrap(lambda a, b: b / np.maximum(a, 1e-200), own, other, positive=True)


def arm_rows(curve: DataArray, u: float) -> list[dict[str, object]]:
    """What the three arms of "far out" do: growth of f, spread over contexts, error over that of the law's mean.

    Spread (in units of u) and error are given at scale 1, 1e4 and 1e6; growth is the exponent of f's size over the last
    two decades.
    """
    rows = []
    for arm in curve.indexes["arm"]:
        # (unit, query, scale)
        f, truth, mean = (curve.sel(arm=arm, curve=who).values for who in ("model", "truth", "law's mean"))
        size, spread = np.square(f).mean((0, 1)), np.sqrt(np.square(f - f.mean(0)).mean((0, 1))) / (u or 1.0)
        error = np.square(f - truth).mean((0, 1)) / np.maximum(np.square(mean - truth).mean((0, 1)), 1e-300)
        exponent = float(slope(np.log(curve["scale"].values[-2:]), 0.5 * np.log(np.maximum(size[-2:], 1e-300))))
        row: dict[str, object] = {"arm": arm, "growth exponent": exponent, "bounded": bool(exponent <= BOUNDED)}
        for scale_of in (1.0, 1e4, 1e6):
            k = int(np.argmin(np.abs(curve["scale"].values - scale_of)))
            row |= {f"spread at {scale_of:.0e}": float(spread[k]), f"error at {scale_of:.0e}": float(error[k])}
        rows.append(row)
    return rows


def no_icl_at_high_norm(results: Results, facts: Facts) -> Evidence:
    """Does the context, which helps at inner queries, still help where the query's embedding is large?"""
    used, x_unit = results[context.use], facts.x_unit
    found, near = relative_error(used, *context.far_out(used, x_unit)), relative_error(used, context.INNER)
    everywhere = np.concatenate(context.far_out(used, x_unit))
    r2, swaps = decodable(used, everywhere), [swapped(used, at) for at in (context.INNER, everywhere)]
    first, last = (power(x * x_unit) for x in HIGH)
    rows = arm_rows(results[boundary.arms], scale.u(results))
    others = ", ".join(
        f"{row['arm']}: error {row['error at 1e+04']:.2g}, spread {row['spread at 1e+04']:.2g} u, "
        f"{'bounded' if row['bounded'] else 'growing'}"
        for row in rows[1:]
    )
    helps = "does not help" if found.value >= NO_HELP else "helps" if found.value < HELP else "helps little"
    says = (
        f"Far out the context {helps}: at queries of {first} and {last} the error is {found.value:.3g} of that of the "
        f"best guess without it (the law's mean, or the model's own curve averaged over contexts), at inner queries "
        f"{near.value:.2g}; {NO_HELP} or more is no help, below {HELP} is help. Another unit's context multiplies the "
        f"error by {swaps[1].value:.3g} far out and by {swaps[0].value:.3g} at inner queries. "
    )
    if r2.low > DECODABLE:
        says += f"What the context says is attenuated, but decodable: r2 of f and the truth is {r2.value:.2f}"
    else:
        says += f"The truth is not clearly decodable from f: their r2 is {r2.value:.2f}"
    says += (
        f" after centring (above {DECODABLE} is decodable). With all inputs, or the function, scaled by 1e4 instead, "
        f"error over the law's mean's: {others}"
    )
    name = "far error / best error without the context"
    causal = {
        "intervention": "put another unit's context before the same query",
        "effect": swaps[1].value,
        "error swapped / own, in distribution": swaps[0].value,
        "error swapped / own, far out": swaps[1].value,
        "centred r2 of f and the truth, far out": [r2.low, r2.value, r2.high],
    }
    of_twin = results.twin[context.use]
    twin = relative_error(of_twin, *context.far_out(of_twin, x_unit))
    return Evidence(
        {
            "R2": Estimate.exactly("in-distribution R2", facts.r2),
            "near": Estimate.of("error at inner queries / best error without the context", near),
            "error": Estimate.of(name, found),
        },
        says + ".",
        Estimate.of(name, found),
        f"{SCOPE}|x| = {first} and {last}",
        causal,
        {"error": Estimate.of(name, twin)},
        tuple(rows),
    )


BOUNDARY_IMMEDIATE_CLAIM = Claim(
    id="limits.boundary_immediate",
    question="far from the data",
    short="The output levels off just beyond the range of inputs trained on.",
    quote=Quote(
        "Although the mathematical reasoning speaks of infinity but this value appears immediately empirically",
        "Naim & Asher (2025), appendix G.1, last sentence of the proof of Proposition 6",
        "The paper shows plots (Figure 4) and does not say what counts as immediate. We ask that the "
        "output settle at its end value within one decade beyond the edge of the trained range; it has "
        "settled where it stays within a tenth of its own standard deviation in distribution.",
    ),
    kind="architecture",
    statement="Boundary values appear immediately: the output is level just beyond the training range",
    source="Naim & Asher (2025), Appendix G, after Proposition 6",
    criterion=Criterion(
        f"onset of the plateau (f within {boundary.LEVEL} u of its value at 1e6 for good; u is its standard deviation "
        "in distribution) beyond the largest |x| trained on, the slower direction: <= 1 decade / > 2 decades",
        (AT_ONCE,),
        (
            Precondition("scale", (ROUNDING, INF), "The output f is constant in distribution, so it has no scale."),
            Precondition(
                "moves",
                (boundary.LEVEL, INF),
                f"But f moves by {{value:.2g}} u along the query ({boundary.LEVEL} needed), so nothing has to settle.",
            ),
            Precondition("predicted onset", (-INF, boundary.LAST), ONSET, optional=True),
            Precondition(
                "drift",
                (-INF, boundary.LEVEL),
                f"But from 1e6 to 1e9 units f still moves by {{value:.2g}} u ({boundary.LEVEL} at most), so its end "
                "lies beyond the range measured.",
            ),
            Precondition(
                "reached",
                (-INF, (1 - 1e-9) * boundary.LAST),
                "But an onset beyond {value:.3g} units of x is not measured: f meets its own end there.",
            ),
        ),
    ),
    measurements=(
        scale.own,
        far.certificate,
        far.intact,
        far.contexts,
        far.norm_scales,
        context.beyond,
        boundary.approach,
        boundary.logs,
        boundary.boundary,
    ),
    twin=(boundary.approach_decades, scale.own),
    twins_agree=True,
    evidence=boundary_immediate,
    of_numbers=True,
    excluded=needs_growth,
    figures=("boundary",),
)

NO_ICL_AT_HIGH_NORM_CLAIM = Claim(
    id="limits.no_icl_at_high_norm",
    question="far from the data",
    short="Transformers cannot learn in context from queries with large embeddings.",
    quote=Quote(
        "Transformer models cannot perform in-context learning over inputs with high embedding norm.",
        "Naim & Asher (2025), section 6, Proposition 4",
        "The paper argues from what the output tends to. We measure the squared error at queries of 1e4 "
        "and 1e5 units and compare it with guesses that do not look at the context; only the query is "
        "large, and the context must help at queries inside the trained range.",
    ),
    kind="architecture",
    statement="Transformers cannot learn in context over inputs of high embedding norm",
    source="Naim & Asher (2025), Proposition 4",
    criterion=Criterion(
        "squared error at a query of 1e4 and 1e5 units over that of the best guess without the context (the law's "
        f"mean, or the model's own curve from other units), the smaller one: >= {NO_HELP} / < {HELP}",
        (Condition("error", (NO_HELP, INF), (-INF, HELP), "log"),),
        (
            Precondition(
                "R2",
                (LEARNED_R2, INF),
                f"But R2 is {{value:.2g}} in distribution ({LEARNED_R2} needed): no success nearby could be lost.",
            ),
            Precondition(
                "near",
                (-INF, HELP),
                f"But at inner queries the error is {{value:.2g}} of that of the best guess without the context "
                f"({HELP} at most): the context does not help nearby either.",
            ),
        ),
    ),
    measurements=(scale.own, context.use, boundary.arms, boundary.boundary),
    twin=(context.use,),
    evidence=no_icl_at_high_norm,
    of_numbers=True,
    figures=("boundary",),
)
