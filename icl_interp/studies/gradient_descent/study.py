"""The study `gradient_descent`: are the layers of a model steps of gradient descent?"""

from pathlib import Path

from icl_interp.studies.base import Study
from icl_interp.studies.gradient_descent.claims.steps import CLAIMS
from icl_interp.studies.gradient_descent.constructions.all import CONSTRUCTIONS
from icl_interp.studies.gradient_descent.dials import DIALS
from icl_interp.studies.gradient_descent.experiments.all import EXPERIMENTS
from icl_interp.studies.gradient_descent.figures import descent_distances
from icl_interp.studies.gradient_descent.figures.all import DRAWINGS

STUDY = Study(
    "gradient_descent",
    "Von Oswald et al. (2023), Transformers learn in-context by gradient descent, and Ahn, Cheng, "
    "Daneshmand & Sra (2023), Transformers learn to implement preconditioned gradient descent for "
    "in-context learning",
    claims=CLAIMS,
    figures={"descent_distances": descent_distances.FIGURE},
    experiments=EXPERIMENTS,
    drawings=DRAWINGS,
    constructions=CONSTRUCTIONS,
    dials=DIALS,
    models=("lsa_fixed", "softmax_fixed_20"),
    folder=Path(__file__).parent,
)
