"""The words of a reason that a criterion gives: its first sentence, and a number's threshold."""

from collections.abc import Mapping
from typing import get_args

from icl_interp.analyses.criterion import Criterion, Estimate, Verdict

HOLDS, FAILS, *_ = get_args(Verdict)


def answer(
    criterion: Criterion,
    quantities: Mapping[str, Estimate],
    holds: str,
    fails: str | Mapping[str, str],
    asked: str,
) -> str:
    """The first sentence of a reason: what a criterion says of some quantities.

    It comes before anything else is asked of the model.

    Args:
        criterion: what decides.
        quantities: what it asks for.
        holds: the sentence where it is met.
        fails: the one where the opposite is; by the quantity that decided, where they differ.
        asked: what is asked, to go on after "whether".

    >>> from icl_interp.analyses.criterion import Condition
    >>> rule = Criterion((Condition("error", "", (0, 1), (2, 9)),))
    >>> for value in (0.5, 1.5, 2.5):
    ...     error = {"error": Estimate.exactly("error", value)}
    ...     answer(rule, error, "It is small.", "It is large.", "it is small")
    'It is small.'
    'It is not decided whether it is small.'
    'It is large.'
    """
    decision = criterion.decide(quantities)
    if decision.verdict == HOLDS:
        return holds
    if decision.verdict == FAILS:
        return (
            fails
            if isinstance(fails, str)
            else fails[decision.condition.quantity if decision.condition else ""]
        )
    if decision.failed:  # the sentence before this one says why
        return f"So it cannot be told whether {asked}."
    return f"It is not decided whether {asked}."


def bound(
    criterion: Criterion,
    quantities: Mapping[str, Estimate],
    quantity: str,
    asked: str,
    against: str,
) -> str:
    """The threshold to state beside a number: that of the side on which the number lies.

    Both thresholds are stated where the number lies on neither side. Where a precondition failed it
    is what supports the claim.

    Args:
        criterion: what decides.
        quantities: what it asks for.
        quantity: which of them the number is.
        asked: the region that supports the claim, in words and units of the sentence.
        against: the one that contradicts it.

    >>> from icl_interp.analyses.criterion import Condition
    >>> rule = Criterion((Condition("error", "", (0, 1), (2, 9)),))
    >>> for value in (0.5, 1.5, 2.5):
    ...     error = {"error": Estimate.exactly("error", value)}
    ...     bound(rule, error, "error", "at most 1", "at least 2")
    'asked: at most 1'
    'asked: at most 1; contradicted: at least 2'
    'contradicted: at least 2'
    """
    if criterion.decide(quantities).failed:  # on which side it lies decides nothing
        return f"asked: {asked}"
    conditions = [c for c in criterion.conditions if c.quantity in quantities]
    k = sum(c.contradicts is not None for c in conditions)  # as in `Criterion.decide`
    outcomes = {c.quantity: c.outcome(quantities[c.quantity], max(k, 1)) for c in conditions}
    words = {HOLDS: f"asked: {asked}", FAILS: f"{FAILS}: {against}"}
    return words.get(outcomes.get(quantity, ""), f"asked: {asked}; {FAILS}: {against}")
