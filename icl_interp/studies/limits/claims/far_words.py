"""Words that the claims about far queries share: units, sizes in percent, and the answers about LayerNorm."""

import math
from typing import get_args

from pandas import DataFrame

from icl_interp.analyses.criterion import INF, Decision, Estimate, Precondition, Verdict
from icl_interp.analyses.facts import Facts
from icl_interp.resampling import Interval
from icl_interp.studies.limits.measurements.far import power

YES, NO = get_args(Verdict)[:2]  # what a criterion decides, if it decides
NO_PROMPT = "the best guess without the prompt"
SD = "standard deviations"  # the unit u of outputs: the standard deviation of f in distribution
EDGE = "times the largest |x| of training"  # the unit of x
SPREAD = "standard deviation over contexts"
SCOPE = "these weights, this task, context in distribution and the query alone moved to "
# Begins an answer that follows from sizes alone: no evidence about the model.
BY_ALGEBRA = "By algebra, "
ONSET = (
    "The plateau is predicted to begin only at {value:.3g} times the largest |x| of training, "
    "beyond the range measured."
)


def asked(facts: Facts, where: str, n_prompts: int) -> str:
    """What a far claim was asked of: places, directions, and how rare a context may be that nobody saw.

    Of n prompts without a single exception, exceptions are less frequent than 3 / n with a
    probability of 95 %.

    Args:
        facts: of the model.
        where: sizes of the query.
        n_prompts: that were asked.
    """
    n_dims = int(getattr(facts.task, "dim", 1))
    rays = (
        " along the first coordinate and along inputs drawn from their distribution"
        if n_dims > 1
        else ""
    )
    rare = (
        f"; a context that is rarer than one in {max(n_prompts // 3, 1)} may do something else "
        "unseen"
    )
    return f"{SCOPE}{where}{rays}{rare}"


def predicted(weights: DataFrame, x_unit: float) -> Estimate | None:
    """The |x| at which norms begin to divide the query out (`far/certificate`); None where none is predicted."""
    row = weights.iloc[0]
    if math.isnan(row["onset"]):
        return None
    value, low, high = (float(row[name]) / x_unit for name in ("onset", "onset low", "onset high"))
    found = Interval(value, low, high)
    return Estimate.of("|x| at which the plateau is predicted to begin", found, EDGE)


def onset_within(largest: float) -> Precondition:
    """That a predicted onset lies within what was measured: one further out decides nothing."""
    return Precondition("onset", (-INF, largest), ONSET, optional=True)


def in_lower_case(sentence: str) -> str:
    """A sentence that goes on after a few words.

    >>> in_lower_case("Far from the data it is level."), in_lower_case("LayerNorm is not the cause.")
    ('far from the data it is level.', 'LayerNorm is not the cause.')
    """
    first = sentence.split(" ", 1)[0]
    return sentence if first != first.capitalize() else sentence[0].lower() + sentence[1:]


def of(value: float) -> str:
    """So many times what follows, as percent of it where it is small.

    >>> [of(value) for value in (2.3e-8, 0.00028, 0.456, 1.3, 4.88, 12_345.0)]
    ['less than 0.0001 % of', '0.028 % of', '46 % of', '130 % of', '4.9 times', '1.2e4 times']
    """
    if 0 < value < 1e-6:
        return "less than 0.0001 % of"
    if value >= 2 or not math.isfinite(value):
        return f"{power(value)} times"
    return f"{100 * value:.0f} % of" if value >= 0.1 else f"{100 * value:.2g} % of"


def percent(bound: float) -> str:
    """A threshold as a percentage.

    >>> percent(0.05), percent(1.0)
    ('5 %', '100 %')
    """
    return f"{100 * bound:g} %"


def like(exponent: float) -> str:
    """A power of |x|.

    >>> like(-1.0), like(-0.001)
    ('|x|^-1.00', '|x|^0.00')
    """
    return f"|x|^{round(exponent, 2) + 0.0:.2f}"


def undecided(decision: Decision) -> str | None:
    """The quantity that left a decision open; None where one decided, or a precondition failed."""
    if decision.verdict in (YES, NO) or decision.failed or not decision.condition:
        return None
    return decision.condition.quantity


def levels_off(decision: Decision, predicted: bool) -> str:
    """The answer to the claim that f levels off; `predicted` is whether the weights say where."""
    levels = "The prediction levels off far from the data"
    if decision.verdict == YES:
        return f"{levels}, at values that the weights predict." if predicted else f"{levels}."
    if decision.verdict == NO:
        return (
            "The prediction does not level off far from the data: it keeps changing as |x| grows."
        )
    if undecided(decision) == "distance":
        return f"{levels}, but not clearly at the values that the weights alone predict."
    if undecided(decision) == "scale":
        return f"{levels}, but no norm's scale is shown to grow with |x|."
    if undecided(decision) == "largest":
        return f"{levels} on average, but not in every context that was asked."
    if undecided(decision) == "beyond":
        return f"{levels}, but it changes again further out."
    if decision.failed:
        return "So it cannot be told whether the prediction levels off far from the data."
    return "It is not decided whether the prediction levels off far from the data."


def norms_are_the_cause(decision: Decision) -> str:
    """The answer to the claim that the norms make f level off."""
    if decision.verdict == YES:
        return "LayerNorm makes the prediction level off: with every norm frozen it grows again."
    if decision.verdict == NO:
        if decision.condition and decision.condition.quantity == "frozen":
            return (
                "LayerNorm is not the cause: with every norm frozen the prediction does not grow "
                "either."
            )
        return (
            "LayerNorm does not make the prediction level off: in the unchanged model it keeps "
            "growing."
        )
    if decision.failed:
        return "So it cannot be told whether LayerNorm makes the prediction level off."
    is_open = "It is not decided whether LayerNorm makes the prediction level off"
    if (quantity := undecided(decision)) is None:
        return f"{is_open}."
    if quantity == "change":
        return f"{is_open}: it is not shown to level off in the unchanged model."
    where = "with frozen norms" if quantity == "frozen" else "in the unchanged model"
    return f"{is_open}: {where} it neither clearly stays level nor clearly grows."
