"""The experiments of the study."""

from icl_interp.studies.debiased.experiments.by_heads import BY_HEADS

EXPERIMENTS = (BY_HEADS,)
