"""The experiments of the study."""

from icl_interp.studies.dispersion.experiments.largest_weight import LARGEST_WEIGHT_EXPERIMENT

EXPERIMENTS = (LARGEST_WEIGHT_EXPERIMENT,)
