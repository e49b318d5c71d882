"""All models of known truth, with the verdict that each must get, and what they leave out."""

from icl_interp.studies.autoregression.constructions import edited, maps, units

CONSTRUCTIONS = (*units.CONSTRUCTIONS, *maps.CONSTRUCTIONS, *edited.CONSTRUCTIONS)
EXCEPTIONS = {**units.EXCEPTIONS, **maps.EXCEPTIONS}
