"""How long the reason of a finding may be, and what of a longer one it keeps."""

import re

MOST_WORDS, MOST_SENTENCES = 60, 3  # the answer, the number that decides, a caveat
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
