"""All models of known truth of the study."""

from icl_interp.studies.gradient_descent.constructions import weights

CONSTRUCTIONS = weights.CONSTRUCTIONS
