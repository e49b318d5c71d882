"""The claims of `limits` about boundary values: reached at once, and no learning in context where inputs are large."""

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap, slope
from icl_interp.results import row_of
from icl_interp.studies.limits.claims.layernorm import CONSTANT_OUTPUT, ONSET, SCOPE, needs_growth
from icl_interp.studies.limits.measurements import boundary, far
from icl_interp.studies.limits.measurements.far import CONSTANT, power

# |x| of a high norm, in units of `Lab.x_unit`: past every onset seen, and where no error ratio changes any more.
HIGH = (1e4, 1e5)
HELPS = 0.9  # error over the best context-free reference from which the context counts as no help
BOUNDED = 0.1  # growth exponent up to which f counts as bounded
SHOWN = ("trained range", "zone", "peak", "peak at", "onset", "level", "approach rate", "E_f", "E_N", "E_sigma")


# ---- at once --------------------------------------------------------------------------------------------------------


def decades_to_level(curve: DataArray, edges: dict[str, float], level: float) -> Interval:
    """Decades from the edge of the trained range to the onset of the plateau, in the slower direction."""
    parts = {name: boundary.direction(curve, sign) for name, sign in boundary.SIGNS.items()}
    gap = curve.sel(statistic="gap").values

    def slower(*means: np.ndarray) -> np.ndarray:
        each = [
            np.log10(boundary.settles(xs, np.sqrt(m), level) / edges[name])
            for m, (name, (xs, _)) in zip(means, parts.items(), strict=True)
        ]
        return np.max(each, axis=0)

    return bootstrap(slower, *(gap[:, keep] for _, keep in parts.values()))


def _edges(table: DataFrame) -> dict[str, float]:
    return {d: row_of(table, direction=d, quantity="trained range")["value"] for d in boundary.SIGNS}


def boundary_immediate(results: Results, facts: Facts) -> Evidence:
    """How far beyond the training range does f reach its boundary value, and how much do contexts still differ?"""
    table, weights = results[boundary.boundary], results[far.certificate].iloc[0]
    edges, r = _edges(table), weights["r"]
    name, unit = "onset of the plateau beyond the trained range", "decades"
    x_unit = facts.x_unit
    end_x, last = 1e6 * x_unit, boundary.LAST * x_unit
    scope = f"{SCOPE}|x| = {0.1 * x_unit:g} .. {power(end_x)}"
    quantities = {"half-width r": Estimate.exactly("half-width r of the certificate", r, "f")}
    if not r >= CONSTANT:
        return Evidence(quantities, f"f is {weights['c']:.6g} everywhere.", scope=scope)
    if not np.isnan(weights["onset"]):
        predicted = weights["onset"] / x_unit
        quantities["predicted onset"] = Estimate.exactly("predicted onset of saturation", predicted, "units of x")
    onset = decades_to_level(results[boundary.approach], edges, boundary.LEVEL * r)
    quantities["onset"] = Estimate.of(name, onset, unit)
    rows = {(row["direction"], row["quantity"]): row for row in table.to_dict("records")}
    near = np.array([[rows[d, f"one decade out{s}"]["value"] for d in edges] for s in ("", ", spread")])
    end = np.array([[rows[d, f"level{s}"]["value"] for d in edges] for s in ("", ", spread")])
    if onset.value >= np.log10(last / max(edges.values())):
        says = f"f does not settle within {boundary.LEVEL} r of its value at {power(end_x)} before |x| = {power(last)}"
    else:
        says = (
            f"f stays within {boundary.LEVEL} r of its boundary value from |x| = "
            f"{10**onset.value * max(edges.values()):.3g} on, {onset.value:.2g} decades beyond the trained range; one "
            f"decade beyond it is {near[0, 0]:.3g} and {near[0, 1]:.3g} on average (at {power(end_x)} {end[0, 0]:.3g} "
            f"and {end[0, 1]:.3g}), and contexts differ by {near[1].max():.2g} (at {power(end_x)} by "
            f"{end[1].max():.2g})"
        )
    twin = decades_to_level(
        results.twin[boundary.approach_decades], edges, boundary.LEVEL * results.twin[far.certificate].iloc[0]["r"]
    )
    return Evidence(
        quantities,
        says + ".",
        scope=scope,
        twin={"onset": Estimate.of(name, twin, unit)},
        details=tuple({"direction": d, **{q: rows[d, q]["value"] for q in SHOWN}} for d in edges),
    )


# ---- no learning in context at a high norm --------------------------------------------------------------------------


def _at(curve: DataArray, statistic: str, x: float) -> np.ndarray:
    """Mean over both directions at one |x|, for each function."""
    return curve.sel(statistic=statistic).values[:, np.isclose(np.abs(curve["x"].values), x)].mean(-1)


def relative_error(curve: DataArray, x_unit: float = 1.0) -> Interval:
    """Error over that of the better context-free reference, at the |x| of `HIGH` where the context helps most.

    References: predicting 0, and one curve for all contexts (f averaged over other functions' contexts).
    """
    arrays = [_at(curve, s, x * x_unit) for x in HIGH for s in ("squared error", "zero predictor", "context-free")]

    def smallest(*means: np.ndarray) -> np.ndarray:
        each = [means[i] / np.minimum(means[i + 1], means[i + 2]) for i in range(0, len(means), 3)]
        return np.min(each, axis=0)

    return bootstrap(smallest, *arrays)


def arm_rows(curve: DataArray) -> list[dict[str, object]]:
    """What the three arms of "far out" do: growth of f, spread over contexts, error in units of the zero predictor's.

    Spread and error are given at scale 1, 1e4 and 1e6; growth is the exponent of f's size over the last two decades.
    """
    rows = []
    for arm in curve.indexes["arm"]:
        f, truth = (curve.sel(arm=arm, curve=who).values for who in ("model", "truth"))  # (function, query, scale)
        size, spread = np.square(f).mean((0, 1)), np.sqrt(np.square(f - f.mean(0)).mean((0, 1)))
        error = np.square(f - truth).mean((0, 1)) / np.maximum(np.square(truth).mean((0, 1)), 1e-300)
        exponent = float(slope(np.log(curve["scale"].values[-2:]), 0.5 * np.log(np.maximum(size[-2:], 1e-300))))
        row: dict[str, object] = {"arm": arm, "growth exponent": exponent, "bounded": bool(exponent <= BOUNDED)}
        for scale in (1.0, 1e4, 1e6):
            k = int(np.argmin(np.abs(curve["scale"].values - scale)))
            row |= {f"spread at {scale:.0e}": float(spread[k]), f"error at {scale:.0e}": float(error[k])}
        rows.append(row)
    return rows


def no_icl_at_high_norm(results: Results, facts: Facts) -> Evidence:
    """Does the context still help to predict where the query's embedding is large?"""
    curve = results[boundary.approach]
    x_unit = facts.x_unit
    found = relative_error(curve, x_unit)
    near, out = (x * x_unit for x in HIGH)
    error, zero, line = (float(_at(curve, s, near).mean()) for s in ("squared error", "zero predictor", "context-free"))
    rows = arm_rows(results[boundary.arms])
    cfg = facts.config
    norm = cfg.normalization_type or "no norm"
    design = f"{norm}{', post' if norm != 'no norm' and cfg.norm_position == 'post' else ''}, {cfg.score_fn}"
    others = ", ".join(
        f"{row['arm']}: error {row['error at 1e+04']:.2g}, spread {row['spread at 1e+04']:.2g}, "
        f"{'bounded' if row['bounded'] else 'growing'}"
        for row in rows[1:]
    )
    says = (
        f"at a query of {power(near)} the error is {error / zero:.3g} of the zero predictor's and {error / line:.3g} "
        f"of that of the model's own context-free curve ({design}); the smaller ratio over {power(near)} and "
        f"{power(out)} is {found.value:.3g}. With all inputs, or the function, scaled by 1e4 "
        f"instead, relative to zero: {others}"
    )
    twin = relative_error(results.twin[boundary.approach_decades], x_unit)
    name = "far error / best context-free error"
    return Evidence(
        {"error": Estimate.of(name, found)},
        says + ".",
        scope=SCOPE + f"|x| = {power(near)} and {power(out)}",
        twin={"error": Estimate.of(name, twin)},
        details=tuple(rows),
    )


BOUNDARY_IMMEDIATE_CLAIM = Claim(
    id="limits.boundary_immediate",
    question="far from the data",
    short="The output levels off just beyond the range of inputs trained on.",
    quote=Quote(
        "Although the mathematical reasoning speaks of infinity but this value appears immediately empirically",
        "Naim & Asher (2025), appendix G.1, last sentence of the proof of Proposition 6",
        "The paper shows plots (Figure 4) and does not say what counts as immediate. We ask that the "
        "output settle at its end value within one decade beyond the edge of the trained range.",
    ),
    kind="architecture",
    statement="Boundary values appear immediately: the output is level just beyond the training range",
    source="Naim & Asher (2025), Appendix G, after Proposition 6",
    criterion=Criterion(
        f"onset of the plateau (f within {boundary.LEVEL} r of its end for good) beyond the edge of the trained "
        "range, both directions: <= 1 decade / > 2 decades",
        (Condition("onset", (-INF, 1.0), (2.0, INF)),),
        (CONSTANT_OUTPUT, Precondition("predicted onset", (-INF, boundary.LAST), ONSET, optional=True)),
    ),
    measurements=(
        far.certificate,
        far.intact,
        far.contexts,
        far.norm_scales,
        boundary.approach,
        boundary.logs,
        boundary.boundary,
    ),
    twin=(boundary.approach_decades, far.certificate),
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
        "large.",
    ),
    kind="architecture",
    statement="Transformers cannot learn in context over inputs of high embedding norm",
    source="Naim & Asher (2025), Proposition 4",
    criterion=Criterion(
        "squared error at a query of 1e4 and 1e5 units over that of the better context-free reference (zero, or "
        f"the model's own curve averaged over contexts), the smaller one: >= {HELPS} / < 0.5",
        (Condition("error", (HELPS, INF), (-INF, 0.5), "log"),),
    ),
    measurements=(boundary.approach, boundary.arms, boundary.boundary),
    twin=(boundary.approach_decades,),
    evidence=no_icl_at_high_norm,
    of_numbers=True,
    figures=("boundary",),
)
