"""Dials of `mixtures`, each for the power curve of a claim."""

from icl_interp.experiments.power import Dial
from icl_interp.studies.mixtures.constructions import predictors

DIALS: tuple[Dial, ...] = (
    Dial(
        "share of the way from ridge to the Bayes predictor",
        predictors.BAYES,
        "predictions lie so far on the way to the Bayes predictor of the mixture",
        predictors.from_ridge,
        (0.0, 0.4, 0.55, 0.65, 0.75, 1.0),
    ),
    Dial(
        "share of the way from a wider mixture to the Bayes predictor",
        predictors.OUTSIDE,
        "predictions lie so far on the way from what expects combinations to what does not",
        predictors.from_wide,
        (0.0, 0.6, 0.8, 0.9, 1.0),
    ),
)
