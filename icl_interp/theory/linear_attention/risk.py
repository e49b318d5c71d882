"""What a trained linear self-attention layer predicts, and how far it is off.

Prompts are in distribution, or of any shift.

This is one part of the study `linear_attention`, which re-exports it. A layer is its product P = u
U (`invariant_product`); trained on a fixed Lambda it is Gamma^-1, `landscape(...).product`. It
predicts h^T P x_q with h = (1/m) sum y_i x_i over the m labelled examples of a test prompt. Errors
are mean squared errors E(yhat - y)^2: twice the paper's loss L.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.errata import Compared, Erratum
from icl_interp.theory.linear_attention.landscape import landscape, random_landscape
from icl_interp.theory.linear_attention.unit import (
    SLIDES,
    Square,
    Vector,
    as_covariance,
    check_count,
    gamma,
)
from icl_interp.theory.softmax import Scalar, as_float64

__all__ = [
    "Risk",
    "effective_weights",
    "label_covariance",
    "label_law_risk",
    "paper_risk",
    "prediction_slope",
    "printed_bias",
    "product_risk",
    "random_limit",
    "random_risk",
    "risk",
]

Task = Vector | Square


class Risk(NamedTuple):
    """A mean squared error in its three parts."""

    best: Float[Tensor, ""]  # of the best linear predictor
    variance: Float[Tensor, ""]  # because the prompt is finite: falls like 1/m
    bias: Float[Tensor, ""]  # because the training prompts were: stays as m grows

    @property
    def total(self) -> Float[Tensor, ""]:
        """The sum."""
        return self.best + self.variance + self.bias


def risk(
    covariance: Square,
    n: int,
    m: int,
    a: Task,
    noise_variance: Scalar = 0.0,
    training_noise_variance: Scalar = 0.0,
) -> Float[Tensor, ""]:
    """E(yhat - y)^2 of a trained layer on prompts of m examples of y = <a, x> + noise.

    It was trained on Lambda with n examples.

    tau^2 + (1/m) tr[Sigma Gamma^-2 Lambda] + a^T (I - Gamma^-1 Lambda) Lambda (I - Gamma^-1 Lambda)
    a. The 1/m is lost in the slides' print: `paper_risk`. `label_law_risk` is for labels of another
    law.

    Source: Zhang, Frei & Bartlett (2023), Theorem 4.2, with n = N, m = M and a their a.

    Args:
        covariance: Lambda, in training and at test.
        n: N.
        m: M.
        a: the task's weights w, (d,); or E[w w^T], (d, d), for the mean over random tasks (I for w
            ~ N(0, I)).
        noise_variance: tau^2 of the test labels, the query's too.
        training_noise_variance: tau^2 of the training labels; it enters Gamma.

    Raises:
        ValueError: n or m is below 1, or the covariance is not symmetric positive definite.

    Example:
        >>> import torch
        >>> Lambda, a = torch.diag(torch.tensor([1., 2.])), torch.tensor([1., -1.])
        >>> round(float(risk(Lambda, n=4, m=10, a=a, noise_variance=.25)), 7)
        1.1009246
    """
    trained = landscape(covariance, n, training_noise_variance)
    terms = product_risk(trained.product, m, covariance, a, noise_variance)
    return terms.total


def paper_risk(
    covariance: Square, n: int, m: int, a: Task, noise_variance: Scalar = 0.0
) -> Float[Tensor, ""]:
    """Theorem 4.2 as the slides print it: tr[Sigma Gamma^-2 Lambda] has lost its 1/m.

    So m - 1 such terms are too many.

    Source: Wu's slides on Zhang, Frei & Bartlett (2023), Theorem 4.2. Free of m, and true for m = 1
    only.

    Example:
        >>> import torch
        >>> Lambda, a = torch.diag(torch.tensor([1., 2.])), torch.tensor([1., -1.])
        >>> torch.allclose(paper_risk(Lambda, 4, 10, a), risk(Lambda, 4, 1, a))
        True
    """
    trained = landscape(covariance, n)
    terms = product_risk(trained.product, m, covariance, a, noise_variance)
    return terms.best + m * terms.variance + terms.bias


def product_risk(
    product: Square,
    m: int,
    covariance: Square,
    a: Task,
    noise_variance: Scalar = 0.0,
    query_covariance: Square | None = None,
) -> Risk:
    """The risk of any layer on linear labels under any shift of covariates, query, task and length.

    Covariate shift: another covariance than the one trained on. Query shift: query_covariance is
    E[x_q x_q^T] of any query law, x_q x_q^T for a fixed query. Task shift: any a. yhat is h^T P
    x_q, E h = Lambda a, Cov h = Sigma / m.

    Source: extends Zhang, Frei & Bartlett (2023), Theorem 4.2 and the shifts of section 4.2 (their
    formulas are for m and n to infinity).

    Args:
        product: P; only its action counts, so any layer with w21 = 0 is covered.
        m: M.
        covariance: Lambda of the test contexts.
        a: weights (d,), or their second moment (d, d).
        noise_variance: tau^2 of the test labels, the query's too.
        query_covariance: E[x_q x_q^T]; None is Lambda.

    Raises:
        ValueError: m is below 1, or the covariance is not symmetric positive definite.

    Example:
        >>> import torch
        >>> Lambda, a = torch.diag(torch.tensor([1., 2.])), torch.tensor([1., -1.])
        >>> ideal = product_risk(torch.linalg.inv(Lambda), 10**9, Lambda, a)
        >>> torch.allclose(ideal.total, torch.zeros(1).double(), atol=1e-7)
        True
    """
    check_count(m, "m")
    covariance = as_covariance(covariance)
    tau2 = as_float64(noise_variance)
    product = as_float64(product)
    task = _second_moment(a)
    if query_covariance is None:
        query_covariance = covariance
    read = as_float64(query_covariance)
    # w^T miss x_q is what the mean prediction lacks.
    identity = torch.eye(len(product), dtype=torch.float64)
    miss = covariance @ product - identity
    sigma = label_covariance(covariance, a, tau2)
    noise = sigma @ product @ read @ product.T
    missed = task @ miss @ read @ miss.T
    return Risk(best=tau2, variance=noise.trace() / m, bias=missed.trace())


def label_law_risk(
    covariance: Square,
    n: int,
    m: int,
    xy_mean: Vector,
    xy_covariance: Square,
    y_second_moment: Scalar,
) -> Risk:
    """Theorem 4.2 for labels of any law, nonlinear ones too, from three of its moments.

    a = Lambda^-1 E[x y] is the best linear predictor, whose error is E[y^2] - a^T Lambda a.

    Source: Zhang, Frei & Bartlett (2023), Theorem 4.2, with its 1/m.

    Args:
        covariance: Lambda.
        n: N.
        m: M.
        xy_mean: E[x y].
        xy_covariance: Sigma, the covariance of x y.
        y_second_moment: E[y^2].

    Raises:
        ValueError: n or m is below 1, the covariance is not symmetric positive definite, or E[y^2]
            is less than the best linear predictor explains.

    Example:
        >>> import torch
        >>> Lambda = torch.diag(torch.tensor([1., 2.])).double()
        >>> a = torch.tensor([1., -1.]).double()
        >>> squared = a @ Lambda @ a + .25
        >>> covariance = label_covariance(Lambda, a, .25)
        >>> terms = label_law_risk(Lambda, 4, 10, Lambda @ a, covariance, squared)
        >>> torch.allclose(terms.total, risk(Lambda, 4, 10, a, .25))
        True
    """
    check_count(m, "m")
    covariance = as_covariance(covariance)
    xy_mean = as_float64(xy_mean)
    y_square = as_float64(y_second_moment)
    a = torch.linalg.solve(covariance, xy_mean)
    explained = xy_mean @ a
    best = y_square - explained
    # A perfect fit may come out slightly negative by rounding.
    if best < -1e-9 * abs(float(y_square)):
        raise ValueError(
            f"E[y^2]={float(y_square):g} is less than the {float(explained):g} that the "
            "best linear predictor explains: are the moments of one law, and y_second_moment not a "
            "variance?"
        )
    inverse = torch.linalg.inv(gamma(covariance, n))
    noise = as_float64(xy_covariance) @ inverse @ inverse @ covariance
    bias = printed_bias(covariance, n, a)
    return Risk(best, noise.trace() / m, bias)


def label_covariance(covariance: Square, a: Task, noise_variance: Scalar = 0.0) -> Square:
    """Sigma = Cov(x y) of y = <a, x> + noise: Lambda a a^T Lambda + (a^T Lambda a + tau^2) Lambda.

    For a given as E[w w^T] it is the mean over tasks.

    Source: Zhang, Frei & Bartlett (2023), Theorem 4.2, worked out for linear labels by Isserlis'
    theorem.

    Example:
        >>> import torch
        >>> label_covariance(torch.eye(1), torch.tensor([3.]), noise_variance=1.)
        tensor([[19.]], dtype=torch.float64)
    """
    covariance = as_float64(covariance)
    task = _second_moment(a)
    explained = (task @ covariance).trace()
    y_variance = explained + as_float64(noise_variance)
    return covariance @ task @ covariance + y_variance * covariance


def printed_bias(covariance: Square, n: int, a: Vector) -> Float[Tensor, ""]:
    """The bias of `risk` as it is printed, which is right.

    With |a|^2 in B = a^T B a it is (1/n^2) [ |a|^2 in Gamma^-2 Lambda^3 + 2 tr Lambda |a|^2 in
    Gamma^-2 Lambda^2 + (tr Lambda)^2 |a|^2 in Gamma^-2 Lambda ].

    Source: Zhang, Frei & Bartlett (2023), Theorem 4.2.

    Example:
        >>> import torch
        >>> Lambda, a = torch.diag(torch.tensor([1., 2.])), torch.tensor([1., -1.])
        >>> trained = landscape(Lambda, 4).product
        >>> torch.allclose(printed_bias(Lambda, 4, a), product_risk(trained, 10, Lambda, a).bias)
        True
    """
    covariance = as_covariance(covariance)
    a = as_float64(a)
    inverse = torch.linalg.inv(gamma(covariance, n))
    trace = covariance.trace()

    # |a|^2 in Gamma^-2 Lambda^(k+1), for the three powers of the formula
    weighted = inverse @ inverse @ covariance
    squares = []
    for k in (2, 1, 0):
        power = torch.linalg.matrix_power(covariance, k)
        squares.append(a @ weighted @ power @ a)
    cubed, squared, plain = squares
    return (cubed + 2 * trace * squared + trace**2 * plain) / n**2


def effective_weights(product: Square, covariance: Square, weights: Vector) -> Vector:
    """The weights P^T Lambda w of the expected prediction.

    E[yhat | x_q, w] = <P^T Lambda w, x_q> for every m and every query, with the Lambda of the
    contexts.

    The relative bias does not depend on the query's law. With P = Gamma^-1 and c^2 Lambda at test
    it tends to c^2 w as n grows.

    Source: Zhang, Frei & Bartlett (2023), equations (4.8) and (5) of the slides (which lost the w
    at its end), for finite n.

    Example:
        >>> import torch
        >>> w = torch.tensor([1., -1.]).double()
        >>> torch.allclose(effective_weights(torch.eye(2) / 2, 18 * torch.eye(2), w), 9 * w)
        True
    """
    product = as_float64(product)
    covariance = as_float64(covariance)
    return product.T @ covariance @ as_float64(weights)


def prediction_slope(product: Square, covariance: Square) -> Float[Tensor, ""]:
    """The slope of predictions on labels, E[yhat y] / E[y^2] = tr(Lambda P Lambda) / tr Lambda.

    Expectations are over w ~ N(0, I) and queries of the contexts' own law. With P = Gamma^-1 and
    inputs scaled by c it is c^2 tr(Gamma^-1 Lambda^2) / tr Lambda, for short training prompts well
    below the c^2 of the paper.

    Source: makes Zhang, Frei & Bartlett (2023), section 4.2, quantitative.

    Example:
        >>> import torch
        >>> prediction_slope(torch.eye(2), 4 * torch.eye(2))
        tensor(4., dtype=torch.float64)
    """
    covariance = as_float64(covariance)
    with_labels = covariance @ as_float64(product) @ covariance
    return with_labels.trace() / covariance.trace()


def random_limit(moments: Float[Tensor, "3 dim"]) -> Vector:
    """E[yhat | x_q, w] / (x_q w), coordinate by coordinate, for long prompts with a random Lambda.

    Each prompt has its own diagonal Lambda.

    For m and n to infinity it is E[lambda] E[lambda^2] / E[lambda^3]. The task is learned where
    this is 1: where nothing is random.

    The mean is over Lambda_new at a fixed x_q. For one task the prediction tends to x_q^T P
    Lambda_new w.

    Source: Zhang, Frei & Bartlett (2023), slides' equations (6) to (8) after Theorem 4.5: 1/3 for
    Exponential(1).

    Args:
        moments: E[lambda_i], E[lambda_i^2], E[lambda_i^3] as rows.

    Example:
        >>> import torch
        >>> random_limit(torch.tensor([[1.], [2.], [6.]]))
        tensor([0.3333], dtype=torch.float64)
    """
    first, second, third = as_float64(moments)
    return first * second / third


def random_risk(
    product: Square, moments: Float[Tensor, "3 dim"], m: int, noise_variance: Scalar = 0.0
) -> Float[Tensor, ""]:
    """E(yhat - y)^2 of any layer on prompts of m examples with a random diagonal Lambda.

    Each prompt has its own Lambda, and w ~ N(0, I).

    Source: Zhang, Frei & Bartlett (2023), equation (4.10) at test length; its minimum over P at
    m = n is Theorem 4.5.

    Args:
        product: P.
        moments: E[lambda_i], E[lambda_i^2], E[lambda_i^3] as rows, at test.
        m: M.
        noise_variance: tau^2 of the test labels.

    Example:
        >>> import torch
        >>> one = torch.ones(3, 2)
        >>> fixed = product_risk(torch.eye(2) / 2, 5, torch.eye(2), torch.eye(2)).total
        >>> torch.allclose(random_risk(torch.eye(2) / 2, one, m=5), fixed)
        True
    """
    where = random_landscape(moments, m, noise_variance)
    loss = where.loss(product, 1.0)
    return 2 * loss + where.label_moment


def _second_moment(a: Tensor) -> Tensor:
    """E[w w^T], for weights or for what is this moment already."""
    a = as_float64(a)
    if a.ndim == 1:
        return torch.outer(a, a)
    return a


def _risks() -> Compared:
    """Theorem 4.2 for Lambda = diag(1, 2), n = 4, m = 10, a = (1, -1), noise .25."""
    covariance = torch.diag(torch.tensor([1.0, 2.0]))
    a = torch.tensor([1.0, -1.0])
    printed = paper_risk(covariance, 4, 10, a, noise_variance=0.25)
    true = risk(covariance, 4, 10, a, noise_variance=0.25)
    return Compared(float(printed), float(true))


ERRATA = (
    Erratum(
        SLIDES,
        "Theorem 4.2",
        "The risk has the term tr[Sigma Gamma^-2 Lambda], free of the number m of examples.",
        "The term is (1/m) tr[Sigma Gamma^-2 Lambda].",
        (paper_risk, risk),
        "risk for Lambda = diag(1, 2), n = 4, m = 10, a = (1, -1), noise variance .25",
        _risks,
    ),
    Erratum(
        SLIDES,
        "covariate shifts, equation (5)",
        "The prediction is about x_q^T Lambda^-1 (1/M) sum x_i x_i^T.",
        "The task's weights w are lost at its end: x_q^T Lambda^-1 (1/M) sum x_i x_i^T w. The next "
        "step of the equation has them again.",
        (effective_weights,),
    ),
)
