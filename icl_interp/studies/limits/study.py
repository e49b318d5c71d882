"""The study `limits`: what LayerNorm and softmax do far from the training data."""

from pathlib import Path

from icl_interp.figures.catalogue import ReportFigure
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
from icl_interp.studies.limits.claims import larger_intervals as larger_intervals_claims
from icl_interp.studies.limits.claims import last_layer as last_layer_claims
from icl_interp.studies.limits.claims import layernorm as layernorm_claims
from icl_interp.studies.limits.claims import layernorm_cause as cause_claims
from icl_interp.studies.limits.claims import no_classical as no_classical_claims
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
from icl_interp.studies.limits.experiments import (
    appendix_g,
    curves,
    functions,
    remedies,
    softmax_examples,
    tables,
)
from icl_interp.studies.limits.figures import reproduced_errors as by_sigma
from icl_interp.studies.limits.figures import reproduced_functions as drawn
from icl_interp.studies.limits.figures import reproduced_remedies
from icl_interp.studies.limits.figures.boundary import boundary
from icl_interp.studies.limits.figures.classes import classes
from icl_interp.studies.limits.figures.context import context
from icl_interp.studies.limits.figures.dispersion import dispersion
from icl_interp.studies.limits.figures.far_query import far_query
from icl_interp.studies.limits.figures.growth import growth
from icl_interp.studies.limits.figures.heads import heads
from icl_interp.studies.limits.figures.layers import layers
from icl_interp.studies.limits.figures.shift import shift

FIGURES = {
    "far_query": ReportFigure(
        far_query,
        "The context stays in distribution and only the last query moves, in both directions. Each "
        "thin line is one context; dotted lines are the target functions that these contexts show. "
        "With LayerNorm the predictions are expected to tend to one level on each side, which the "
        "weights alone predict (dashed), within a bound that no prediction can leave (shaded). "
        "Without it they are expected to become one line on each side, whatever the context says.",
    ),
    "growth": ReportFigure(
        growth,
        "First, the size of the prediction far from the data. Second, the growth exponent of its "
        "change from x to 10x: 1 is a line, 0 or less levels off (shown in the direction that is "
        "worse for the claim). Norms are frozen at their mean scale in distribution, at the query "
        "only; the control intervention freezes them at the context positions instead and should "
        "change nothing. Third, the share of the failure that is gone with all norms frozen at the "
        "query, at five freezing scales each: 1 is all of it, 0 none, and below 0 freezing makes "
        "the error larger. Queries are in units of the largest |x| of training.",
    ),
    "boundary": ReportFigure(
        boundary,
        "The query alone moves, in both directions; grey marks the training data. First, one "
        "context (thin) and the mean over all (thick), with the |x| up to which the prediction "
        "follows the target function, the |x| at which the plateau begins, and the bound on the "
        "output from the weights (shaded). Second, the distance of the prediction from its own end "
        "value: parallel to the guide is an approach like 1/|x|, and below the dashed line it "
        "counts as level. Third, growth exponents: the prediction grows as the numerator of the "
        "last norm does, less the scale that divides it; it levels off where the two cancel.",
    ),
    "context": ReportFigure(
        context,
        "First, how much predictions still differ between contexts as the query goes far from the "
        "data; the dotted guide falls like 1/|x|, and the two bars are the claim's thresholds. "
        "Second, whether what is left still tells which function the context shows: "
        "cross-validated R² of these predictions on the coefficients of the function, near 1 if it "
        "does; with coefficients shuffled over functions it should be 0.",
    ),
    "heads": ReportFigure(
        heads,
        "First, a row a head: how much of its attention at the last query is not on one token, in "
        "distribution (grey) and far from the data (blue; mean over |x| = 10⁴ and 10⁵); the shaded "
        "strip counts as a hardmax. Hollow heads are not sure to matter: a head matters where its "
        "ablation at least doubles the error. Second, how much what two heads of a layer write "
        "overlaps; that of outputs decides, beside what random directions would give (square).",
    ),
    "dispersion": ReportFigure(
        dispersion,
        "First, how far attention is from a uniform average as prompts grow (log of the number of "
        "tokens n, less the entropy of the attention): 0 is uniform. Pale heads are not sure to "
        "matter. Second, the largest weight on any token: it shrinks with any bounded scores, also "
        "where attention is not uniform. Solid: measured on prompts of that length. Dashed: scores "
        "drawn from those in prompts of the trained length.",
    ),
    "layers": ReportFigure(
        layers,
        "Where values are numbers, two panels by depth. One prompt: what the model's own read-out "
        "(the logit lens) makes of the stream after each layer, as the query moves. And the share "
        "of the final prediction's variance that is there after so many layers: for the logit "
        "lens, and for the best affine read-out, fitted to other functions, which finds a "
        "prediction in any basis; the claim asks for that to lie in the shaded zone, and for as "
        "little to be left without the last layer. Of every model, errors relative to always "
        "predicting 0, with the outputs of a part of the model replaced by their mean, at every "
        "position or at the query's token alone. Where several degrees can be compared: how far "
        "apart their mean attention patterns are, in units of the distance between two prompts of "
        "one degree; shaded counts as alike.",
    ),
    "classes": ReportFigure(
        classes,
        "First, a row a class of functions: the squared error where the examples determine the "
        "function, relative to always predicting 0 (the mean, for the fixed functions). Filled "
        "marks are degrees the model was trained on. Second, a row a classical algorithm: how "
        "similar the model's predictions for the query are to its own (1: the same, 0: no closer "
        "than a constant), in distribution, with functions scaled by 3, and with the query at an "
        "end of the inputs' interval. Each algorithm is plain, or bounded by one number in all "
        "three, whichever is nearer on the half of the sample that is not drawn. The model "
        "resembles an algorithm that lies in the right shaded zone with all three marks, and none "
        "if all marks of every algorithm lie in the left one.",
    ),
    "shift": ReportFigure(
        shift,
        "Models trained like this one beside kinds that differ from it in one respect, on the same "
        "functions and points: a point is a seed, a line the geometric mean of its kind. Errors as "
        "functions are scaled beyond their training range; errors from the centre of the inputs' "
        "interval to its edge (shaded: what the claim compares); and, where models trained on "
        "other intervals are at hand, errors of each kind on each interval: training on a larger "
        "one moves the range in which errors are small, and it still ends.",
    ),
}

DRAWINGS = {
    "limits.table1": by_sigma.table1,
    "limits.table2": by_sigma.by_degree,
    "limits.table3": by_sigma.table3,
    "limits.table4": drawn.softmax_examples,
    "limits.figure1": drawn.followed,
    "limits.figure2": by_sigma.rates_by_degree,
    "limits.figure3": by_sigma.rates,
    "limits.figure4": drawn.boundary,
    "limits.figure5": by_sigma.rates,
    "limits.figure6": drawn.followed,
    "limits.figure7": by_sigma.maps,
    "limits.figure8": drawn.layers,
    "limits.appendix_g": drawn.appendix_g,
    "limits.remedies": reproduced_remedies.remedies,
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
    experiments=(
        tables.TABLE1_EXPERIMENT,
        tables.TABLE2_EXPERIMENT,
        tables.TABLE3_EXPERIMENT,
        softmax_examples.TABLE4_EXPERIMENT,
        functions.FIGURE1_EXPERIMENT,
        functions.FIGURE4_EXPERIMENT,
        functions.FIGURE6_EXPERIMENT,
        functions.FIGURE8_EXPERIMENT,
        curves.FIGURE2_EXPERIMENT,
        curves.FIGURE3_EXPERIMENT,
        curves.FIGURE5_EXPERIMENT,
        curves.FIGURE7_EXPERIMENT,
        appendix_g.APPENDIX_G_EXPERIMENT,
        remedies.REMEDIES_EXPERIMENT,
    ),
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
            "edits",
            "limits.last_layer after unread coordinates, one a head (large)",
        ): "An affine read-out of the stream sees coordinates that no later weight reads: what "
        "heads write there can be read early, so the claim is open.",
        (
            "models",
            "limits.layernorm_saturation on affine_post_ln, ignorant: copier of the last value",
        ): "A post-norm copier does level off: the norm of a far query divides the copied value by "
        "a scale that grows like |x|, so the prediction falls like 1/|x| to one level.",
    },
)
