"""One linear self-attention layer: embedding, prediction, quadratic form, population loss.

This is one part of the study `linear_attention`, which re-exports it. Symbols throughout:
covariance is Lambda, n the number N of labelled examples of a training prompt, m the number M at
test, x_q the query. W_PV and W_KQ are (d+1, d+1); of them the prediction reads W_KQ[:, :d] and the
last row of W_PV only.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.errata import Compared, Erratum
from icl_interp.theory.softmax import Scalar, as_float64

__all__ = [
    "embedding",
    "form_eigenvalues",
    "gamma",
    "invariant_product",
    "negative_eigenvalues",
    "paper_negative_eigenvalues",
    "parameter_vector",
    "population_loss",
    "prediction",
    "quadratic_form",
]

Square = Float[Tensor, "dim dim"]
Vector = Float[Tensor, " dim"]
Wide = Float[Tensor, "wide wide"]  # d + 1


def gamma(covariance: Square, n: int, noise_variance: Scalar = 0.0) -> Square:
    """Gamma = (1 + 1/n) Lambda + ((tr Lambda + tau^2) / n) I, with which E[h h^T] = Gamma Lambda.

    Here h = (1/n) sum y_i x_i is what a prompt tells about a task w ~ N(0, I), and tau^2 the
    variance of its label noise. Gamma commutes with Lambda and tends to it as n grows: Gamma^-1 in
    place of Lambda^-1 is the shrinkage that a short prompt deserves.

    Source: Zhang, Frei & Bartlett (2023), Theorem 4.1, for tau = 0; the noise term is an extension.

    Args:
        covariance: Lambda.
        n: N, labelled examples of a training prompt.
        noise_variance: tau^2.

    Raises:
        ValueError: n is below 1, or the covariance is not symmetric positive definite.

    Example:
        >>> import torch
        >>> gamma(torch.diag(torch.tensor([1., 2.])), n=4).diagonal()
        tensor([2.0000, 3.2500], dtype=torch.float64)
    """
    covariance = as_covariance(covariance)
    check_count(n, "n")
    identity = torch.eye(len(covariance), dtype=torch.float64)
    tau2 = as_float64(noise_variance)
    y_variance = covariance.trace() + tau2
    spread = y_variance / n
    return (1 + 1 / n) * covariance + spread * identity


def embedding(
    xs: Float[Tensor, "example dim"], ys: Float[Tensor, " example"], query: Vector
) -> Float[Tensor, "dim+1 example+1"]:
    """E: columns (x_i; y_i), then (x_q; 0).

    Source: Zhang, Frei & Bartlett (2023), equation (3.4).

    Example:
        >>> import torch
        >>> embedding(torch.tensor([[1., 2.]]), torch.tensor([3.]), torch.tensor([4., 5.]))
        tensor([[1., 4.],
                [2., 5.],
                [3., 0.]], dtype=torch.float64)
    """
    xs = as_float64(xs)
    ys = as_float64(ys)
    query = as_float64(query)
    columns = torch.cat([xs.T, ys[None]])
    no_label = query.new_zeros(1)
    last = torch.cat([query, no_label])
    return torch.cat([columns, last[:, None]], 1)


def prediction(w_pv: Wide, w_kq: Wide, e: Float[Tensor, "wide token"]) -> Float[Tensor, ""]:
    """The prediction yhat = (w21^PV, w22^PV) (E E^T / n) (W11^KQ; w21^KQ) x_q.

    n is the number of labelled columns of E: all but the last.

    It equals the bottom right entry of E + W_PV E (E^T W_KQ E) / n: the skip connection adds the
    query's label, 0.

    Source: Zhang, Frei & Bartlett (2023), equation (3.6).

    Args:
        w_pv: W^PV, values and projection.
        w_kq: W^KQ, keys and queries.
        e: the embedding.

    Example:
        >>> import torch
        >>> e = embedding(torch.eye(2), torch.tensor([3., 1.]), torch.tensor([4., 5.]))
        >>> w = torch.arange(9.).cos().double().view(3, 3)
        >>> torch.allclose(prediction(w, w, e), (e + w @ e @ (e.T @ w @ e) / 2)[-1, -1])
        True
    """
    gram, query = _gram_and_query(e)
    row, columns = _weights_read(w_pv, w_kq)
    return row @ gram @ columns @ query


def quadratic_form(e: Float[Tensor, "wide token"]) -> Float[Tensor, "form form"]:
    """H with yhat = u^T H u: H = X kron (E E^T / n) / 2, X = ((0, x_q), (x_q^T, 0)).

    u is `parameter_vector`. H depends on the prompt only, so a prediction is quadratic in the
    weights. It is Vec(A U B) = (B^T kron A) Vec(U) of Lemma D.1 with A = E E^T / n, B = X / 2.

    Source: Zhang, Frei & Bartlett (2023), Lemma 5.1, equation (5.1), with Lemma D.1.

    Args:
        e: the embedding of a prompt.

    Returns:
        H, ((d+1)^2, (d+1)^2), symmetric.

    Example:
        >>> import torch
        >>> e = embedding(torch.eye(2), torch.tensor([3., 1.]), torch.tensor([4., 5.]))
        >>> w = torch.arange(9.).cos().double().view(3, 3)
        >>> u = parameter_vector(w, w)
        >>> torch.allclose(u @ quadratic_form(e) @ u, prediction(w, w, e))
        True
        >>> a, b = torch.arange(4.).sin().view(2, 2), torch.arange(4.).exp().view(2, 2)
        >>> product = (a @ torch.eye(2) @ b).T.flatten()  # Lemma D.1
        >>> torch.allclose(torch.kron(b.T.contiguous(), a) @ torch.eye(2).flatten(), product)
        True
    """
    gram, query = _gram_and_query(e)
    x = torch.zeros_like(gram)
    x[:-1, -1] = query
    x[-1, :-1] = query
    return torch.kron(x, gram) / 2


def parameter_vector(w_pv: Wide, w_kq: Wide) -> Float[Tensor, " form"]:
    """u = Vec(U), U = ((W11^KQ, w21^PV), (w21^KQ^T, w22^PV)), column by column.

    u is all that the prediction reads.

    Source: Zhang, Frei & Bartlett (2023), Lemma 5.1.

    Example:
        >>> import torch
        >>> parameter_vector(torch.tensor([[0., 0.], [7., 8.]]), torch.tensor([[1., 0.], [2., 0.]]))
        tensor([1., 2., 7., 8.], dtype=torch.float64)
    """
    row, columns = _weights_read(w_pv, w_kq)
    u = torch.cat([columns, row[:, None]], 1)
    return u.T.flatten()


def form_eigenvalues(e: Float[Tensor, "wide token"]) -> Float[Tensor, " form"]:
    """All eigenvalues of `quadratic_form`, in ascending order.

    They are +-|x_q| lambda_i(E E^T / n) / 2, and 0 for the rest.

    Source: Zhang, Frei & Bartlett (2023), remark on Lemma 5.1, made exact: X has the eigenvalues
    +-|x_q| and d - 1 zeros, and those of a Kronecker product are the products.

    Example:
        >>> import torch
        >>> e = embedding(torch.eye(2), torch.tensor([3., 1.]), torch.tensor([4., 5.]))
        >>> torch.allclose(form_eigenvalues(e), torch.linalg.eigvalsh(quadratic_form(e)))
        True
    """
    gram, query = _gram_and_query(e)
    wide = len(e)
    of_gram = torch.linalg.eigvalsh(gram)
    half = query.norm() * of_gram / 2
    zeros = half.new_zeros((wide - 2) * wide)
    eigenvalues = torch.cat([half, -half, zeros])
    return eigenvalues.sort().values


def negative_eigenvalues(d: int, n: int) -> int:
    """The number of negative eigenvalues of H: rank E = min(d, n) + 1, for almost every prompt.

    As many eigenvalues are positive.

    One fewer where n >= d, labels have no noise and <w, x_q> = 0: the query's column then lies in
    the span of the rest.

    Source: replaces the remark on Lemma 5.1 in Wu's slides, see `paper_negative_eigenvalues`.

    Args:
        d: coordinates of x.
        n: labelled examples.

    Example:
        >>> negative_eigenvalues(d=4, n=7), negative_eigenvalues(d=4, n=2)
        (5, 3)
    """
    check_count(d, "d")
    check_count(n, "n")
    return min(d, n) + 1


def paper_negative_eigenvalues(d: int) -> int:
    """The printed lower bound d + 1 on the number of negative eigenvalues of H.

    It fails for n < d. There are never more than d + 1.

    Source: Wu's slides on Zhang, Frei & Bartlett (2023), remark on Lemma 5.1.

    Example:
        >>> paper_negative_eigenvalues(4) == negative_eigenvalues(d=4, n=4)
        True
    """
    return d + 1


def invariant_product(w_pv: Wide, w_kq: Wide) -> Square:
    """The matrix P = w22^PV W11^KQ + w21^PV w21^KQ^T.

    The part of the prediction that is linear in the labels is h^T P x_q.

    In it h = (1/m) sum y_i x_i. Where w21^PV = w21^KQ = 0 it is the whole prediction, and P all
    that can be known of the weights from predictions: (c W_KQ, W_PV / c) predicts the same for
    every c.

    Source: Zhang, Frei & Bartlett (2023), equations (3.6) and (5.1); P = u_-1 U_11 in the proofs.

    Example:
        >>> import torch
        >>> w_pv = torch.diag(torch.tensor([0., 0., 2.]))
        >>> w_kq = torch.diag(torch.tensor([3., 1., 0.]))
        >>> torch.equal(invariant_product(w_pv, w_kq), torch.diag(torch.tensor([6., 2.])).double())
        True
    """
    row, columns = _weights_read(w_pv, w_kq)
    v = row[-1]
    u = columns[:-1]
    return v * u + torch.outer(row[:-1], columns[-1])


def population_loss(
    w_pv: Wide, w_kq: Wide, covariance: Square, n: int, noise_variance: Scalar = 0.0
) -> Float[Tensor, ""]:
    """L = E(yhat - y)^2 / 2 over tasks w ~ N(0, I) and prompts x ~ N(0, Lambda), exactly.

    Weights may be of any kind.

    All moments that occur are Gaussian and have a closed form: nothing is sampled. With (w, noise)
    -> -(w, noise) the prediction splits in an odd part, h^T P x_q with P = `invariant_product`,
    which alone can fit the label, and an even part, whose square only adds to the loss.

    Source: Zhang, Frei & Bartlett (2023), equation (3.8); they give it for w21 = 0 (`Landscape`),
    noise and the rest of the weights are an extension. The mean squared error is 2 L.

    Args:
        w_pv: W^PV.
        w_kq: W^KQ.
        covariance: Lambda.
        n: N, or M for prompts of that length.
        noise_variance: tau^2 of every label, the query's too.

    Raises:
        ValueError: n is below 1, or the covariance is not symmetric positive definite.

    Example:
        >>> import torch
        >>> zero = torch.zeros(3, 3)
        >>> population_loss(zero, zero, torch.diag(torch.tensor([1., 2.])), n=4, noise_variance=.5)
        tensor(1.7500, dtype=torch.float64)
    """
    covariance = as_covariance(covariance)
    tau2 = as_float64(noise_variance)
    product = invariant_product(w_pv, w_kq)
    # E (h^T P x_q - <w, x_q>)^2: a square, less twice a product with the label, and the label's own
    shrunk = gamma(covariance, n, tau2)
    squared = shrunk @ covariance @ product @ covariance @ product.T
    with_label = covariance @ product @ covariance
    odd = squared.trace() - 2 * with_label.trace() + covariance.trace()
    even = _even_part(w_pv, w_kq, covariance, n, tau2)
    return (odd + even + tau2) / 2


def _even_part(w_pv: Tensor, w_kq: Tensor, lam: Tensor, n: int, tau2: Tensor) -> Tensor:
    """E[(a + b + c)^2], the part of the prediction that does not change sign with the labels.

    With S = (1/n) sum x_i x_i^T and Y = (1/n) sum y_i^2, p = w21^PV, k = w21^KQ, U = W11^KQ,
    v = w22^PV: a = p^T S U x_q, b = (p.x_q) (x_q^T U x_q) / n (the query's own column), c = v Y
    (k.x_q).
    """
    row, columns = _weights_read(w_pv, w_kq)
    p = row[:-1]
    v = row[-1]
    u = columns[:-1]
    k = columns[-1]
    form = (u + u.T) / 2
    lp = lam @ p
    lf = lam @ form
    lf2 = lf @ lf
    plp = p @ lp
    trace = lam.trace()
    trace2 = lam.square().sum()
    on_form = lf.trace()
    y_mean = trace + tau2

    # Gaussian moments (Isserlis): E[S p p^T S], and E[x_q x_q^T (x_q^T U x_q)]
    spp = (1 + 1 / n) * torch.outer(lp, lp) + plp * lam / n
    fourth = on_form * lam + 2 * lf @ lam

    # E[Y S] and E[Y^2], y given S included
    ys = y_mean * lam + 2 * lam @ lam / n
    trace_s2 = (1 + 1 / n) * trace2 + trace**2 / n
    of_noise = 2 * tau2 * trace + tau2**2
    y_squared = y_mean**2 + 2 * trace2 / n + 2 * trace_s2
    y_squared = y_squared + 2 * of_noise / n

    # E[(p.x_q)^2 (x_q^T U x_q)^2]
    form_squared = on_form**2 + 2 * lf2.trace()
    sixth = form_squared * plp
    sixth = sixth + 4 * on_form * (p @ lf @ lp)
    sixth = sixth + 8 * (p @ lf @ lf @ lp)

    # E[a^2] + E[b^2] + E[c^2] + 2 (E[a b] + E[a c] + E[b c])
    a_squared = (spp @ u @ lam @ u.T).trace()
    b_squared = sixth / n**2
    c_squared = v**2 * (k @ lam @ k) * y_squared
    squares = a_squared + b_squared + c_squared
    ab = lp @ u @ fourth @ p / n
    ac = v * (p @ ys @ u @ lam @ k)
    bc = v * y_mean * (p @ fourth @ k) / n
    crossed = ab + ac + bc
    return squares + 2 * crossed


def _gram_and_query(e: Tensor) -> tuple[Tensor, Tensor]:
    """E E^T / n, with n the number of labelled columns of E, and x_q."""
    e = as_float64(e)
    n = e.shape[1] - 1
    gram = e @ e.T / n
    return gram, e[:-1, -1]


def _weights_read(w_pv: Tensor, w_kq: Tensor) -> tuple[Tensor, Tensor]:
    """What the prediction reads: the last row of W_PV, and all columns of W_KQ but the last."""
    w_pv = as_float64(w_pv)
    w_kq = as_float64(w_kq)
    return w_pv[-1], w_kq[:, :-1]


def as_covariance(covariance: Tensor) -> Tensor:
    """The covariance in float64; ValueError unless it is symmetric and positive definite."""
    covariance = as_float64(covariance)
    square = covariance.ndim == 2 and covariance.shape[0] == covariance.shape[1]
    symmetric = square and torch.allclose(covariance, covariance.T, rtol=1e-9, atol=0)
    if not symmetric or not torch.linalg.eigvalsh(covariance)[0] > 0:
        raise ValueError(
            f"a covariance must be a symmetric positive definite matrix, got {covariance.tolist()}"
        )
    return covariance


def check_count(count: int, name: str) -> None:
    """ValueError unless it is a number of examples or coordinates: 1 or more."""
    if count < 1:
        raise ValueError(
            f"{name} counts examples or coordinates and must be at least 1, got {count}"
        )


SLIDES = "Wu's slides on Zhang, Frei & Bartlett (2023)"
ERRATA = (
    Erratum(
        SLIDES,
        "remark on Lemma 5.1",
        "H has at least d + 1 negative eigenvalues.",
        "It has min(d, n) + 1 almost surely, never more than d + 1: fewer for n < d.",
        (paper_negative_eigenvalues, negative_eigenvalues),
        "negative eigenvalues for d = 4, n = 2",
        lambda: Compared(paper_negative_eigenvalues(4), negative_eigenvalues(4, 2)),
    ),
)
