"""Augmented tokens and gradient descent: the layer that takes a step, and its best step size.

This is one part of the study `autoregression`, which re-exports it. Tokens are e_t = (0, s_t,
s_{t-1}), t = 0, ..., T, with s_{-1} = 0: T is the number of transitions that are seen, and s_{T+1}
is to be predicted. The layer adds to e_T the sum over t of B e_t (e_t^* A e_T), and its prediction
is the first block. Both matrices are (3 d, 3 d), the blocks in the order of the tokens'. * is the
conjugate transpose.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from icl_interp.theory.softmax import Scalar, as_float64

__all__ = [
    "AugmentedWeights",
    "augmented_by_attention",
    "augmented_prediction",
    "augmented_tokens",
    "augmenting_patterns",
    "block_loss",
    "gradient_descent",
    "gradient_step_weights",
    "least_step_loss",
    "optimal_step",
    "step_loss",
]

States = Complex[Tensor, "*batch token dim"] | Float[Tensor, "*batch token dim"]
Matrices = Complex[Tensor, "*batch dim dim"] | Float[Tensor, "*batch dim dim"]
Tokens = Complex[Tensor, "*batch token wide"] | Float[Tensor, "*batch token wide"]
Lengths = Sequence[int]


class AugmentedWeights(NamedTuple):
    """The layer's weights, (3 d, 3 d)."""

    scores: Tensor  # A
    values: Tensor  # B


def augmented_tokens(states: States, first: Matrices | None = None) -> Tokens:
    """e_t = (0, s_t, s_{t-1}) with s_{-1} = 0; with a matrix W_0 the first block is W_0 s_t.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), sections 3 and 4, after von Oswald et
    al. (2023).

    Args:
        states: s_0 to s_T.
        first: W_0, the matrix that gradient descent starts from; None is 0.

    Raises:
        ValueError: there is no state.

    Example:
        >>> augmented_tokens(torch.tensor([[1.], [2.]]))
        tensor([[0., 1., 0.],
                [0., 2., 1.]], dtype=torch.float64)
    """
    states = _as_states(states)
    nothing = torch.zeros_like(states)
    before = torch.cat([nothing[..., :1, :], states[..., :-1, :]], -2)
    if first is None:
        guess = nothing
    else:
        first = _as_exact(first).to(states.dtype)
        guess = states @ first.mT
    return torch.cat([guess, states, before], -1)


def augmenting_patterns(n_tokens: int, margin: float) -> Float[Tensor, "2 query key"]:
    """The attention of two heads by position: one on the own token, one on the token before it.

    It is the causal softmax of scores that are `margin` at that token and 0 at the others. In row t
    the weight off that token is at most t e^-margin. The first token has none before it and itself
    gets all the weight. So the third block of e_0 comes out as s_0, where it should be 0, however
    large the margin is. A step of size eta from 0 then loses d^2 eta^2 more.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), Lemma 1, which does not mention the
    first token.

    Args:
        n_tokens: T + 1.
        margin: of the scores.

    Raises:
        ValueError: n_tokens below 1.

    Example:
        >>> augmenting_patterns(3, margin=50.)[1]
        tensor([[1.0000e+00, 0.0000e+00, 0.0000e+00],
                [1.0000e+00, 1.9287e-22, 0.0000e+00],
                [1.9287e-22, 1.0000e+00, 1.9287e-22]], dtype=torch.float64)
    """
    if n_tokens < 1:
        raise ValueError(f"a prompt has one token or more, got {n_tokens}")
    here = torch.eye(n_tokens, dtype=torch.float64)
    before = torch.diag(torch.ones(n_tokens - 1, dtype=torch.float64), -1)
    later = torch.ones(n_tokens, n_tokens, dtype=torch.bool).triu(1)
    scores = margin * torch.stack([here, before])
    scores = scores.masked_fill(later, -torch.inf)
    return torch.softmax(scores, -1)


def augmented_by_attention(states: States, margin: float) -> Tokens:
    """What the two heads of `augmenting_patterns` make of plain states: nearly e_t.

    The first token is an exception: it becomes (0, s_0, s_0).

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), Lemma 1.

    Args:
        states: s_0 to s_T.
        margin: of the scores.

    Raises:
        ValueError: there is no state.

    Example:
        >>> states = torch.tensor([[1.], [2.], [4.]])
        >>> gap = augmented_by_attention(states, margin=50.) - augmented_tokens(states)
        >>> gap[0], bool(gap[1:].abs().max() < 1e-14)
        (tensor([0., 0., 1.], dtype=torch.float64), True)
    """
    states = _as_states(states)
    n_tokens = states.shape[-2]
    patterns = augmenting_patterns(n_tokens, margin)
    own, before = patterns.to(states.dtype)
    nothing = torch.zeros_like(states)
    return torch.cat([nothing, own @ states, before @ states], -1)


def gradient_step_weights(d: int, step: float, first: Matrices | None = None) -> AugmentedWeights:
    """Weights whose prediction is that of one step of gradient descent from W_0.

    The step is taken on the squared errors of the prompt's transitions.

    A has I in block (s_{t-1} of the key, s_T of the query), B has step I in block (prediction, s_t)
    and -step W_0 in block (prediction, s_{t-1}). From W_0 = 0 the prediction is step sum_t s_t
    s_{t-1}^* s_T.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), Proposition 1 and equation (8), for
    W_0 = 0; von Oswald et al. (2023). Another W_0 belongs in `augmented_tokens` too.

    Args:
        d: coordinates of a state.
        step: eta.
        first: W_0, (d, d); None is 0.

    Raises:
        ValueError: d below 1.

    Example:
        >>> states = torch.tensor([[1.], [2.], [4.]])
        >>> weights = gradient_step_weights(1, step=.5)
        >>> augmented_prediction(augmented_tokens(states), *weights)  # .5 (2 + 8) 4
        tensor([20.], dtype=torch.float64)
    """
    _check_dimension(d)
    wide = 3 * d
    guess = slice(0, d)
    current = slice(d, 2 * d)
    before = slice(2 * d, wide)
    if first is not None:
        first = _as_exact(first)
    dtype = torch.float64 if first is None else first.dtype
    eye = torch.eye(d, dtype=dtype)
    scores, values = torch.zeros(2, wide, wide, dtype=dtype)
    # Rows of A are the key's blocks, and columns the query's. B writes to rows and reads columns.
    scores[before, current] = eye
    values[guess, current] = step * eye
    if first is not None:
        values[guess, before] = -step * first
    return AugmentedWeights(scores, values)


def augmented_prediction(tokens: Tokens, scores: Tensor, values: Tensor) -> Tensor:
    """The first block of e_T + sum_t B e_t (e_t^* A e_T): what the layer predicts for s_{T+1}.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), equation (4).

    Args:
        tokens: e_0 to e_T.
        scores: A.
        values: B.

    Returns:
        One vector a sequence, (*batch, d).

    Raises:
        ValueError: tokens that are not three blocks wide, or matrices of another size.

    Example:
        >>> tokens = augmented_tokens(torch.tensor([[1.], [2.]]))
        >>> augmented_prediction(tokens, torch.eye(3), torch.zeros(3, 3))  # the first block of e_T
        tensor([0.], dtype=torch.float64)
    """
    tokens = _as_states(tokens)
    wide = tokens.shape[-1]
    if wide % 3 or [*scores.shape] != [wide, wide] or scores.shape != values.shape:
        raise ValueError(
            f"tokens are three blocks wide, and A and B as wide as they are, got tokens of {wide} "
            f"numbers, A {[*scores.shape]} and B {[*values.shape]}"
        )
    # All are complex where one of them is.
    of_matrices = torch.promote_types(_as_exact(scores).dtype, _as_exact(values).dtype)
    dtype = torch.promote_types(tokens.dtype, of_matrices)
    tokens = tokens.to(dtype)
    scores = scores.to(dtype)
    values = values.to(dtype)

    query = tokens[..., -1, :, None]
    asked = scores @ query
    weights = tokens.conj() @ asked
    mixture = tokens.mT @ weights
    out = query + values @ mixture
    return out[..., : wide // 3, 0]


def gradient_descent(
    states: States, step: float, n_steps: int, first: Matrices | None = None
) -> Tensor:
    """W after steps of gradient descent on 1/2 sum_t |s_t - W s_{t-1}|^2.

    The sum is over the transitions that the prompt shows.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), equation (5).

    Args:
        states: s_0 to s_T.
        step: eta.
        n_steps: how many.
        first: W_0; None is 0.

    Returns:
        W, (*batch, d, d). Its prediction of s_{T+1} is W s_T.

    Raises:
        ValueError: there is no state.

    Example:
        >>> states = torch.tensor([[1.], [2.]])
        >>> gradient_descent(states, step=.25, n_steps=2)  # W_1 = .5, W_2 = .5 + .25 (2 - .5)
        tensor([[0.8750]], dtype=torch.float64)
    """
    states = _as_states(states)
    before = states[..., :-1, :]
    after = states[..., 1:, :]
    crossed = after.mT @ before.conj()
    gram = before.mT @ before.conj()

    # The gradient in W is W times the Gram matrix, less the crossed one.
    if first is None:
        W = torch.zeros_like(gram)
    else:
        W = _as_exact(first).to(gram.dtype)
    for _ in range(n_steps):
        downhill = crossed - W @ gram
        W = W + step * downhill
    return W


def optimal_step(lengths: Lengths, d: int) -> Float[Tensor, ""]:
    """eta* = sum T / sum (T^2 + (d - 1) T) over the lengths: the best step from 0 for unitary W.

    T / (T^2 + (d - 1) T) = 1 / (T + d - 1) for one length. It tends to 3 / (2 T_max) for lengths up
    to T_max, slowly for large d.

    No other weights of the paper's block structure do better (`block_loss`), but others do as well:
    the diagonals of the two blocks times the same signs, a coordinate at a time, D = diag(+-1).
    Their prediction is D W_1 D s_T, which is a step of gradient descent for D = I and D = -I only.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), Proposition 2.

    Args:
        lengths: T, transitions seen, for each prompt that counts.
        d: coordinates of a state.

    Raises:
        ValueError: no lengths, one below 1, or d below 1.

    Example:
        >>> optimal_step(range(2, 5), d=2)  # 9 / 38
        tensor(0.2368, dtype=torch.float64)
    """
    T = _as_lengths(lengths, d)
    total = T.sum()
    squares = T.square() + (d - 1) * T
    return total / squares.sum()


def step_loss(step: Scalar, lengths: Lengths, d: int) -> Float[Tensor, ""]:
    """Sum over lengths of the expected squared error after one gradient step of size eta from 0.

    For each length E |W_1 s_T - s_{T+1}|^2 = d (1 - 2 eta T + eta^2 (T^2 + (d - 1) T)).

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), proof of Proposition 2, for unitary W
    and s_0 = 1.

    Args:
        step: eta.
        lengths: T, transitions seen.
        d: coordinates of a state.

    Raises:
        ValueError: no lengths, one below 1, or d below 1.

    Example:
        >>> step_loss(0., lengths=[4, 5], d=3)  # the prediction is 0
        tensor(6., dtype=torch.float64)
    """
    T = _as_lengths(lengths, d)
    step = as_float64(step)
    squares = T.square() + (d - 1) * T
    errors = 1 - 2 * step * T + step.square() * squares
    return d * errors.sum()


def least_step_loss(lengths: Lengths, d: int) -> Float[Tensor, ""]:
    """`step_loss` at `optimal_step`: d (number of lengths - (sum T)^2 / sum (T^2 + (d - 1) T)).

    d (d - 1) / (T + d - 1) for one length: one step is not enough for d > 1, however long the
    prompt is.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), Proposition 2.

    Args:
        lengths: T, transitions seen.
        d: coordinates of a state.

    Raises:
        ValueError: no lengths, one below 1, or d below 1.

    Example:
        >>> least_step_loss([4], d=3)
        tensor(1., dtype=torch.float64)
    """
    step = optimal_step(lengths, d)
    return step_loss(step, lengths, d)


def block_loss(
    scores: Float[Tensor, "4 dim"], values: Float[Tensor, "2 dim"], lengths: Lengths
) -> Float[Tensor, ""]:
    """Sum over lengths of E |prediction - s_{T+1}|^2 for all weights that Proposition 2 allows.

    The sum is differentiable in the weights.

    A has diagonal blocks a_1 (key's s_t, query's s_T), a_2 (s_t, s_{T-1}), a_3 (s_{t-1}, s_T), a_4
    (s_{t-1}, s_{T-1}), B has b_1 (prediction, s_t) and b_2 (prediction, s_{t-1}). W is unitary,
    s_0 = 1, s_{-1} = 0. Exact: the prediction is a polynomial in the eigenvalues, and the loss the
    sum of the squares of what its coefficients miss.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), Assumption 2, Lemma 4 and Proposition 8
    (equation (9)).

    Args:
        scores: a_1 to a_4 as rows.
        values: b_1 and b_2 as rows.
        lengths: T, transitions seen.

    Raises:
        ValueError: no lengths, or one below 1.

    Example:
        >>> scores, values = torch.zeros(4, 3), torch.zeros(2, 3)
        >>> scores[2], values[0] = 1., .1
        >>> torch.allclose(block_loss(scores, values, [4, 5]), step_loss(.1, [4, 5], d=3))
        True
    """
    a = as_float64(scores)
    b = as_float64(values)
    d = a.shape[1]
    total = as_float64(0.0)
    for length in _as_lengths(lengths, d).long().tolist():
        # The coefficient of lambda_j^m lambda_i^n stands at (m, n + 1).
        places = []
        terms = []
        for t in range(length + 1):
            # e_t holds lambda^t and lambda^(t-1), e_0 1; with each power stand the weights of its
            # block: as a key for the last two states of the query, and as a value.
            blocks = [(t, a[0], a[1], b[0])]
            if t:
                blocks.append((t - 1, a[2], a[3], b[1]))
            for key, on_last, before_last, _ in blocks:
                for value, _, _, weight in blocks:
                    # conj(lambda_i^key) times lambda_i^length, or lambda_i^(length - 1)
                    places.append((value, length - key + 1))
                    terms.append(torch.outer(weight, on_last))
                    places.append((value, length - key))
                    terms.append(torch.outer(weight, before_last))
        coefficients = torch.zeros(length + 1, length + 2, d, d, dtype=torch.float64)
        at = torch.tensor(places).unbind(1)
        coefficients = coefficients.index_put(at, torch.stack(terms), accumulate=True)
        total = total + _missed(coefficients)
    return total


def _missed(coefficients: Float[Tensor, "own other dim dim"]) -> Float[Tensor, ""]:
    """What a polynomial in the eigenvalues misses of lambda_j^(T+1), as a squared error.

    Its terms in row j, column i are lambda_j^m lambda_i^(n-1).
    """
    n_own, n_other, d, _ = coefficients.shape
    length = n_own - 1
    eye = torch.eye(d, dtype=torch.bool)
    apart = coefficients.masked_fill(eye, 0.0)

    # The coefficients of lambda_j^(m-1) alone: those with i = j, and those without lambda_i.
    pure = torch.zeros(n_own + n_other, d, dtype=torch.float64)
    for m in range(n_own):
        powers = m + torch.arange(n_other)
        same = coefficients[m].diagonal(dim1=1, dim2=2)
        pure = pure.index_add(0, powers, same)
    powers = 1 + torch.arange(n_own)
    without = apart[:, 1].sum(-1)
    pure = pure.index_add(0, powers, without)

    # The target is lambda_j^(T+1); every other term is a miss as it stands.
    target = torch.ones(1, d, dtype=torch.float64)
    pure = pure.index_add(0, torch.tensor([length + 2]), -target)
    below = apart[:, 0].square().sum()
    above = apart[:, 2:].square().sum()
    return pure.square().sum() + below + above


def _as_exact(value: Tensor) -> Tensor:
    dtype = torch.complex128 if value.is_complex() else torch.float64
    return value.to(dtype)


def _as_states(states: Tensor) -> Tensor:
    if states.ndim < 2 or not states.shape[-2]:
        raise ValueError(f"a prompt has one state or more, got shape {tuple(states.shape)}")
    return _as_exact(states)


def _as_lengths(lengths: Lengths, d: int) -> Float[Tensor, " length"]:
    _check_dimension(d)
    lengths = list(lengths)
    found = as_float64(torch.tensor(lengths))
    if not len(found) or not (found >= 1).all():
        raise ValueError(f"lengths count the transitions seen, each at least 1, got {lengths}")
    return found


def _check_dimension(d: int) -> None:
    if d < 1:
        raise ValueError(f"d counts coordinates and must be at least 1, got {d}")
