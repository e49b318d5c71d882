"""The dials of `implicit_update`, for the power curves of its claims with content."""

from icl_interp.experiments.power import Dial
from icl_interp.studies.implicit_update.claims import steps as learning
from icl_interp.studies.implicit_update.constructions import weights

# The cosine is that without unmoved units times (1 + 6 a)^-.5: it is .3 near a = 1.6, .1 near 16.
DIALS: tuple[Dial, ...] = (
    Dial(
        "weight of what hidden units write that no example moves",
        weights.DESCENT,
        "gradients go through these units, so the cosine falls with their weight",
        lambda value, g: weights.mean_label(value),
        (100.0, 40.0, 20.0, 14.0, 8.0, 2.5, 1.5, 1.0, 0.1),
    ),
    Dial(
        "size of a mean of inputs that moves units which cancel",
        weights.VANISH,
        "the mean moves with each example, whatever its label is",
        lambda value, g: weights.descent(weights.STEPS, 1.5, 0.02, value),
        (60.0, 30.0, 15.0, 12.0, 8.0, 5.0, 4.0, 2.0, 0.0),
        quantity=learning.RATIO,
    ),
)
