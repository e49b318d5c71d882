"""The claims of `limits` about what attention does: without it nothing is learned in context, and it suffices alone.

In a transformer nothing but attention moves anything from one token to another. Without it a prediction depends on the
query's own token alone, and then no weights do better than the mean of the law of functions. So for a plain transformer
that attention is necessary is a check of the design, which trained weights cannot fail. What can fail it are models
with another path between tokens, and tokens that show more than one point.
"""

import numpy as np
from xarray import DataArray

from icl_interp.analyses.claim import LEARNED_R2, Claim, Evidence, low_r2
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.checkpoints.companions import Role
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.limits.claims import kinds
from icl_interp.studies.limits.claims.kinds import Arm
from icl_interp.studies.limits.claims.words import answer
from icl_interp.studies.limits.measurements import seeds
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
from icl_interp.studies.limits.measurements.shift import RATE
from icl_interp.tasks.functions import Continuous

# Error over that of the law's mean. Without a context it is 1 at least, in every unit: partners of a pair lie on either
# side of the law's mean and get one answer.
LOST = 0.9  # from here on nothing is learned in context
KEPT = 0.5  # up to here something still is
SHARED = 1e-9  # of the mean square: a law's mean that is nearer than this needs no context
MLP_ONLY = "MLP only"  # the arm of the companion without attention
ATTENTION_ONLY, WITH_MLP = "attention only", "with MLP"
LOW, HIGH = 0.1, 0.15  # error rates up to which a run has learned in context, and from which it has not
AS_GOOD, WORSE = 2.0, 3.0  # times; a factor of 1.5 apart, as `claims.kinds` explains
TINY = float(np.finfo(float).tiny)
BY_DESIGN = "For a plain transformer this is a check: where no token learns of another, no weights do better than 1."
SCOPE = "these weights, this task, functions and inputs in distribution"


def ratio(result: DataArray, arm: str, over: str, points: str = ALL, reference: DataArray | None = None) -> Interval:
    """Mean squared error of one arm over that of another (of `beside`, where given), paired by function."""
    mine = result.sel(arm=arm, points=points).values
    other = (result if reference is None else reference).sel(arm=over, points=points).values
    return bootstrap(lambda a, b: a / np.maximum(b, TINY), mine, other, positive=True)


def _row(name: str, interval: Interval) -> dict[str, object]:
    return {"model": name, "error rate": interval.value, "low": interval.low, "high": interval.high}


# ---- necessary ------------------------------------------------------------------------------------------------------


def attention_necessary(results: Results, facts: Facts) -> Evidence:
    """Is anything learned in context where no token learns of another?"""
    result = results[without_attention]
    differs, square = (float(result.sel(arm=arm, points=ALL).values.mean()) for arm in (BLIND, NOTHING))
    quantities = {"functions differ": Estimate.exactly("law's mean / zero predictor", differs / max(square, TINY))}
    if not quantities["functions differ"].value >= SHARED:
        return Evidence(quantities, "", scope=SCOPE)
    alone = facts.config.mlp_only
    mine = "intact" if alone else "no attention"
    own, intact = (ratio(result, arm, BLIND) for arm in (mine, "intact"))
    rates = {"this model" if alone else "this model with all heads at their mean": own}
    name = "error without attention / law's mean"
    quantities["rate"] = Estimate.of(name, own)
    if MLP_ONLY in result.indexes["arm"]:
        rates["the companion with MLPs only"] = companion = ratio(result, MLP_ONLY, BLIND)
        quantities["rate, companion"] = Estimate.of(name, companion)
    if not alone:  # a model without attention has nothing of it to lose
        quantities["R2"] = Estimate.exactly("in-distribution R2", facts.r2)
    listed = ", ".join(f"{i.value:.3g} for {who}" for who, i in rates.items())
    says = (
        f"{answer(NECESSARY, quantities)}: in units of guessing the mean function the squared error without attention "
        f"is {listed} (from {LOST:g} on nothing is learned in context, up to {KEPT:g} something is)"
    )
    says += "" if alone else f", and {intact.value:.2g} intact"
    fresh = results.twin[without_attention]
    return Evidence(
        quantities,
        f"{says}. {BY_DESIGN}",
        scope=SCOPE,
        causal=None if alone else _causal(results, result),
        twin={"rate": Estimate.of(name, ratio(fresh, mine, BLIND))},
        details=tuple(_row(who, i) for who, i in {**rates, "this model, intact": intact}.items()),
    )


def _causal(results: Results, result: DataArray) -> dict[str, object]:
    """The ablation at the query alone, and the sham: the same points in another order, where they have one."""
    parts, size = results[ablated], results[edit_size]
    effects: dict[str, object] = {
        "intervention": "all heads made their mean at every position; at the last query's own token only",
        "effect": ratio(result, "no attention", BLIND).value,
        "at the query only": ratio(result, "no attention", BLIND, QUERY).value,
        "intact, last query": ratio(result, "intact", BLIND, QUERY).value,
    }
    change = "squared change of what heads say"
    said: dict[str, object] = {f"{change}, made their mean": float(size.sel(edit="mean").values)}
    if REORDERED not in parts.indexes["arm"]:
        return effects | said
    sham = ratio(parts, REORDERED, BLIND, QUERY, reference=result).value
    effects |= {"sham: the same points in another order": sham, "sham effect": sham}
    return effects | said | {f"{change}, sham": float(size.sel(edit=REORDERED).values)}


def _fixed(facts: Facts) -> str | None:
    if isinstance(facts.task, Continuous) and facts.task.amplitude is None:
        return "all prompts show one function: there is nothing to learn in context"
    return None


# ---- sufficient -----------------------------------------------------------------------------------------------------


def _alone(facts: Facts) -> bool:
    return bool(facts.config.attn_only)


def _not_learned(facts: Facts) -> str | None:
    """How far a model with MLPs is from having learned; attention-only models that do not learn are what is asked."""
    return None if _alone(facts) else low_r2(facts)


def attention_sufficient(results: Results, facts: Facts) -> Evidence:
    """Do runs with attention only learn in context, and as well as the same with MLPs?"""
    table = results[seeds.functions]
    alone = Arm.of(table, seeds.OWN if _alone(facts) else ATTENTION_ONLY, learned=False)
    full = Arm.of(table, WITH_MLP if _alone(facts) else seeds.OWN)
    arms = alone, full
    quantities = kinds.prepared(arms, apart=True)
    if not kinds.can_decide(arms):
        return Evidence(quantities, f"{kinds.needed(arms, (ATTENTION_ONLY, WITH_MLP))}.", scope=kinds.SCOPE)
    times = kinds.times(alone, full, "functions 1")
    name = "error, attention only / with MLPs"
    quantities |= {"rate": _every_seed(alone), "ratio": Estimate.of(name, times, kinds.TIMES)}
    says = (
        f"{answer(SUFFICIENT, quantities)}: errors with attention only are {kinds.in_brackets(times)} times those with "
        f"MLPs, {kinds.counted(arms)} (up to {AS_GOOD:g} times is as good, from {WORSE:g} on worse). Error rates are "
        f"{alone.listed(RATE)} against {full.listed(RATE)}; every one with attention only has to be at most {LOW:g}"
    )
    twin = Estimate.of(name, kinds.times(alone, full, "functions 1", fresh=True), kinds.TIMES)
    return Evidence(
        quantities,
        says + ".",
        quantities["ratio"],
        f"{kinds.SCOPE}, in distribution",
        causal=_without_mlp(results, facts),
        twin={"rate": _every_seed(alone, fresh=True), "ratio": twin},
        details=kinds.details(arms, (ATTENTION_ONLY, WITH_MLP), ["functions 1"]),
    )


def _every_seed(arm: Arm, fresh: bool = False) -> Estimate:
    """The median error rate of an arm, from its smallest to its largest."""
    rates = arm.numbers(RATE, fresh)
    return Estimate(
        "error rate, attention only, all seeds", float(np.median(rates)), float(rates.min()), float(rates.max())
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
    role, what = (WITH_MLP, "with") if _alone(facts) else (ATTENTION_ONLY, "without")
    return None if Role(role) in facts.companions else f"no companion {what} MLPs is at hand (pass companions=)"


NECESSARY = Criterion(
    f"error with all heads at their mean (and of the companion with MLPs only, where at hand) over that of the law's "
    f"mean: at least {LOST} / at most {KEPT}",
    (
        Condition("rate", (LOST, INF), (-INF, KEPT)),
        Condition("rate, companion", (LOST, INF), (-INF, KEPT), optional=True),
    ),
    (
        Precondition(
            "functions differ", (SHARED, INF), "All prompts show one function: there is nothing to learn in context."
        ),
        Precondition(
            "R2",
            (LEARNED_R2, INF),
            "But the model has not learned its task (R2 {value:.3f}), so there is nothing to lose.",
            optional=True,
        ),
    ),
)
SUFFICIENT = Criterion(
    f"runs with attention only: the error rate of every seed at most {LOW:g}, and errors at most {AS_GOOD:g} times "
    f"those of the same with MLPs / every seed's at least {HIGH:g}, or at least {WORSE:g} times",
    (Condition("rate", (0.0, LOW), (HIGH, INF), "log"), Condition("ratio", (0.0, AS_GOOD), (WORSE, INF), "log")),
    kinds.PRECONDITIONS,
)

ATTENTION_NECESSARY_CLAIM = Claim(
    id="limits.attention_necessary",
    question="attention",
    short="Models cannot learn in context without attention.",
    quote=Quote(
        "Indeed we found that the attention layers were both necessary and sufficient for ICL, with MLP "
        "only models unable to ICL.",
        "Naim & Asher (2025), section 4.3",
        "The paper trains models with MLPs only. We replace the output of every head of the trained model"
        " by its mean over prompts, and test a model with MLPs only where there is one. Because nothing else connects"
        " tokens, a plain transformer cannot fail this test; a model with another path between tokens can.",
    ),
    kind="architecture",
    statement="Attention is necessary for learning in context: without it models cannot",
    source="Naim & Asher (2025), section 4.3",
    criterion=NECESSARY,
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
        "The paper does not say what counts as similar. We compare several seeds of each kind, and ask for errors of "
        "at most twice those of the same models with MLPs, and of at most a tenth of those of predicting without the "
        "context. Runs with attention only that have not learned count as such; with MLPs they are left out.",
    ),
    kind="learning",
    statement="Attention is sufficient for learning in context: attention-only models learn as well as with MLPs",
    source="Naim & Asher (2025), sections 4.3 and 5 and appendix G.1",
    criterion=SUFFICIENT,
    measurements=(seeds.functions, without_attention, ablated),
    evidence=attention_sufficient,
    excluded=_no_partner,
    learned=_not_learned,
    figures=("shift",),
)
