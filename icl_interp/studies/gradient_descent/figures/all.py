"""The figures of all experiments of the study, by the id of the experiment."""

from icl_interp.figures.reproductions import Draw
from icl_interp.studies.gradient_descent.figures.layers import layers

DRAWINGS: dict[str, Draw] = {"gradient_descent.layers": layers}
