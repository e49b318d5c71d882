"""Linear attention that learns s_{t+1} = W s_t in context: closed forms of its loss and minima.

W is new in each sequence: diagonal with independent eigenvalues on the unit circle (unitary), or
with conjugate pairs of them (a rotation). The layer's prediction depends on its heads through
C = B^T A, and on a number p_t for each token. The expected squared error is exact, a polynomial in
C and p. Everything is computed and returned in float64, or in complex128 where states are complex.

* `loss`: the layer's prediction, its loss for unitary W and for rotations.
* `minima`: where the loss is zero (Propositions 3 and 6), how to recognise it, and what is
  estimated in context.
* `heads`: constructions with d and d / 2 heads (Lemmas 2 and 3), a_h . b_h' = 0.
* `descent`: augmented tokens (Lemma 1) and one step of gradient descent (Propositions 1 and 2).
* `flow`: gradient flow, what it conserves, where it ends (Propositions 4 and 5).
* `positions`: small angles, conditioning and early stopping (Proposition 7).
* `recurrence`: what a linear recurrent network can do (Remark 2).

The source is Sander, Giryes, Suzuki, Blondel & Peyré (2024), "How do Transformers perform
in-context autoregressive learning?". Where its code errs, the right formula has the plain name and
theirs ends in `_as_coded`: the unitary loss counts one key twice. Three statements hold less widely
than they read: d / 2 heads suffice to reach zero and not to find it (`needed_heads`), Lemma 1
leaves out the first token (`augmenting_patterns`), Remark 2 needs uniform angles
(`recurrent_floor`).
"""

from icl_interp.theory.autoregression.descent import (
    AugmentedWeights,
    augmented_by_attention,
    augmented_prediction,
    augmented_tokens,
    augmenting_patterns,
    block_loss,
    gradient_descent,
    gradient_step_weights,
    least_step_loss,
    optimal_step,
    step_loss,
)
from icl_interp.theory.autoregression.flow import (
    ScalarLimit,
    Trajectory,
    gradient_flow,
    scalar_limit,
    scalar_loss,
)
from icl_interp.theory.autoregression.heads import (
    HeadProducts,
    Layer,
    head_products,
    needed_heads,
    orthogonal_heads,
    unitary_floor,
    unitary_heads,
)
from icl_interp.theory.autoregression.loss import ERRATA as LOSS_ERRATA
from icl_interp.theory.autoregression.loss import (
    head_product,
    orthogonal_loss,
    prediction,
    row_losses,
    unitary_loss,
    unitary_loss_as_coded,
    with_start,
)
from icl_interp.theory.autoregression.minima import (
    OrthogonalDistance,
    Point,
    UnitaryDistance,
    far_valley,
    orthogonal_distance,
    orthogonal_map,
    orthogonal_minimiser,
    unitary_distance,
    unitary_map,
    unitary_minimiser,
)
from icl_interp.theory.autoregression.positions import (
    EarlyStop,
    early_stop,
    position_hessian,
    position_loss,
    roughness,
    significant_count,
)
from icl_interp.theory.autoregression.recurrence import (
    recurrent_floor,
    recurrent_kernel,
    recurrent_loss,
)

ERRATA = (*LOSS_ERRATA,)

__all__ = [
    "ERRATA",
    "AugmentedWeights",
    "EarlyStop",
    "HeadProducts",
    "Layer",
    "OrthogonalDistance",
    "Point",
    "ScalarLimit",
    "Trajectory",
    "UnitaryDistance",
    "augmented_by_attention",
    "augmented_prediction",
    "augmented_tokens",
    "augmenting_patterns",
    "block_loss",
    "early_stop",
    "far_valley",
    "gradient_descent",
    "gradient_flow",
    "gradient_step_weights",
    "head_product",
    "head_products",
    "least_step_loss",
    "needed_heads",
    "optimal_step",
    "orthogonal_distance",
    "orthogonal_heads",
    "orthogonal_loss",
    "orthogonal_map",
    "orthogonal_minimiser",
    "position_hessian",
    "position_loss",
    "prediction",
    "recurrent_floor",
    "recurrent_kernel",
    "recurrent_loss",
    "roughness",
    "row_losses",
    "scalar_limit",
    "scalar_loss",
    "significant_count",
    "step_loss",
    "unitary_distance",
    "unitary_floor",
    "unitary_heads",
    "unitary_loss",
    "unitary_loss_as_coded",
    "unitary_map",
    "unitary_minimiser",
    "with_start",
]
