"""Dials of `heads`: layers taken across the thresholds of the claim, for its power curve."""

import torch

from icl_interp.experiments.calibration import Case
from icl_interp.experiments.power import Dial
from icl_interp.studies.heads.constructions import N_DIMS, ORTHOGONAL, layer, turned, written_along

CLOSEST = 0.999  # cosine between directions: those of a basis can't be the same
SHARES = (-1.0, 1.0, 1.0)  # of the whole step: none of them can be left out
N_POINTS = 256  # so many that queries with few examples, which no layer answers well, make little of the mean error


def _own(share: float, g: torch.Generator) -> Case:
    """Each head takes the step along a coordinate of its own (1), or the whole step (0), one of them with a minus."""
    case, rate = layer(g, d_head=N_DIMS, n_points=N_POINTS)
    attn, eye = case.model.blocks[0].attn, torch.eye(N_DIMS, dtype=torch.float64)
    with torch.no_grad():
        attn.W_K[:, :N_DIMS] = eye
        for head, of_all in enumerate(SHARES):
            attn.W_Q[head, :N_DIMS] = rate * ((1 - share) * of_all * eye + share * torch.diag(eye[head]))
    return turned(g, written_along(case, min(1 - share, CLOSEST)))


DIALS: tuple[Dial, ...] = (
    Dial(
        "share of a head's own coordinate",
        ORTHOGONAL,
        "heads take a step along a coordinate each and write along orthogonal directions (1), or do the same (0)",
        _own,
        (0.0, 0.1, 0.2, 0.4, 0.7, 0.8, 0.9, 0.95, 1.0),
    ),
)
