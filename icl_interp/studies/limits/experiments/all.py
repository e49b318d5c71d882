"""All experiments of the study, in the order of their ids."""

from dataclasses import replace

from icl_interp.experiments.base import Experiment
from icl_interp.studies.limits.experiments.appendix_g import APPENDIX_G_EXPERIMENT
from icl_interp.studies.limits.experiments.figure1 import FIGURE1_EXPERIMENT
from icl_interp.studies.limits.experiments.figure2 import FIGURE2_EXPERIMENT
from icl_interp.studies.limits.experiments.figure3 import FIGURE3_EXPERIMENT
from icl_interp.studies.limits.experiments.figure4 import FIGURE4_EXPERIMENT
from icl_interp.studies.limits.experiments.figure5 import FIGURE5_EXPERIMENT
from icl_interp.studies.limits.experiments.figure6 import FIGURE6_EXPERIMENT
from icl_interp.studies.limits.experiments.figure7 import FIGURE7_EXPERIMENT
from icl_interp.studies.limits.experiments.figure8 import FIGURE8_EXPERIMENT
from icl_interp.studies.limits.experiments.post_ln import POST_LN
from icl_interp.studies.limits.experiments.remedies import REMEDIES_EXPERIMENT
from icl_interp.studies.limits.experiments.table1 import TABLE1_EXPERIMENT
from icl_interp.studies.limits.experiments.table2 import TABLE2_EXPERIMENT
from icl_interp.studies.limits.experiments.table3 import TABLE3_EXPERIMENT
from icl_interp.studies.limits.experiments.table4 import TABLE4_EXPERIMENT

TABLES_AND_FIGURES = (
    TABLE1_EXPERIMENT,
    TABLE2_EXPERIMENT,
    TABLE3_EXPERIMENT,
    TABLE4_EXPERIMENT,
    FIGURE1_EXPERIMENT,
    FIGURE4_EXPERIMENT,
    FIGURE6_EXPERIMENT,
    FIGURE8_EXPERIMENT,
    FIGURE2_EXPERIMENT,
    FIGURE3_EXPERIMENT,
    FIGURE5_EXPERIMENT,
    FIGURE7_EXPERIMENT,
)


def _with_variants(experiment: Experiment) -> Experiment:
    """A table or figure that needs models can be run with those of section 6."""
    return replace(experiment, variants=(POST_LN,)) if experiment.models else experiment


EXPERIMENTS: tuple[Experiment, ...] = (
    *map(_with_variants, TABLES_AND_FIGURES),
    APPENDIX_G_EXPERIMENT,
    REMEDIES_EXPERIMENT,
)
