"""Dials of `heads`: layers taken across the thresholds of the claim, for its power curve."""

import torch

from icl_interp.experiments.calibration import Case
from icl_interp.experiments.power import Dial
from icl_interp.studies.heads.constructions import N_DIMS, N_HEADS, ORTHOGONAL, layer, turned, written_along

CLOSEST = 0.999  # cosine between directions: those of a basis can't be the same


def _own(share: float, g: torch.Generator) -> Case:
    """Each head takes the step along a coordinate of its own (1) or a third of the whole step (0)."""
    case, rate = layer(g, d_head=N_DIMS)
    attn, eye = case.model.blocks[0].attn, torch.eye(N_DIMS, dtype=torch.float64)
    with torch.no_grad():
        attn.W_K[:, :N_DIMS] = eye
        for head in range(N_HEADS):
            attn.W_Q[head, :N_DIMS] = rate * ((1 - share) / N_HEADS * eye + share * torch.diag(eye[head]))
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
