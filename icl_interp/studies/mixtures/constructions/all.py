"""All models of known truth of the study."""

from icl_interp.studies.mixtures.constructions import predictors

CONSTRUCTIONS = predictors.CONSTRUCTIONS
