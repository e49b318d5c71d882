"""The softmax attention window: closed forms of its bias, its noise and its best width.

They follow Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024).

The estimator is fhat = sum_i y_i a_i, a = softmax over i of x_i^T M x_q, over the n labelled
examples of a prompt. On the unit sphere M = w I is a window around the query, narrower for larger
w. Its mean squared error against the noiseless f(x_q) is bias(w) + sigma^2 nu(w), nu = E sum_i
a_i^2; on F_L^+ it is (2 L^2 / 3) beta(w) + sigma^2 nu(w). Everything is computed and returned in
float64; `noise` is the standard deviation sigma.

* `window`: weights, number of keys, half-weight angle; Z(w) and the noise for long prompts.
* `classes`: F_L^+, affine, linear, quadratic and cosine functions, and what they have in each
  harmonic degree.
* `bias`: the bias for long prompts, exactly, and its term of order 1/n.
* `table`, `loss`: the loss at finite n by one Monte Carlo for all (L, sigma), the best window, what
  it costs elsewhere.
* `constants`: Lip(f) and direction-wise Lipschitzness of single functions.
* `rates`: Theorems 2 and 3 as exponents and orders.
* `extremes`: Theorem 2 without noise and with much of it.
* `matrices`: M free, Lemma 1; `low_rank`: functions of few directions, Theorem 4.

The source is the slides by A. Mokhtari (ITA 2024). Where they err, the right formula has the plain
name and theirs ends in `_as_printed`: the noise's exponent, the lower bound on the bias for small
w, both lower bounds of Theorem 3.
"""

from icl_interp.theory.lipschitz.bias import ERRATA as BIAS_ERRATA
from icl_interp.theory.lipschitz.bias import (
    FinitePromptTerm,
    PrintedBiasBounds,
    bias_asymptote,
    bias_bounds_as_printed,
    bias_limit,
    class_bias_limit,
    class_finite_prompt_term,
    finite_prompt_term,
    kink_density,
    linear_bias_asymptote,
    linear_bias_limit,
)
from icl_interp.theory.lipschitz.classes import FunctionClass, function_class, harmonic_energies
from icl_interp.theory.lipschitz.constants import (
    direction_lipschitz,
    profile_slope,
    ridge_lipschitz,
    subspace_lipschitz,
)
from icl_interp.theory.lipschitz.extremes import Noiseless, noiseless_window, noisy_window
from icl_interp.theory.lipschitz.loss import ERRATA as LOSS_ERRATA
from icl_interp.theory.lipschitz.loss import (
    Estimate,
    Optimum,
    Transfer,
    long_prompt_loss,
    long_prompt_window,
    optimal_window,
    table_optimum,
    transfer,
    window_loss,
)
from icl_interp.theory.lipschitz.low_rank import (
    GLM_LINKS,
    Pair,
    PairOptimum,
    glm_class,
    long_prompt_linear_loss,
    low_rank_matrix,
    optimal_pair,
    outside_energy,
    pair_of,
    recovery_distance,
    subspace_distance,
)
from icl_interp.theory.lipschitz.matrices import (
    Contexts,
    Isotropy,
    MatrixOptimum,
    draw_contexts,
    isotropy,
    lemma_matrix,
    matrix_loss,
    optimal_matrix,
    whitened,
)
from icl_interp.theory.lipschitz.rates import ERRATA as RATES_ERRATA
from icl_interp.theory.lipschitz.rates import (
    PrintedExponents,
    Slope,
    asymptotic_risk,
    asymptotic_window,
    bias_share,
    fitted_slope,
    local_slopes,
    risk_bound_as_printed,
    risk_exponent,
    transfer_bound,
    transfer_bound_as_printed,
    window_exponent,
    window_exponents_as_printed,
)
from icl_interp.theory.lipschitz.table import LossTable, loss_table
from icl_interp.theory.lipschitz.window import ERRATA as WINDOW_ERRATA
from icl_interp.theory.lipschitz.window import (
    attention_weights,
    effective_sample_size,
    half_weight_angle,
    harmonic_shrinkage,
    key_count,
    log_normaliser,
    mean_cosine,
    noise_asymptote,
    noise_exponent,
    noise_exponent_as_printed,
    noise_limit,
    noise_slope,
    prediction,
)

ERRATA = (*WINDOW_ERRATA, *BIAS_ERRATA, *RATES_ERRATA, *LOSS_ERRATA)

__all__ = [
    "ERRATA",
    "GLM_LINKS",
    "Contexts",
    "Estimate",
    "FinitePromptTerm",
    "FunctionClass",
    "Isotropy",
    "LossTable",
    "MatrixOptimum",
    "Noiseless",
    "Optimum",
    "Pair",
    "PairOptimum",
    "PrintedBiasBounds",
    "PrintedExponents",
    "Slope",
    "Transfer",
    "asymptotic_risk",
    "asymptotic_window",
    "attention_weights",
    "bias_asymptote",
    "bias_bounds_as_printed",
    "bias_limit",
    "bias_share",
    "class_bias_limit",
    "class_finite_prompt_term",
    "direction_lipschitz",
    "draw_contexts",
    "effective_sample_size",
    "finite_prompt_term",
    "fitted_slope",
    "function_class",
    "glm_class",
    "half_weight_angle",
    "harmonic_energies",
    "harmonic_shrinkage",
    "isotropy",
    "key_count",
    "kink_density",
    "lemma_matrix",
    "linear_bias_asymptote",
    "linear_bias_limit",
    "local_slopes",
    "log_normaliser",
    "long_prompt_linear_loss",
    "long_prompt_loss",
    "long_prompt_window",
    "loss_table",
    "low_rank_matrix",
    "matrix_loss",
    "mean_cosine",
    "noise_asymptote",
    "noise_exponent",
    "noise_exponent_as_printed",
    "noise_limit",
    "noise_slope",
    "noiseless_window",
    "noisy_window",
    "optimal_matrix",
    "optimal_pair",
    "optimal_window",
    "outside_energy",
    "pair_of",
    "prediction",
    "profile_slope",
    "recovery_distance",
    "ridge_lipschitz",
    "risk_bound_as_printed",
    "risk_exponent",
    "subspace_distance",
    "subspace_lipschitz",
    "table_optimum",
    "transfer",
    "transfer_bound",
    "transfer_bound_as_printed",
    "whitened",
    "window_exponent",
    "window_exponents_as_printed",
    "window_loss",
]
