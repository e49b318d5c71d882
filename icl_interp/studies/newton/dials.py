"""The dial of `newton`, for the power curve of its first claim."""

from icl_interp.experiments.power import Dial
from icl_interp.studies.newton.constructions import all as known

DIALS: tuple[Dial, ...] = (
    Dial(
        "share of a layer's step with an M that is three iterations ahead of the layer before",
        known.LINEAR,
        "with none of it every layer takes the same preconditioned step",
        known.ahead,
        (0.0, 0.3, 0.6, 1.0),
        "line",
    ),
)
