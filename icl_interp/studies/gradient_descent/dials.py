"""The dial of `gradient_descent`, for the power curve of its claim."""

from icl_interp.experiments.power import Dial
from icl_interp.studies.gradient_descent.constructions import weights

# D = c^2 / (4 + c^2) of the shift c is .265 at 1.2, .10 at .67, .05 at .46 and .0025 at .1.
DIALS: tuple[Dial, ...] = (
    Dial(
        "shift of the function that descent goes to",
        weights.STEPS,
        "labels are read as y + c x_1, so both steps go to another function",
        weights.shifted,
        (1.2, 1.0, 0.8, 0.7, 0.65, 0.55, 0.46, 0.4, 0.3, 0.1),
    ),
)
