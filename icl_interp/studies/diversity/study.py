"""The study `diversity`: does a model that was trained on a pool of functions go by the pool?"""

from pathlib import Path

from icl_interp.studies.base import Study
from icl_interp.studies.diversity.claims.new_functions import CLAIMS
from icl_interp.studies.diversity.constructions.all import CONSTRUCTIONS
from icl_interp.studies.diversity.dials import DIALS
from icl_interp.studies.diversity.experiments.all import EXPERIMENTS
from icl_interp.studies.diversity.figures import pool_or_ridge
from icl_interp.studies.diversity.figures.all import DRAWINGS

STUDY = Study(
    "diversity",
    "Raventos, Paul, Chen & Ganguli (2023), Pretraining task diversity and the emergence of "
    "non-Bayesian in-context learning for regression",
    claims=CLAIMS,
    figures={"pool_or_ridge": pool_or_ridge.FIGURE},
    experiments=EXPERIMENTS,
    drawings=DRAWINGS,
    constructions=CONSTRUCTIONS,
    dials=DIALS,
    models=("regression_pool_16", "regression_pool_4096"),
    folder=Path(__file__).parent,
)
