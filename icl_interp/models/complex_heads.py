"""Complex diagonals as real matrices on pairs, and heads that stay such diagonals in training.

The unit "diagonal" is model (6) of Sander et al. (2024) under their Assumption 3: complex heads
with diagonals a_h and b_h. Each is two real heads, of the real and of the imaginary part of its
score, as `diagonal_unit.DiagonalAttention.to_transformer` lays them out.
"""

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

_ATTENTION = "blocks.0.attn."


def diagonals_of(matrix: Float[Tensor, "*head two_dim two_dim"]) -> Complex[Tensor, "*head dim"]:
    """The complex diagonals nearest to real matrices on `pairs`.

    A multiplication by x + iy is the block [[x, -y], [y, x]].

    >>> diagonals_of(torch.tensor([[1.0, -2.0], [2.0, 1.0]]))
    tensor([1.+2.j])
    """
    blocks = (
        matrix.unflatten(-2, (-1, 2)).unflatten(-1, (-1, 2)).diagonal(dim1=-4, dim2=-2)
    )  # (*head, 2, 2, dim)
    real = (blocks[..., 0, 0, :] + blocks[..., 1, 1, :]) / 2
    return torch.complex(real, (blocks[..., 1, 0, :] - blocks[..., 0, 1, :]) / 2)


def real_matrix(diagonal: Complex[Tensor, " dim"]) -> Float[Tensor, "two_dim two_dim"]:
    """Multiplication by a complex diagonal as a real matrix on `pairs`.

    a + ib becomes [[a, -b], [b, a]].

    >>> real_matrix(torch.tensor([1.0 + 2.0j]))
    tensor([[ 1., -2.],
            [ 2.,  1.]])
    """
    blocks = [
        torch.stack([torch.stack([z.real, -z.imag]), torch.stack([z.imag, z.real])])
        for z in diagonal.detach()
    ]
    return torch.block_diag(*blocks)


def as_heads(
    keys: Complex[Tensor, "head dim"], values: Complex[Tensor, "head dim"]
) -> tuple[Float[Tensor, "real_head stream two_dim"], Float[Tensor, "real_head stream two_dim"]]:
    """W_K and W_V of the real heads of complex ones, which read the second half of the stream.

    Of each two heads the second weighs i times the value by the imaginary part of the score.
    """
    n_heads, dim = keys.shape
    W_K = torch.zeros(2 * n_heads, 4 * dim, 2 * dim, dtype=keys.real.dtype, device=keys.device)
    W_V = torch.zeros_like(W_K)
    for h in range(n_heads):
        W_K[2 * h : 2 * h + 2, 2 * dim :] = real_matrix(keys[h]).T
        W_V[2 * h, 2 * dim :] = real_matrix(values[h]).T
        W_V[2 * h + 1, 2 * dim :] = real_matrix(1j * values[h]).T
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
    return (keys[::2] + keys[1::2]) / 2, (values[::2] - 1j * values[1::2]) / 2


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
    turn = real_matrix(torch.full((wide // 2,), 1j, dtype=torch.complex64))
    with torch.no_grad():
        for name, weight in named.items():
            if not name.endswith(("W_K", "W_V", "W_P")):
                weight.zero_()
        named["embed.W_E"][:, wide:] = identity
        named["unembed.W_U"][:wide] = identity
        named[f"{_ATTENTION}W_O"][:, :, :wide] = identity
        named[f"{_ATTENTION}W_Q"][::2, wide:] = identity
        named[f"{_ATTENTION}W_Q"][1::2, wide:] = turn.T
        keys, values = of_heads(*_learned(model))
        # Each part is a mean of four drawn numbers, of half their deviation.
        keys, values = 2 * keys, 2 * values
        for weight, drawn in zip(_learned(model), as_heads(keys, values), strict=True):
            weight.copy_(drawn)
    for name, parameter in named.items():
        parameter.requires_grad_(name.endswith(("W_K", "W_V", "W_P")))


def keep_diagonal(model: nn.Module) -> None:
    """Replace gradients of heads by those along complex diagonals, so that a step keeps them.

    Adam then takes the same step for entries that are tied, up to their sign.
    """
    gradients = [weight.grad for weight in _learned(model)]
    assert all(gradient is not None for gradient in gradients)
    with torch.no_grad():
        for gradient, tied in zip(gradients, as_heads(*of_heads(*gradients)), strict=True):
            gradient.copy_(tied)


def _learned(model: nn.Module) -> tuple[nn.Parameter, nn.Parameter]:
    named = dict(model.named_parameters())
    return named[f"{_ATTENTION}W_K"], named[f"{_ATTENTION}W_V"]
