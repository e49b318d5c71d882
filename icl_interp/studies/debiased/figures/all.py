"""The figures of all experiments of the study, by the id of the experiment."""

from icl_interp.figures.reproductions import Draw
from icl_interp.studies.debiased.figures.by_heads import by_heads

DRAWINGS: dict[str, Draw] = {"debiased.by_heads": by_heads}
