"""The experiments of the study."""

from icl_interp.studies.implicit_update.experiments.convergence import CONVERGENCE_EXPERIMENT

EXPERIMENTS = (CONVERGENCE_EXPERIMENT,)
