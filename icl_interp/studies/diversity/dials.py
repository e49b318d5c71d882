"""The dial of `diversity`, for the power curve of its claim."""

from icl_interp.experiments.power import Dial
from icl_interp.studies.diversity.constructions import predictors

# Squared distances differ by a factor of two at .414 and at .586.
DIALS: tuple[Dial, ...] = (
    Dial(
        "share of the way from the pool to ridge",
        predictors.NEW_FUNCTIONS,
        "predictions lie so far on the way from the pool's Bayes predictor to ridge",
        lambda value, g: predictors.on_the_way(1 - value, g),
        (0.0, 0.2, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.8, 1.0),
    ),
)
