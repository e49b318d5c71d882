"""All models of known truth, with the verdict that each must get, and what they leave out."""

from icl_interp.studies.autoregression.constructions import maps, units

CONSTRUCTIONS = (*units.CONSTRUCTIONS, *maps.CONSTRUCTIONS)
EXCEPTIONS = {**units.EXCEPTIONS, **maps.EXCEPTIONS}
