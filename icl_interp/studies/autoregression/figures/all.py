"""The figures of all experiments of the study, by the id of the experiment."""

from icl_interp.figures.reproductions import Draw
from icl_interp.studies.autoregression.figures.figure1 import figure1
from icl_interp.studies.autoregression.figures.figure2 import figure2
from icl_interp.studies.autoregression.figures.figure3 import figure3
from icl_interp.studies.autoregression.figures.figure4 import figure4
from icl_interp.studies.autoregression.figures.figure5 import figure5, figure10
from icl_interp.studies.autoregression.figures.figure6 import figure6
from icl_interp.studies.autoregression.figures.figure7 import figure7
from icl_interp.studies.autoregression.figures.figure8 import figure8
from icl_interp.studies.autoregression.figures.figure9 import figure9
from icl_interp.studies.autoregression.figures.remark2 import remark2

DRAWINGS: dict[str, Draw] = {
    "autoregression.figure1": figure1,
    "autoregression.figure2": figure2,
    "autoregression.figure3": figure3,
    "autoregression.figure4": figure4,
    "autoregression.figure5": figure5,
    "autoregression.figure6": figure6,
    "autoregression.figure7": figure7,
    "autoregression.figure8": figure8,
    "autoregression.figure9": figure9,
    "autoregression.figure10": figure10,
    "autoregression.remark2": remark2,
}
