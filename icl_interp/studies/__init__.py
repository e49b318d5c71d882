"""Studies: a folder for each work, the only places that know it. Importing this registers the bundled ones.

Register your own with `register(Study(...))`.
"""

from icl_interp.studies.base import STUDIES, Study, register
from icl_interp.studies.heads.study import STUDY as HEADS
from icl_interp.studies.limits.study import STUDY as LIMITS
from icl_interp.studies.linear_attention.study import STUDY as LINEAR_ATTENTION

BUNDLED = (LIMITS, LINEAR_ATTENTION, HEADS)  # in the order of reports

for study in BUNDLED:
    register(study)

__all__ = ["BUNDLED", "STUDIES", "Study", "register"]
