"""How many examples a prompt must hold for a trained layer to reach a wanted error.

This is one part of the study `linear_attention`, which re-exports it. The risk of a layer falls
like 1/M towards a floor that more examples do not lower: the noise of the query's label and the
bias of short training prompts (`product_risk`).
"""

import math

from icl_interp.theory.linear_attention.risk import Task, product_risk
from icl_interp.theory.linear_attention.unit import Square
from icl_interp.theory.softmax import Scalar

__all__ = ["examples_needed"]


def examples_needed(
    product: Square,
    epsilon: float,
    covariance: Square,
    a: Task,
    noise_variance: Scalar = 0.0,
    query_covariance: Square | None = None,
) -> int:
    """M(epsilon): from how many examples on the risk is at most eta + epsilon.

    eta is the risk of endless prompts, best + bias of `product_risk`. The rest of the risk is V / M
    with V the variance of one example, so M(epsilon) is V / epsilon, rounded up, and at least 1.
    The paper's definition asks for an eta and an M(epsilon) with this property; these are the
    least ones.

    Source: Zhang, Frei & Bartlett (2023), section 3.2, equation (3.2), solved with Theorem 4.2.

    Args:
        product: P, `landscape(...).product` for a trained layer.
        epsilon: what the risk E(yhat - y)^2 may exceed its floor by, positive.
        covariance: Lambda of the test contexts.
        a: weights (d,), or their second moment (d, d), I for w ~ N(0, I).
        noise_variance: tau^2 of the test labels.
        query_covariance: E[x_q x_q^T]; None is Lambda.

    Raises:
        ValueError: epsilon is not a positive number, or the covariance is not symmetric positive
            definite.

    Example:
        >>> import torch
        >>> Lambda, tasks = torch.diag(torch.tensor([1., 2.])), torch.eye(2)
        >>> trained = torch.linalg.inv(torch.diag(torch.tensor([2., 3.25])))
        >>> m = examples_needed(trained, .1, Lambda, tasks)
        >>> floor = product_risk(trained, m, Lambda, tasks).bias
        >>> [bool(product_risk(trained, k, Lambda, tasks).total <= floor + .1) for k in (m - 1, m)]
        [False, True]
    """
    if not 0 < epsilon < math.inf:
        raise ValueError(
            f"epsilon is what the risk may exceed its floor by, a positive number; got {epsilon}"
        )
    one_example = product_risk(product, 1, covariance, a, noise_variance, query_covariance)
    return max(1, math.ceil(float(one_example.variance) / epsilon))
