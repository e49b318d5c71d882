"""The study `newton`: do layers move on as Newton's iteration does, or as descent?"""

from pathlib import Path

from icl_interp.studies.base import Study
from icl_interp.studies.newton.claims.iterations import CLAIMS
from icl_interp.studies.newton.constructions.all import CONSTRUCTIONS
from icl_interp.studies.newton.dials import DIALS
from icl_interp.studies.newton.experiments.all import EXPERIMENTS
from icl_interp.studies.newton.figures.all import DRAWINGS
from icl_interp.studies.newton.figures.nearest_iterates import FIGURE

STUDY = Study(
    "newton",
    "Fu, Chen, Jia & Sharan (2023), Transformers learn higher-order optimization methods for "
    "in-context learning: a study with linear models",
    claims=CLAIMS,
    figures={"newton_iterates": FIGURE},
    experiments=EXPERIMENTS,
    drawings=DRAWINGS,
    constructions=CONSTRUCTIONS,
    dials=DIALS,
    models=("softmax_fixed_20",),
    folder=Path(__file__).parent,
)
