"""The figures of all experiments of the study, by the id of the experiment."""

from icl_interp.figures.reproductions import Draw
from icl_interp.studies.mixtures.figures.by_examples import by_examples

DRAWINGS: dict[str, Draw] = {"mixtures.by_examples": by_examples}
