"""Every published experiment: importing this registers them, study by study."""

from icl_interp.experiments import (
    limits_appendix_g,
    limits_curves,
    limits_functions,
    limits_remedies,
    limits_softmax_examples,
    limits_tables,
    linear_attention_convergence,
    linear_attention_covariance,
    linear_attention_length,
    linear_attention_risk,
    linear_attention_shifts,
    linear_attention_trap,
)

STUDIES = {"limits": (
    limits_tables, limits_softmax_examples, limits_functions, limits_curves, limits_appendix_g, limits_remedies,
), "linear_attention": (
    linear_attention_convergence, linear_attention_covariance, linear_attention_length, linear_attention_risk,
    linear_attention_shifts, linear_attention_trap,
)}  # fmt: skip
