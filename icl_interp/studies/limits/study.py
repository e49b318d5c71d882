"""The study `limits`: what LayerNorm and softmax do far from the training data."""

from pathlib import Path

from icl_interp.studies.base import Study
from icl_interp.studies.limits.claims import asymptote as asymptote_claims
from icl_interp.studies.limits.claims import attention as attention_claims
from icl_interp.studies.limits.claims import boundary as boundary_claims
from icl_interp.studies.limits.claims import context as context_claims
from icl_interp.studies.limits.claims import continuous as continuous_claims
from icl_interp.studies.limits.claims import degrees_alike as degrees_alike_claims
from icl_interp.studies.limits.claims import error_near_boundary as near_boundary_claims
from icl_interp.studies.limits.claims import failure as failure_claims
from icl_interp.studies.limits.claims import high_norm as high_norm_claims
from icl_interp.studies.limits.claims import icl1 as icl1_claims
from icl_interp.studies.limits.claims import larger_intervals as larger_intervals_claims
from icl_interp.studies.limits.claims import last_layer as last_layer_claims
from icl_interp.studies.limits.claims import layernorm as layernorm_claims
from icl_interp.studies.limits.claims import layernorm_cause as cause_claims
from icl_interp.studies.limits.claims import matches_least_squares as matches_claims
from icl_interp.studies.limits.claims import no_classical as no_classical_claims
from icl_interp.studies.limits.claims import no_icl2 as no_icl2_claims
from icl_interp.studies.limits.claims import no_norm_better as no_norm_claims
from icl_interp.studies.limits.claims import patterns as patterns_claims
from icl_interp.studies.limits.claims import size_does_not_help as size_claims
from icl_interp.studies.limits.claims import softmax as softmax_claims
from icl_interp.studies.limits.claims import training_density as training_density_claims
from icl_interp.studies.limits.claims import uniform as uniform_claims
from icl_interp.studies.limits.claims import unknown_degree as unknown_degree_claims
from icl_interp.studies.limits.claims import unseen_classes as unseen_classes_claims
from icl_interp.studies.limits.constructions.all import CONSTRUCTIONS, EXCEPTIONS
from icl_interp.studies.limits.dials import DIALS
from icl_interp.studies.limits.experiments.all import EXPERIMENTS
from icl_interp.studies.limits.figures import (
    boundary,
    classes,
    context,
    dispersion,
    far_query,
    growth,
    heads,
    in_context,
    layers,
    one_prompt,
    shift,
)
from icl_interp.studies.limits.figures.all import DRAWINGS
from icl_interp.studies.limits.summary import far_queries, nearest_algorithm

FIGURES = {
    "far_query": far_query.FIGURE,
    "growth": growth.FIGURE,
    "boundary": boundary.FIGURE,
    "context": context.FIGURE,
    "heads": heads.FIGURE,
    "dispersion": dispersion.FIGURE,
    "layers": layers.FIGURE,
    "classes": classes.FIGURE,
    "shift": shift.FIGURE,
    "in_context": in_context.FIGURE,
    "far_prompts": one_prompt.FAR,
    "lens_by_layer": one_prompt.LENS,
}

STUDY = Study(
    "limits",
    "Naim & Asher (2025), Analyzing limits for in-context learning",
    claims=(
        layernorm_claims.LAYERNORM_SATURATION_CLAIM,
        cause_claims.LAYERNORM_CAUSES_SATURATION_CLAIM,
        failure_claims.LAYERNORM_CAUSES_FAILURE_CLAIM,
        context_claims.CONTEXT_ERASED_CLAIM,
        asymptote_claims.LINEAR_ASYMPTOTE_CLAIM,
        softmax_claims.SOFTMAX_HARDMAX_CLAIM,
        uniform_claims.SOFTMAX_UNIFORM_CLAIM,
        icl1_claims.ICL1_CLAIM,
        no_icl2_claims.NO_ICL2_CLAIM,
        matches_claims.MATCHES_LEAST_SQUARES_CLAIM,
        degrees_alike_claims.DEGREES_ALIKE_CLAIM,
        unseen_classes_claims.UNSEEN_CLASSES_CLAIM,
        continuous_claims.CONTINUOUS_FUNCTIONS_CLAIM,
        unknown_degree_claims.BETTER_THAN_UNKNOWN_DEGREE_CLAIM,
        no_classical_claims.NO_CLASSICAL_ALGORITHM_CLAIM,
        boundary_claims.BOUNDARY_IMMEDIATE_CLAIM,
        high_norm_claims.NO_ICL_AT_HIGH_NORM_CLAIM,
        no_norm_claims.NO_NORM_BETTER_CLAIM,
        near_boundary_claims.ERROR_NEAR_BOUNDARY_CLAIM,
        size_claims.SIZE_DOES_NOT_HELP_CLAIM,
        training_density_claims.TRAINING_DENSITY_CLAIM,
        larger_intervals_claims.LARGER_INTERVALS_CLAIM,
        attention_claims.ATTENTION_NECESSARY_CLAIM,
        attention_claims.ATTENTION_SUFFICIENT_CLAIM,
        last_layer_claims.LAST_LAYER_CLAIM,
        patterns_claims.PATTERNS_ALIKE_CLAIM,
    ),
    figures=FIGURES,
    says=(nearest_algorithm, far_queries),
    experiments=EXPERIMENTS,
    drawings=DRAWINGS,
    constructions=CONSTRUCTIONS,
    dials=DIALS,
    models=(
        "affine",
        "affine_no_ln",
        "affine_post_ln",
        "affine_attn_only",
        "affine_hardmax",
        "degrees_135",
    ),
    folder=Path(__file__).parent,
    exceptions={
        **EXCEPTIONS,
        (
            "models",
            "limits.layernorm_saturation on affine_post_ln, ignorant: copier of the last value",
        ): "A post-norm copier does level off: the norm of a far query divides the copied value by "
        "a scale that grows like |x|, so the prediction falls like 1/|x| to one level.",
    },
)
