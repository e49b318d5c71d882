"""The attention window of M = w I on the unit sphere: weights, number of keys, noise.

This is one part of the study `lipschitz`, which re-exports it. A key x_i at the cosine t to the
query has the weight e^(w t) / sum_j e^(w t_j), the same as with e^(-(w/2) |x_i - x_q|^2). The
slides' proof sketches write e^(-w |.|^2): their w is half of ours.
"""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.errata import Compared, Erratum
from icl_interp.theory.softmax import as_float64

__all__ = [
    "attention_weights",
    "effective_sample_size",
    "half_weight_angle",
    "harmonic_shrinkage",
    "key_count",
    "log_normaliser",
    "mean_cosine",
    "noise_asymptote",
    "noise_exponent",
    "noise_exponent_as_printed",
    "noise_limit",
    "noise_slope",
    "prediction",
]

Window = Float[Tensor, "*window"] | float | int
PerWindow = Float[Tensor, "*window"]


def attention_weights(
    keys: Float[Tensor, "*batch key dim"],
    query: Float[Tensor, "*batch dim"],
    matrix: Float[Tensor, "dim dim"],
) -> Float[Tensor, "*batch key"]:
    """The attention of the query, a = softmax over i of x_i^T M x_q.

    It is what the query pays to each of the n labelled examples. It pays none to itself.

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    "Learning Model: One Layer of Softmax Self-Attention", equation (2), with M = M_K^T M_Q.

    Args:
        keys: x_1 to x_n.
        query: x_(n+1), here x_q.
        matrix: M.

    Example:
        >>> import torch
        >>> keys = torch.arange(1., 13.).sin().view(4, 3).double()
        >>> keys = torch.nn.functional.normalize(keys, dim=1)
        >>> near = -(keys - keys[0]).square().sum(1)
        >>> weights = attention_weights(keys, keys[0], 6 * torch.eye(3))
        >>> torch.allclose(weights, torch.softmax(3 * near, 0))
        True
    """
    keys = as_float64(keys)
    matrix = as_float64(matrix)
    query = as_float64(query)
    scores = torch.einsum("...nd,de,...e->...n", keys, matrix, query)
    return torch.softmax(scores, -1)


def prediction(
    keys: Float[Tensor, "*batch key dim"],
    labels: Float[Tensor, "*batch key"],
    query: Float[Tensor, "*batch dim"],
    matrix: Float[Tensor, "dim dim"],
) -> Float[Tensor, "*batch"]:
    """fhat(x_q) = sum_i y_i a_i, the Nadaraya-Watson smoother with the kernel e^(x^T M x_q).

    The weights sum to 1, so a constant that is added to all labels is added to the prediction.

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    "Learning Model: One Layer of Softmax Self-Attention", equation (2).

    Args:
        keys: x_1 to x_n.
        labels: y_1 to y_n.
        query: x_q.
        matrix: M.

    Example:
        >>> import torch
        >>> keys, y = torch.eye(3), torch.tensor([1., 2., 6.])
        >>> prediction(keys, y, keys[0], torch.zeros(3, 3))
        tensor(3., dtype=torch.float64)
    """
    weights = attention_weights(keys, query, matrix)
    labels = as_float64(labels)
    return (weights * labels).sum(-1)


def effective_sample_size(weights: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch"]:
    """N2 = 1 / sum_i a_i^2, the number of keys that a window averages.

    It is n for equal weights and 1 for one key.

    Label noise of variance sigma^2 becomes sigma^2 / N2 in the prediction. It is at most exp(H)
    with H the entropy of the weights, the number of keys that `probes.PatternStatistics` calls
    effective.

    Source: Kish (1965), Survey Sampling: the effective sample size of weights that add up to 1. It
    is the noise term of Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A.
    Mokhtari, "Proof Sketch", as a count.

    Example:
        >>> import torch
        >>> effective_sample_size(torch.full((4,), .25))
        tensor(4., dtype=torch.float64)
    """
    squares = as_float64(weights).square()
    return 1 / squares.sum(-1)


def log_normaliser(w: Window, d: int) -> PerWindow:
    """log Z(w) with Z(w) = E e^(w t).

    t is the first coordinate of a uniform point on the unit sphere of R^d.

    Z(w) = Gamma(d/2) (2/w)^(d/2 - 1) I_(d/2 - 1)(w); sinh(w) / w for d = 3.

    Source: the normaliser of the von Mises-Fisher law. All limits for long prompts in `lipschitz`
    are built on it.

    Args:
        w: any shape, at least 0.
        d: coordinates of x, at least 2.

    Raises:
        ValueError: a negative w, or d below 2.

    Example:
        >>> import torch
        >>> w = torch.tensor([.1, 1., 10.]).double()
        >>> torch.allclose(log_normaliser(w, d=3), (w.sinh() / w).log())
        True
    """
    from scipy.special import gammaln, hyp0f1, ive

    w = as_window(w)
    check_dimension(d)
    values = w.numpy()
    order = d / 2 - 1
    # Below 100 by the hypergeometric function, above by the scaled Bessel function. Values that are
    # not taken may be out of range.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        clipped = np.minimum(values, 100.0)
        near = np.log(hyp0f1(d / 2, clipped**2 / 4))
        power = order * np.log(2 / values)
        far = gammaln(d / 2) + power + np.log(ive(order, values)) + values
    logarithms = np.where(values < 100, near, far)
    return torch.from_numpy(np.asarray(logarithms))


def mean_cosine(w: Window, d: int) -> PerWindow:
    """A_d(w) = d log Z / dw, the mean cosine to the query under the window's weights.

    A_d(w) = I_(d/2)(w) / I_(d/2 - 1)(w), which is coth w - 1/w for d = 3. A linear function is
    shrunk by this factor.

    Source: the mean of the von Mises-Fisher law.

    Args:
        w: any shape, at least 0.
        d: coordinates of x, at least 2.

    Raises:
        ValueError: a negative w, or d below 2.

    Example:
        >>> import torch
        >>> w = torch.tensor([.1, 1., 10.]).double()
        >>> torch.allclose(mean_cosine(w, d=3), 1 / w.tanh() - 1 / w)
        True
    """
    shrinkage = harmonic_shrinkage(w, d, degrees=1)
    return shrinkage[..., 1]


def harmonic_shrinkage(w: Window, d: int, degrees: int) -> Float[Tensor, "*window degree"]:
    """lambda_k(w) = I_(k + d/2 - 1)(w) / I_(d/2 - 1)(w) for k = 0 to `degrees`.

    In the limit of many keys a window multiplies the part of a function that is a spherical
    harmonic of degree k by lambda_k (Funk-Hecke): 1 for constants, A_d(w) for linear functions,
    about e^(-k^2 / (2w)) for large w.

    Source: the Funk-Hecke theorem for the kernel e^(w t) / Z(w).

    Args:
        w: any shape, at least 0.
        d: coordinates of x, at least 2.
        degrees: the highest degree.

    Returns:
        One more axis, for the degrees 0 to `degrees`.

    Raises:
        ValueError: a negative w, or d below 2.

    Example:
        >>> import torch
        >>> w = torch.tensor(2.).double()
        >>> third = harmonic_shrinkage(w, d=3, degrees=2)[2]
        >>> torch.allclose(third, 1 - 3 * mean_cosine(w, d=3) / w)
        True
    """
    w = as_window(w)
    check_dimension(d)
    values = w.numpy()
    order = d / 2 - 1
    # Ratios of neighbours by backward recurrence: stable, and without Bessel functions that
    # over- or underflow. It starts where lambda is about e^-32, so that the start is forgotten.
    widest = math.sqrt(values.max(initial=0.0))
    negligible = math.ceil(8 * widest) + 40
    start = max(degrees, negligible) + 10
    ratio = np.zeros_like(values)
    kept = []
    for k in range(start, 0, -1):
        ratio = values / (2 * (order + k) + values * ratio)
        if k <= degrees:
            kept.append(ratio)
    kept.append(np.ones_like(values))  # lambda_0
    kept.reverse()
    shrinkage = np.cumprod(np.stack(kept, -1), -1)
    return torch.from_numpy(shrinkage)


def noise_limit(w: Window, d: int) -> PerWindow:
    """The limit Z(2w) / Z(w)^2 of n nu_n(w) as n grows.

    nu_n = E sum_i a_i^2 is what is left of unit label noise.

    The limit is w coth w for d = 3. It holds for w^((d-1)/2) much below n; for larger w nu_n
    saturates at 1.

    Source: replaces Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A.
    Mokhtari, "Proof Sketch", L_noise = Theta(sigma^2 (w^(d/2) + 1) / n): the exponent on the sphere
    of R^d is (d-1)/2.

    Args:
        w: any shape, at least 0.
        d: coordinates of x, at least 2.

    Raises:
        ValueError: a negative w, or d below 2.

    Example:
        >>> import torch
        >>> w = torch.tensor([.1, 1., 10.]).double()
        >>> torch.allclose(noise_limit(w, d=3), w / w.tanh())
        True
    """
    w = as_window(w)
    log_limit = log_normaliser(2 * w, d) - 2 * log_normaliser(w, d)
    return log_limit.exp()


def noise_slope(w: Window, d: int) -> PerWindow:
    """The local exponent d log(n nu) / d log w of `noise_limit`.

    It is 2 w (A_d(2w) - A_d(w)), and tends to (d-1)/2 as w grows.

    Source: the derivative of `noise_limit`; replaces the exponent d/2 of the slides' "Proof
    Sketch".

    Args:
        w: any shape, at least 0.
        d: coordinates of x, at least 2.

    Raises:
        ValueError: a negative w, or d below 2.

    Example:
        >>> round(float(noise_slope(10., d=5)), 2), round(float(noise_slope(1e5, d=5)), 2)
        (1.83, 2.0)
    """
    w = as_window(w)
    gain = mean_cosine(2 * w, d) - mean_cosine(w, d)
    return 2 * w * gain


def noise_exponent(d: int) -> Float[Tensor, ""]:
    """(d-1)/2, with which the noise n nu grows in w: the sphere of R^d has d - 1 dimensions.

    Source: replaces Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A.
    Mokhtari, "Proof Sketch".

    Raises:
        ValueError: d below 2.

    Example:
        >>> float(noise_exponent(3))
        1.0
    """
    check_dimension(d)
    return as_float64((d - 1) / 2)


def noise_exponent_as_printed(d: int) -> Float[Tensor, ""]:
    """d/2, the exponent of the noise in w that the slides print.

    False on the unit sphere: see `noise_exponent`.

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    "Proof Sketch".

    Raises:
        ValueError: d below 2.

    Example:
        >>> float(noise_exponent_as_printed(3) - noise_exponent(3))
        0.5
    """
    check_dimension(d)
    return as_float64(d / 2)


def noise_asymptote(w: Window, d: int) -> PerWindow:
    """C_d w^((d-1)/2), which `noise_limit` approaches as w grows; w for d = 3.

    C_d = sqrt(pi) 4^(1 - d/2) / Gamma(d/2).

    Source: Hankel's expansion of the Bessel function in `log_normaliser`.

    Args:
        w: any shape, at least 0.
        d: coordinates of x, at least 2.

    Raises:
        ValueError: a negative w, or d below 2.

    Example:
        >>> import torch
        >>> torch.allclose(noise_asymptote(50., d=3), noise_limit(50., d=3))
        True
    """
    w = as_window(w)
    log_c_d = 0.5 * math.log(math.pi) + (1 - d / 2) * math.log(4) - math.lgamma(d / 2)
    return math.exp(log_c_d) * w ** noise_exponent(d)


def key_count(w: Window, n: int, d: int) -> PerWindow:
    """N2 = n Z(w)^2 / Z(2w), the number of keys that a window averages among n on the sphere.

    It is n tanh(w) / w for d = 3.

    The formula holds for long prompts. A finite window has at least one key: where the formula
    falls towards 1, use the Monte Carlo of `loss_table` or `effective_sample_size` instead.

    Source: the inverse of `noise_limit`; Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai
    (2024), slides by A. Mokhtari, "ICL estimator intuition", row "Number of points that are
    attended to".

    Args:
        w: any shape, at least 0.
        n: labelled examples.
        d: coordinates of x, at least 2.

    Raises:
        ValueError: a negative w, n below 1, or d below 2.

    Example:
        >>> float(key_count(0., n=40, d=5))
        40.0
    """
    check_examples(n)
    return n / noise_limit(w, d)


def half_weight_angle(w: Window) -> PerWindow:
    """The angle theta_1/2 at which a key has half the weight of a key at the query.

    cos theta_1/2 = 1 - ln 2 / w.

    For w <= ln 2 / 2 every key on the sphere has more than half, and the angle is pi.

    Source: makes quantitative Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by
    A. Mokhtari, "ICL estimator intuition" (top: the optimal attention windows).

    Args:
        w: any shape, at least 0.

    Returns:
        Radians, with the shape of w.

    Raises:
        ValueError: a negative w.

    Example:
        >>> import torch
        >>> angle = half_weight_angle(10.)
        >>> torch.allclose((10 * (angle.cos() - 1)).exp(), torch.tensor(.5).double())
        True
    """
    w = as_window(w)
    cosine = 1 - math.log(2) / w
    return cosine.clamp(min=-1).arccos()


def as_window(w: Tensor | float | int) -> Tensor:
    """The window in float64; ValueError if any is negative or not finite."""
    w = as_float64(w).detach()
    possible = (w >= 0) & w.isfinite()
    if not possible.all():
        raise ValueError(f"a window w must be finite and at least 0, got {w.tolist()}")
    return w


def check_dimension(d: int) -> None:
    """ValueError unless there is a sphere to speak of: d of 2 or more."""
    if d < 2:
        raise ValueError(
            f"d counts the coordinates of x on the unit sphere and must be at least 2, got {d}"
        )


def check_examples(n: int) -> None:
    """ValueError unless it is a number of labelled examples: 1 or more."""
    if n < 1:
        raise ValueError(
            f"n counts the labelled examples of a prompt and must be at least 1, got {n}"
        )


SLIDES = "Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari"
ERRATA = (
    Erratum(
        SLIDES,
        "Proof Sketch, noise",
        "The noise grows like w^(d/2) / n.",
        "On the unit sphere it grows like w^((d-1)/2) / n.",
        (noise_exponent_as_printed, noise_exponent),
        "exponent of w for d = 3",
        lambda: Compared(float(noise_exponent_as_printed(3)), float(noise_exponent(3))),
    ),
)
