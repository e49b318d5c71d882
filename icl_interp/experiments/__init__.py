"""Experiments: whole procedures with a result that is known or published.

`icl-interp reproduce` runs them; `results` reads what they gave on the bundled models, without
running anything.
"""

from icl_interp.experiments import calibration, power
from icl_interp.experiments.base import Experiment, Model, get, names, register
from icl_interp.experiments.kept import record, results
from icl_interp.experiments.statements import Statement

__all__ = [
    "Experiment",
    "Model",
    "Statement",
    "calibration",
    "get",
    "names",
    "power",
    "record",
    "register",
    "results",
]
