"""The experiments of the study."""

from icl_interp.studies.gradient_descent.experiments.layers import LAYERS_EXPERIMENT

EXPERIMENTS = (LAYERS_EXPERIMENT,)
