"""The study `heads`: are the heads of a layer orthogonal?"""

from pathlib import Path

from icl_interp.studies.base import Study
from icl_interp.studies.heads.claims.orthogonality import ORTHOGONALITY_CLAIM
from icl_interp.studies.heads.constructions.all import CONSTRUCTIONS
from icl_interp.studies.heads.dials import DIALS
from icl_interp.studies.heads.figures import overlap

STUDY = Study(
    "heads",
    "Sander, Giryes, Suzuki, Blondel & Peyré (2024), How do transformers perform in-context "
    "autoregressive learning?",
    claims=(ORTHOGONALITY_CLAIM,),
    figures={"overlap": overlap.FIGURE},
    models=("affine", "affine_no_ln", "affine_post_ln", "affine_attn_only", "affine_hardmax"),
    constructions=CONSTRUCTIONS,
    dials=DIALS,
    folder=Path(__file__).parent,
)
