"""One attention layer on scalar tokens with biases and positions.

It generalises the layer of Naim & Asher (2025), Appendix G.1.

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
    """A layer of softmax attention, reduced to what its output at the last token depends on.

    `of_weights` makes it.

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
        >>> alphas = torch.tensor([.5, -.5]).double()
        >>> zetas = torch.tensor([[.2, .1], [1., 0.]]).double()
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
        """The paper's layer, without biases and positions.

        Prompts have n_tokens tokens, with the query.
        """
        embed = as_float64(embed)
        alphas = as_float64(alphas)
        no_vector = torch.zeros_like(embed)
        no_scores = alphas.new_zeros(len(alphas), n_tokens)
        return cls(
            embed=embed,
            shift=no_vector,
            alphas=alphas,
            kappas=no_scores,
            lambdas=torch.zeros_like(alphas),
            nus=no_scores,
            zetas=as_float64(zetas),
            omegas=no_scores[..., None] * no_vector,
            bias=no_vector,
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
        """A layer from its weights, biases and positions.

        It holds the `scalar_heads`, and what biases and positions add to scores and values.

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
            >>> embed, shifts = numbers[:4], numbers[4:16].reshape(3, 4)
            >>> maps = numbers[16:].reshape(4, 2, 4, 3)
            >>> zeros = torch.zeros(2, 3).double()
            >>> weights, biases = (*maps[:3], maps[3].mT), (zeros, zeros, zeros, zeros.new_zeros(4))
            >>> layer = ScalarLayer.of_weights(embed, shifts, weights, biases)
            >>> tokens = torch.tensor([[.5], [-1.], [2.]]).double() * embed + shifts
            >>> q, k, v = tokens @ maps[0], tokens @ maps[1], tokens @ maps[2]
            >>> attend = torch.nn.functional.scaled_dot_product_attention
            >>> attention = attend(q, k, v, scale=1.) @ maps[3].mT
            >>> context = torch.tensor([.5, -1.]).double()
            >>> torch.allclose(attention[:, -1].sum(0), layer.output(2., context))
            True
        """
        embed = as_float64(embed)
        shifts = as_float64(shifts)
        w_q, w_k, w_v, w_o = map(as_float64, weights)
        b_q, b_k, b_v, b_o = map(as_float64, biases)
        # What a token of value 1 adds to queries, keys and values: (head, d_head)
        query_of_one = embed @ w_q
        key_of_one = embed @ w_k
        value_of_one = embed @ w_v
        # What each position adds to them (head, token, d_head); only the last token asks
        queries = shifts @ w_q + b_q[:, None]
        query = queries[:, -1]
        keys = shifts @ w_k + b_k[:, None]
        values = shifts @ w_v + b_v[:, None]
        return cls(
            embed=embed,
            shift=shifts[-1],
            alphas=scale * product(query_of_one, key_of_one),
            kappas=scale * product(query_of_one[:, None], keys),
            lambdas=scale * product(query, key_of_one),
            nus=scale * product(query[:, None], keys),
            zetas=torch.einsum("he,hed->hd", value_of_one, w_o),
            omegas=values @ w_o,
            bias=b_o,
        )

    def coefficients(self, context: Float[Tensor, " token"]) -> Float[Tensor, "head key power"]:
        """Each key's score as a polynomial in x, the powers 0, 1, 2 last.

        The last key is the query itself.
        """
        context = self._check(context)
        alphas = self.alphas[:, None]
        lambdas = self.lambdas[:, None]
        # Besides kappas and nus the powers have lambda x_j, alpha x_j and 0 for token j, and
        # 0, lambda and alpha for the query.
        constant = torch.nn.functional.pad(lambdas * context, (0, 1))
        constant = constant + self.nus
        linear = torch.cat([alphas * context, lambdas], dim=1)
        linear = linear + self.kappas
        square = torch.nn.functional.pad(alphas, (len(context), 0))
        return torch.stack([constant, linear, square], dim=-1)

    def pattern(
        self, x: Float[Tensor, "*query"] | float | int, context: Float[Tensor, " token"]
    ) -> Float[Tensor, "head *query key"]:
        """The query's attention weights over the context and, last, itself."""
        x = as_float64(x)
        powers = torch.stack([x**k for k in range(3)], dim=-1)
        coefficients = self.coefficients(context)
        scores = torch.einsum("hkp,...p->h...k", coefficients, powers)
        return scores.softmax(-1)

    def terms(
        self, x: Float[Tensor, "*query"] | float | int, context: Float[Tensor, " token"]
    ) -> LayerTerms:
        """The parts of the layer's output, head by head.

        They are the paper's mu_j^h(x) and beta^h(x), and what biases and positions add.

        mu_j^h is the weight of token j times x_j, beta^h the weight of the query times x, and
        offset^h the weights times omegas.
        """
        pattern = self.pattern(x, context)
        mu = pattern[..., :-1] * as_float64(context)
        beta = pattern[..., -1] * as_float64(x)
        offset = torch.einsum("h...k,hkd->h...d", pattern, self.omegas)
        return LayerTerms(mu, beta, offset)

    def output(
        self, x: Float[Tensor, "*query"] | float | int, context: Float[Tensor, " token"]
    ) -> Float[Tensor, "*query d_model"]:
        """Attn(x), what the layer adds to the stream, put together from `terms`."""
        mu, beta, offset = self.terms(x, context)
        read = mu.sum(-1) + beta
        written = torch.einsum("h...,hd->...d", read, self.zetas)
        return written + offset.sum(0) + self.bias

    def stream(
        self, x: Float[Tensor, "*query"] | float | int, context: Float[Tensor, " token"]
    ) -> Float[Tensor, "*query d_model"]:
        """Attn(x) + x W + shift: the stream after the layer, before any norm."""
        added = self.output(x, context)
        x = as_float64(x)
        return added + x[..., None] * self.embed + self.shift

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
        all_keys = torch.ones_like(square, dtype=torch.bool)
        keep = _largest(square, all_keys)
        keep = _largest(direction * linear, keep)
        scores = constant.masked_fill(~keep, -torch.inf)
        return scores.softmax(-1)

    def asymptote(self, context: Float[Tensor, " token"], direction: int = 1) -> Line:
        """The line that `stream` tends to.

        Each head writes zeta for x times the weight that the query keeps.

        Raises:
            ValueError: a context of another length than the layer was made for, or direction is not
                +1 or -1.
        """
        limit = self.limit_pattern(context, direction)
        context = as_float64(context)
        slope = self.embed + limit[:, -1] @ self.zetas
        read = limit[:, :-1] @ context
        offset = torch.einsum("hk,hkd->d", limit, self.omegas)
        intercept = read @ self.zetas + offset + self.bias + self.shift
        return Line(slope, intercept)

    def _check(self, context: Tensor) -> Tensor:
        expected = self.kappas.shape[1] - 1
        if context.numel() != expected:
            raise ValueError(
                f"context has {context.numel()} tokens, but this layer was made for {expected} "
                "before the query: make another one, positions differ"
            )
        return as_float64(context)


def _largest(values: Tensor, among: Tensor) -> Tensor:
    """Which of the keys in `among` have the largest value of their head, ties included."""
    size = values.masked_fill(~among, 0.0).abs()
    largest_size = size.amax(-1, keepdim=True)
    values = values.masked_fill(~among, -torch.inf)
    largest = values.amax(-1, keepdim=True)
    return among & (values >= largest - TIED * largest_size)
