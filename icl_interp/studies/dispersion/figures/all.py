"""The figures of all experiments of the study, by the id of the experiment."""

from icl_interp.figures.reproductions import Draw
from icl_interp.studies.dispersion.figures.by_items import by_items

DRAWINGS: dict[str, Draw] = {"dispersion.largest_weight": by_items}
