"""Complex diagonals as real matrices on pairs, and heads that stay such diagonals in training.

The unit "diagonal" is model (6) of Sander et al. (2024) under their Assumption 3: complex heads
with diagonals a_h and b_h. Each is two real heads, of the real and of the imaginary part of its
score, as `diagonal_unit.DiagonalAttention.to_transformer` lays them out.
"""

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

_ATTENTION = "blocks.0.attn."
LEARNED = ("W_K", "W_V", "W_P")


def diagonals_of(matrix: Float[Tensor, "*head two_dim two_dim"]) -> Complex[Tensor, "*head dim"]:
    """The complex diagonals nearest to real matrices on `pairs`.

    A multiplication by x + iy is the block [[x, -y], [y, x]].

    >>> diagonals_of(torch.tensor([[1.0, -2.0], [2.0, 1.0]]))
    tensor([1.+2.j])
    """
    rows = matrix.unflatten(-2, (-1, 2))
    blocks = rows.unflatten(-1, (-1, 2))
    diagonal = blocks.diagonal(dim1=-4, dim2=-2)  # (*head, 2, 2, dim)
    upper, lower = diagonal.unbind(-3)
    real = upper[..., 0, :] + lower[..., 1, :]
    imaginary = lower[..., 0, :] - upper[..., 1, :]
    return torch.complex(real / 2, imaginary / 2)


def real_matrix(diagonal: Complex[Tensor, " dim"]) -> Float[Tensor, "two_dim two_dim"]:
    """Multiplication by a complex diagonal as a real matrix on `pairs`.

    a + ib becomes [[a, -b], [b, a]].

    >>> real_matrix(torch.tensor([1.0 + 2.0j]))
    tensor([[ 1., -2.],
            [ 2.,  1.]])
    """
    blocks = []
    for number in diagonal.detach():
        x = number.real
        y = number.imag
        first = torch.stack([x, -y])
        second = torch.stack([y, x])
        blocks.append(torch.stack([first, second]))
    return torch.block_diag(*blocks)


def as_heads(
    keys: Complex[Tensor, "head dim"], values: Complex[Tensor, "head dim"]
) -> tuple[Float[Tensor, "real_head stream two_dim"], Float[Tensor, "real_head stream two_dim"]]:
    """W_K and W_V of the real heads of complex ones, which read the second half of the stream.

    Of each two heads the second weighs i times the value by the imaginary part of the score.
    """
    n_heads = len(keys)
    wide = 2 * keys.shape[1]
    shape = (2 * n_heads, 2 * wide, wide)
    W_K = keys.real.new_zeros(shape)
    W_V = keys.real.new_zeros(shape)
    for h in range(n_heads):
        first = 2 * h
        second = first + 1
        key = real_matrix(keys[h])
        W_K[first, wide:] = key.T
        W_K[second, wide:] = key.T
        W_V[first, wide:] = real_matrix(values[h]).T
        W_V[second, wide:] = real_matrix(1j * values[h]).T
    return W_K, W_V


def of_heads(
    W_K: Float[Tensor, "real_head stream two_dim"], W_V: Float[Tensor, "real_head stream two_dim"]
) -> tuple[Complex[Tensor, "head dim"], Complex[Tensor, "head dim"]]:
    """The complex heads nearest to real ones: the inverse of `as_heads`, means of what is tied.

    >>> keys, values = torch.tensor([[1.0 + 2.0j]]), torch.tensor([[3.0 - 1.0j]])
    >>> of_heads(*as_heads(keys, values))
    (tensor([[1.+2.j]]), tensor([[3.-1.j]]))
    """
    half = W_K.shape[1] // 2
    keys = diagonals_of(W_K[:, half:].mT)
    values = diagonals_of(W_V[:, half:].mT)
    key = keys[::2] + keys[1::2]
    value = values[::2] - 1j * values[1::2]
    return key / 2, value / 2


def make_diagonal(model: nn.Module) -> None:
    """Give a fresh model the weights of the unit "diagonal", and take fixed ones out of training.

    The stream holds the prediction in its first half and the state in its second. a_h and b_h are
    the diagonals nearest to the weights that were drawn, at their standard deviation (`init_std`).

    Args:
        model: a `HookedTransformer` with `cfg.unit="diagonal"`; it is changed.
    """
    named = dict(model.named_parameters())
    wide = named["unembed.W_U"].shape[1]
    identity = torch.eye(wide)
    ones = torch.full((wide // 2,), 1j, dtype=torch.complex64)
    turn = real_matrix(ones)
    # Everything is fixed but keys, values and positions.
    for name, weight in named.items():
        is_learned = name.endswith(LEARNED)
        weight.requires_grad_(is_learned)
        if not is_learned:
            weight.detach().zero_()
    read = named["embed.W_E"].detach()
    read[:, wide:] = identity
    out = named["unembed.W_U"].detach()
    out[:wide] = identity
    written = named[f"{_ATTENTION}W_O"].detach()
    written[:, :, :wide] = identity
    queries = named[f"{_ATTENTION}W_Q"].detach()
    queries[::2, wide:] = identity
    queries[1::2, wide:] = turn.T
    # Each part is a mean of four drawn numbers, of half their deviation.
    W_K, W_V = _learned(model)
    keys, values = of_heads(W_K.detach(), W_V.detach())
    W_K_tied, W_V_tied = as_heads(2 * keys, 2 * values)
    W_K.detach().copy_(W_K_tied)
    W_V.detach().copy_(W_V_tied)


def keep_diagonal(model: nn.Module) -> None:
    """Replace gradients of heads by those along complex diagonals, so that a step keeps them.

    Adam then takes the same step for entries that are tied, up to their sign.
    """
    W_K, W_V = _learned(model)
    assert W_K.grad is not None
    assert W_V.grad is not None
    keys, values = of_heads(W_K.grad, W_V.grad)
    W_K.grad, W_V.grad = as_heads(keys, values)


def _learned(model: nn.Module) -> tuple[nn.Parameter, nn.Parameter]:
    named = dict(model.named_parameters())
    return named[f"{_ATTENTION}W_K"], named[f"{_ATTENTION}W_V"]
