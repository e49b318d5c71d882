"""The claims of `limits` about leaving the training range: what a norm and width change there and before.

Each compares the model with companions that differ in that one respect; where none is at hand it cannot be asked.
"""

import numpy as np
from xarray import DataArray

from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.checkpoints.companions import Role
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.limits.measurements import shift

BETTER = float(np.log10(0.9))  # errors that are a tenth smaller: below the difference between seeds nothing is better
MARGIN = float(np.log10(1.25))  # errors within a quarter of each other count as equal
LEARNED = 0.1  # error relative to the zero predictor up to which a companion has learned its task
INNER, EDGE = 0.5, 0.9  # shares of the half-width: the inner half of the domain, and what lies near its boundary
SCOPE = "these weights and these companions', this task, "


def _ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    tiny = np.finfo(float).tiny
    return np.log10(np.maximum(top, tiny) / np.maximum(bottom, tiny))


def _sides(result: DataArray, facts: Facts) -> tuple[list[str], list[str]]:
    """Predictors without and with a norm, other seeds included."""
    mine, other = ("with norm", "no norm") if facts.config.normalization_type else ("no norm", "with norm")
    here = set(result.indexes["predictor"])
    sides = {
        mine: [p for p in ("model", "another seed") if p in here],
        other: [p for p in (other, str(Role(other, another_seed=True))) if p in here],
    }
    return sides["no norm"], sides["with norm"]


def _needs_scaling(facts: Facts) -> str | None:
    kind = facts.task_kind
    return None if kind == "Polynomial" else f"functions and inputs of a {kind} task are not scaled here"


def _needs_the_other_norm(facts: Facts) -> str | None:
    if reason := _needs_scaling(facts):
        return reason
    role = "no norm" if facts.config.normalization_type else "with norm"
    if Role(role) in facts.companions:
        return None
    what = "without" if role == "no norm" else "with"
    return f"no companion trained {what} normalisation is at hand (pass companions=)"


LEARNED_BY_ALL = Precondition(
    "largest error",
    (0.0, LEARNED),
    f"But not all of these models have learned the task: the largest error is {{value:.2g}} of the zero predictor's, "
    f"and at most {LEARNED:g} counts as learned.",
)


def _relative(result: DataArray, predictors: list[str]) -> dict[str, float]:
    """Errors in distribution over the zero predictor's."""
    zero = result.sel(predictor="zero", sigma=1.0).values.mean()
    return {p: float(result.sel(predictor=p, sigma=1.0).values.mean() / zero) for p in predictors}


def _largest(relative: dict[str, float]) -> Estimate:
    """The largest of them; NaN where one is, for an error that is no number does not count as learned."""
    return Estimate.exactly("largest error / zero predictor's", np.max(list(relative.values())))


def _said_of_unlearned(relative: dict[str, float]) -> str:
    """Which models have errors above `LEARNED`; "" where none has."""
    return "".join(
        f"; the error of {p} is {share:.2g} of the zero predictor's"
        for p, share in relative.items()
        if not share <= LEARNED
    )


def _every_pair(name: str, intervals: list[Interval]) -> Estimate:
    """Where all pairs of models lie."""
    return Estimate.spanning(name if len(intervals) == 1 else f"{name}, every pair of seeds", intervals, "log10")


def _mean_ratio(arrays: list[tuple[np.ndarray, np.ndarray]]) -> Interval:
    """Mean over pairs of log10 (first / second), errors averaged over functions first."""
    flat = [array for pair in arrays for array in pair]
    return bootstrap(lambda *m: np.mean([_ratio(m[i], m[i + 1]) for i in range(0, len(m), 2)], axis=0), *flat)


# ---- no norm is better ----------------------------------------------------------------------------------------------

NO_NORM = Criterion(
    "squared error in distribution without a norm over with one, log10, paired by function, every pair of seeds: "
    "<= log10 0.9 / >= 0",
    (Condition("ratio", (-INF, BETTER), (0.0, INF)),),
    (LEARNED_BY_ALL,),
)


def no_norm(results: Results, facts: Facts) -> Evidence:
    """Is the model without a norm the better one in distribution?"""
    result = results[shift.functions]
    without, normed = _sides(result, facts)
    pairs = [(a, b) for a in without for b in normed]
    errors = {p: result.sel(predictor=p).values for p in (*without, *normed)}
    each = [_mean_ratio([(errors[a][0], errors[b][0])]) for a, b in pairs]
    found = _mean_ratio([(errors[a][0], errors[b][0]) for a, b in pairs])
    relative = _relative(result, [*without, *normed])
    at = list(result.indexes["sigma"])
    shifted = ", ".join(
        f"{10 ** _mean_ratio([(errors[a][k], errors[b][k]) for a, b in pairs]).value:.2f} at sigma {at[k]:g}"
        for k in range(1, len(at))
    )
    says = (
        f"in distribution the error without a norm is {10**found.value:.2f} of that with one "
        f"({', '.join(f'{errors[p][0].mean():.2g}' for p in without)} against "
        f"{', '.join(f'{errors[p][0].mean():.2g}' for p in normed)}); with functions scaled {shifted}"
    )
    if len(each) > 1:
        says += f"; the {len(each)} pairs of seeds say {', '.join(f'{10**e.value:.2f}' for e in each)}"
    says += _said_of_unlearned(relative)
    says += (
        f". This is a geometric mean over pairs on {result.values.shape[-1]} functions x {shift.N_CONTEXTS} contexts; "
        "limits.table1 of `icl-interp reproduce` has the ratio of mean errors on more prompts, which can differ"
    )
    untrained = results[shift.functions_untrained]
    twins = [(untrained.sel(predictor=a).values[0], untrained.sel(predictor=b).values[0]) for a, b in pairs]
    details = tuple(
        {
            "without": a,
            "with": b,
            "sigma": sigma,
            "error without": float(errors[a][k].mean()),
            "error with": float(errors[b][k].mean()),
            "log10 ratio": i.value,
            "low": i.low,
            "high": i.high,
        }
        for a, b in pairs
        for k, sigma in enumerate(at)
        for i in [_mean_ratio([(errors[a][k], errors[b][k])])]
    )
    name = "error without / with norm"
    seeds = f"{len(without)} seed(s) without and {len(normed)} with a norm"
    return Evidence(
        {"ratio": _every_pair(name, each), "largest error": _largest(relative)},
        says + ".",
        Estimate.of(name, found, "log10"),
        f"{SCOPE}in distribution, {seeds}",
        twin={"ratio": _every_pair(name, [_mean_ratio([t]) for t in twins])},
        details=details,
    )


# ---- especially near the boundaries of the domain -------------------------------------------------------------------

NEAR = Criterion(
    "log10 error without a norm over with one, paired by function, every pair of seeds: at the edge (|x| >= 0.9 of the "
    "half-width), and there less than in the inner half, the larger of the two: <= log10 0.9 / >= 0",
    (Condition("gain", (-INF, BETTER), (0.0, INF)),),
    (LEARNED_BY_ALL,),
)


def gain(curve: DataArray, without: str, normed: str, arm: str = "trained") -> tuple[Interval, Interval, Interval]:
    """log10 error without over with a norm: at the edge, edge less inner half, and the larger of the two."""
    arrays = []
    for p in (without, normed):
        error = curve.sel(arm=arm, predictor=p).values
        arrays += [
            error[:, curve["share"].values >= EDGE - 1e-9].mean(-1),
            error[:, curve["share"].values <= INNER + 1e-9].mean(-1),
        ]

    def edge(*m: np.ndarray) -> np.ndarray:
        return _ratio(m[0], m[2])

    def more(*m: np.ndarray) -> np.ndarray:
        return _ratio(m[0], m[2]) - _ratio(m[1], m[3])

    def larger(*m: np.ndarray) -> np.ndarray:
        return np.maximum(edge(*m), more(*m))

    return bootstrap(edge, *arrays), bootstrap(more, *arrays), bootstrap(larger, *arrays)


def near(results: Results, facts: Facts) -> Evidence:
    """Is the model without a norm better near the edge of the domain, and more so than inside?"""
    curve, errors = results[shift.inside], results[shift.functions]
    without, normed = _sides(errors, facts)
    pairs = [(a, b) for a in without for b in normed]
    found = {pair: gain(curve, *pair) for pair in pairs}
    relative = _relative(errors, [*without, *normed])
    edge, more, both = found[pairs[0]]
    rise = [
        float(e[:, curve["share"].values >= EDGE - 1e-9].mean() / e[:, curve["share"].values <= INNER + 1e-9].mean())
        for e in (curve.sel(arm="trained", predictor=p).values for p in pairs[0])
    ]
    says = (
        f"near the boundary the error without a norm is {10**edge.value:.2f} of that with one, in the inner half "
        f"{10 ** (edge.value - more.value):.2f}; from the inner half to the edge errors change by a factor of "
        f"{rise[0]:.2g} without and {rise[1]:.2g} with a norm"
    )
    if len(pairs) > 1:
        says += "; at the edge the pairs of seeds say " + ", ".join(f"{10 ** e[0].value:.2f}" for e in found.values())
    says += _said_of_unlearned(relative)
    untrained = [gain(curve, *pair, arm="untrained")[2] for pair in pairs]
    details = tuple(
        {"predictor": p, "|x| / half-width": float(x), "error": float(error)}
        for p in (*without, *normed)
        for x, error in zip(curve["share"].values, curve.sel(arm="trained", predictor=p).values.mean(0), strict=True)
    )
    name = "log10 error ratio, edge and edge less inner, the larger"
    return Evidence(
        {"gain": _every_pair(name, [each[2] for each in found.values()]), "largest error": _largest(relative)},
        says + ".",
        Estimate.of(name, both, "log10"),
        f"{SCOPE}the query within the inputs' interval",
        twin={"gain": _every_pair(name, untrained)},
        details=details,
    )


# ---- size -----------------------------------------------------------------------------------------------------------


def _needs_a_width(facts: Facts) -> str | None:
    if reason := _needs_scaling(facts):
        return reason
    if {Role("wider"), Role("narrower")} & set(facts.companions):
        return None
    return "no companion of another width is at hand (pass companions=)"


def size(results: Results, facts: Facts) -> Evidence:
    """Are errors on shifted functions the same for two widths?"""
    result = results[shift.functions]
    role = "wider" if "wider" in result.indexes["predictor"] else "narrower"
    large, small = (role, "model") if role == "wider" else ("model", role)
    a, b = result.sel(predictor=large).values, result.sel(predictor=small).values
    shifted = [k for k, sigma in enumerate(result.indexes["sigma"]) if sigma > 1]
    found = _mean_ratio([(a[k], b[k]) for k in shifted])
    within = _mean_ratio([(a[0], b[0])])
    relative = _relative(result, [large, small])
    sigmas = ", ".join(f"{result.indexes['sigma'][k]:g}" for k in shifted)
    says = (
        f"on functions scaled by {sigmas} the wider model's error "
        f"is {10**found.value:.2f} of the other's (geometric mean); in distribution {10**within.value:.2f}"
    )
    if found.low > MARGIN:
        says += "; the wider one is worse, which is no help, but two models trained alike well would not differ so"
    says += _said_of_unlearned(relative)
    details = tuple(
        {
            "sigma": s,
            "error wider": float(a[k].mean()),
            "error narrower": float(b[k].mean()),
            "log10 ratio": _mean_ratio([(a[k], b[k])]).value,
        }
        for k, s in enumerate(result.indexes["sigma"])
    )
    ratio = Estimate.of("error wider / narrower", found, "log10")
    return Evidence(
        {"ratio": ratio, "largest error": _largest(relative)},
        says + ".",
        scope=f"{SCOPE}functions scaled, one seed each",
        details=details,
    )


NO_NORM_BETTER_CLAIM = Claim(
    id="limits.no_norm_better",
    question="weights and training",
    short="In distribution a model without normalisation makes smaller errors.",
    quote=Quote(
        "Transformers without normalization can achieve better performance.",
        "Naim & Asher (2025), section 5, Observation 2, with Table 1",
        "The observation says 'can' and Table 1 has one model of each kind; the paragraphs before it "
        "limit the claim to inputs and functions as in training. There we ask for an error that is at "
        "least a tenth smaller, for every pair of seeds.",
    ),
    kind="learning",
    statement="In distribution a model without normalisation is the better one",
    source="Naim & Asher (2025), Observation 2 and Table 1",
    criterion=NO_NORM,
    measurements=(shift.functions, shift.functions_untrained),
    evidence=no_norm,
    excluded=_needs_the_other_norm,
    figures=("shift",),
)

ERROR_NEAR_BOUNDARY_CLAIM = Claim(
    id="limits.error_near_boundary",
    question="weights and training",
    short="Removing normalisation helps most near the boundaries of the input domain.",
    quote=Quote(
        "As a result, the model is able to approximate certain functions more accurately, especially near"
        " the boundaries of the input domain, where layer normalization would otherwise constrain the "
        "output.",
        "Naim & Asher (2025), section 5, before Observation 2",
        "The paper gives no errors by position in the domain. We compare models with and without "
        "normalisation in the outer tenth of the domain and in its inner half.",
    ),
    kind="learning",
    statement="Without normalisation functions are followed better, especially near the boundaries of the domain",
    source="Naim & Asher (2025), section 5, before Observation 2",
    criterion=NEAR,
    measurements=(shift.functions, shift.inside),
    evidence=near,
    excluded=_needs_the_other_norm,
    figures=("shift",),
)

SIZE_DOES_NOT_HELP_CLAIM = Claim(
    id="limits.size_does_not_help",
    question="far from the data",
    short="A larger model is no better beyond the training range.",
    quote=Quote(
        "Notably, increasing model size from 22.5M to 38M parameters did not significantly improve "
        "performances, suggesting that the observed limitations are not simply due to model capacity but "
        "may reflect deeper architectural constraints.",
        "Naim & Asher (2025), section 5 (its footnote 3: embeddings of width 512 instead of 256)",
        "The paper prints no errors for the larger model. We compare two widths on functions scaled by 2,"
        " 5 and 10, and call them equal if their errors differ by less than a factor of 1.25.",
    ),
    # Untrained models of two sizes err alike too: what the claim denies is that training makes a difference.
    kind="architecture",
    statement="A larger model is no better on functions beyond the training range",
    source="Naim & Asher (2025), section 5: 22.5M against 38M parameters",
    criterion=Criterion(
        "squared error of the wider over the narrower model on functions scaled by 2, 5 and 10, log10, paired by "
        "function, mean over the three: within log10 1.25 of 0 (an equivalence test) / below -log10 1.25",
        (Condition("ratio", (-MARGIN, MARGIN), (-INF, -MARGIN)),),
        (LEARNED_BY_ALL,),
    ),
    measurements=(shift.functions,),
    evidence=size,
    excluded=_needs_a_width,
    figures=("shift",),
)
