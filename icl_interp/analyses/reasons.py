"""The words of a reason: the answer, the number that decides, and how long both may be."""

import re
from collections.abc import Mapping

from icl_interp.analyses.criterion import CONTRADICTED, SUPPORTED, Decision, Estimate
from icl_interp.analyses.natural import in_a_sentence

MOST_WORDS = 60
MOST_SENTENCES = 3  # the answer, the number that decides, a caveat
END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9])")  # where one sentence ends and the next begins


def fitted(reason: str) -> tuple[str, str]:
    """The first sentences of a reason that are short enough to be read together, and the others.

    The first two always stay: the answer, and the number that decides.

    >>> fitted("It is level. It changes by 1 %. Few contexts do otherwise. They are rare.")
    ('It is level. It changes by 1 %. Few contexts do otherwise.', 'They are rare.')
    """
    sentences = END.split(reason.strip())
    n = min(len(sentences), MOST_SENTENCES)
    while n > 2 and len(" ".join(sentences[:n]).split()) > MOST_WORDS:
        n -= 1
    return " ".join(sentences[:n]), " ".join(sentences[n:])


def said(
    statement: str,
    denied: str,
    decision: Decision,
    quantities: Mapping[str, Estimate],
    open_because: str = "",
    by_algebra: str = "",
) -> str:
    """The answer of a criterion, and the number that decides with its threshold: two sentences.

    Args:
        statement: what is claimed.
        denied: the opposite, unless the condition that decided has its own words for it.
        decision: of the criterion.
        quantities: what it was asked of.
        open_because: why it is open, where the numbers do not say it.
        by_algebra: why a verdict follows from the design or from sizes alone, where it does.

    >>> from icl_interp.analyses.criterion import Condition, Criterion, at_least, at_most
    >>> rule = Criterion((Condition("error", "error", at_most(1), at_least(2)),))
    >>> for value in (0.5, 1.5, 2.5):
    ...     error = {"error": Estimate.exactly("error", value)}
    ...     said("It is small.", "It is large.", rule.decide(error), error)
    'It is small. Error: 0.5 (supported: at most 1).'
    'It is open whether it is small. Error: 1.5 (supported: at most 1; contradicted: at least 2).'
    'It is large. Error: 2.5 (contradicted: at least 2).'
    >>> error = {"error": Estimate.exactly("error", 0.0)}
    >>> said("It is small.", "", rule.decide(error), error, by_algebra="its weights are 0")
    'By algebra, it is small: its weights are 0. Error: 0 (supported: at most 1).'
    """
    condition = decision.condition
    asked = in_a_sentence(statement)
    if decision.verdict == SUPPORTED:
        answer = statement
    elif decision.verdict == CONTRADICTED:
        answer = condition.denied if condition and condition.denied else denied
    elif decision.failed:  # the sentence before this one says why
        return open_because or f"So it cannot be told whether {asked}."
    else:
        answer = f"It is open whether {asked}."
    is_open = decision.verdict not in (SUPPORTED, CONTRADICTED)
    if by_algebra and not is_open:
        answer = f"By algebra, {in_a_sentence(answer)}: {by_algebra}."
    number = ""
    if condition is not None and condition.quantity in quantities:
        number = condition.said(quantities[condition.quantity], decision.verdict)
    return " ".join(filter(None, (answer, open_because if is_open else "", number)))
