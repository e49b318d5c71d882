"""The claims of `limits` about attention: learning in context needs it, and it suffices alone.

In a transformer nothing but attention moves anything from one token to another. Without it a
prediction depends on the query's own token alone, and then no weights do better than the mean over
all functions at that query: the best guess without the prompt. So for a plain transformer that
attention is necessary is a check of the design, which trained weights cannot fail. What can fail it
are models with another path between tokens, and tokens that show more than one point.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses.claim import EXPLAINS, LEARNED_R2, Claim, Remarks, low_r2
from icl_interp.analyses.criterion import (
    Condition,
    Criterion,
    Estimate,
    Found,
    Precondition,
    at_least,
    at_most,
)
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.natural import measured
from icl_interp.checkpoints.companions import Role
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.limits.claims import kinds
from icl_interp.studies.limits.claims.kinds import Arm
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
from icl_interp.studies.limits.measurements.shift import OWN_ERROR, RATE
from icl_interp.tasks.functions import Continuous

# Error over that of the best guess without the prompt. Without a context it is 1 at least, in every
# unit: partners of a pair lie on either side of that guess and get one answer.
LOST = 0.9  # from here on nothing is learned in context
KEPT = 0.5  # up to here something still is
# Share of the mean square: a guess without the prompt that is nearer than this needs no context.
SHARED = 1e-9
EVERY_HEAD = "with every head's output replaced by its mean"
MLP_ONLY = "MLP only"  # the arm of the matched model without attention
ATTENTION_ONLY = "attention only"
WITH_MLP = "with MLP"
NAMES = (ATTENTION_ONLY, WITH_MLP)
# Error rates up to which a run has learned in context, and from which on it has not.
LOW = 0.1
HIGH = 0.15
# Times; a factor of 1.5 apart, as `claims.kinds` explains.
AS_GOOD = 2.0
WORSE = 3.0
TINY = float(np.finfo(float).tiny)
# Trained weights cannot fail it, so the answer itself says so in its first words.
BY_DESIGN = "in a plain transformer nothing but attention connects tokens"
NO_EVIDENCE = "This is no evidence about training."
BESIDE = (
    "No weights reach that if tokens exchange nothing, so something beside attention connects the "
    "tokens."
)

NECESSARY = Criterion(
    (
        Condition(
            "rate",
            "squared error without attention over that of the best guess without the prompt",
            at_least(LOST),
            at_most(KEPT),
        ),
        Condition(
            "rate, companion",
            "squared error of a model with MLPs only over that of the best guess",
            at_least(LOST),
            at_most(KEPT),
            optional=True,
        ),
    ),
    (
        Precondition(
            "functions differ",
            at_least(SHARED),
            "All prompts show one function: there is nothing to learn in context.",
        ),
        Precondition(
            "R2", at_least(LEARNED_R2), f"{EXPLAINS}, so it has nothing to lose.", optional=True
        ),
    ),
    terms="Without attention every head's output is replaced by its mean over prompts. The best "
    "guess without the prompt is the mean over all functions at the query. The model with MLPs "
    "only is a matched model, if there is one.",
)
SUFFICIENT = Criterion(
    (
        Condition(
            "rate",
            "squared error with attention only over that of the best guess without the prompt",
            at_most(LOW, least=0.0),
            at_least(HIGH),
            scale="log",
            denied="Models with attention only do not learn in context.",
        ),
        Condition(
            "ratio",
            "squared error with attention only over that with MLPs",
            at_most(AS_GOOD, least=0.0),
            at_least(WORSE),
            unit=kinds.TIMES,
            scale="log",
        ),
    ),
    kinds.PRECONDITIONS,
    terms="The best guess without the prompt is the mean over all functions at the query. The "
    "interval of the first number covers the intervals of all seeds. The second number is a ratio "
    "of geometric means over seeds.",
)


def ratio(
    result: DataArray, arm: str, over: str, points: str = ALL, reference: DataArray | None = None
) -> Interval:
    """Mean squared error of one arm over that of another, paired by function.

    The other arm is looked up in `reference`, where that is given.
    """
    mine = result.sel(arm=arm, points=points).values
    base = result if reference is None else reference
    other = base.sel(arm=over, points=points).values
    return bootstrap(lambda a, b: a / np.maximum(b, TINY), mine, other, positive=True)


# ---- necessary -----------------------------------------------------------------------------------


def necessary(results: Results, facts: Facts) -> dict[str, Found]:
    """Errors where no token learns of another, over those of the best guess without the prompt."""
    result = results[without_attention]
    differs = ratio(result, BLIND, NOTHING)
    found: dict[str, Found] = {"functions differ": differs}
    if not differs.low >= SHARED:
        return found
    alone = facts.config.mlp_only
    found["rate"] = ratio(result, "intact" if alone else "no attention", BLIND)
    if MLP_ONLY in result.indexes["arm"]:
        found["rate, companion"] = ratio(result, MLP_ONLY, BLIND)
    if not alone:  # a model without attention has nothing of it to lose
        found["R2"] = facts.learned
    return found


def about_necessity(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """What follows of it for the model, and the causal effect of its heads."""
    scope = "these weights, this task, functions and inputs in distribution"
    if "rate" not in found:
        return Remarks(scope=scope)
    result = results[without_attention]
    alone = facts.config.mlp_only
    own = "for this model, which has MLPs only" if alone else EVERY_HEAD
    rows = [_row(own, found["rate"])]
    lost = found["rate"].value
    if matched := found.get("rate, companion"):
        rows.append(_row("for a matched model with MLPs only", matched))
        lost = min(lost, matched.value)
    rows.append(_row("this model, unchanged", ratio(result, "intact", BLIND)))
    return Remarks(
        scope=scope,
        caveat=BESIDE if lost < LOST else NO_EVIDENCE,
        by_algebra=BY_DESIGN if lost >= LOST else "",
        causal=None if alone else _causal(results, result),
        details=tuple(rows),
    )


def _row(name: str, found: Estimate | Interval) -> dict[str, Any]:
    return {"model": name, "error rate": found.value, "low": found.low, "high": found.high}


def _causal(results: Results, result: DataArray) -> dict[str, Any]:
    """The ablation at the query alone, and its control: the same points in another order.

    There is no control where the points have no other order.
    """
    parts = results[ablated]
    size = results[edit_size]
    change = "squared change of the heads' outputs"
    effects: dict[str, Any] = {
        "intervention": "every head's output replaced by its mean, at every position or at the "
        "last query's token",
        "effect": ratio(result, "no attention", BLIND).value,
        "at the query only": ratio(result, "no attention", BLIND, QUERY).value,
        "intact, last query": ratio(result, "intact", BLIND, QUERY).value,
    }
    reordered = REORDERED in parts.indexes["arm"]
    if reordered:
        control = ratio(parts, REORDERED, BLIND, QUERY, reference=result).value
        effects["sham: the same points in another order"] = control
        effects["sham effect"] = control
    effects[f"{change}, replaced by their mean"] = float(size.sel(edit="mean"))
    if reordered:
        effects[f"{change}, control intervention"] = float(size.sel(edit=REORDERED))
    return effects


def _nothing_to_learn(facts: Facts) -> str | None:
    """Why the prompt tells nothing beyond its query, or the best guess without it is not known."""
    if type(facts.task) is Continuous and facts.task.amplitude is None:
        return (
            "The claim is about learning in context; here all prompts show one function, so there "
            "is nothing to learn."
        )
    return _on_a_path(facts)


def _on_a_path(facts: Facts) -> str | None:
    # E[f(x)] over all functions is the best guess at x only where x tells nothing about f. A state
    # of a path does: the same function led to it. So a model without attention may do far better
    # than E[f(x)].
    if getattr(facts.task, "autoregressive", False):
        return (
            "The claim compares a model with the mean over all functions at the query; in this "
            "model's task prompts are paths, and the last state alone already tells something "
            "about the function"
        )
    return None


# ---- sufficient ----------------------------------------------------------------------------------


def _alone(facts: Facts) -> bool:
    return bool(facts.config.attn_only)


def _not_learned(facts: Facts) -> str | None:
    """How far a model with MLPs is from having learned; None for attention-only models.

    Whether attention-only models learn is what the claim asks.
    """
    return None if _alone(facts) else low_r2(facts)


def _arms(results: Results, facts: Facts) -> tuple[Arm, Arm]:
    """Runs with attention only, whether they have learned or not, and those with MLPs."""
    table = results[seeds.functions]
    alone = _alone(facts)
    bare = Arm.of(table, seeds.OWN if alone else ATTENTION_ONLY, learned=False)
    return bare, Arm.of(table, WITH_MLP if alone else seeds.OWN)


def sufficient(results: Results, facts: Facts) -> dict[str, Found]:
    """Errors of runs with attention only: over the best guess, and over those with MLPs."""
    arms = _arms(results, facts)
    found = kinds.prepared(arms, [OWN_ERROR], apart=True)
    if kinds.comparable(found):
        found["rate"] = _every_seed(arms[0])
        found["ratio"] = kinds.times(*arms, OWN_ERROR)
    return found


def untrained(results: Results, facts: Facts) -> dict[str, Found]:
    """The same of untrained models, where these have such numbers."""
    fresh = kinds.untrained(_arms(results, facts), [RATE, OWN_ERROR])
    if fresh is None or not kinds.comparable(sufficient(results, facts)):
        return {}
    own, other = fresh
    return {
        "rate": _every_seed(own, fresh=True),
        "ratio": kinds.times(own, other, OWN_ERROR, fresh=True),
    }


def about_sufficiency(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The runs, the number that does not decide, and what this model is without its MLPs."""
    arms = _arms(results, facts)
    if not kinds.comparable(found):
        return kinds.too_few(arms, NAMES)
    decided = SUFFICIENT.decide(found).condition
    caveat = kinds.compared(arms)
    if decided and decided.quantity == "rate":
        times = found["ratio"]
        over = measured(Interval(times.value, times.low, times.high), kinds.TIMES)
        caveat = f"The groups have {kinds.counted(arms)}; errors are {over} those with MLPs."
    return Remarks(
        scope=f"{kinds.SCOPE}, in distribution",
        caveat=caveat,
        estimate=found["ratio"],
        causal=_without_mlp(results, facts),
        details=kinds.details(arms, NAMES, [OWN_ERROR]),
    )


def _every_seed(arm: Arm, fresh: bool = False) -> Interval:
    """The median error rate of a group, from its smallest to its largest."""
    rates = arm.numbers(RATE, fresh)
    return Interval(float(np.median(rates)), float(rates.min()), float(rates.max()))


def _without_mlp(results: Results, facts: Facts) -> dict[str, Any] | None:
    """What a model that was trained with MLPs is without them.

    Its attention alone need not suffice.
    """
    if _alone(facts):
        return None
    parts = results[ablated]
    result = results[without_attention]
    return {
        "intervention": "outputs of all MLPs of this model, trained with them, replaced by their "
        "mean everywhere",
        "effect": ratio(parts, "no MLP", NOTHING, reference=result).value,
        "intact": ratio(result, "intact", NOTHING).value,
        "all heads made their mean": ratio(result, "no attention", NOTHING).value,
    }


def _no_partner(facts: Facts) -> str | None:
    if facts.config.mlp_only:
        return "The claim is about attention; this model has none."
    if reason := _on_a_path(facts):
        return reason
    role, what = (WITH_MLP, "with") if _alone(facts) else (ATTENTION_ONLY, "without")
    if Role(role) in facts.companions:
        return None
    return (
        f"The claim compares models with and without MLPs; none trained {what} MLPs is at hand "
        "(pass companions=, or `icl-interp complete RUN`)."
    )


ATTENTION_NECESSARY_CLAIM = Claim(
    id="limits.attention_necessary",
    question="attention",
    statement="Nothing is learned in context without attention.",
    denied="Something is learned in context without attention.",
    quote=Quote(
        "Indeed we found that the attention layers were both necessary and sufficient for ICL, "
        "with MLP only models unable to ICL.",
        "Naim & Asher (2025), section 4.3",
        "The paper trains models with MLPs only. We replace the output of every head of the "
        "trained model by its mean over prompts. If there is a matched model with MLPs only, we "
        "test it too. In a plain transformer nothing else connects tokens, so the claim cannot "
        "fail there. It can fail for a model with another path between tokens.",
    ),
    kind="architecture",
    reads="attention, which is edited",
    criterion=NECESSARY,
    measurements=(without_attention, ablated, edit_size),
    control=(without_attention,),
    of_control=("rate",),
    evidence=necessary,
    remarks=about_necessity,
    excluded=_nothing_to_learn,
    figures=("layers",),
)

ATTENTION_SUFFICIENT_CLAIM = Claim(
    id="limits.attention_sufficient",
    question="attention",
    statement="Models with attention only learn in context about as well as those with MLPs, or "
    "better.",
    denied="Models with attention only do not learn in context as well as those with MLPs.",
    quote=Quote(
        "Attention only transformer models showed capacities of ICL and has performances similar "
        "to transformers with MLP.",
        "Naim & Asher (2025), appendix G.1, first sentence (also sections 4.3 and 5)",
        "The paper does not say what counts as similar. We compare several seeds of each kind. "
        "Errors must be at most twice those of the same models with MLPs, and at most a tenth of "
        "those of the best guess without the prompt. Models with attention only count even if "
        "they have not learned their task; models with MLPs count only if they have.",
    ),
    kind="learning",
    reads="models of several kinds, and attention, which is edited",
    beside=(ATTENTION_ONLY, WITH_MLP),
    seeds=kinds.SEEDS,
    criterion=SUFFICIENT,
    measurements=(seeds.functions, without_attention, ablated),
    evidence=sufficient,
    remarks=about_sufficiency,
    untrained=untrained,
    excluded=_no_partner,
    learned=_not_learned,
    figures=("shift",),
)
