"""The study `robustness`: does a model stay as good as least squares when prompts shift?"""

from pathlib import Path

from icl_interp.studies.base import Study
from icl_interp.studies.robustness.claims.shift import CLAIMS
from icl_interp.studies.robustness.constructions.all import CONSTRUCTIONS
from icl_interp.studies.robustness.dials import DIALS
from icl_interp.studies.robustness.experiments.all import EXPERIMENTS
from icl_interp.studies.robustness.figures import shift_errors
from icl_interp.studies.robustness.figures.all import DRAWINGS

STUDY = Study(
    "robustness",
    "Garg, Tsipras, Liang & Valiant (2022), What can transformers learn in-context? A case study "
    "of simple function classes",
    claims=CLAIMS,
    figures={"shift_errors": shift_errors.FIGURE},
    experiments=EXPERIMENTS,
    drawings=DRAWINGS,
    constructions=CONSTRUCTIONS,
    dials=DIALS,
    models=("softmax_fixed_20",),
    folder=Path(__file__).parent,
)
