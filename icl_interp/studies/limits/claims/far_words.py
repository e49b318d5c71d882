"""Words that the claims about far queries share: units, scopes, powers and percentages."""

import math

from pandas import DataFrame

from icl_interp.analyses.criterion import Estimate, Precondition, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.resampling import Interval
from icl_interp.studies.limits.measurements.far import power

NO_PROMPT = "the best guess without the prompt"
SD = "standard deviations"  # the unit u of outputs: the standard deviation of f in distribution
EDGE = "times the largest |x| of training"  # the unit of x
SPREAD = "standard deviation over contexts"
SCOPE = "these weights, this task, context in distribution and the query alone moved to "
ONSET = (
    "The plateau is predicted to begin only at {value:.3g} times the largest |x| of training, "
    "beyond the range measured."
)


def asked(facts: Facts, where: str, n_prompts: int) -> str:
    """What a far claim was asked of: places, directions, and how rare an unseen context may be.

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
        f"; contexts rarer than one in {max(n_prompts // 3, 1)} may behave otherwise without "
        "being seen"
    )
    vectors = ""
    if facts.n_targets > 1:
        vectors = (
            "; the size of a prediction is its length, and its standard deviation the root of the "
            "summed variances of coordinates"
        )
    return f"{SCOPE}{where}{rays}{rare}{vectors}"


def predicted(weights: DataFrame, x_unit: float) -> Estimate | None:
    """The |x| at which norms begin to divide the query out (`far/certificate`).

    None where none is predicted.
    """
    row = weights.iloc[0]
    if math.isnan(row["onset"]):
        return None
    value, low, high = (float(row[name]) / x_unit for name in ("onset", "onset low", "onset high"))
    return Estimate.of("onset", Interval(value, low, high), EDGE)


def onset_within(largest: float) -> Precondition:
    """That a predicted onset lies within what was measured: one further out decides nothing."""
    return Precondition("onset", at_most(largest), ONSET, optional=True)


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
