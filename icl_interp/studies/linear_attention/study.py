"""The study `linear_attention`: what gradient flow makes of a layer of linear self-attention."""

from pathlib import Path

from icl_interp.studies.base import Study
from icl_interp.studies.linear_attention.claims import (
    algorithm,
    balanced,
    converged,
    covariate_shift,
    identity_maps,
    order_free,
    pl_inequality,
    query_shift,
    random_covariance,
    risk,
)
from icl_interp.studies.linear_attention.constructions.all import CONSTRUCTIONS, EXCEPTIONS
from icl_interp.studies.linear_attention.dials import DIALS
from icl_interp.studies.linear_attention.experiments.all import EXPERIMENTS
from icl_interp.studies.linear_attention.figures import report
from icl_interp.studies.linear_attention.figures.all import DRAWINGS
from icl_interp.studies.linear_attention.summary import nearest_algorithm

STUDY = Study(
    "linear_attention",
    "Zhang, Frei & Bartlett (2023), Trained transformers learn linear models in-context",
    claims=(
        converged.CONVERGED_CLAIM,
        balanced.BALANCED_CLAIM,
        pl_inequality.PL_INEQUALITY_CLAIM,
        identity_maps.IDENTITY_MAPS_CLAIM,
        risk.RISK_CLAIM,
        query_shift.QUERY_SHIFT_CLAIM,
        covariate_shift.COVARIATE_SHIFT_CLAIM,
        random_covariance.RANDOM_COVARIANCE_CLAIM,
        algorithm.ALGORITHM_CLAIM,
        order_free.ORDER_FREE_CLAIM,
    ),
    figures={"linear_attention": report.FIGURE},
    says=(nearest_algorithm,),
    experiments=EXPERIMENTS,
    drawings=DRAWINGS,
    constructions=CONSTRUCTIONS,
    dials=DIALS,
    models=("lsa_fixed",),
    folder=Path(__file__).parent,
    exceptions=EXCEPTIONS,
)
