"""A unit of linear attention with diagonal matrices and weights of positions, over complex states.

It is given by itself and as a `HookedTransformer`.

It predicts the state after s_T as sum_h sum_{t <= T} P_{T t} <s_{T-1}, A_h s_t> B_h s_t with A_h
and B_h diagonal and <u, v> = sum_i conj(u_i) v_i: the query is the state before the last one, and
the first state has no prediction (0). Source: Sander, Giryes, Suzuki, Blondel & Peyre (2024),
equation (6) with Assumption 3. Their A_h stands on the query's side; on the key's side it is its
conjugate.

A `HookedTransformer` is real. It holds a state of d complex coordinates as 2d real ones, `pairs`,
and one complex head as two real heads: one weighs by the real part of <s_{T-1}, A_h s_t>, the other
by the imaginary part.
"""

from typing import Self

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from icl_interp.errors import InputError
from icl_interp.models.blank import blank
from icl_interp.models.complex_heads import as_heads, real_matrix
from icl_interp.models.hooks import HookedRootModule, HookPoint
from icl_interp.models.transformer import HookedTransformer

Diagonals = Complex[Tensor, "head dim"]
States = Complex[Tensor, "batch token dim"]


def pairs(states: Complex[Tensor, "*batch dim"]) -> Float[Tensor, "*batch two_dim"]:
    """Complex coordinates as pairs of real ones: (Re z_1, Im z_1, Re z_2, ...).

    >>> pairs(torch.tensor([1 + 2j, 3 - 1j]))
    tensor([ 1.,  2.,  3., -1.])
    """
    return torch.view_as_real(states.contiguous()).flatten(-2)


class DiagonalAttention(HookedRootModule):
    """The unit, with every step at a hook point.

    Hooks, named as in a block of `HookedTransformer`: `hook_resid_pre` (batch, token, dim),
    `hook_attn_scores` (batch, head, query, key; later keys at 0), `hook_pattern` (scores times P),
    `hook_z` (batch, token, head, dim: a head's part of the prediction) and `hook_attn_out` (the
    prediction). All are complex.

    Args:
        a: diagonals of the A_h, (head, dim), complex.
        b: diagonals of the B_h, (head, dim), complex.
        p: P, (n_ctx, n_ctx), real: row T holds the weights of the keys t <= T for the prediction
            after s_T.

    >>> one = torch.ones(1, 1, dtype=torch.complex128)
    >>> last = torch.eye(4, dtype=torch.float64)  # P takes the last state alone
    >>> unit = DiagonalAttention(one, one, last)
    >>> turn = torch.tensor([[[1], [1j], [-1], [-1j]]], dtype=torch.complex128)  # s_t = i^t
    >>> unit(turn)[0, 1:, 0]  # <s_{T-1}, s_T> s_T = i s_T: the next state
    tensor([-1.+0.j,  0.-1.j,  1.+0.j], dtype=torch.complex128, grad_fn=<SelectBackward0>)
    """

    A: Diagonals
    B: Diagonals
    W_P: Float[Tensor, "n_ctx n_ctx"]
    hook_resid_pre: HookPoint
    hook_attn_scores: HookPoint
    hook_pattern: HookPoint
    hook_z: HookPoint
    hook_attn_out: HookPoint

    def __init__(
        self, a: Complex[Tensor, "..."], b: Complex[Tensor, "..."], p: Float[Tensor, "..."]
    ) -> None:
        super().__init__()
        if a.ndim != 2 or a.shape != b.shape or p.ndim != 2 or p.shape[0] != p.shape[1]:
            raise InputError(
                "A and B must both be (head, dim) and P must be (n_ctx, n_ctx), but got "
                f"{tuple(a.shape)}, {tuple(b.shape)} and {tuple(p.shape)}"
            )
        self.A = nn.Parameter(a.detach().clone())
        self.B = nn.Parameter(b.detach().clone())
        self.W_P = nn.Parameter(p.detach().clone())
        for name in ("resid_pre", "attn_scores", "pattern", "z", "attn_out"):
            setattr(self, f"hook_{name}", HookPoint())
        self.setup()

    @property
    def product(self) -> Complex[Tensor, "dim dim"]:
        """C = B^T A, with C_ij = sum_h b_h[i] a_h[j]; predictions depend on A and B only by C."""
        return self.B.detach().T @ self.A.detach()

    def forward(self, states: States) -> States:
        """The prediction of the state after each one."""
        dim = self.A.shape[1]
        n_ctx = len(self.W_P)
        if states.ndim != 3 or states.shape[-1] != dim or states.shape[1] > n_ctx:
            raise InputError(
                f"states must be (batch, token, dim={dim}) with at most n_ctx={n_ctx} tokens, but "
                f"got {tuple(states.shape)}"
            )
        states = self.hook_resid_pre(states)
        n = states.shape[1]
        # The query of each token is the state before it; the first has none, so its scores are 0.
        start = torch.zeros_like(states[:, :1])
        before = torch.cat([start, states[:, :-1]], 1)
        visible = torch.ones(n, n, device=states.device).tril()
        products = torch.einsum("bqi,hi,bki->bhqk", before.conj(), self.A, states)
        scores = self.hook_attn_scores(products * visible)
        pattern = self.hook_pattern(scores * self.W_P[:n, :n])
        parts = torch.einsum("bhqk,hi,bki->bqhi", pattern, self.B, states)
        z = self.hook_z(parts)
        return self.hook_attn_out(z.sum(2))

    def to_transformer(self) -> HookedTransformer:
        """A `HookedTransformer` of twice as many real heads, with the same predictions.

        It reads the states as `pairs`.

        Its stream holds the prediction in the first half of its coordinates, and the state in the
        second.
        """
        n_heads, dim = self.A.shape
        wide = 2 * dim
        model = blank(
            2 * wide,
            n_heads=2 * n_heads,
            d_head=wide,
            n_ctx=len(self.W_P),
            d_in=wide,
            d_out=wide,
            score_fn="linear",
            queries="previous",
            position_weights="free",
        )
        identity = torch.eye(wide, dtype=torch.float64)
        with torch.no_grad():
            # The state enters the second half of the stream, the prediction leaves the first.
            model.embed.W_E[:, wide:] = identity
            model.unembed.W_U[:wide] = identity
            attention = model.blocks[0].attn
            attention.W_P.copy_(self.W_P)
            # Im <u, v> = Re <i u, v>, and what it weighs is i times the value.
            turn = real_matrix(torch.full((dim,), 1j, dtype=self.A.dtype))
            attention.W_Q[::2, wide:] = identity
            attention.W_Q[1::2, wide:] = turn.T
            keys, values = as_heads(self.A.detach(), self.B.detach())
            attention.W_K.copy_(keys)
            attention.W_V.copy_(values)
            attention.W_O[:, :, :wide] = identity
        return model

    @classmethod
    def random(
        cls, n_heads: int, dim: int, n_ctx: int, generator: torch.Generator, scale: float = 0.1
    ) -> Self:
        """A fresh unit, whose entries are all drawn from N(0, scale^2).

        The entries are the real and imaginary parts of A and B, and those of P.
        """

        def draw(*shape: int) -> Tensor:
            return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)

        a = torch.complex(draw(n_heads, dim), draw(n_heads, dim))
        b = torch.complex(draw(n_heads, dim), draw(n_heads, dim))
        p = draw(n_ctx, n_ctx)
        return cls(a, b, p)
