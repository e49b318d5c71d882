"""Claims, how each is measured, and how it is judged. Importing this registers the published ones.

Register your own with `register(Claim(...))`: it then appears in every report.
"""

from icl_interp.analyses.measurement import Measurement, measurement
from icl_interp.analyses.published import heads, limits_context, limits_layernorm, limits_softmax
from icl_interp.analyses.verdicts import REGISTRY, Claim, Criterion, Estimate, Finding, Judgement, register, select

__all__ = [
    "REGISTRY",
    "Claim",
    "Criterion",
    "Estimate",
    "Finding",
    "Judgement",
    "Measurement",
    "heads",
    "limits_context",
    "limits_layernorm",
    "limits_softmax",
    "measurement",
    "register",
    "select",
]
