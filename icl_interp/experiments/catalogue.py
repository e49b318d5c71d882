"""Every published experiment: importing this registers them, study by study."""

from icl_interp.experiments import (
    limits_appendix_g,
    limits_curves,
    limits_functions,
    limits_remedies,
    limits_softmax_examples,
    limits_tables,
)

STUDIES = {"limits": (
    limits_tables, limits_softmax_examples, limits_functions, limits_curves, limits_appendix_g, limits_remedies,
)}  # fmt: skip
