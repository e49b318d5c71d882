"""The claims of `limits` about boundary values: reached at once, and no learning in context where inputs are large."""

import numpy as np
from xarray import DataArray

from icl_interp.analyses import scale
from icl_interp.analyses.answer import bound
from icl_interp.analyses.claim import EXPLAINS, LEARNED_R2, Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Decision, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap, slope
from icl_interp.studies.limits.claims.far_words import (
    BY_ALGEBRA,
    EDGE,
    NO,
    ONSET,
    SD,
    YES,
    asked,
    in_lower_case,
    of,
    percent,
    predicted,
    undecided,
)
from icl_interp.studies.limits.claims.layernorm import needs_growth
from icl_interp.studies.limits.measurements import boundary, context, far
from icl_interp.studies.limits.measurements.context import HIGH, ROUNDING
from icl_interp.studies.limits.measurements.far import power

NO_HELP = 0.9  # error over that of the best guess without the prompt, from which its examples are no help
HELP = 0.5  # the same ratio, below which they help
BOUNDED = 0.1  # growth exponent up to which f counts as bounded
DRAWN_AT = ((1e4, 10**4.5), (10**4.5, 1e5), (1e5, 10**5.5), (10**5.5, 1e6))  # strata of drawn far queries
DECODABLE = 0.5  # centred r2 from which a far prediction still tells the truth, however small its size
SHOWN = (
    *("trained range", "zone", "peak", "peak at", "onset", "level", "level, spread"),
    *("one decade out", "one decade out, spread", "approach rate", "E_f", "E_N", "E_sigma"),
)


# ---- at once --------------------------------------------------------------------------------------------------------

SOON, LATE = 1.0, 2.0  # decades beyond the trained range up to which f is level at once, and from which it is late
AT_ONCE = Condition("onset", (-INF, SOON), (LATE, INF))
OWN_SD = "standard deviation of the prediction in distribution"
NAME = "|x| at which the plateau begins / largest |x| of training"


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


def _moves(curve: DataArray, intact: DataArray, edge: float, u: float) -> Interval:
    """How far f is from its end within the trained range, or how far apart its two ends are: the larger one, in u."""
    inside = np.abs(curve["x"].values) <= edge
    gap = curve.sel(statistic="gap").values[:, inside]
    xs = intact["x"].values
    ends = intact.sel(statistic="mean").values[:, [int(xs.argmax()), int(xs.argmin())]]

    def larger(square: np.ndarray, end: np.ndarray) -> np.ndarray:
        return np.maximum(np.sqrt(square.max(-1)), np.abs(end[..., 0] - end[..., 1])) / u

    return bootstrap(larger, gap, ends)


def _drift(beyond: DataArray, drawn: DataArray, u: float) -> Interval:
    """How much f still changes beyond 1e6 units, in u: root mean square, the largest of all directions and places."""
    known = np.square((beyond.values[:, 2] - beyond.values[:, 0]) / u).mean(-1).T  # (unit, direction), to 1e9
    gap = drawn.sel(statistic="gap").values[:, far.stratum(1e6, 1e10)] / u**2
    return bootstrap(lambda a, b: np.sqrt(np.maximum(a.max(-1), b.max(-1))), *map(far.pairs, (known, gap)))


def unsettled(drawn: DataArray, u: float) -> Interval:
    """Distance of f from its end at drawn places beyond `SOON`, in u: root mean square, the largest of all places."""
    gap = drawn.sel(statistic="gap").values[:, far.stratum(10**SOON, 1e6)]
    return bootstrap(lambda mean: np.sqrt(mean).max(-1) / u, far.pairs(gap))


def _of_twin(twin: Results, edge: float) -> Estimate | None:
    """The onset of an untrained twin; None where its output is constant."""
    u = scale.u(twin)
    onset = decades_to_level(twin[boundary.approach_decades], edge, boundary.LEVEL * u) if u > 0 else None
    return onset and Estimate.of(NAME, onset, "log10")


def boundary_immediate(results: Results, facts: Facts) -> Evidence:
    """How far beyond the training range does f reach its boundary value, and how much do contexts still differ?"""
    table, curve, intact = results[boundary.boundary], results[boundary.approach], results[far.intact]
    u, edge = scale.u(results), facts.x_unit
    end_x, last_x = 1e6 * edge, boundary.LAST * edge
    where = f"|x| = {0.1 * edge:g} .. {power(end_x)}, known and drawn places, and drawn ones to {power(1e10 * edge)}"
    drawn = results[far.drawn]
    scope = asked(facts, where, _n_prompts(results))
    largest = float(np.sqrt(intact.sel(statistic="mean square").values.max()))
    # Without an interval: it asks whether u is rounding, which does not turn on which prompts were drawn.
    quantities = {"scale": Estimate.exactly(f"{OWN_SD} / its largest size", u / largest if largest else 0.0)}
    if not u > ROUNDING * largest:
        return Evidence(quantities, "So it cannot be told how soon the prediction levels off.", scope=scope)
    onset = decades_to_level(curve, edge, boundary.LEVEL * u)
    found = Estimate.of(NAME, onset, "log10")
    quantities |= {
        "moves": Estimate.of("change of the prediction along the query", _moves(curve, intact, edge, u), SD),
        "reached": Estimate("|x| at which the plateau begins", 10**onset.value, 10**onset.low, 10**onset.high, EDGE),
        "drift": Estimate.of(f"its change from 1e6 to 1e10 {EDGE}", _drift(results[context.beyond], drawn, u), SD),
        "onset": found,
        "unsettled": Estimate.of(
            f"distance from its end at drawn places beyond {10**SOON:.0f} {EDGE}", unsettled(drawn, u), SD
        ),
    }
    if (begins := predicted(results[far.certificate], edge)) is not None:
        quantities["predicted onset"] = begins
    rows = {(row["direction"], row["quantity"]): row for row in table.to_dict("records")}
    near, end = (
        max(rows[d, f"{what}, spread"]["value"] for d in boundary.SIGNS) for what in ("one decade out", "level")
    )
    threshold = bound(IMMEDIATE, quantities, "onset", f"at most {10**SOON:.0f}", f"more than {10**LATE:.0f}")
    level = f"below {percent(boundary.LEVEL)} of its standard deviation"
    reached = 10**onset.value
    if onset.value >= np.log10(boundary.LAST):
        says = (
            f"{_how_soon(IMMEDIATE.decide(quantities))} Its distance from its value at |x| = {power(end_x)} does not "
            f"stay {level} before |x| = {power(last_x)}."
        )
    else:
        says = (
            f"{_how_soon(IMMEDIATE.decide(quantities))} Its distance from its end value stays {level} from "
            f"{f'{reached:,.0f}' if reached >= 100 else f'{reached:.3g}'} {EDGE} on ({threshold})."
        )
    caveat = f"At 10 times predictions for different contexts still spread by {of(near / u)} it."
    twin = _of_twin(results.twin, edge)
    return Evidence(
        quantities,
        says,
        found,
        scope,
        twin={"onset": twin} if twin else {},
        details=tuple({"direction": d, **{q: rows[d, q]["value"] for q in SHOWN}, OWN_SD: u} for d in boundary.SIGNS),
        caveat=caveat,
    )


def _n_prompts(results: Results) -> int:
    """Prompts that far queries were asked after."""
    return results[far.ends][0, 0].size


def _how_soon(decision: Decision) -> str:
    if decision.verdict == YES:
        return "The prediction levels off at once beyond the training data."
    if decision.verdict == NO:
        return "The prediction does not level off at once beyond the training data, but late."
    what = "the prediction levels off at once beyond the training data"
    if decision.failed:
        return f"So it cannot be told whether {what}."
    if undecided(decision) == "unsettled":
        return f"It is not decided whether {what}: at places drawn between those of the grid it is not level."
    return f"It is not decided whether {what}."


# ---- no learning in context at a high norm --------------------------------------------------------------------------


def relative_error(used: DataArray, *groups: np.ndarray, drawn: DataArray | None = None) -> Interval:
    """Error over that of the best guess without the prompt, in the group of queries where the context helps most.

    The guesses: the mean of the distribution of functions, and one curve for all contexts (f averaged over other units'
    contexts). At drawn places only the first, which no guess without the prompt can beat but by chance.

    Args:
        used: `context/use`.
        groups: which queries are averaged, by place; the smallest ratio of all groups counts, in every draw.
        drawn: `far/drawn`, whose strata from 1e4 to 1e6 are further groups.
    """
    names = ("squared error", "law's mean", "context-free", "size")
    parts = [np.stack([used.sel(statistic=s).values[:, at].mean(-1) for s in names], -1) for at in groups]
    if drawn is not None:
        error, law = (drawn.sel(statistic=s).values for s in ("squared error", "law's mean"))
        parts += [np.stack([v[:, at].mean(-1) for v in (error, law, law, law)], -1) for at in _drawn_groups()]
        parts = [far.pairs(part) for part in parts]

    def smallest(*means: np.ndarray) -> np.ndarray:
        # Where all functions are one the law's mean is exact up to rounding, and the ratio is large, not 0 / 0.
        guesses = [np.maximum(m[..., 1:3].min(-1), 1e-24 * m[..., 3] + 1e-200) for m in means]
        return np.min([m[..., 0] / guess for m, guess in zip(means, guesses, strict=True)], axis=0)

    return bootstrap(smallest, *parts, positive=True)


def follows_from_sizes(used: DataArray, drawn: DataArray, *groups: np.ndarray) -> bool:
    """Whether no prediction of this size could help: the ratio of errors is at least `NO_HELP` whatever f says.

    With r the root mean square of f less the law's mean, over that of the truth less it, the error is at least
    (1 - r)^2 times that of the law's mean (the triangle inequality).
    """
    known = used.sel(statistic=["f less law's mean", "law's mean"]).values.mean(1)
    between = drawn.sel(statistic=["size", "law's mean"]).values.mean(1)
    sizes = [known[:, at].mean(-1) for at in groups] + [between[:, at].mean(-1) for at in _drawn_groups()]
    return all(f <= (1 - np.sqrt(NO_HELP)) ** 2 * law for f, law in sizes)


def _drawn_groups() -> list[np.ndarray]:
    """The drawn places of each stratum of `DRAWN_AT`, in both directions."""
    return [np.concatenate([far.stratum(*ends, sign) for sign in (-1, 1)]) for ends in DRAWN_AT]


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
    far_out = context.far_out(used, x_unit)
    found, near = relative_error(used, *far_out, drawn=results[far.drawn]), relative_error(used, context.INNER)
    everywhere = np.concatenate(far_out)
    r2, swaps = decodable(used, everywhere), [swapped(used, at) for at in (context.INNER, everywhere)]
    first, last = (power(x * x_unit) for x in HIGH)
    rows = arm_rows(results[boundary.arms], scale.u(results))
    name = "squared error far from the data / that of the best guess without the prompt"
    quantities = {
        "R2": facts.learned,
        "near": Estimate.of("the same at queries in distribution", near),
        "error": Estimate.of(name, found),
    }
    threshold = bound(HIGH_NORM, quantities, "error", f"at least {percent(NO_HELP)}", f"less than {percent(HELP)}")
    decision = HIGH_NORM.decide(quantities)
    answer = _helps(decision)
    if decision.verdict == YES and follows_from_sizes(used, results[far.drawn], *far_out):
        answer = f"{BY_ALGEBRA}{in_lower_case(answer)[:-1]}, which is too small beside a truth that grows."
    says = (
        f"{answer} At |x| = {first} and {last} the squared error is {of(found.value)} "
        f"that of the best guess without the prompt ({threshold})."
    )
    caveat = (
        f"The truth {'can' if r2.low > DECODABLE else 'cannot clearly'} be read from these predictions: across prompts "
        f"the squared correlation of the two is {r2.value:.2f}."
    )
    causal = {
        "intervention": "put the context of another function before the same query",
        "effect": swaps[1].value,
        "error swapped / own, in distribution": swaps[0].value,
        "error swapped / own, far out": swaps[1].value,
        "centred r2 of f and the truth, far out": [r2.low, r2.value, r2.high],
    }
    of_twin = results.twin[context.use]
    twin = relative_error(of_twin, *context.far_out(of_twin, x_unit))
    return Evidence(
        quantities,
        says,
        Estimate.of(name, found),
        asked(facts, f"|x| = {first}, {last} and places drawn up to {power(1e6 * x_unit)}", _n_prompts(results)),
        causal,
        {"error": Estimate.of(name, twin)},
        tuple(rows),
        caveat,
    )


def _helps(decision: Decision) -> str:
    if decision.verdict == YES:
        return "Far from the data the examples in the prompt do not help the prediction."
    if decision.verdict == NO:
        return "Far from the data the examples in the prompt still help the prediction."
    what = "the examples help the prediction far from the data"
    return f"So it cannot be told whether {what}." if decision.failed else f"It is not decided whether {what}."


IMMEDIATE = Criterion(
    f"The |x| at which the plateau begins: from there on the prediction stays within {percent(boundary.LEVEL)} of its "
    f"standard deviation in distribution of its value at 1e6 {EDGE} (in the direction in which that takes longer). "
    f"Supported if it is at most {10**SOON:.0f} {EDGE}, and if the prediction is as near to it at all places drawn "
    f"beyond. Contradicted if it is more than {10**LATE:.0f} times that.",
    (AT_ONCE, Condition("unsettled", (-INF, boundary.LEVEL), None, "log")),
    (
        Precondition(
            "scale",
            (ROUNDING, INF),
            "The prediction is constant in distribution, so it has no standard deviation to compare with.",
        ),
        Precondition(
            "moves",
            (boundary.LEVEL, INF),
            "Along the query the prediction moves by {value:.2g} times its standard deviation in distribution "
            f"({boundary.LEVEL} needed), so nothing has to settle.",
        ),
        Precondition("predicted onset", (-INF, boundary.LAST), ONSET, optional=True),
        Precondition(
            "drift",
            (-INF, boundary.LEVEL),
            f"From 1e6 to 1e10 {EDGE} the prediction moves by {{value:.2g}} times its standard deviation "
            f"({boundary.LEVEL} allowed).",
        ),
        Precondition(
            "reached",
            (-INF, (1 - 1e-9) * boundary.LAST),
            f"A plateau that begins beyond {power(boundary.LAST)} {EDGE} cannot be told, because the end value is "
            "taken at 1e6.",
        ),
    ),
)

HIGH_NORM = Criterion(
    f"Squared error at queries of 1e4 and of 1e5 {EDGE}, and at places drawn from 1e4 to 1e6, over that of the best "
    "guess without the prompt (the mean of the distribution of functions, or the mean of the model's own predictions "
    f"for other functions, whichever errs less), the smallest of all. Supported if it is at least {NO_HELP}. "
    f"Contradicted if it is less than {HELP}.",
    (Condition("error", (NO_HELP, INF), (-INF, HELP), "log"),),
    (
        Precondition("R2", (LEARNED_R2, INF), f"{EXPLAINS}, so there is no success near the data to lose."),
        Precondition(
            "near",
            (-INF, HELP),
            f"The examples do not help in distribution either (ratio of errors {{value:.2g}}, at most {HELP} allowed).",
        ),
    ),
)

BOUNDARY_IMMEDIATE_CLAIM = Claim(
    id="limits.boundary_immediate",
    question="far from the data",
    short="The prediction levels off just beyond the training inputs.",
    quote=Quote(
        "Although the mathematical reasoning speaks of infinity but this value appears immediately empirically",
        "Naim & Asher (2025), appendix G.1, last sentence of the proof of Proposition 6",
        "The paper shows plots (Figure 4) and does not say what counts as immediate. We ask that the prediction settle "
        f"at its end value within 10 {EDGE}; it has settled where it stays within a tenth of its own standard "
        "deviation in distribution.",
    ),
    kind="architecture",
    statement="Boundary values appear immediately: the prediction is level just beyond the training range",
    source="Naim & Asher (2025), Appendix G, after Proposition 6",
    criterion=IMMEDIATE,
    measurements=(
        scale.own,
        far.certificate,
        far.intact,
        far.contexts,
        far.ends,
        far.drawn,
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
        "The paper argues from what the prediction tends to. We measure the squared error at queries of 1e4 and 1e5 "
        f"{EDGE} and compare it with guesses that do not look at the prompt; only the query is large, and the "
        "examples in the prompt must help at queries inside the trained range.",
    ),
    kind="architecture",
    statement="Transformers cannot learn in context over inputs of high embedding norm",
    source="Naim & Asher (2025), Proposition 4",
    criterion=HIGH_NORM,
    measurements=(scale.own, context.use, far.ends, far.drawn, boundary.arms, boundary.boundary),
    twin=(context.use,),
    evidence=no_icl_at_high_norm,
    of_numbers=True,
    figures=("boundary",),
)
