"""Every published experiment: importing this registers them, study by study."""

from icl_interp.experiments import (
    limits_curves,
    limits_functions,
    limits_remedies,
    limits_softmax_examples,
    limits_tables,
)

STUDIES = {"limits": (limits_tables, limits_softmax_examples, limits_functions, limits_curves, limits_remedies)}
