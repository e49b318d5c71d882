"""Claims, how each is measured, and how it is judged.

Those of the bundled studies are registered. Register your own with `register(Claim(...))`: it then
appears in every report.
"""

from icl_interp.analyses.bench import Bench
from icl_interp.analyses.claim import Claim, Evidence, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding, Quote
from icl_interp.analyses.measurement import Measurement, Results, measurement
from icl_interp.analyses.registry import REGISTRY, register, select

__all__ = [
    "REGISTRY",
    "Bench",
    "Claim",
    "Condition",
    "Criterion",
    "Estimate",
    "Evidence",
    "Facts",
    "Finding",
    "Measurement",
    "Precondition",
    "Quote",
    "Remarks",
    "Results",
    "measurement",
    "register",
    "select",
]
