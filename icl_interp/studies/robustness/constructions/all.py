"""All models of known truth of the study."""

from icl_interp.studies.robustness.constructions import predictors

CONSTRUCTIONS = predictors.CONSTRUCTIONS
