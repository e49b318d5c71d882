"""The figures of all experiments of the study, by the id of the experiment."""

from icl_interp.figures.reproductions import Draw
from icl_interp.studies.robustness.figures.figure4 import figure4

DRAWINGS: dict[str, Draw] = {"robustness.figure4": figure4}
