"""Dials of `heads`: layers taken across the thresholds of the claim, for its power curve."""

from icl_interp.experiments.power import Dial
from icl_interp.studies.heads.constructions.overlaps import ORTHOGONAL, alike, predictor

DIALS: tuple[Dial, ...] = (
    Dial(
        "share of a head's own coordinate",
        ORTHOGONAL,
        "heads predict a coordinate each (1), or a third of everything (0)",
        lambda share, g: predictor(g, alike(share)),
        (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0),
    ),
)
