"""The figures of all experiments of the study, by the id of the experiment."""

from icl_interp.figures.reproductions import Draw
from icl_interp.studies.newton.figures.nearest_iterates import layers

DRAWINGS: dict[str, Draw] = {"newton.layers": layers}
