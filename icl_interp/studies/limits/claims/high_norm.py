"""The claim of `limits` that nothing is learned in context where the query is large."""

import numpy as np
from xarray import DataArray

from icl_interp.analyses import output_unit
from icl_interp.analyses.answer import bound
from icl_interp.analyses.claim import EXPLAINS, LEARNED_R2, Claim, Evidence
from icl_interp.analyses.criterion import (
    INF,
    Condition,
    Criterion,
    Decision,
    Estimate,
    Precondition,
)
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap, slope
from icl_interp.studies.limits.claims.far_words import (
    BY_ALGEBRA,
    EDGE,
    NO,
    YES,
    asked,
    in_lower_case,
    of,
    percent,
)
from icl_interp.studies.limits.measurements import between, boundary, context, far
from icl_interp.studies.limits.measurements.context import HIGH, ROUNDING
from icl_interp.studies.limits.measurements.far import power

# Error over that of the best guess without the prompt, from which its examples are no help.
NO_HELP = 0.9
HELP = 0.5  # the same ratio, below which they help
BOUNDED = 0.1  # growth exponent up to which f counts as bounded
DRAWN_AT = (
    (1e4, 10**4.5),
    (10**4.5, 1e5),
    (1e5, 10**5.5),
    (10**5.5, 1e6),
)  # strata of drawn far queries
# Centred r2 from which a far prediction still tells the truth, however small its size.
DECODABLE = 0.5


def relative_error(
    used: DataArray, *groups: np.ndarray, drawn: DataArray | None = None
) -> Interval:
    """Error over that of the best guess without the prompt, where the context helps most.

    That is the group of queries with the smallest ratio. The guesses: the mean of the distribution
    of functions, and one curve for all contexts (f averaged over other units' contexts). At drawn
    places only the first, which no guess without the prompt can beat but by chance.

    Args:
        used: `context/use`.
        groups: which queries are averaged, by place; the smallest ratio of all groups counts, in
            every draw.
        drawn: `far/drawn`, whose strata from 1e4 to 1e6 are further groups.
    """
    names = ("squared error", "law's mean", "context-free", "size")
    parts = [
        np.stack([used.sel(statistic=s).values[:, at].mean(-1) for s in names], -1) for at in groups
    ]
    if drawn is not None:
        error, law = (drawn.sel(statistic=s).values for s in ("squared error", "law's mean"))
        parts += [
            np.stack([v[:, at].mean(-1) for v in (error, law, law, law)], -1)
            for at in _drawn_groups()
        ]
        parts = [between.pairs(part) for part in parts]

    def smallest(*means: np.ndarray) -> np.ndarray:
        # Where all functions are one the law's mean is exact up to rounding, and the ratio is
        # large, not 0 / 0.
        guesses = [np.maximum(m[..., 1:3].min(-1), 1e-24 * m[..., 3] + 1e-200) for m in means]
        return np.min([m[..., 0] / guess for m, guess in zip(means, guesses, strict=True)], axis=0)

    return bootstrap(smallest, *parts, positive=True)


def follows_from_sizes(used: DataArray, drawn: DataArray, *groups: np.ndarray) -> bool:
    """Whether no prediction of this size could help, whatever f says.

    Then the ratio of errors is at least `NO_HELP`. With r the root mean square of f less the law's
    mean, over that of the truth less it, the error is at least (1 - r)^2 times that of the law's
    mean (the triangle inequality).
    """
    known = used.sel(statistic=["f less law's mean", "law's mean"]).values.mean(1)
    between = drawn.sel(statistic=["size", "law's mean"]).values.mean(1)
    sizes = [known[:, at].mean(-1) for at in groups] + [
        between[:, at].mean(-1) for at in _drawn_groups()
    ]
    return all(f <= (1 - np.sqrt(NO_HELP)) ** 2 * law for f, law in sizes)


def _drawn_groups() -> list[np.ndarray]:
    """The drawn places of each stratum of `DRAWN_AT`, in both directions."""
    return [np.concatenate([between.stratum(*ends, sign) for sign in (-1, 1)]) for ends in DRAWN_AT]


def decodable(used: DataArray, at: np.ndarray) -> Interval:
    """Squared correlation of f and the truth over prompts, the mean over queries.

    It is 0 where the spread of f is rounding.
    """
    names = ("f", "truth", "f squared", "truth squared", "product")
    parts = [used.sel(statistic=s).values[:, at] for s in names]
    size = used.sel(statistic="f size").values[:, at].mean(0)
    told = parts[2].mean(0) > ROUNDING**2 * size

    def squared(
        f: np.ndarray, t: np.ndarray, ff: np.ndarray, tt: np.ndarray, ft: np.ndarray
    ) -> np.ndarray:
        variances = np.maximum(ff - f**2, 0.0) * np.maximum(tt - t**2, 0.0)
        return np.where(
            told & (variances > 0), (ft - f * t) ** 2 / np.maximum(variances, 1e-300), 0.0
        ).mean(-1)

    return bootstrap(squared, *parts)


def swapped(used: DataArray, at: np.ndarray) -> Interval:
    """Error with the contexts of another unit over the error with a prompt's own."""
    own, other = (
        used.sel(statistic=s).values[:, at].mean(-1) for s in ("squared error", "swapped")
    )
    return bootstrap(lambda a, b: b / np.maximum(a, 1e-200), own, other, positive=True)


def arm_rows(curve: DataArray, u: float) -> list[dict[str, object]]:
    """What the three arms of "far out" do: growth of f, spread over contexts, and error.

    The error is given over that of the law's mean. Spread (in units of u) and error are given at
    scale 1, 1e4 and 1e6; growth is the exponent of f's size over the last two decades.
    """
    rows = []
    for arm in curve.indexes["arm"]:
        # (unit, query, scale)
        f, truth, mean = (
            curve.sel(arm=arm, curve=who).values for who in ("model", "truth", "law's mean")
        )
        size, spread = (
            np.square(f).mean((0, 1)),
            np.sqrt(np.square(f - f.mean(0)).mean((0, 1))) / (u or 1.0),
        )
        error = np.square(f - truth).mean((0, 1)) / np.maximum(
            np.square(mean - truth).mean((0, 1)), 1e-300
        )
        exponent = float(
            slope(np.log(curve["scale"].values[-2:]), 0.5 * np.log(np.maximum(size[-2:], 1e-300)))
        )
        row: dict[str, object] = {
            "arm": arm,
            "growth exponent": exponent,
            "bounded": bool(exponent <= BOUNDED),
        }
        for scale_of in (1.0, 1e4, 1e6):
            k = int(np.argmin(np.abs(curve["scale"].values - scale_of)))
            row |= {
                f"spread at {scale_of:.0e}": float(spread[k]),
                f"error at {scale_of:.0e}": float(error[k]),
            }
        rows.append(row)
    return rows


def no_icl_at_high_norm(results: Results, facts: Facts) -> Evidence:
    """Does the context, which helps at inner queries, still help at a query of large embedding?"""
    used, x_unit = results[context.use], facts.x_unit
    far_out = context.far_out(used, x_unit)
    found, near = (
        relative_error(used, *far_out, drawn=results[between.drawn]),
        relative_error(used, context.INNER),
    )
    everywhere = np.concatenate(far_out)
    r2, swaps = (
        decodable(used, everywhere),
        [swapped(used, at) for at in (context.INNER, everywhere)],
    )
    first, last = (power(x * x_unit) for x in HIGH)
    rows = arm_rows(results[boundary.arms], output_unit.u(results))
    name = "squared error far from the data / that of the best guess without the prompt"
    quantities = {
        "R2": facts.learned,
        "near": Estimate.of("the same at queries in distribution", near),
        "error": Estimate.of(name, found),
    }
    threshold = bound(
        HIGH_NORM, quantities, "error", f"at least {percent(NO_HELP)}", f"less than {percent(HELP)}"
    )
    decision = HIGH_NORM.decide(quantities)
    answer = _helps(decision)
    if decision.verdict == YES and follows_from_sizes(used, results[between.drawn], *far_out):
        answer = (
            f"{BY_ALGEBRA}{in_lower_case(answer)[:-1]}, which is too small beside a truth that "
            "grows."
        )
    says = (
        f"{answer} At |x| = {first} and {last} the squared error is {of(found.value)} "
        f"that of the best guess without the prompt ({threshold})."
    )
    caveat = (
        f"The truth {'can' if r2.low > DECODABLE else 'cannot clearly'} be read from these "
        f"predictions: across prompts the squared correlation of the two is {r2.value:.2f}."
    )
    causal = {
        "intervention": "put the context of another function before the same query",
        "effect": swaps[1].value,
        "error swapped / own, in distribution": swaps[0].value,
        "error swapped / own, far out": swaps[1].value,
        "centred r2 of f and the truth, far out": [r2.low, r2.value, r2.high],
    }
    of_control = results.control[context.use]
    control = relative_error(of_control, *context.far_out(of_control, x_unit))
    return Evidence(
        quantities,
        says,
        Estimate.of(name, found),
        asked(
            facts,
            f"|x| = {first}, {last} and places drawn up to {power(1e6 * x_unit)}",
            results[far.ends][0, 0].size,
        ),
        causal,
        {"error": Estimate.of(name, control)},
        tuple(rows),
        caveat,
    )


def _helps(decision: Decision) -> str:
    if decision.verdict == YES:
        return "Far from the data the examples in the prompt do not help the prediction."
    if decision.verdict == NO:
        return "Far from the data the examples in the prompt still help the prediction."
    what = "the examples help the prediction far from the data"
    return (
        f"So it cannot be told whether {what}."
        if decision.failed
        else f"It is not decided whether {what}."
    )


HIGH_NORM = Criterion(
    (Condition("error", "", (NO_HELP, INF), (-INF, HELP), scale="log"),),
    (
        Precondition(
            "R2", (LEARNED_R2, INF), f"{EXPLAINS}, so there is no success near the data to lose."
        ),
        Precondition(
            "near",
            (-INF, HELP),
            "The examples do not help in distribution either (ratio of errors {value:.2g}, at most "
            f"{HELP} allowed).",
        ),
    ),
    terms=(
        f"Squared error at queries of 1e4 and of 1e5 {EDGE}, and at places drawn from 1e4 to 1e6, over "
        "that of the best guess without the prompt (the mean of the distribution of functions, or the "
        "mean of the model's own predictions for other functions, whichever errs less), the smallest "
        f"of all. Supported if it is at least {NO_HELP}. Contradicted if it is less than {HELP}."
    ),
)

NO_ICL_AT_HIGH_NORM_CLAIM = Claim(
    id="limits.no_icl_at_high_norm",
    question="far from the data",
    short="Transformers cannot learn in context from queries with large embeddings.",
    quote=Quote(
        "Transformer models cannot perform in-context learning over inputs with high embedding "
        "norm.",
        "Naim & Asher (2025), section 6, Proposition 4",
        "The paper argues from what the prediction tends to. We measure the squared error at "
        f"queries of 1e4 and 1e5 {EDGE} and compare it with guesses that do not look at the "
        "prompt; only the query is large, and the examples in the prompt must help at queries "
        "inside the trained range.",
    ),
    kind="architecture",
    statement="Transformers cannot learn in context over inputs of high embedding norm",
    source="Naim & Asher (2025), Proposition 4",
    criterion=HIGH_NORM,
    measurements=(
        output_unit.own,
        context.use,
        far.ends,
        between.drawn,
        boundary.arms,
        boundary.boundary,
    ),
    control=(context.use,),
    evidence=no_icl_at_high_norm,
    of_numbers=True,
    figures=("boundary",),
)
