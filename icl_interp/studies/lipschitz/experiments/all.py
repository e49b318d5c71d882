"""All experiments of the study, in the order of their ids."""

from icl_interp.studies.lipschitz.experiments.beyond_a_head import BEYOND_A_HEAD_EXPERIMENT
from icl_interp.studies.lipschitz.experiments.bias_noise import BIAS_NOISE_EXPERIMENT
from icl_interp.studies.lipschitz.experiments.generalization import GENERALIZATION_EXPERIMENT
from icl_interp.studies.lipschitz.experiments.low_rank import LOW_RANK_EXPERIMENT
from icl_interp.studies.lipschitz.experiments.norm_growth import NORM_GROWTH_EXPERIMENT
from icl_interp.studies.lipschitz.experiments.theorem2 import THEOREM2_EXPERIMENT
from icl_interp.studies.lipschitz.experiments.window import WINDOW_EXPERIMENT

EXPERIMENTS = (
    BEYOND_A_HEAD_EXPERIMENT,
    BIAS_NOISE_EXPERIMENT,
    GENERALIZATION_EXPERIMENT,
    LOW_RANK_EXPERIMENT,
    NORM_GROWTH_EXPERIMENT,
    THEOREM2_EXPERIMENT,
    WINDOW_EXPERIMENT,
)
