"""The study `dispersion`: does attention keep its largest weight on longer prompts?"""

from pathlib import Path

from icl_interp.studies.base import Study
from icl_interp.studies.dispersion.claims.disperses import CLAIMS
from icl_interp.studies.dispersion.constructions.all import CONSTRUCTIONS
from icl_interp.studies.dispersion.dials import DIALS
from icl_interp.studies.dispersion.experiments.all import EXPERIMENTS
from icl_interp.studies.dispersion.figures import largest_weights
from icl_interp.studies.dispersion.figures.all import DRAWINGS

STUDY = Study(
    "dispersion",
    "Veličković, Perivolaropoulos, Barbero & Pascanu (2024), softmax is not enough (for sharp "
    "out-of-distribution)",
    claims=CLAIMS,
    figures={"largest_weights": largest_weights.FIGURE},
    experiments=EXPERIMENTS,
    drawings=DRAWINGS,
    constructions=CONSTRUCTIONS,
    dials=DIALS,
    models=("lipschitz_relu", "softmax_fixed_no_positions"),
    folder=Path(__file__).parent,
    exceptions={
        ("ignorance", "dispersion.attention_disperses of all but blind"): (
            "What its head writes is all that its predictions depend on, even times 1e-6, and the "
            "head attends as before. The claim is about where it attends, not what that is for."
        )
    },
)
