"""The dial of `newton`, for the power curve of its first claim."""

import functools

from icl_interp.experiments.power import Dial
from icl_interp.studies.newton.constructions import weights

DIALS: tuple[Dial, ...] = (
    Dial(
        "share of a layer's step with an M that is three iterations ahead of the layer before",
        weights.LINEAR,
        "with none of it every layer takes the same preconditioned step",
        functools.partial(weights.ahead, 4, 3),
        (0.0, 0.3, 0.6, 1.0),
        "line",
    ),
)
