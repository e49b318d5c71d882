"""The study `mixtures`: is a model the Bayes predictor of its mixture, and what is it outside?"""

from pathlib import Path

from icl_interp.studies.base import Study
from icl_interp.studies.mixtures.claims.bayes_outside import CLAIMS
from icl_interp.studies.mixtures.constructions.all import CONSTRUCTIONS
from icl_interp.studies.mixtures.dials import DIALS
from icl_interp.studies.mixtures.experiments.all import EXPERIMENTS
from icl_interp.studies.mixtures.figures.all import DRAWINGS
from icl_interp.studies.mixtures.figures.mixture_distances import FIGURE

STUDY = Study(
    "mixtures",
    "Panwar, Ahuja & Goyal (2024), In-context learning through the Bayesian prism; Yadlowsky, "
    "Doshi & Tripuraneni (2023), Pretraining data mixtures enable narrow model selection "
    "capabilities in transformer models",
    claims=CLAIMS,
    figures={"mixture_distances": FIGURE},
    experiments=EXPERIMENTS,
    drawings=DRAWINGS,
    constructions=CONSTRUCTIONS,
    dials=DIALS,
    folder=Path(__file__).parent,
)
