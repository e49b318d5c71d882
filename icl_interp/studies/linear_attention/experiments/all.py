"""The experiments of the study."""

from icl_interp.studies.linear_attention.experiments.convergence import CONVERGENCE_EXPERIMENT
from icl_interp.studies.linear_attention.experiments.covariance import COVARIANCE_EXPERIMENT
from icl_interp.studies.linear_attention.experiments.length import LENGTH_SPIKE_EXPERIMENT
from icl_interp.studies.linear_attention.experiments.risk import RISK_FORMULA_EXPERIMENT
from icl_interp.studies.linear_attention.experiments.shift_curves import SHIFT_CURVES_EXPERIMENT
from icl_interp.studies.linear_attention.experiments.shifts import SHIFTS_EXPERIMENT
from icl_interp.studies.linear_attention.experiments.trap import TRAP_EXPERIMENT

EXPERIMENTS = (
    CONVERGENCE_EXPERIMENT,
    COVARIANCE_EXPERIMENT,
    LENGTH_SPIKE_EXPERIMENT,
    RISK_FORMULA_EXPERIMENT,
    SHIFTS_EXPERIMENT,
    SHIFT_CURVES_EXPERIMENT,
    TRAP_EXPERIMENT,
)
