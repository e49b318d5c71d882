"""Studies: a folder for each work, the only places that know it.

Importing this registers the bundled ones.

Register your own with `register(Study(...))`. A package brings one by an entry point of the group
`icl_interp.studies` with the study's name; it is loaded when claims, experiments or figures are
first asked for.
"""

from icl_interp import registers
from icl_interp.studies.autoregression.study import STUDY as AUTOREGRESSION
from icl_interp.studies.base import STUDIES, Study, add, load_plugins, register
from icl_interp.studies.debiased.study import STUDY as DEBIASED
from icl_interp.studies.dispersion.study import STUDY as DISPERSION
from icl_interp.studies.diversity.study import STUDY as DIVERSITY
from icl_interp.studies.gradient_descent.study import STUDY as GRADIENT_DESCENT
from icl_interp.studies.heads.study import STUDY as HEADS
from icl_interp.studies.implicit_update.study import STUDY as IMPLICIT_UPDATE
from icl_interp.studies.limits.study import STUDY as LIMITS
from icl_interp.studies.linear_attention.study import STUDY as LINEAR_ATTENTION
from icl_interp.studies.lipschitz.study import STUDY as LIPSCHITZ
from icl_interp.studies.mixtures.study import STUDY as MIXTURES
from icl_interp.studies.newton.study import STUDY as NEWTON
from icl_interp.studies.robustness.study import STUDY as ROBUSTNESS

# In the order of reports.
BUNDLED = (
    LIMITS,
    LINEAR_ATTENTION,
    LIPSCHITZ,
    AUTOREGRESSION,
    HEADS,
    ROBUSTNESS,
    GRADIENT_DESCENT,
    DIVERSITY,
    DISPERSION,
    NEWTON,
    IMPLICIT_UPDATE,
    DEBIASED,
    MIXTURES,
)

for study in BUNDLED:
    add(study)
registers.before_first_read(load_plugins)  # only now: such a package imports this one

__all__ = ["BUNDLED", "STUDIES", "Study", "register"]
