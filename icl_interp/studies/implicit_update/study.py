"""The study `implicit_update`: do examples act as steps of descent on weights behind attention?"""

from pathlib import Path

from icl_interp.studies.base import Study
from icl_interp.studies.implicit_update.claims.rank_one_steps import CLAIMS
from icl_interp.studies.implicit_update.constructions.all import CONSTRUCTIONS
from icl_interp.studies.implicit_update.dials import DIALS
from icl_interp.studies.implicit_update.experiments.all import EXPERIMENTS
from icl_interp.studies.implicit_update.figures import implicit_steps
from icl_interp.studies.implicit_update.figures.all import DRAWINGS

RANK_ONE = "implicit_update.rank_one"
IDENTITY = "It is an identity, true of every network, so also of one that knows nothing."
ALWAYS = [("ignorance", f"{RANK_ONE} of {one}") for one in ("constant", "blind", "all but blind")]

STUDY = Study(
    "implicit_update",
    "Dherin, Munn, Mazzawi, Wunder & Gonzalvo (2025), Learning without training: the implicit "
    "dynamics of in-context learning",
    claims=CLAIMS,
    figures={"implicit_steps": implicit_steps.FIGURE},
    experiments=EXPERIMENTS,
    drawings=DRAWINGS,
    constructions=CONSTRUCTIONS,
    dials=DIALS,
    models=("affine", "softmax_fixed_20"),
    folder=Path(__file__).parent,
    exceptions=dict.fromkeys([("both_ways", RANK_ONE), *ALWAYS], IDENTITY),
)
