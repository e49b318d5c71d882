"""Trained linear self-attention: closed forms after Zhang, Frei & Bartlett (2023).

Some follow Wu's slides on them (2025).

The layer is f(E) = E + W_PV E (E^T W_KQ E) / rho with rho the number of labelled examples: n = N in
training, m = M at test. Tasks are w ~ N(0, I), inputs x ~ N(0, Lambda), labels <w, x>; tau^2 is the
variance of their noise where there is any. Everything is computed and returned in float64. Losses
are the paper's L = E(yhat - y)^2 / 2; risks are mean squared errors, 2 L.

* `unit`: the layer itself: Gamma, the embedding (3.4), the prediction (3.6), the quadratic form of
  Lemma 5.1, the exact population loss.
* `landscape`: the loss in the weights that move, its minimum (Corollary A.2) and minimiser
  (Theorems 4.1, 4.5).
* `flow`: gradient flow (5.4), its start (Assumption 3.3), its rate (Lemma 5.4).
* `risk`: the risk (Theorem 4.2) and every shift.
* `sample_size`: how many examples an error needs (definition 3.2).

Where the slides err, the right formula has the plain name: `paper_risk` has lost a 1/m,
`paper_negative_eigenvalues` is not a lower bound. The condition on the initial scale is sufficient,
not necessary: it is an error only where a constant that is built on it is asked for.
"""

from icl_interp.theory.linear_attention.flow import (
    Trajectory,
    check_initial_scale,
    excess_bound,
    gradient_flow,
    initial_point,
    initial_scale_limit,
    initial_scale_limit_random,
    pl_constant,
    read_out_floor,
)
from icl_interp.theory.linear_attention.landscape import (
    Landscape,
    landscape,
    optimum,
    random_landscape,
)
from icl_interp.theory.linear_attention.risk import ERRATA as RISK_ERRATA
from icl_interp.theory.linear_attention.risk import (
    Risk,
    effective_weights,
    label_covariance,
    label_law_risk,
    paper_risk,
    prediction_slope,
    printed_bias,
    product_risk,
    random_limit,
    random_risk,
    risk,
)
from icl_interp.theory.linear_attention.sample_size import examples_needed
from icl_interp.theory.linear_attention.unit import ERRATA as UNIT_ERRATA
from icl_interp.theory.linear_attention.unit import (
    embedding,
    form_eigenvalues,
    gamma,
    invariant_product,
    negative_eigenvalues,
    paper_negative_eigenvalues,
    parameter_vector,
    population_loss,
    prediction,
    quadratic_form,
)

ERRATA = (*UNIT_ERRATA, *RISK_ERRATA)

__all__ = [
    "ERRATA",
    "Landscape",
    "Risk",
    "Trajectory",
    "check_initial_scale",
    "effective_weights",
    "embedding",
    "examples_needed",
    "excess_bound",
    "form_eigenvalues",
    "gamma",
    "gradient_flow",
    "initial_point",
    "initial_scale_limit",
    "initial_scale_limit_random",
    "invariant_product",
    "label_covariance",
    "label_law_risk",
    "landscape",
    "negative_eigenvalues",
    "optimum",
    "paper_negative_eigenvalues",
    "paper_risk",
    "parameter_vector",
    "pl_constant",
    "population_loss",
    "prediction",
    "prediction_slope",
    "printed_bias",
    "product_risk",
    "quadratic_form",
    "random_landscape",
    "random_limit",
    "random_risk",
    "read_out_floor",
    "risk",
]
