"""Models of known truth whose verdicts are tried with edits: made of weights, not predictors."""

import torch

from icl_interp.experiments.calibration import NO, Case, Construction
from icl_interp.studies.limits.constructions.functions import ALIKE
from icl_interp.studies.limits.constructions.layers import N_CTX
from icl_interp.studies.limits.constructions.mechanisms import smoother
from icl_interp.tasks.distributions import Uniform
from icl_interp.tasks.functions import Polynomial


def smoothed(g: torch.Generator, degrees: tuple[int, ...]) -> Case:
    """A smoother of polynomials of these degrees: it misses most of those that bend most."""
    law = Uniform(-1, 1)
    return smoother(g, Polynomial(degrees=degrees, inputs=law, coefficients=law, n_points=N_CTX))


CONSTRUCTIONS: tuple[Construction, ...] = (
    Construction(
        "a smoother of degrees 1 and 16",
        "it misses almost nothing of a line, and much of what bends within its window",
        lambda g: smoothed(g, (1, 16)),
        {ALIKE: NO},
    ),
)
