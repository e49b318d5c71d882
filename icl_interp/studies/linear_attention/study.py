"""The study `linear_attention`: what gradient flow makes of a layer of linear self-attention."""

from pathlib import Path

from icl_interp.figures.catalogue import ReportFigure
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
from icl_interp.studies.linear_attention.experiments import (
    convergence,
    covariance,
    length,
    shift_curves,
    shifts,
    trap,
)
from icl_interp.studies.linear_attention.experiments import risk as risk_formula
from icl_interp.studies.linear_attention.figures import reproduced, reproduced_length
from icl_interp.studies.linear_attention.figures import shift_curves as drawn_shift_curves
from icl_interp.studies.linear_attention.figures.report import linear_attention

FIGURES = {
    "linear_attention": ReportFigure(
        linear_attention,
        "First, the error at the query after M examples: measured, and by theory for the layer "
        "that training should"
        " end at, on the same draws; intervals are those of the ratio of the two. Dashed, as the "
        "slides print it. Then, where the run kept weights on its way, the exact excess loss and "
        "squared gradient at these steps, and the bound on the latter by Lemma 5.4. Last, how near "
        "the model is to algorithms for linear regression,"
        " told the distribution of the task: 1 is the same prediction, 0 as far as predicting 0 is "
        "from the truth.",
    )
}

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
    figures=FIGURES,
    experiments=(
        convergence.CONVERGENCE_EXPERIMENT,
        covariance.COVARIANCE_EXPERIMENT,
        length.LENGTH_SPIKE_EXPERIMENT,
        risk_formula.RISK_FORMULA_EXPERIMENT,
        shifts.SHIFTS_EXPERIMENT,
        shift_curves.SHIFT_CURVES_EXPERIMENT,
        trap.TRAP_EXPERIMENT,
    ),
    drawings={
        "linear_attention.convergence": reproduced.convergence,
        "linear_attention.covariance": reproduced.covariance,
        "linear_attention.length_spike": reproduced_length.length_spike,
        "linear_attention.risk_formula": reproduced.risk_formula,
        "linear_attention.shifts": reproduced.shifts,
        "linear_attention.shift_curves": drawn_shift_curves.shift_curves,
        "linear_attention.trap": reproduced.trap,
    },
    constructions=CONSTRUCTIONS,
    dials=DIALS,
    models=("lsa_fixed",),
    folder=Path(__file__).parent,
    exceptions=EXCEPTIONS,
)
