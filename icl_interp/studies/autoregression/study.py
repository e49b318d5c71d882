"""The study `autoregression`: how linear attention learns in context.

It estimates the matrix of an autoregressive process.
"""

from pathlib import Path

from icl_interp.studies.autoregression.claims import (
    augmented,
    depth,
    heads_orthogonal,
    identity,
    map,
    past_token,
    same_on_diagonals,
    softmax,
    spare,
    specialise,
    start,
)
from icl_interp.studies.autoregression.constructions.all import CONSTRUCTIONS, EXCEPTIONS
from icl_interp.studies.autoregression.dials import DIALS
from icl_interp.studies.autoregression.experiments.all import EXPERIMENTS
from icl_interp.studies.autoregression.figures import maps, unit
from icl_interp.studies.autoregression.figures.all import DRAWINGS
from icl_interp.studies.base import Study

STUDY = Study(
    "autoregression",
    "Sander, Giryes, Suzuki, Blondel & Peyré (2024), How do Transformers perform in-context "
    "autoregressive learning?",
    claims=(
        map.MAP_CLAIM,
        depth.DEPTH_CLAIM,
        augmented.AUGMENTED_CLAIM,
        past_token.PAST_CLAIM,
        same_on_diagonals.DIAGONALS_CLAIM,
        softmax.SOFTMAX_CLAIM,
        identity.IDENTITY_CLAIM,
        heads_orthogonal.HEADS_ORTHOGONAL_CLAIM,
        specialise.SPECIALISE_CLAIM,
        spare.SPARE_CLAIM,
        start.START_CLAIM,
    ),
    figures={**unit.FIGURES, **maps.FIGURES},
    experiments=EXPERIMENTS,
    drawings=DRAWINGS,
    constructions=CONSTRUCTIONS,
    dials=DIALS,
    models=(
        "autoregression_rotations",
        "autoregression_full_2",
        "autoregression_tiled",
        "autoregression_states",
    ),
    folder=Path(__file__).parent,
    exceptions=EXCEPTIONS,
)
