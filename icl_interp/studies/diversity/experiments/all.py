"""The experiments of the study."""

from icl_interp.studies.diversity.experiments.threshold import THRESHOLD_EXPERIMENT

EXPERIMENTS = (THRESHOLD_EXPERIMENT,)
