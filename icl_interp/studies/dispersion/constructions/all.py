"""All models of known truth of the study."""

from icl_interp.studies.dispersion.constructions import weights

CONSTRUCTIONS = weights.CONSTRUCTIONS
