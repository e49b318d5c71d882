"""The claims of `limits` about attention: learning in context needs it, and it suffices alone.

In a transformer nothing but attention moves anything from one token to another. Without it a
prediction depends on the query's own token alone, and then no weights do better than the mean over
all functions at that query: the best guess without the prompt. So for a plain transformer that
attention is necessary is a check of the design, which trained weights cannot fail. What can fail it
are models with another path between tokens, and tokens that show more than one point.
"""

import numpy as np
from xarray import DataArray

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import EXPLAINS, LEARNED_R2, Claim, Evidence, low_r2
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.checkpoints.companions import Role
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.limits.claims import kinds
from icl_interp.studies.limits.claims.far_words import NO_PROMPT, YES
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
ATTENTION_ONLY, WITH_MLP = "attention only", "with MLP"
LOW, HIGH = (
    0.1,
    0.15,
)  # error rates up to which a run has learned in context, and from which it has not
AS_GOOD, WORSE = 2.0, 3.0  # times; a factor of 1.5 apart, as `claims.kinds` explains
TINY = float(np.finfo(float).tiny)
# Trained weights cannot fail it, so the answer itself says so in its first words.
BY_DESIGN = (
    "This is no evidence about training: in a plain transformer nothing but attention connects "
    "tokens."
)
BESIDE = (
    "No weights reach that where tokens exchange nothing: something beside attention connects the "
    "points."
)
SCOPE = "these weights, this task, functions and inputs in distribution"


def ratio(
    result: DataArray, arm: str, over: str, points: str = ALL, reference: DataArray | None = None
) -> Interval:
    """Mean squared error of one arm over that of another, paired by function.

    The other arm is looked up in `reference`, where that is given.
    """
    mine = result.sel(arm=arm, points=points).values
    other = (result if reference is None else reference).sel(arm=over, points=points).values
    return bootstrap(lambda a, b: a / np.maximum(b, TINY), mine, other, positive=True)


def _row(name: str, interval: Interval) -> dict[str, object]:
    return {"model": name, "error rate": interval.value, "low": interval.low, "high": interval.high}


# ---- necessary -----------------------------------------------------------------------------------


def attention_necessary(results: Results, facts: Facts) -> Evidence:
    """Is anything learned in context where no token learns of another?"""
    result = results[without_attention]
    differs = ratio(result, BLIND, NOTHING)
    quantities = {"functions differ": Estimate.of(f"error of {NO_PROMPT} / of 0", differs)}
    if not differs.low >= SHARED:
        return Evidence(quantities, "", scope=SCOPE)
    alone = facts.config.mlp_only
    mine = "intact" if alone else "no attention"
    own, intact = (ratio(result, arm, BLIND) for arm in (mine, "intact"))
    rates = {"for this model, which has MLPs only" if alone else EVERY_HEAD: own}
    name = f"error without attention / error of {NO_PROMPT}"
    quantities["rate"] = Estimate.of(name, own)
    if MLP_ONLY in result.indexes["arm"]:
        rates["for a matched model with MLPs only"] = matched = ratio(result, MLP_ONLY, BLIND)
        quantities["rate, companion"] = Estimate.of(name, matched)
    if not alone:  # a model without attention has nothing of it to lose
        quantities["R2"] = facts.learned
    first = answer(
        NECESSARY,
        quantities,
        "By design: without attention nothing is learned in context.",
        "Something is learned in context without attention.",
        "anything is learned in context without attention",
    )
    worst = min(rates.values(), key=lambda rate: rate.value)
    key = "rate" if worst is own else "rate, companion"
    listed = " and ".join(f"{i.value:.3g} {who}" for who, i in rates.items())
    threshold = bound(NECESSARY, quantities, key, f"at least {LOST:g}", f"at most {KEPT:g}")
    unchanged = "" if alone else f"; unchanged: {intact.value:.2g}"
    says = (
        f"{first} Relative to {NO_PROMPT} the squared error is {listed} ({threshold}{unchanged})."
    )
    fresh = results.control[without_attention]
    return Evidence(
        quantities,
        says,
        scope=SCOPE,
        causal=None if alone else _causal(results, result),
        control={"rate": Estimate.of(name, ratio(fresh, mine, BLIND))},
        details=tuple(
            _row(who, i) for who, i in {**rates, "this model, unchanged": intact}.items()
        ),
        caveat=BESIDE if worst.value < LOST else BY_DESIGN,
    )


def _causal(results: Results, result: DataArray) -> dict[str, object]:
    """The ablation at the query alone, and its control: the same points in another order.

    There is no control where the points have no other order.
    """
    parts, size = results[ablated], results[edit_size]
    effects: dict[str, object] = {
        "intervention": "every head's output replaced by its mean, at every position or at the "
        "last query's token",
        "effect": ratio(result, "no attention", BLIND).value,
        "at the query only": ratio(result, "no attention", BLIND, QUERY).value,
        "intact, last query": ratio(result, "intact", BLIND, QUERY).value,
    }
    change = "squared change of the heads' outputs"
    said: dict[str, object] = {
        f"{change}, replaced by their mean": float(size.sel(edit="mean").values)
    }
    if REORDERED not in parts.indexes["arm"]:
        return effects | said
    control = ratio(parts, REORDERED, BLIND, QUERY, reference=result).value
    effects |= {"sham: the same points in another order": control, "sham effect": control}
    return (
        effects | said | {f"{change}, control intervention": float(size.sel(edit=REORDERED).values)}
    )


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
            "The claim compares a model with the mean over all functions at the query; this "
            "model's task shows paths, whose last state itself tells about the function"
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


def attention_sufficient(results: Results, facts: Facts) -> Evidence:
    """Do runs with attention only learn in context, and as well as the same with MLPs?"""
    table = results[seeds.functions]
    alone = Arm.of(table, seeds.OWN if _alone(facts) else ATTENTION_ONLY, learned=False)
    full = Arm.of(table, WITH_MLP if _alone(facts) else seeds.OWN)
    arms = alone, full
    quantities = kinds.prepared(arms, [OWN_ERROR], apart=True)
    if not kinds.comparable(quantities):
        names = ATTENTION_ONLY, WITH_MLP
        too_few = kinds.needed(arms, names)
        return Evidence(quantities, too_few, scope=kinds.SCOPE, details=kinds.left_out(arms, names))
    times = kinds.times(alone, full, OWN_ERROR)
    name = "error with attention only / with MLPs"
    quantities |= {"rate": _every_seed(alone), "ratio": Estimate.of(name, times, kinds.TIMES)}
    first = answer(
        SUFFICIENT,
        quantities,
        "Models with attention only learn in context, and about as well as those with MLPs or "
        "better.",
        {
            "rate": "Models with attention only do not learn in context.",
            "ratio": "Models with attention only do not learn in context as well as those with "
            "MLPs.",
        },
        "models with attention only learn in context as well as those with MLPs",
    )
    times_limits = bound(
        SUFFICIENT, quantities, "ratio", f"at most {AS_GOOD:g} times", f"at least {WORSE:g} times"
    )
    times_words = (
        f"{kinds.in_brackets(times)} times those with MLPs ({times_limits}; {kinds.counted(arms)})"
    )
    rate = quantities["rate"]
    rate_words = (
        f"{rate.low:.2g} to {rate.high:.2g} times those of {NO_PROMPT} "
        f"({bound(SUFFICIENT, quantities, 'rate', f'at most {LOW:g}', f'at least {HIGH:g}')})"
    )
    decision = SUFFICIENT.decide(quantities)
    by_rate = (
        decision.verdict != YES and decision.condition and decision.condition.quantity == "rate"
    )
    one, other = (rate_words, times_words) if by_rate else (times_words, rate_words)
    says, caveat = f"{first} Their squared errors are {one}.", f"They are {other}."
    return Evidence(
        quantities,
        says,
        quantities["ratio"],
        f"{kinds.SCOPE}, in distribution",
        causal=_without_mlp(results, facts),
        control=_fresh(arms, name),
        details=kinds.details(arms, (ATTENTION_ONLY, WITH_MLP), [OWN_ERROR]),
        caveat=caveat,
    )


def _fresh(arms: tuple[Arm, Arm], name: str) -> dict[str, Estimate]:
    """The same quantities of untrained models, where these have such numbers."""
    fresh = kinds.untrained(arms, [RATE, OWN_ERROR])
    if not fresh:
        return {}
    own, other = fresh
    times = kinds.times(own, other, OWN_ERROR, fresh=True)
    return {
        "rate": _every_seed(fresh[0], fresh=True),
        "ratio": Estimate.of(name, times, kinds.TIMES),
    }


def _every_seed(arm: Arm, fresh: bool = False) -> Estimate:
    """The median error rate of a group, from its smallest to its largest."""
    rates = arm.numbers(RATE, fresh)
    return Estimate(
        f"error / error of {NO_PROMPT}, attention only, all seeds",
        float(np.median(rates)),
        float(rates.min()),
        float(rates.max()),
    )


def _without_mlp(results: Results, facts: Facts) -> dict[str, object] | None:
    """What a model that was trained with MLPs is without them.

    Its attention alone need not suffice.
    """
    if _alone(facts):
        return None
    parts, result = results[ablated], results[without_attention]
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
        "(pass companions=)."
    )


NECESSARY = Criterion(
    (
        Condition("rate", "", (LOST, INF), (-INF, KEPT)),
        Condition("rate, companion", "", (LOST, INF), (-INF, KEPT), optional=True),
    ),
    (
        Precondition(
            "functions differ",
            (SHARED, INF),
            "All prompts show one function: there is nothing to learn in context.",
        ),
        Precondition(
            "R2", (LEARNED_R2, INF), f"{EXPLAINS}, so it has nothing to lose.", optional=True
        ),
    ),
    terms=(
        "squared error with every head's output replaced by its mean over prompts (and that of a "
        "matched model with MLPs only, where one is at hand), divided by the squared error of "
        f"{NO_PROMPT}: at least {LOST} / at most {KEPT}"
    ),
)
SUFFICIENT = Criterion(
    (
        Condition("rate", "", (0.0, LOW), (HIGH, INF), scale="log"),
        Condition("ratio", "", (0.0, AS_GOOD), (WORSE, INF), scale="log"),
    ),
    kinds.PRECONDITIONS,
    terms=(
        f"models with attention only: squared error divided by that of {NO_PROMPT} at most {LOW:g} for "
        f"every seed, and at most {AS_GOOD:g} times the error of the same models with MLPs / at least "
        f"{HIGH:g} for every seed, or at least {WORSE:g} times"
    ),
)

ATTENTION_NECESSARY_CLAIM = Claim(
    id="limits.attention_necessary",
    question="attention",
    short="By design models cannot learn in context without attention.",
    quote=Quote(
        "Indeed we found that the attention layers were both necessary and sufficient for ICL, "
        "with MLP only models unable to ICL.",
        "Naim & Asher (2025), section 4.3",
        "The paper trains models with MLPs only. We replace the output of every head of the "
        "trained model"
        " by its mean over prompts, and test a model with MLPs only where there is one. In a plain "
        "transformer nothing else connects tokens, so it cannot fail this test; a model with "
        "another path between tokens can.",
    ),
    kind="architecture",
    statement="Attention is necessary for learning in context: without it models cannot",
    source="Naim & Asher (2025), section 4.3",
    criterion=NECESSARY,
    measurements=(without_attention, ablated, edit_size),
    control=(without_attention,),
    evidence=attention_necessary,
    excluded=_nothing_to_learn,
    figures=("layers",),
)

ATTENTION_SUFFICIENT_CLAIM = Claim(
    id="limits.attention_sufficient",
    question="attention",
    short="Models with attention only learn in context as well as others.",
    quote=Quote(
        "Attention only transformer models showed capacities of ICL and has performances similar "
        "to transformers with MLP.",
        "Naim & Asher (2025), appendix G.1, first sentence (also sections 4.3 and 5)",
        "The paper does not say what counts as similar. We compare several seeds of each kind, and "
        "ask for errors of at most twice those of the same models with MLPs, and of at most a "
        "tenth of those of the best guess without the prompt. Models with attention only that have "
        "not learned their task count too; those with MLPs do not.",
    ),
    kind="learning",
    statement="Attention is sufficient for learning in context: attention-only models learn as "
    "well as with MLPs",
    source="Naim & Asher (2025), sections 4.3 and 5 and appendix G.1",
    criterion=SUFFICIENT,
    measurements=(seeds.functions, without_attention, ablated),
    evidence=attention_sufficient,
    excluded=_no_partner,
    learned=_not_learned,
    figures=("shift",),
)
