"""The figures of all experiments of the study, by the id of the experiment."""

from icl_interp.figures.reproductions import Draw
from icl_interp.studies.implicit_update.figures.convergence import convergence

DRAWINGS: dict[str, Draw] = {"implicit_update.convergence": convergence}
