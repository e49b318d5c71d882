"""The experiments of the study."""

from icl_interp.studies.newton.experiments.layers import LAYERS_EXPERIMENT

EXPERIMENTS = (LAYERS_EXPERIMENT,)
