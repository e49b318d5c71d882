"""The figures of all experiments of the study, by the id of the experiment."""

from icl_interp.figures.reproductions import Draw
from icl_interp.studies.diversity.figures.threshold import threshold

DRAWINGS: dict[str, Draw] = {"diversity.threshold": threshold}
