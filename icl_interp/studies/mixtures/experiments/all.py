"""The experiments of the study."""

from icl_interp.studies.mixtures.experiments.by_examples import BY_EXAMPLES_EXPERIMENT

EXPERIMENTS = (BY_EXAMPLES_EXPERIMENT,)
