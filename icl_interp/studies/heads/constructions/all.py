"""All models of known truth, with the verdict that each must get."""

from icl_interp.studies.heads.constructions import overlaps

CONSTRUCTIONS = overlaps.CONSTRUCTIONS
