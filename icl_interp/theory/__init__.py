"""Closed forms of the studied works, in float64, one module per study.

This package imports nothing from the rest of `icl_interp`: it shares no helper with the models and
analyses that it is compared with, so that their agreement is evidence. Where a published formula is
wrong as printed, the correct one carries the plain name and the printed one stands beside it
(`paper_...`, `..._as_printed` or `..._as_coded`), so that tools can report the difference. What is
wrong where, with an example, stands in `ERRATA`: each module lists its own.

* `limits`: Naim & Asher (2025), what LayerNorm and softmax do far from the training data.
* `scalar_attention`, `scalar_layer`: one attention layer on scalar tokens, as the paper has it and
  with biases and positions; `softmax`: when it is a hardmax, when uniform. Parts of `limits`, which
  re-exports them.
* `scores`, `bounded`: the remedies, other score functions and other bounds on the stream, far out
  and for many keys.
* `linear_attention`: Zhang, Frei & Bartlett (2023), what gradient flow makes of linear
  self-attention; a package of `unit`, `landscape`, `flow` and `risk`.
* `lipschitz`: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), how the window of softmax
  attention follows the functions' Lipschitz constant; a package of `window`, `classes`, `bias`,
  `table`, `loss`, `rates`, `matrices` and `low_rank`.
* `autoregression`: Sander, Giryes, Suzuki, Blondel & Peyré (2024), how linear attention estimates
  the matrix of a path s_{t+1} = W s_t; a package of `loss`, `minima`, `heads`, `descent`, `flow`,
  `positions` and `recurrence`.
* `debiased`: He, Pan, Chen & Yang (2025), a step of descent from inputs about their mean, and pairs
  of softmax heads that tend to it.
* `implicit_update`: Dherin, Munn, Mazzawi, Wunder & Gonzalvo (2025), a context as an update of rank
  one of the matrix behind attention.
"""

from icl_interp.theory import (
    autoregression,
    bounded,
    debiased,
    implicit_update,
    limits,
    linear_attention,
    lipschitz,
    scalar_attention,
    scalar_layer,
    scores,
    softmax,
)

ERRATA = (
    *scalar_attention.ERRATA,
    *softmax.ERRATA,
    *linear_attention.ERRATA,
    *lipschitz.ERRATA,
    *autoregression.ERRATA,
)

__all__ = [
    "ERRATA",
    "autoregression",
    "bounded",
    "debiased",
    "implicit_update",
    "limits",
    "linear_attention",
    "lipschitz",
    "scalar_attention",
    "scalar_layer",
    "scores",
    "softmax",
]
