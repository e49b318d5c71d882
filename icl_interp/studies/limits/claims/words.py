"""Words that begin the reasons of findings."""

from collections.abc import Mapping
from typing import get_args

from icl_interp.analyses.criterion import Criterion, Estimate, Verdict

_ANSWERS = dict(zip(get_args(Verdict), ("Yes", "No", "Open", "Open"), strict=True))


def answer(criterion: Criterion, quantities: Mapping[str, Estimate]) -> str:
    """Yes, No or Open: what a criterion makes of some quantities, before anything else is asked of the model.

    >>> from icl_interp.analyses.criterion import Condition
    >>> rule = Criterion("at most 1 / at least 2", (Condition("error", (0, 1), (2, 9)),))
    >>> [answer(rule, {"error": Estimate.exactly("error", value)}) for value in (0.5, 1.5, 2.5)]
    ['Yes', 'Open', 'No']
    """
    return _ANSWERS[criterion.decide(quantities).verdict]
