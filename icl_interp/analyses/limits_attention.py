"""The claims of `limits` about what attention does: without it nothing is learned in context, and it suffices alone.

That it is necessary follows from the design: nothing else moves anything from one token to another, so a model without
attention is a function of the query alone. What is shown is what that costs, in units of the best such function.
"""

import math

import numpy as np
from xarray import DataArray

from icl_interp.analyses.ablation import ALL, BLIND, NOTHING, QUERY, ablated, edit_size, without_attention
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.limits_classes import ALIKE, LOW
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.verdicts import LEARNED_R2, Claim, Criterion, Estimate, Judgement, Verdict, register
from icl_interp.checkpoints.companions import Role
from icl_interp.resampling import Interval, bootstrap
from icl_interp.tasks.functions import Continuous

LOST = 0.9  # error over that of the best guess without a context from which nothing is learned in context
KEPT = 0.5  # ... and below which something still is
SHARED = 1e-9  # of the mean square: a best guess that is nearer than this needs no context
TINY = float(np.finfo(float).tiny)
SCOPE = "these weights, this task, functions and inputs in distribution"
INF = float("inf")


def ratio(result: DataArray, arm: str, over: str, points: str = ALL, beside: DataArray | None = None) -> Interval:
    """Mean squared error of one arm over that of another (of `beside`, where given), paired by function."""
    mine = result.sel(arm=arm, points=points).values
    other = (result if beside is None else beside).sel(arm=over, points=points).values
    return bootstrap(lambda a, b: a / np.maximum(b, TINY), mine, other)


def best_blind(result: DataArray) -> str:
    """The arm that guesses best from the query alone: the mean of other functions, or 0 (no estimate, so no noise)."""
    return min((BLIND, NOTHING), key=lambda arm: result.sel(arm=arm, points=ALL).values.mean())


def _row(name: str, interval: Interval) -> dict[str, object]:
    return {"model": name, "error rate": interval.value, "low": interval.low, "high": interval.high}


# ---- necessary ------------------------------------------------------------------------------------------------------


def judge_necessary(results: Results, facts: Facts) -> Judgement:
    """Is anything learned in context where no token learns of another?"""
    result = results[without_attention]
    if result.sel(arm=BLIND, points=ALL).values.mean() <= SHARED * result.sel(arm=NOTHING, points=ALL).values.mean():
        return Judgement(None, "all prompts show one function: there is nothing to learn in context.", "inconclusive")
    alone = facts.config.mlp_only
    found = {"this model" if alone else "this model, all heads at their mean": "intact" if alone else "no attention"}
    if "MLP only" in result.indexes["arm"]:
        found["the companion with MLPs only"] = "MLP only"
    blind = best_blind(result)
    rates = {name: ratio(result, arm, blind) for name, arm in found.items()}
    intact = ratio(result, "intact", blind)
    # Each must fail to learn; the one that comes nearest to learning decides.
    nearest = min(rates.values(), key=lambda i: i.low)
    own = next(iter(rates.values()))
    name = "error without attention / best guess from the query alone"
    said = ", ".join(f"{i.value:.3g} for {who}" for who, i in rates.items())
    reason = f"in units of the best guess from the query alone the error is {said}"
    verdict: Verdict | None = None
    causal = None
    if not alone:
        reason += f"; intact {intact.value:.2g}"
        causal = _causal(results, result)
        if not facts.r2 > LEARNED_R2:
            verdict = "inconclusive"
            reason += f". But it has not learned its task (R2 {facts.r2:.3f}), so there is nothing to lose"
    twin = results.twin[without_attention]
    return Judgement(
        Estimate.of(name, own), reason + ".", verdict, SCOPE, test=Estimate.of(name, nearest), causal=causal,
        twin=Estimate.of(name, ratio(twin, "intact" if alone else "no attention", best_blind(twin))),
        details=tuple(_row(who, i) for who, i in {**rates, "this model, intact": intact}.items()),
    )  # fmt: skip


def _causal(results: Results, result: DataArray) -> dict[str, object]:
    """The ablation at the query alone, and the sham: the same points in another order."""
    parts, size, blind = results[ablated], results[edit_size], best_blind(result)
    return {
        "intervention": "all heads made their mean at every position; at the last query's own token only",
        "effect": ratio(result, "no attention", blind).value,
        "at the query only": ratio(result, "no attention", blind, QUERY).value,
        "intact, last query": ratio(result, "intact", blind, QUERY).value,
        "sham: the same points in another order": ratio(parts, "reordered", blind, QUERY, beside=result).value,
        "sham effect": ratio(parts, "reordered", blind, QUERY, beside=result).value,
        "squared change of what heads say, made their mean": float(size.sel(edit="mean").values),
        "squared change of what heads say, sham": float(size.sel(edit="reordered").values),
    }


def _fixed(facts: Facts) -> str | None:
    if isinstance(facts.task, Continuous) and facts.task.amplitude is None:
        return "all prompts show one function: there is nothing to learn in context"
    return None


# ---- sufficient -----------------------------------------------------------------------------------------------------


def _alone(facts: Facts) -> bool:
    return bool(facts.config.attn_only)


def judge_sufficient(results: Results, facts: Facts) -> Judgement:
    """Does an attention-only model learn in context, and as well as the same with MLPs?"""
    result = results[without_attention]
    arms = result.indexes["arm"]
    mine, other = ("intact", "with MLP") if _alone(facts) else ("attention only", "intact")
    rate = ratio(result, mine, NOTHING)
    name = "error rate, attention only"
    who = "this model" if _alone(facts) else f"the companion {facts.companions[Role(mine)]}, attention only,"
    reason = f"{who} has an error rate of {rate.value:.2g}"
    details = [_row("attention only", rate)]
    verdict = "supported" if rate.high <= LOW else "contradicted" if rate.low > LOW else "inconclusive"
    if other in arms:
        reference = ratio(result, other, NOTHING)
        times = bootstrap(
            lambda a, b: np.log10(np.maximum(a, TINY) / np.maximum(b, TINY)),
            result.sel(arm=mine, points=ALL).values,
            result.sel(arm=other, points=ALL).values,
        )
        reason += (
            f", the same with MLPs {reference.value:.2g}: {10**times.value:.2g} "
            f"[{10**times.low:.2g}, {10**times.high:.2g}] times its error"
        )
        details += [_row("with MLP", reference), _row("attention only / with MLP", Interval(*(
            10**v for v in (times.value, times.low, times.high))))]  # fmt: skip
        if times.low > math.log10(ALIKE):
            verdict = "contradicted"
            reason += ", so it learns, but not as well" if rate.high <= LOW else ""
        elif times.high > math.log10(ALIKE) and verdict == "supported":
            verdict = "inconclusive"
    else:
        reason += "; no companion with MLPs is at hand to compare it with"
    twin = results.twin[without_attention]
    untrained = ratio(twin, "intact", NOTHING)
    return Judgement(
        Estimate.of(name, rate), reason + ".", verdict, f"{SCOPE}; trained as long",
        causal=_without_mlp(results, facts), twin=Estimate.of(name, untrained),
        twin_verdict="supported" if untrained.high <= LOW else "contradicted",
        details=tuple(details),
    )  # fmt: skip


def _without_mlp(results: Results, facts: Facts) -> dict[str, object] | None:
    """What a model that was trained with MLPs is without them: its attention alone need not suffice."""
    if _alone(facts):
        return None
    parts, result = results[ablated], results[without_attention]
    return {
        "intervention": "all MLPs of this model, trained with them, made their mean at every position",
        "effect": ratio(parts, "no MLP", NOTHING, beside=result).value,
        "intact": ratio(result, "intact", NOTHING).value,
        "all heads made their mean": ratio(result, "no attention", NOTHING).value,
    }


def _no_partner(facts: Facts) -> str | None:
    if facts.config.mlp_only:
        return "the model has no attention"
    if _alone(facts) or Role("attention only") in facts.companions:
        return None
    return "the model has MLPs, and no companion without them is at hand (pass companions=)"


register(
    Claim(
        id="limits.attention_necessary",
        kind="architecture",
        statement="Attention is necessary for learning in context: without it models cannot",
        source="Naim & Asher (2025), section 4.3",
        criterion=Criterion(
            f"error with all heads at their mean (and of the companion with MLPs only, where at hand) over that of the "
            f"best guess from the query alone: >= {LOST} / < {KEPT}",
            supported=(LOST, INF), contradicted=(-INF, KEPT),
        ),
        measurements=(without_attention, ablated, edit_size),
        twin=(without_attention,),
        judge=judge_necessary,
        excluded=_fixed,
        figures=("layers",),
    )
)  # fmt: skip

register(
    Claim(
        id="limits.attention_sufficient",
        kind="learning",
        statement="Attention is sufficient for learning in context: attention-only models learn as well as with MLPs",
        source="Naim & Asher (2025), sections 4.3 and 5 and appendix G.1",
        criterion=Criterion(
            f"error rate of the attention-only model <= {LOW} and, where the same model with MLPs is at hand, at most "
            f"{ALIKE:g} times its error / either is exceeded",
            supported=(-INF, LOW), contradicted=(LOW, INF),
        ),
        measurements=(without_attention, ablated),
        twin=(without_attention,),
        judge=judge_sufficient,
        excluded=_no_partner,
        figures=("layers",),
    )
)  # fmt: skip
