"""One attention layer on scalar tokens with biases and positions: Naim & Asher (2025), Appendix G.1, made general.

Token i is read in as x_i W + c_i, with c_i what bias and position add, and the projections may have
biases. Every score of the query is then a polynomial in x: alpha x x_j becomes x (alpha
x_j + kappa_j) + lambda x_j + nu_j, and the query's own score alpha x^2 + (kappa + lambda) x + nu.
So for a far query one rule replaces the paper's three cases: softmax of polynomials keeps the keys
whose polynomial grows fastest, and among these weighs by the constant terms.

Everything is computed and returned in float64, x is in the units of the prompt.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.scalar_attention import Line, ReadMap, WriteMap, product
from icl_interp.theory.softmax import Vector, as_float64, check_direction

__all__ = ["LayerTerms", "ScalarLayer"]

# Coefficients that differ by less than this part of the largest are equal: ties must survive
# rounding.
TIED = 1e-12
Bias = Float[Tensor, "head d_head"]


class LayerTerms(NamedTuple):
    """What `ScalarLayer.terms` returns.

    Attn(x) = sum_h (sum_j mu_j^h + beta^h) zeta_h + sum_h offset^h + bias.
    """

    mu: Float[Tensor, "head *query token"]
    beta: Float[Tensor, "head *query"]
    offset: Float[Tensor, "head *query d_model"]


@dataclass(frozen=True)
class ScalarLayer:
    """A layer of softmax attention, reduced to what its output at the last token depends on; made by `of_weights`.

    In the paper's layer all but embed, alphas and zetas is 0.

    Source: Naim & Asher (2025), Appendix G.1, for embed (W), alphas and zetas; the rest extends it.

    Attributes:
        embed: W, the read-in of a scalar token.
        shift: what the skip connection carries besides x W: bias and position of the last token.
        alphas: coefficient of x x_j in the score of token j.
        kappas: coefficient of x in the score of each position, the last one the query's own.
        lambdas: coefficient of x_j.
        nus: the constant in the score of each position.
        zetas: what a head writes for a token of value 1.
        omegas: what a head writes for each position, whatever its token.
        bias: of the output.

    Example:
        >>> import torch
        >>> alphas, zetas = torch.tensor([.5, -.5]).double(), torch.tensor([[.2, .1], [1., 0.]]).double()
        >>> layer = ScalarLayer.of_heads(torch.tensor([1., -2.]), alphas, zetas, n_tokens=4)
        >>> context = torch.tensor([.5, -1., 2.]).double()
        >>> slope, intercept = layer.asymptote(context)
        >>> torch.allclose(100 * slope + intercept, layer.stream(100., context))
        True
    """

    embed: Vector
    shift: Vector
    alphas: Float[Tensor, " head"]
    kappas: Float[Tensor, "head token"]
    lambdas: Float[Tensor, " head"]
    nus: Float[Tensor, "head token"]
    zetas: Float[Tensor, "head d_model"]
    omegas: Float[Tensor, "head token d_model"]
    bias: Vector

    @classmethod
    def of_heads(
        cls,
        embed: Vector,
        alphas: Float[Tensor, " head"],
        zetas: Float[Tensor, "head d_model"],
        n_tokens: int,
    ) -> Self:
        """The paper's layer, without biases and positions, for prompts of n_tokens with the query."""
        embed, alphas, zetas = as_float64(embed), as_float64(alphas), as_float64(zetas)
        nothing, nowhere = torch.zeros_like(embed), alphas.new_zeros(len(alphas), n_tokens)
        still = nowhere[..., None] * nothing
        return cls(
            embed,
            nothing,
            alphas,
            nowhere,
            torch.zeros_like(alphas),
            nowhere,
            zetas,
            still,
            nothing,
        )

    @classmethod
    def of_weights(
        cls,
        embed: Vector,
        shifts: Float[Tensor, "token d_model"],
        weights: tuple[ReadMap, ReadMap, ReadMap, WriteMap],
        biases: tuple[Bias, Bias, Bias, Vector],
        scale: float = 1.0,
    ) -> Self:
        """A layer from its weights: `scalar_heads`, and what biases and positions add to scores and values.

        With q = c W_Q + b_Q at the last token, k_j = c_j W_K + b_K and v_j = c_j W_V + b_V:
        kappa_j = W W_Q . k_j, lambda = q . W W_K, nu_j = q . k_j, all times scale, and
        omega_j = v_j W_O.

        Source: extends Naim & Asher (2025), Appendix G.1; embed is W, weights their Q, K, V and
        gamma.

        Args:
            embed: read-in of the scalar token.
            shifts: what embedding bias and position add to each token's vector, the query's last.
            weights: W_Q, W_K, W_V and W_O.
            biases: b_Q, b_K, b_V and b_O.
            scale: what scores are multiplied by, 1 / sqrt(d_head) for most models.

        Example:
            >>> import torch
            >>> numbers = torch.arange(112.).sin().double()
            >>> embed, shifts, maps = numbers[:4], numbers[4:16].reshape(3, 4), numbers[16:].reshape(4, 2, 4, 3)
            >>> zeros = torch.zeros(2, 3).double()
            >>> weights, biases = (*maps[:3], maps[3].mT), (zeros, zeros, zeros, zeros.new_zeros(4))
            >>> layer = ScalarLayer.of_weights(embed, shifts, weights, biases)
            >>> tokens = torch.tensor([[.5], [-1.], [2.]]).double() * embed + shifts
            >>> q, k, v = tokens @ maps[0], tokens @ maps[1], tokens @ maps[2]
            >>> attention = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.) @ maps[3].mT
            >>> torch.allclose(attention[:, -1].sum(0), layer.output(2., torch.tensor([.5, -1.]).double()))
            True
        """
        embed, shifts = as_float64(embed), as_float64(shifts)
        maps, (*added, bias) = [as_float64(w) for w in weights], [as_float64(b) for b in biases]
        # Of queries, keys, values: what a token of value 1 adds (head, d_head), and what each
        # position adds.
        per_one = [embed @ w for w in maps[:3]]
        q, k, v = (shifts @ w + b[:, None] for w, b in zip(maps[:3], added, strict=True))
        last = q[:, -1]
        return cls(
            embed=embed,
            shift=shifts[-1],
            alphas=scale * product(per_one[0], per_one[1]),
            kappas=scale * product(per_one[0][:, None], k),
            lambdas=scale * product(last, per_one[1]),
            nus=scale * product(last[:, None], k),
            zetas=torch.einsum("he,hed->hd", per_one[2], maps[3]),
            omegas=v @ maps[3],
            bias=bias,
        )

    def coefficients(self, context: Float[Tensor, " token"]) -> Float[Tensor, "head key power"]:
        """Each key's score as a polynomial in x, the powers 0, 1, 2 last.

        The last key is the query itself.
        """
        context = self._check(context)
        constant = torch.nn.functional.pad(self.lambdas[:, None] * context, (0, 1)) + self.nus
        linear = (
            torch.cat([self.alphas[:, None] * context, self.lambdas[:, None]], dim=1) + self.kappas
        )
        square = torch.nn.functional.pad(self.alphas[:, None], (len(context), 0))
        return torch.stack([constant, linear, square], dim=-1)

    def pattern(
        self, x: Float[Tensor, "*query"] | float | int, context: Float[Tensor, " token"]
    ) -> Float[Tensor, "head *query key"]:
        """The query's attention weights over the context and, last, itself."""
        powers = torch.stack([as_float64(x) ** k for k in range(3)], dim=-1)
        return torch.einsum("hkp,...p->h...k", self.coefficients(context), powers).softmax(-1)

    def terms(
        self, x: Float[Tensor, "*query"] | float | int, context: Float[Tensor, " token"]
    ) -> LayerTerms:
        """The parts of the layer's output: the paper's mu_j^h(x) and beta^h(x), and what biases and positions add.

        mu_j^h is the weight of token j times x_j, beta^h the weight of the query times x, and
        offset^h the weights times omegas.
        """
        pattern = self.pattern(x, context)
        mu, beta = pattern[..., :-1] * as_float64(context), pattern[..., -1] * as_float64(x)
        return LayerTerms(mu, beta, torch.einsum("h...k,hkd->h...d", pattern, self.omegas))

    def output(
        self, x: Float[Tensor, "*query"] | float | int, context: Float[Tensor, " token"]
    ) -> Float[Tensor, "*query d_model"]:
        """Attn(x), what the layer adds to the stream, put together from `terms`."""
        mu, beta, offset = self.terms(x, context)
        return (
            torch.einsum("h...,hd->...d", mu.sum(-1) + beta, self.zetas) + offset.sum(0) + self.bias
        )

    def stream(
        self, x: Float[Tensor, "*query"] | float | int, context: Float[Tensor, " token"]
    ) -> Float[Tensor, "*query d_model"]:
        """Attn(x) + x W + shift: the stream after the layer, before any norm."""
        return self.output(x, context) + as_float64(x)[..., None] * self.embed + self.shift

    def limit_pattern(
        self, context: Float[Tensor, " token"], direction: int = 1
    ) -> Float[Tensor, "head key"]:
        """The attention weights that `pattern` tends to as x goes to +infinity or to -infinity.

        Of the scores a x^2 + b x + c those of the largest a count, among these those of the largest
        direction * b, and these are weighed by softmax of c. For the paper's layer: the query where
        alpha > 0, the extreme tokens where alpha < 0, every key alike where alpha = 0. Reached
        exponentially fast in |x|.

        Raises:
            ValueError: a context of another length than the layer was made for, or direction is not
                +1 or -1.
        """
        check_direction(direction)
        constant, linear, square = self.coefficients(context).unbind(-1)
        keep = _largest(square, torch.ones_like(square, dtype=torch.bool))
        keep = _largest(direction * linear, keep)
        return constant.masked_fill(~keep, -torch.inf).softmax(-1)

    def asymptote(self, context: Float[Tensor, " token"], direction: int = 1) -> Line:
        """The line that `stream` tends to: each head writes zeta for x times the weight that the query keeps.

        Raises:
            ValueError: a context of another length than the layer was made for, or direction is not
                +1 or -1.
        """
        limit, context = self.limit_pattern(context, direction), as_float64(context)
        slope = self.embed + limit[:, -1] @ self.zetas
        read = (limit[:, :-1] @ context) @ self.zetas + torch.einsum(
            "hk,hkd->d", limit, self.omegas
        )
        return Line(slope, read + self.bias + self.shift)

    def _check(self, context: Tensor) -> Tensor:
        expected = self.kappas.shape[1] - 1
        if context.numel() != expected:
            raise ValueError(
                f"context has {context.numel()} tokens, but this layer was made for {expected} "
                "before the query: make another one, positions differ"
            )
        return as_float64(context)


def _largest(values: Tensor, among: Tensor) -> Tensor:
    """Which of the keys in `among` have the largest value of their head, those tied with it included."""
    values = values.masked_fill(~among, -torch.inf)
    size = values.masked_fill(~among, 0.0).abs().amax(-1, keepdim=True)
    return among & (values >= values.amax(-1, keepdim=True) - TIED * size)
