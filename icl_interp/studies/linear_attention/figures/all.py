"""The figures of all experiments of the study, by the id of the experiment."""

from icl_interp.figures.reproductions import Draw
from icl_interp.studies.linear_attention.figures.convergence import convergence
from icl_interp.studies.linear_attention.figures.covariance import covariance
from icl_interp.studies.linear_attention.figures.length import length_spike
from icl_interp.studies.linear_attention.figures.risk import risk_formula
from icl_interp.studies.linear_attention.figures.shift_curves import shift_curves
from icl_interp.studies.linear_attention.figures.shifts import shifts
from icl_interp.studies.linear_attention.figures.trap import trap

DRAWINGS: dict[str, Draw] = {
    "linear_attention.convergence": convergence,
    "linear_attention.covariance": covariance,
    "linear_attention.length_spike": length_spike,
    "linear_attention.risk_formula": risk_formula,
    "linear_attention.shifts": shifts,
    "linear_attention.shift_curves": shift_curves,
    "linear_attention.trap": trap,
}
