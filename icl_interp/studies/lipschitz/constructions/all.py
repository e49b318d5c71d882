"""All models of known truth, with the verdict that each must get, and what they leave out."""

from icl_interp.studies.lipschitz.constructions import heads, units

CONSTRUCTIONS = (*units.CONSTRUCTIONS, *heads.HEADS)
EXCEPTIONS = {**units.EXCEPTIONS, **heads.EXCEPTIONS}
