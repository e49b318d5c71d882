"""Models of known truth for the claims of `limits`, and exceptions for `check_study`.

An exception says what `check_study` does not find, and why.
"""

from icl_interp.studies.limits.constructions import (
    edited,
    functions,
    in_context,
    layers,
    learned,
    mechanisms,
    trainings,
)

CONSTRUCTIONS = (
    *layers.CONSTRUCTIONS,
    *mechanisms.CONSTRUCTIONS,
    *functions.CONSTRUCTIONS,
    *trainings.CONSTRUCTIONS,
    *learned.CONSTRUCTIONS,
    *in_context.CONSTRUCTIONS,
    *edited.CONSTRUCTIONS,
)
EXCEPTIONS = {
    **mechanisms.EXCEPTIONS,
    **functions.EXCEPTIONS,
    **trainings.EXCEPTIONS,
    **learned.EXCEPTIONS,
}
