"""Dials of `robustness`, each for the power curve of a claim.

Each takes least squares across the threshold under one shift, and leaves it as it is otherwise.
"""

from icl_interp.experiments.power import Dial
from icl_interp.studies.robustness.constructions import predictors as known

# A predictor that says a share of least squares misses (1 - share)^2: 20 % at .55, 10 % at .68.
SHARES = (0.2, 0.35, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8, 0.95)
WHY = "it says this share of what least squares says, and all of it in distribution"


DIALS: tuple[Dial, ...] = (
    Dial("share where signs agree", known.QUADRANTS, WHY, known.signed, SHARES),
    Dial("share in half of the dimensions", known.HALF_SUBSPACE, WHY, known.of_full_rank, SHARES),
    Dial("share where inputs are skewed", known.SKEWED, WHY, known.of_full_rank, SHARES),
    Dial("share where inputs are larger", known.INPUTS, WHY, known.sized, SHARES),
    Dial(
        "standard deviations at which predictions end",
        known.FUNCTIONS,
        "functions three times as large are cut there",
        known.bounded,
        (2.0, 2.4, 2.8, 3.2, 3.6, 4.0, 4.5, 5.0, 7.0, 12.0),
    ),
    Dial("share where labels are noisy", known.NOISE, WHY, known.trusting, (0.0, *SHARES)),
)
