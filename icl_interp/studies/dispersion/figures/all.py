"""The figures of all experiments of the study, by the id of the experiment."""

from icl_interp.figures.reproductions import Draw

DRAWINGS: dict[str, Draw] = {}
