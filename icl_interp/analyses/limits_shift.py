"""The claims of `limits` about leaving the training range: what a norm and width change there and before.

Each compares the model with companions that differ in that one respect; where none is at hand it cannot be asked.
"""

import numpy as np
from xarray import DataArray

from icl_interp.analyses import shift
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.verdicts import Claim, Criterion, Estimate, Judgement, Verdict, register
from icl_interp.checkpoints.companions import Role
from icl_interp.resampling import Interval, bootstrap

BETTER = float(np.log10(0.9))  # errors that are a tenth smaller: below the difference between seeds nothing is better
MARGIN = float(np.log10(1.25))  # errors within a quarter of each other count as equal
LEARNED = 0.1  # error relative to the zero predictor up to which a companion has learned its task
INNER, EDGE = 0.5, 0.9  # shares of the half-width: the inner half of the domain, and what lies near its boundary
SCOPE = "these weights and these companions', this task, "
INF = float("inf")


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


def _unlearned(result: DataArray, predictors: list[str]) -> list[str]:
    """Those whose error in distribution is not far below the zero predictor's."""
    zero = result.sel(predictor="zero", sigma=1.0).values.mean()
    return [p for p in predictors if not result.sel(predictor=p, sigma=1.0).values.mean() <= LEARNED * zero]


def _unanimous(criterion: Criterion, intervals: list[Interval]) -> Verdict:
    """The verdict that every pair of models gives, if they agree."""
    found: list[Verdict] = [criterion.verdict(interval) for interval in intervals]
    return found[0] if len(set(found)) == 1 else "inconclusive"


def _mean_ratio(arrays: list[tuple[np.ndarray, np.ndarray]]) -> Interval:
    """Mean over pairs of log10 (first / second), errors averaged over functions first."""
    flat = [array for pair in arrays for array in pair]
    return bootstrap(
        lambda *m: np.mean([_ratio(m[i], m[i + 1]) for i in range(0, len(m), 2)], axis=0), *flat
    )  # fmt: skip


# ---- no norm is better ----------------------------------------------------------------------------------------------

NO_NORM = Criterion(
    "squared error in distribution without a norm over with one, log10, paired by function, every pair of seeds: "
    "<= log10 0.9 / >= 0",
    supported=(-INF, BETTER), contradicted=(0.0, INF),
)  # fmt: skip


def judge_no_norm(results: Results, facts: Facts) -> Judgement:
    """Is the model without a norm the better one in distribution?"""
    result = results[shift.functions]
    without, normed = _sides(result, facts)
    pairs = [(a, b) for a in without for b in normed]
    errors = {p: result.sel(predictor=p).values for p in (*without, *normed)}
    each = [_mean_ratio([(errors[a][0], errors[b][0])]) for a, b in pairs]
    found = _mean_ratio([(errors[a][0], errors[b][0]) for a, b in pairs])
    unlearned = _unlearned(result, [*without, *normed])
    verdict = "inconclusive" if unlearned else _unanimous(NO_NORM, each)
    at = list(result.indexes["sigma"])
    shifted = ", ".join(
        f"{10 ** _mean_ratio([(errors[a][k], errors[b][k]) for a, b in pairs]).value:.2f} at sigma {at[k]:g}"
        for k in range(1, len(at))
    )
    reason = (
        f"in distribution the error without a norm is {10**found.value:.2f} of that with one "
        f"({', '.join(f'{errors[p][0].mean():.2g}' for p in without)} against "
        f"{', '.join(f'{errors[p][0].mean():.2g}' for p in normed)}); with functions scaled {shifted}"
    )
    if len(each) > 1:
        reason += f"; the {len(each)} pairs of seeds say {', '.join(f'{10**e.value:.2f}' for e in each)}"
    reason += (
        f". This is a geometric mean over pairs on {result.values.shape[-1]} functions x {shift.N_CONTEXTS} contexts; "
        "limits.table1 of `icl-interp reproduce` has the ratio of mean errors on more prompts, which can differ"
    )
    if unlearned:
        reason += f". But {', '.join(unlearned)} has not learned the task"
    untrained = results[shift.functions_untrained]
    twins = [(untrained.sel(predictor=a).values[0], untrained.sel(predictor=b).values[0]) for a, b in pairs]
    twin = _mean_ratio(twins)
    details = tuple(
        {
            "without": a, "with": b, "sigma": sigma, "error without": float(errors[a][k].mean()),
            "error with": float(errors[b][k].mean()), "log10 ratio": i.value, "low": i.low, "high": i.high,
        }
        for a, b in pairs for k, sigma in enumerate(at) for i in [_mean_ratio([(errors[a][k], errors[b][k])])]
    )  # fmt: skip
    name = "error without / with norm"
    seeds = f"{len(without)} seed(s) without and {len(normed)} with a norm"
    return Judgement(
        Estimate.of(name, found, "log10"), reason + ".", verdict, f"{SCOPE}in distribution, {seeds}",
        twin=Estimate.of(name, twin, "log10"), twin_verdict=_unanimous(NO_NORM, [_mean_ratio([t]) for t in twins]),
        details=details,
    )  # fmt: skip


# ---- especially near the boundaries of the domain -------------------------------------------------------------------

NEAR = Criterion(
    "log10 error without a norm over with one, paired by function, every pair of seeds: at the edge (|x| >= 0.9 of the "
    "half-width), and there less than in the inner half, the larger of the two: <= log10 0.9 / >= 0",
    supported=(-INF, BETTER), contradicted=(0.0, INF),
)  # fmt: skip


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


def judge_near(results: Results, facts: Facts) -> Judgement:
    """Is the model without a norm better near the edge of the domain, and more so than inside?"""
    curve, errors = results[shift.inside], results[shift.functions]
    without, normed = _sides(errors, facts)
    pairs = [(a, b) for a in without for b in normed]
    found = {pair: gain(curve, *pair) for pair in pairs}
    unlearned = _unlearned(errors, [*without, *normed])
    verdict = "inconclusive" if unlearned else _unanimous(NEAR, [each[2] for each in found.values()])
    edge, more, both = found[pairs[0]]
    rise = [
        float(e[:, curve["share"].values >= EDGE - 1e-9].mean() / e[:, curve["share"].values <= INNER + 1e-9].mean())
        for e in (curve.sel(arm="trained", predictor=p).values for p in pairs[0])
    ]
    reason = (
        f"near the boundary the error without a norm is {10**edge.value:.2f} of that with one, in the inner half "
        f"{10 ** (edge.value - more.value):.2f}; from the inner half to the edge errors change by a factor of "
        f"{rise[0]:.2g} without and {rise[1]:.2g} with a norm"
    )
    if len(pairs) > 1:
        reason += "; at the edge the pairs of seeds say " + ", ".join(f"{10 ** e[0].value:.2f}" for e in found.values())
    if unlearned:
        reason += f". But {', '.join(unlearned)} has not learned the task"
    untrained = [gain(curve, *pair, arm="untrained")[2] for pair in pairs]
    details = tuple(
        {"predictor": p, "|x| / half-width": float(x), "error": float(error)}
        for p in (*without, *normed)
        for x, error in zip(curve["share"].values, curve.sel(arm="trained", predictor=p).values.mean(0), strict=True)
    )
    name = "log10 error ratio, edge and edge less inner, the larger"
    return Judgement(
        Estimate.of(name, both, "log10"), reason + ".", verdict, f"{SCOPE}the query within the inputs' interval",
        twin=Estimate.of(name, untrained[0], "log10"), twin_verdict=_unanimous(NEAR, untrained), details=details,
    )  # fmt: skip


# ---- size -----------------------------------------------------------------------------------------------------------


def _needs_a_width(facts: Facts) -> str | None:
    if reason := _needs_scaling(facts):
        return reason
    if {Role("wider"), Role("narrower")} & set(facts.companions):
        return None
    return "no companion of another width is at hand (pass companions=)"


def judge_size(results: Results, facts: Facts) -> Judgement:
    """Are errors on shifted functions the same for two widths?"""
    result = results[shift.functions]
    role = "wider" if "wider" in result.indexes["predictor"] else "narrower"
    large, small = (role, "model") if role == "wider" else ("model", role)
    a, b = result.sel(predictor=large).values, result.sel(predictor=small).values
    shifted = [k for k, sigma in enumerate(result.indexes["sigma"]) if sigma > 1]
    found = _mean_ratio([(a[k], b[k]) for k in shifted])
    within = _mean_ratio([(a[0], b[0])])
    unlearned = _unlearned(result, [large, small])
    sigmas = ", ".join(f"{result.indexes['sigma'][k]:g}" for k in shifted)
    reason = (
        f"on functions scaled by {sigmas} the wider model's error "
        f"is {10**found.value:.2f} of the other's (geometric mean); in distribution {10**within.value:.2f}"
    )
    if found.low > MARGIN:
        reason += "; the wider one is worse, which is no help, but two models trained alike well would not differ so"
    if unlearned:
        reason += f". But {', '.join(unlearned)} has not learned the task"
    details = tuple(
        {"sigma": s, "error wider": float(a[k].mean()), "error narrower": float(b[k].mean()),
         "log10 ratio": _mean_ratio([(a[k], b[k])]).value}
        for k, s in enumerate(result.indexes["sigma"])
    )  # fmt: skip
    return Judgement(
        Estimate.of("error wider / narrower", found, "log10"), reason + ".", "inconclusive" if unlearned else None,
        f"{SCOPE}functions scaled, one seed each", details=details,
    )  # fmt: skip


register(
    Claim(
        id="limits.no_norm_better",
        kind="learning",
        statement="In distribution a model without normalisation is the better one",
        source="Naim & Asher (2025), Observation 2 and Table 1",
        criterion=NO_NORM,
        measurements=(shift.functions, shift.functions_untrained),
        judge=judge_no_norm,
        excluded=_needs_the_other_norm,
        figures=("shift",),
    )
)  # fmt: skip

register(
    Claim(
        id="limits.error_near_boundary",
        kind="learning",
        statement="Without normalisation functions are followed better, especially near the boundaries of the domain",
        source="Naim & Asher (2025), section 5, before Observation 2",
        criterion=NEAR,
        measurements=(shift.functions, shift.inside),
        judge=judge_near,
        excluded=_needs_the_other_norm,
        figures=("shift",),
    )
)  # fmt: skip

register(
    Claim(
        id="limits.size_does_not_help",
        # Untrained models of two sizes err alike too: what the claim denies is that training makes a difference.
        kind="architecture",
        statement="A larger model is no better on functions beyond the training range",
        source="Naim & Asher (2025), section 5: 22.5M against 38M parameters",
        criterion=Criterion(
            "squared error of the wider over the narrower model on functions scaled by 2, 5 and 10, log10, paired by "
            "function, mean over the three: within log10 1.25 of 0 (an equivalence test) / below -log10 1.25",
            supported=(-MARGIN, MARGIN), contradicted=(-INF, -MARGIN),
        ),
        measurements=(shift.functions,),
        judge=judge_size,
        excluded=_needs_a_width,
        figures=("shift",),
    )
)  # fmt: skip
