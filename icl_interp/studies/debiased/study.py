"""The study `debiased`: do softmax heads together take a debiased step of gradient descent?"""

from pathlib import Path

from icl_interp.studies.base import Study
from icl_interp.studies.debiased.claims import head_patterns, step
from icl_interp.studies.debiased.constructions.all import CONSTRUCTIONS
from icl_interp.studies.debiased.dials import DIALS
from icl_interp.studies.debiased.experiments.all import EXPERIMENTS
from icl_interp.studies.debiased.figures.all import DRAWINGS
from icl_interp.studies.debiased.figures.debiased_heads import FIGURE

STUDY = Study(
    "debiased",
    "He, Pan, Chen & Yang (2025), In-context linear regression demystified: training dynamics and "
    "mechanistic interpretability of multi-head softmax attention",
    claims=(*head_patterns.CLAIMS, *step.CLAIMS),
    figures={"debiased_heads": FIGURE},
    experiments=EXPERIMENTS,
    drawings=DRAWINGS,
    constructions=CONSTRUCTIONS,
    dials=DIALS,
    models=("softmax_heads_1", "softmax_heads_2", "softmax_heads_4"),
    folder=Path(__file__).parent,
)
