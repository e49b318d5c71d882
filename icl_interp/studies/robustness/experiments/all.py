"""The experiments of the study."""

from icl_interp.studies.robustness.experiments.figure4 import FIGURE4_EXPERIMENT

EXPERIMENTS = (FIGURE4_EXPERIMENT,)
