"""The dial of `implicit_update`, for the power curve of its claim with content."""

from icl_interp.experiments.power import Dial
from icl_interp.studies.implicit_update.claims.rank_one_steps import DESCENT_CLAIM
from icl_interp.studies.implicit_update.constructions.weights import layer

DIALS: tuple[Dial, ...] = (
    Dial(
        "weight of what hidden units write that no example moves",
        DESCENT_CLAIM.id,
        "gradients go through these units, so the cosine falls with their weight",
        lambda value, g: layer(g, value),
        (100.0, 40.0, 20.0, 12.0, 8.0, 2.5, 1.0, 0.6, 0.1),
    ),
)
