"""Models whose truth is known: what the claims of `limits` are calibrated on, and what they are not, with the reason."""

from icl_interp.studies.limits.constructions import functions, layers, mechanisms, neighbours

CONSTRUCTIONS = (
    *layers.CONSTRUCTIONS,
    *mechanisms.CONSTRUCTIONS,
    *functions.CONSTRUCTIONS,
    *neighbours.CONSTRUCTIONS,
)
EXCEPTIONS = {**mechanisms.EXCEPTIONS, **functions.EXCEPTIONS, **neighbours.EXCEPTIONS}
