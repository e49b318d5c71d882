"""The dial of `debiased`, for the power curve of its claim on weights."""

from icl_interp.experiments.power import Dial
from icl_interp.studies.debiased.constructions import all as known

DIALS: tuple[Dial, ...] = (
    Dial(
        "weight of labels of the second head, of that of the first",
        known.PATTERNS,
        "with none of it one head is left",
        known.unequal,
        (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    ),
)
