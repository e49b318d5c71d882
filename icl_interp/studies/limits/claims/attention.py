"""The claims of `limits` about what attention does: without it nothing is learned in context, and it suffices alone.

That it is necessary follows from the design: nothing else moves anything from one token to another, so a model without
attention is a function of the query alone. What is shown is what that costs, in units of the best such function.
"""

import math

import numpy as np
from xarray import DataArray

from icl_interp.analyses.claim import LEARNED_R2, Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.checkpoints.companions import Role
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.limits.claims.classes import ALIKE, LOW
from icl_interp.studies.limits.measurements.ablation import (
    ALL,
    BLIND,
    NOTHING,
    QUERY,
    REORDERED,
    ablated,
    edit_size,
    without_attention,
)
from icl_interp.tasks.functions import Continuous

LOST = 0.9  # error over that of the best guess without a context from which nothing is learned in context
KEPT = 0.5  # ... and below which something still is
SHARED = 1e-9  # of the mean square: a best guess that is nearer than this needs no context
MLP_ONLY = "MLP only"  # the arm of the companion without attention
TINY = float(np.finfo(float).tiny)
SCOPE = "these weights, this task, functions and inputs in distribution"


def ratio(result: DataArray, arm: str, over: str, points: str = ALL, reference: DataArray | None = None) -> Interval:
    """Mean squared error of one arm over that of another (of `beside`, where given), paired by function."""
    mine = result.sel(arm=arm, points=points).values
    other = (result if reference is None else reference).sel(arm=over, points=points).values
    return bootstrap(lambda a, b: a / np.maximum(b, TINY), mine, other)


def best_blind(result: DataArray) -> str:
    """The arm that guesses best from the query alone: the mean of other functions, or 0 (no estimate, so no noise)."""
    return min((BLIND, NOTHING), key=lambda arm: result.sel(arm=arm, points=ALL).values.mean())


def _row(name: str, interval: Interval) -> dict[str, object]:
    return {"model": name, "error rate": interval.value, "low": interval.low, "high": interval.high}


# ---- necessary ------------------------------------------------------------------------------------------------------


def attention_necessary(results: Results, facts: Facts) -> Evidence:
    """Is anything learned in context where no token learns of another?"""
    result = results[without_attention]
    differs, square = (float(result.sel(arm=arm, points=ALL).values.mean()) for arm in (BLIND, NOTHING))
    name = "best guess from other functions / zero predictor"
    quantities = {"functions differ": Estimate.exactly(name, differs / max(square, TINY))}
    if not quantities["functions differ"].value >= SHARED:
        return Evidence(quantities, "", scope=SCOPE)
    alone = facts.config.mlp_only
    mine = "intact" if alone else "no attention"
    blind = best_blind(result)
    own, intact = (ratio(result, arm, blind) for arm in (mine, "intact"))
    rates = {"this model" if alone else "this model, all heads at their mean": own}
    name = "error without attention / best guess from the query alone"
    quantities["rate"] = Estimate.of(name, own)
    if MLP_ONLY in result.indexes["arm"]:
        rates["the companion with MLPs only"] = companion = ratio(result, MLP_ONLY, blind)
        quantities["rate, companion"] = Estimate.of(name, companion)
    listed = ", ".join(f"{i.value:.3g} for {who}" for who, i in rates.items())
    says = f"in units of the best guess from the query alone the error is {listed}"
    if not alone:  # a model without attention has nothing of it to lose
        quantities["R2"] = Estimate.exactly("in-distribution R2", facts.r2)
        says += f"; intact {intact.value:.2g}"
    fresh = results.twin[without_attention]
    return Evidence(
        quantities,
        says + ".",
        scope=SCOPE,
        causal=None if alone else _causal(results, result),
        twin={"rate": Estimate.of(name, ratio(fresh, mine, best_blind(fresh)))},
        details=tuple(_row(who, i) for who, i in {**rates, "this model, intact": intact}.items()),
    )


def _causal(results: Results, result: DataArray) -> dict[str, object]:
    """The ablation at the query alone, and the sham: the same points in another order, where they have one."""
    parts, size, blind = results[ablated], results[edit_size], best_blind(result)
    effects: dict[str, object] = {
        "intervention": "all heads made their mean at every position; at the last query's own token only",
        "effect": ratio(result, "no attention", blind).value,
        "at the query only": ratio(result, "no attention", blind, QUERY).value,
        "intact, last query": ratio(result, "intact", blind, QUERY).value,
    }
    change = "squared change of what heads say"
    said: dict[str, object] = {f"{change}, made their mean": float(size.sel(edit="mean").values)}
    if REORDERED not in parts.indexes["arm"]:
        return effects | said
    sham = ratio(parts, REORDERED, blind, QUERY, reference=result).value
    effects |= {"sham: the same points in another order": sham, "sham effect": sham}
    return effects | said | {f"{change}, sham": float(size.sel(edit=REORDERED).values)}


def _fixed(facts: Facts) -> str | None:
    if isinstance(facts.task, Continuous) and facts.task.amplitude is None:
        return "all prompts show one function: there is nothing to learn in context"
    return None


# ---- sufficient -----------------------------------------------------------------------------------------------------


def _alone(facts: Facts) -> bool:
    return bool(facts.config.attn_only)


def attention_sufficient(results: Results, facts: Facts) -> Evidence:
    """Does an attention-only model learn in context, and as well as the same with MLPs?"""
    result = results[without_attention]
    mine, other = ("intact", "with MLP") if _alone(facts) else ("attention only", "intact")
    rate = ratio(result, mine, NOTHING)
    name = "error rate, attention only"
    quantities = {"rate": Estimate.of(name, rate)}
    who = "this model" if _alone(facts) else f"the companion {facts.companions[Role(mine)]}, attention only,"
    says = f"{who} has an error rate of {rate.value:.2g}"
    details = [_row("attention only", rate)]
    if other in result.indexes["arm"]:
        reference = ratio(result, other, NOTHING)
        times = bootstrap(
            lambda a, b: np.log10(np.maximum(a, TINY) / np.maximum(b, TINY)),
            result.sel(arm=mine, points=ALL).values,
            result.sel(arm=other, points=ALL).values,
        )
        quantities["ratio"] = Estimate.of("error, attention only / with MLPs", times, "log10")
        says += (
            f", the same with MLPs {reference.value:.2g}: {10**times.value:.2g} "
            f"[{10**times.low:.2g}, {10**times.high:.2g}] times its error"
        )
        details += [
            _row("with MLP", reference),
            _row("attention only / with MLP", Interval(*(10**v for v in (times.value, times.low, times.high)))),
        ]
    else:
        says += "; no companion with MLPs is at hand to compare it with"
    return Evidence(
        quantities,
        says + ".",
        scope=f"{SCOPE}; trained as long",
        causal=_without_mlp(results, facts),
        twin={"rate": Estimate.of(name, ratio(results.twin[without_attention], "intact", NOTHING))},
        details=tuple(details),
    )


def _without_mlp(results: Results, facts: Facts) -> dict[str, object] | None:
    """What a model that was trained with MLPs is without them: its attention alone need not suffice."""
    if _alone(facts):
        return None
    parts, result = results[ablated], results[without_attention]
    return {
        "intervention": "all MLPs of this model, trained with them, made their mean at every position",
        "effect": ratio(parts, "no MLP", NOTHING, reference=result).value,
        "intact": ratio(result, "intact", NOTHING).value,
        "all heads made their mean": ratio(result, "no attention", NOTHING).value,
    }


def _no_partner(facts: Facts) -> str | None:
    if facts.config.mlp_only:
        return "the model has no attention"
    if _alone(facts) or Role("attention only") in facts.companions:
        return None
    return "the model has MLPs, and no companion without them is at hand (pass companions=)"


ATTENTION_NECESSARY_CLAIM = Claim(
    id="limits.attention_necessary",
    question="attention",
    short="Models cannot learn in context without attention.",
    quote=Quote(
        "Indeed we found that the attention layers were both necessary and sufficient for ICL, with MLP "
        "only models unable to ICL.",
        "Naim & Asher (2025), section 4.3",
        "The paper trains models with MLPs only. We replace the output of every head of the trained model"
        " by its mean over prompts, and test a model with MLPs only where there is one.",
    ),
    kind="architecture",
    statement="Attention is necessary for learning in context: without it models cannot",
    source="Naim & Asher (2025), section 4.3",
    criterion=Criterion(
        f"error with all heads at their mean (and of the companion with MLPs only, where at hand) over that of the "
        f"best guess from the query alone: >= {LOST} / < {KEPT}",
        (
            Condition("rate", (LOST, INF), (-INF, KEPT)),
            Condition("rate, companion", (LOST, INF), (-INF, KEPT), optional=True),
        ),
        (
            Precondition(
                "functions differ",
                (SHARED, INF),
                "All prompts show one function: there is nothing to learn in context.",
            ),
            Precondition(
                "R2",
                (LEARNED_R2, INF),
                "But the model has not learned its task (R2 {value:.3f}), so there is nothing to lose.",
                optional=True,
            ),
        ),
    ),
    measurements=(without_attention, ablated, edit_size),
    twin=(without_attention,),
    evidence=attention_necessary,
    excluded=_fixed,
    figures=("layers",),
)

ATTENTION_SUFFICIENT_CLAIM = Claim(
    id="limits.attention_sufficient",
    question="attention",
    short="Models with attention only learn in context as well as others.",
    quote=Quote(
        "Attention only transformer models showed capacities of ICL and has performances similar to "
        "transformers with MLP.",
        "Naim & Asher (2025), appendix G.1, first sentence (also sections 4.3 and 5)",
        "The paper does not say what counts as similar. We ask for an error of at most a tenth of that of"
        " predicting 0, and of at most three times that of the same model with MLPs.",
    ),
    kind="learning",
    statement="Attention is sufficient for learning in context: attention-only models learn as well as with MLPs",
    source="Naim & Asher (2025), sections 4.3 and 5 and appendix G.1",
    criterion=Criterion(
        f"error rate of the attention-only model <= {LOW} and, where the same model with MLPs is at hand, at most "
        f"{ALIKE:g} times its error / either is exceeded",
        (
            Condition("rate", (-INF, LOW), (LOW, INF)),
            Condition("ratio", (-INF, math.log10(ALIKE)), (math.log10(ALIKE), INF), optional=True),
        ),
    ),
    measurements=(without_attention, ablated),
    twin=(without_attention,),
    evidence=attention_sufficient,
    excluded=_no_partner,
    figures=("layers",),
)
