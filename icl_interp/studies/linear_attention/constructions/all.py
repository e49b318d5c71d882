"""All models of known truth, with the verdict that each must get, and what they leave out."""

from icl_interp.studies.linear_attention.constructions import layers

CONSTRUCTIONS = layers.CONSTRUCTIONS
EXCEPTIONS = layers.EXCEPTIONS
