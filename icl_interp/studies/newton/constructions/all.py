"""All models of known truth of the study."""

from icl_interp.studies.newton.constructions import weights

CONSTRUCTIONS = weights.CONSTRUCTIONS
