"""The figures of all experiments of the study, by the id of the experiment."""

from icl_interp.figures.reproductions import Draw
from icl_interp.studies.limits.figures.appendix_g import appendix_g
from icl_interp.studies.limits.figures.figure1 import followed
from icl_interp.studies.limits.figures.figure2 import rates_by_degree
from icl_interp.studies.limits.figures.figure3 import rates
from icl_interp.studies.limits.figures.figure4 import boundary
from icl_interp.studies.limits.figures.figure7 import maps
from icl_interp.studies.limits.figures.figure8 import layers
from icl_interp.studies.limits.figures.remedies import remedies
from icl_interp.studies.limits.figures.table1 import table1
from icl_interp.studies.limits.figures.table2 import by_degree
from icl_interp.studies.limits.figures.table3 import table3
from icl_interp.studies.limits.figures.table4 import softmax_examples

DRAWINGS: dict[str, Draw] = {
    "limits.table1": table1,
    "limits.table2": by_degree,
    "limits.table3": table3,
    "limits.table4": softmax_examples,
    "limits.figure1": followed,
    "limits.figure2": rates_by_degree,
    "limits.figure3": rates,
    "limits.figure4": boundary,
    "limits.figure5": rates,  # as Figure 3, with other laws
    "limits.figure6": followed,  # as Figure 1, with another function
    "limits.figure7": maps,
    "limits.figure8": layers,
    "limits.appendix_g": appendix_g,
    "limits.remedies": remedies,
}
