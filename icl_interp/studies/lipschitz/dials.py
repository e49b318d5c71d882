"""Dials of `lipschitz`, each for the power curve of a claim.

A dial takes hand-built units across the threshold of the claim.
"""

import torch

from icl_interp.experiments.calibration import Case
from icl_interp.experiments.power import Dial
from icl_interp.studies.lipschitz.constructions import heads, units
from icl_interp.studies.lipschitz.measurements.unit import sigma_of
from icl_interp.studies.lipschitz.measurements.window_losses import best_window


def _towards_inverse(share: float, g: torch.Generator) -> Case:
    """M from a multiple of the identity (0) to one of the inverse covariance (1).

    Inputs lie on an ellipsoid.
    """
    task = units.ellipsoid(g)
    best, eye = float(best_window(task).window), torch.eye(units.D, dtype=torch.float64)
    plain = units.D / float(sigma_of(task).trace()) * eye
    return units.case_of(task, best * (plain + share * (units.unwhitened(eye, task) - plain)))


DIALS: tuple[Dial, ...] = (
    Dial(
        "score of a label of size L",
        heads.SMOOTHER,
        "weights grow with labels: the less they do, the nearer is a kernel's average",
        lambda v, g: heads.weights_by_labels(g, v, v),
        (6.0, 3.0, 1.0, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0),
    ),
    Dial(
        "width parameter over the best",
        units.OPTIMAL,
        "M is this multiple of w* I",
        lambda v, g: units.window(units.isotropic, v, g),
        (5.0, 3.0, 2.5, 2.0, 1.7, 1.5, 1.3, 1.1, 1.0),
    ),
    Dial(
        "width parameter over the best, in a family",
        heads.ADAPTS,
        "M is this multiple of w* I, on the task of runs that follow L and the noise",
        heads.in_family,
        (4.0, 2.5, 2.0, 1.8, 1.6, 1.4, 1.2, 1.0),
        quantity="own",
    ),
    Dial(
        "share of the inverse covariance in M",
        units.COVARIANCE,
        "the rest of M is a multiple of the identity, which is another matrix on an ellipsoid",
        _towards_inverse,
        (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0),
    ),
    Dial(
        "weight of irrelevant directions over that of relevant ones",
        units.DIRECTIONS,
        "M = c B B^T + this multiple of c (I - B B^T), where functions depend on B^T x",
        units.pair,
        (1.0, 0.6, 0.4, 0.3, 0.2, 0.1, 0.05, 0.0),
    ),
    Dial(
        "bound on predictions, over L",
        heads.TRANSFER,
        "the best window, and predictions that end at this multiple of L: functions of 10 L go "
        "beyond it",
        lambda v, g: heads.bounded(g, v),
        (2.5, 5.0, 7.0, 8.0, 9.0, 10.0, 15.0, 30.0),
        quantity="at 10 L",
    ),
)
