"""How long the reason of a finding may be."""

import re

from icl_interp.analyses.reasons import MOST_SENTENCES, MOST_WORDS


def too_long(reason: str) -> str | None:
    """By how much a reason exceeds `MOST_WORDS` or `MOST_SENTENCES`; None if it is short enough.

    >>> too_long("It levels off. It changes by 0.1 % (supported: at most 1 %).")
    >>> too_long("Yes. " * 4)
    'its reason has 4 words in 4 sentences, and at most 60 in 3 are allowed: Yes. Yes. Yes. Yes.'
    """
    n_words, n_sentences = (
        len(reason.split()),
        len(re.findall(r"[.!?](?=\s+[A-Z0-9]|$)", reason.strip())),
    )
    if n_words <= MOST_WORDS and n_sentences <= MOST_SENTENCES:
        return None
    allowed = f"at most {MOST_WORDS} in {MOST_SENTENCES} are allowed"
    return (
        f"its reason has {n_words} words in {n_sentences} sentences, and {allowed}: "
        f"{reason.strip()}"
    )
