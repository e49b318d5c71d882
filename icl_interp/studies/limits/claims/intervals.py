"""The claims of `limits` about the interval that a model was trained on: what it covers, how far out, at what price.

Each compares the model with companions trained on other U(-a, a); where none is at hand it cannot be asked.
"""

from itertools import permutations

import numpy as np
from xarray import DataArray

from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap, slope
from icl_interp.studies.limits.claims.layernorm import needs_growth
from icl_interp.studies.limits.claims.shift import SCOPE
from icl_interp.studies.limits.measurements import boundary, shift
from icl_interp.studies.limits.measurements.shift import own_interval


def _needs_an_interval(facts: Facts) -> str | None:
    if not any(role.kind == "interval" for role in facts.companions):
        return "no companion trained on another interval is at hand (pass companions=)"
    if own_interval(facts) is None:
        return "the model was not trained with inputs and coefficients from one U(-a, a)"
    return None


def overlap(a: float, sigma: float) -> float:
    """The share of U(-a, a) and U(-sigma, sigma) that they have in common: one less their total variation."""
    return min(a, sigma) / max(a, sigma)


def cells(sizes: list[float]) -> list[tuple[int, int, int]]:
    """(model that saw more of the test interval, model that saw less, test interval), by place."""
    return [
        (i, j, k)
        for k, sigma in enumerate(sizes)
        for i, j in permutations(range(len(sizes)), 2)
        if overlap(sizes[i], sigma) > overlap(sizes[j], sigma) * (1 + 1e-9)
    ]


def ordered(result: DataArray, arm: str) -> Interval:
    """Share of cells in which the model that saw more of the test interval makes the smaller error."""
    sizes = list(result.indexes["sigma"])
    errors = np.moveaxis(result.sel(arm=arm).values[: len(sizes)], -1, 0)

    def share(m: np.ndarray) -> np.ndarray:
        return np.mean([m[:, i, k] < m[:, j, k] for i, j, k in cells(sizes)], axis=0)

    return bootstrap(share, errors)


DENSITY = Criterion(
    "share of pairs of models and test intervals U(-sigma, sigma) in which the one whose training interval overlaps "
    "more with the test's has the smaller error: all / at most half",
    (Condition("share", (1.0, INF), (-INF, 0.5)),),
)


def density(results: Results, facts: Facts) -> Evidence:
    """Is a model the better on an interval the more of it was in its training distribution?"""
    result = results[shift.intervals]
    sizes = list(result.indexes["sigma"])
    found, in_functions, twin = (ordered(result, arm) for arm in ("both", "functions", "untrained"))
    mean, zero = result.sel(arm="both").values.mean(-1), result.sel(arm="both", predictor="zero").values.mean(-1)
    first, last = sizes[0], sizes[-1]
    says = (
        f"models trained on U(-a, a), a = {', '.join(f'{a:g}' for a in sizes)}: in {found.value:.0%} of "
        f"{len(cells(sizes))} comparisons the one that saw more of the test interval is better (with functions alone "
        f"scaled, as in Table 3, {in_functions.value:.0%}). From a = {first:g} to {last:g} the error on "
        f"U(-{first:g}, {first:g}) goes from {mean[0, 0]:.2g} to {mean[-2, 0]:.2g}, and on U(-{last:g}, {last:g}) from "
        f"{mean[0, -1]:.2g} to {mean[-2, -1]:.2g}"
    )
    details = tuple(
        {
            "trained on": a,
            "tested on": sigma,
            "overlap": overlap(a, sigma),
            "error": float(mean[i, k]),
            "error / zero": float(mean[i, k] / zero[k]),
            "functions alone scaled": float(result.sel(arm="functions").values.mean(-1)[i, k]),
        }
        for i, a in enumerate(sizes)
        for k, sigma in enumerate(sizes)
    )
    name = "comparisons in the claimed order"
    return Evidence(
        {"share": Estimate.of(name, found, "share")},
        says + ".",
        scope=f"{SCOPE}inputs and functions from U(-sigma, sigma)",
        twin={"share": Estimate.of(name, twin, "share")},
        details=details,
    )


def places(curve: DataArray) -> list[np.ndarray]:
    """What onsets are read from: for each interval and direction the gaps, (function, x)."""
    out = []
    for a in curve.indexes["interval"]:
        gap = curve.sel(interval=a).values
        out += [gap[:, boundary.direction(curve, sign)[1]] for sign in boundary.SIGNS.values()]
    return out


def exponents(curve: DataArray, errors: DataArray, arm: str = "both") -> tuple[Interval, Interval, Interval]:
    """Powers of a: of the onset (mean of both directions), of the error on the smallest interval; the smaller one."""
    sizes = np.log(np.array(curve.indexes["interval"]))
    xs = boundary.direction(curve, 1)[0]
    cost = np.moveaxis(errors.sel(arm=arm, sigma=errors.indexes["sigma"][0]).values[: len(sizes)], -1, 0)

    def onset(*m: np.ndarray) -> np.ndarray:
        where = [np.log(boundary.settles(xs, np.sqrt(gap), boundary.LEVEL)) for gap in m[1:]]
        each = [(where[i] + where[i + 1]) / 2 for i in range(0, len(where), 2)]
        return slope(sizes, np.stack(each, -1))

    def price(*m: np.ndarray) -> np.ndarray:
        return slope(sizes, np.log(np.maximum(m[0], np.finfo(float).tiny)))

    def smaller(*m: np.ndarray) -> np.ndarray:
        return np.minimum(onset(*m), price(*m))

    arrays = [cost, *places(curve)]
    return bootstrap(onset, *arrays), bootstrap(price, *arrays), bootstrap(smaller, *arrays)


LARGER = Criterion(
    "powers of a with which the plateau's onset and the error on the smallest interval grow over models trained on "
    "U(-a, a), the smaller of the two: > 0.1 / < 0",
    (Condition("power", (0.1, INF), (-INF, 0.0)),),
)


def larger(results: Results, facts: Facts) -> Evidence:
    """Do larger training intervals move the plateau's onset outwards, and is accuracy the price?"""
    curve, errors = results[shift.onsets], results[shift.intervals]
    onset, cost, both = exponents(curve, errors)
    _, _, twin = exponents(results[shift.onsets_untrained], errors, "untrained")
    xs, gaps = boundary.direction(curve, 1)[0], places(curve)
    found = [boundary.settles(xs, np.sqrt(gap.mean(0)), boundary.LEVEL) for gap in gaps]
    onsets = [float(np.sqrt(found[i] * found[i + 1])) for i in range(0, len(found), 2)]
    sizes = list(curve.indexes["interval"])
    price = errors.sel(arm="both", sigma=sizes[0]).values.mean(-1)
    first = sizes[0]
    says = (
        f"from a = {first:g} to {sizes[-1]:g} the onset of the plateau goes from |x| = {onsets[0]:.3g} to "
        f"{onsets[-1]:.3g} (a^{onset.value:.2f}; in units of a from {onsets[0] / first:.3g} to "
        f"{onsets[-1] / sizes[-1]:.3g}) and the error on U(-{first:g}, {first:g}) from {price[0]:.2g} to "
        f"{price[len(sizes) - 1]:.2g} (a^{cost.value:.2f})"
    )
    details = tuple(
        {"trained on": a, "onset": o, "onset / a": o / a, "error on the smallest interval": float(e)}
        for a, o, e in zip(sizes, onsets, price[: len(sizes)], strict=True)
    )
    name = "power of a, onset and error, the smaller"
    return Evidence(
        {"power": Estimate.of(name, both)},
        says + ".",
        scope=f"{SCOPE}query arm for onsets",
        twin={"power": Estimate.of(name, twin)},
        details=details,
    )


def _needs_an_onset(facts: Facts) -> str | None:
    return _needs_an_interval(facts) or needs_growth(facts)


TRAINING_DENSITY_CLAIM = Claim(
    id="limits.training_density",
    question="weights and training",
    short="Models are better on intervals that hold more of their training data.",
    quote=Quote(
        "Models have better performance over intervals that contain a larger proportion of examples in "
        "the training distribution.",
        "Naim & Asher (2025), appendix E, Observation 3 (i), with Table 3 (appendix C)",
        "Table 3 changes the functions alone and keeps inputs inside [-1, 1]. We change both, and take as"
        " the proportion how much the interval of training and the interval of the test overlap.",
    ),
    kind="learning",
    statement="Models are better on intervals that hold more of their training distribution",
    source="Naim & Asher (2025), Observation 3 and Table 3",
    criterion=DENSITY,
    measurements=(shift.intervals,),
    evidence=density,
    of_numbers=True,
    excluded=_needs_an_interval,
    figures=("shift",),
)

LARGER_INTERVALS_CLAIM = Claim(
    id="limits.larger_intervals",
    question="far from the data",
    short="Larger training intervals move boundary values outwards but cost accuracy.",
    quote=Quote(
        "Training with distributions over much larger intervals, for instance U(-100, 100), can extend "
        "boundary values. However, as shown in Table 3, such training comes at a substantial cost: "
        "performance deteriorates sharply across all testing scenarios we considered.",
        "Naim & Asher (2025), section 5, with Table 3 (appendix C; also appendix E, Observation 3 (ii))",
        "The paper's Table 3 gives errors only. We compare models trained on U(-a, a) for several a and "
        "measure both how far out the output levels off and the error on the smallest interval.",
    ),
    kind="learning",
    statement="Training on larger intervals moves the boundary values outwards, at a cost in accuracy",
    source="Naim & Asher (2025), section 5, Table 3 and Observation 3 (ii)",
    criterion=LARGER,
    measurements=(shift.intervals, shift.onsets, shift.onsets_untrained),
    evidence=larger,
    of_numbers=True,
    excluded=_needs_an_onset,
    figures=("shift",),
)
