"""All experiments of the study, in the order of their ids."""

from icl_interp.experiments.base import Experiment
from icl_interp.studies.autoregression.experiments.figure1 import FIGURE1_EXPERIMENT
from icl_interp.studies.autoregression.experiments.figure2 import FIGURE2_EXPERIMENT
from icl_interp.studies.autoregression.experiments.figure3 import FIGURE3_EXPERIMENT
from icl_interp.studies.autoregression.experiments.figure4 import FIGURE4_EXPERIMENT
from icl_interp.studies.autoregression.experiments.figure5 import (
    FIGURE5_EXPERIMENT,
    FIGURE10_EXPERIMENT,
)
from icl_interp.studies.autoregression.experiments.figure6 import FIGURE6_EXPERIMENT
from icl_interp.studies.autoregression.experiments.figure7 import FIGURE7_EXPERIMENT
from icl_interp.studies.autoregression.experiments.figure8 import FIGURE8_EXPERIMENT
from icl_interp.studies.autoregression.experiments.figure9 import FIGURE9_EXPERIMENT
from icl_interp.studies.autoregression.experiments.remark2 import REMARK2_EXPERIMENT

EXPERIMENTS: tuple[Experiment, ...] = (
    FIGURE1_EXPERIMENT,
    FIGURE2_EXPERIMENT,
    FIGURE3_EXPERIMENT,
    FIGURE4_EXPERIMENT,
    FIGURE5_EXPERIMENT,
    FIGURE6_EXPERIMENT,
    FIGURE7_EXPERIMENT,
    FIGURE8_EXPERIMENT,
    FIGURE9_EXPERIMENT,
    FIGURE10_EXPERIMENT,
    REMARK2_EXPERIMENT,
)
