"""All models of known truth of the study."""

from icl_interp.studies.implicit_update.constructions import weights

CONSTRUCTIONS = weights.CONSTRUCTIONS
