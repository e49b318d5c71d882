"""The dial of `dispersion`, for the power curve of its claim."""

import torch

from icl_interp.experiments.calibration import Case
from icl_interp.experiments.power import Dial
from icl_interp.studies.dispersion.constructions import weights


def scaled(own: float, g: torch.Generator) -> Case:
    """A head of scaled softmax whose own token scores so much."""
    return weights.finding(own, "scaled_softmax", g)


# The own token's weight falls about as n^(c - 1): the thresholds lie near c = .5 and .1.
DIALS: tuple[Dial, ...] = (
    Dial(
        "what the query's own token scores under scaled softmax",
        weights.DISPERSES,
        "a score of c gives it a weight of n^c / n, up to a constant",
        scaled,
        (1.0, 0.8, 0.6, 0.55, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.05, 0.0),
    ),
)
