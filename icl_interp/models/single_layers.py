"""A layer of linear self-attention, by itself and inside a `HookedTransformer`.

The layer is f(E) = E + W_PV E (E^T W_KQ E) / rho: E has a column (x_i; y_i) for each of the rho
labelled examples and (x_q; 0) for the query, and the prediction is the bottom right entry of f(E).
Source: Zhang, Frei & Bartlett (2023), equations (3.3) to (3.6). Here columns are tokens, as
`tokens.Stacked` makes them: `(batch, token, d + 1)`.
"""

import math
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from icl_interp.errors import InputError
from icl_interp.models.blank import LINEAR, blank
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.hooks import HookedRootModule, HookPoint
from icl_interp.models.tokens import Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import Prompts

Wide = Float[Tensor, "d_in d_in"]  # d_in = dim + 1
Tokens = Float[Tensor, "batch token d_in"]


class LinearSelfAttention(HookedRootModule):
    """f(E) = E + W_PV E (E^T W_KQ E) / rho, with every step at a hook point.

    Hooks, named as in a block of `HookedTransformer`: `hook_resid_pre` and `hook_resid_post`
    (batch, token, d_in), `hook_v` (W_PV e of every token), `hook_attn_scores` and `hook_pattern`
    (batch, query, key; before and after the division by rho), `hook_attn_out`.

    Args:
        w_pv: W_PV, (d + 1, d + 1).
        w_kq: W_KQ, (d + 1, d + 1).

    >>> unit = LinearSelfAttention.from_product(torch.eye(2))
    >>> tokens = torch.tensor([[[1., 0., 5.], [0., 1., 3.], [2., 4., 0.]]])
    >>> unit(tokens)[0, -1]  # the last entry is (5 * 2 + 3 * 4) / 2
    tensor([ 2.,  4., 11.], grad_fn=<SelectBackward0>)
    """

    W_PV: Wide
    W_KQ: Wide
    hook_resid_pre: HookPoint
    hook_v: HookPoint
    hook_attn_scores: HookPoint
    hook_pattern: HookPoint
    hook_attn_out: HookPoint
    hook_resid_post: HookPoint

    def __init__(self, w_pv: Wide, w_kq: Wide) -> None:
        super().__init__()
        square = w_pv.ndim == 2 and w_pv.shape[0] == w_pv.shape[1]
        if not square or w_pv.shape != w_kq.shape or len(w_pv) < 2:
            raise InputError(
                "W_PV and W_KQ must both be (d + 1, d + 1) for inputs of d coordinates, but got "
                f"{tuple(w_pv.shape)} and {tuple(w_kq.shape)}"
            )
        self.W_PV = nn.Parameter(w_pv.detach().clone())
        self.W_KQ = nn.Parameter(w_kq.detach().clone())
        for name in ("resid_pre", "v", "attn_scores", "pattern", "attn_out", "resid_post"):
            setattr(self, f"hook_{name}", HookPoint())
        self.setup()

    @classmethod
    def from_product(cls, product: Float[Tensor, "dim dim"], scale: float = 1.0) -> Self:
        """The unit that predicts h^T P x_q with h = (1/rho) sum y_i x_i.

        Its weights are W11^KQ = P / scale and w22^PV = scale.
        """
        width = len(product) + 1
        w_pv, w_kq = product.new_zeros(2, width, width)
        w_pv[-1, -1] = scale
        w_kq[:-1, :-1] = product / scale
        return cls(w_pv, w_kq)

    def forward(self, tokens: Tokens) -> Tokens:
        """f(E), all of it; its last entry is the prediction."""
        d_in = len(self.W_PV)
        if tokens.ndim != 3 or tokens.shape[-1] != d_in or tokens.shape[1] < 2:
            raise InputError(
                f"tokens must be (batch, token, d_in={d_in}): labelled examples, then the query; "
                f"but got {tuple(tokens.shape)}"
            )
        stream = self.hook_resid_pre(tokens)
        values = self.hook_v(stream @ self.W_PV.T)
        # Row q, column k: e_k^T W_KQ e_q.
        products = stream @ self.W_KQ.T @ stream.transpose(1, 2)
        scores = self.hook_attn_scores(products)
        n_labelled = tokens.shape[1] - 1
        pattern = self.hook_pattern(scores / n_labelled)
        attended = self.hook_attn_out(pattern @ values)
        return self.hook_resid_post(stream + attended)

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The prediction of the query in float64; NaN for other points, whose labels are shown."""
        tokens = Stacked().encode(prompts.double())
        predictions = torch.full_like(prompts.ys, torch.nan, dtype=torch.float64)
        with torch.no_grad():
            out = self(tokens.to(self.W_PV))
        predictions[:, -1] = out.double()[:, -1, -1:]
        return predictions

    def to_transformer(
        self, n_ctx: int, n_heads: int = 1, d_head: int | None = None
    ) -> HookedTransformer:
        """A `HookedTransformer` with linear scores that makes the same predictions.

        All tools for models then work on it.

        Several heads share W_KQ: each takes some coordinates of the query. Where one head is wide
        enough for W_PV (d_head >= d + 1) its stream is f(E), else only the last coordinate of it,
        the prediction.

        Raises:
            InputError: n_heads * d_head is less than d + 1.
        """
        width = len(self.W_PV)
        d_head = d_head or math.ceil(width / n_heads)
        if n_heads * d_head < width:
            raise InputError(
                f"n_heads * d_head must be at least d + 1 = {width} to hold W_KQ, but got "
                f"{n_heads} * {d_head}"
            )
        model = blank(width, n_heads=n_heads, d_head=d_head, n_ctx=n_ctx, d_in=width, **LINEAR)
        model = model.to(self.W_PV)
        attention = model.blocks[0].attn
        identity = torch.eye(width).to(self.W_PV)
        with torch.no_grad():
            model.embed.W_E.copy_(identity)
            model.unembed.W_U[-1] = 1
            for head in range(n_heads):
                # Scores: each head takes its coordinates of the query; the last ones may have none.
                first = head * d_head
                taken = slice(first, min(first + d_head, width))
                n_taken = max(0, taken.stop - first)
                attention.W_Q[head, :, :n_taken] = identity[:, taken]
                attention.W_K[head, :, :n_taken] = self.W_KQ[:, taken]
                # Values: all of W_PV where there is room for it, else the row of the prediction.
                if n_heads == 1:
                    attention.W_V[head, :, :width] = self.W_PV.T
                    attention.W_O[head, :width] = identity
                else:
                    attention.W_V[head, :, 0] = self.W_PV[-1]
                    attention.W_O[head, 0] = identity[-1]
        return model.eval()


class LayerForm(NamedTuple):
    """What a `HookedTransformer` of one linear-attention layer computes at the query from tokens.

    yhat = direct . t_q + sum_h v_h^T (sum_k t_k t_k^T / rho) F_h t_q with t = (x, y, 1): the last
    coordinate carries every bias. A layer without biases that reads nothing off the query directly
    is an LSA layer of several heads.

    Attributes:
        values: v_h, (head, d + 2).
        forms: F_h, (head, d + 2, d + 2).
        direct: what skips attention, (d + 2,).
    """

    values: Float[Tensor, "head wide"]
    forms: Float[Tensor, "head wide wide"]
    direct: Float[Tensor, " wide"]

    @property
    def product(self) -> Float[Tensor, "dim dim"]:
        """P = sum_h v_h[y] F_h[x, x] + v_h[x] F_h[y, x]^T, in the prediction h^T P x_q.

        h is (1/rho) sum y_i x_i.
        """
        d = len(self.direct) - 2
        values = self.values
        forms = self.forms
        of_labels = torch.einsum("h,hij->ij", values[:, d], forms[:, :d, :d])
        of_inputs = torch.einsum("hi,hj->ij", values[:, :d], forms[:, d, :d])
        return of_labels + of_inputs

    @property
    def outside(self) -> float:
        """The largest entry of the form that an LSA layer does not have.

        These are the entries of biases, and of what skips attention (without y).
        """
        d = len(self.direct) - 2
        forms = self.forms
        direct = self.direct
        parts = (self.values[:, -1], forms[:, -1, :], forms[:, :, -1], direct[:d], direct[-1])
        return max(float(part.abs().max()) for part in parts)


def beyond_a_layer(cfg: HookedTransformerConfig) -> list[str]:
    """What a model of this config has beyond one layer of linear self-attention, in words.

    The list is empty for such a layer.

    >>> cfg = HookedTransformerConfig(
    ...     n_layers=2, d_model=8, n_ctx=9, score_fn="linear", attn_only=True
    ... )
    >>> beyond_a_layer(cfg)[0]
    'n_layers=2'
    """
    found = beyond_attention(cfg, "linear")
    if cfg.score_norm != "labelled":
        found.append(f"score_norm={cfg.score_norm!r}")
    return found


def beyond_attention(cfg: HookedTransformerConfig, score_fn: str) -> list[str]:
    """What a model has besides one layer of attention with this score function, and one target.

    >>> beyond_attention(HookedTransformerConfig(n_layers=1, d_model=8, n_ctx=9), "softmax")
    ['an MLP', 'a norm', 'learned positions']
    """
    others = {
        f"n_layers={cfg.n_layers}": cfg.n_layers != 1,
        "an MLP": not cfg.attn_only,
        f"score_fn={cfg.score_fn!r}": cfg.score_fn != score_fn,
        "a norm": cfg.normalization_type is not None,
        "learned positions": cfg.positional_embedding_type != "none",
        f"queries={cfg.queries!r}": cfg.queries is not None,
        f"position_weights={cfg.position_weights!r}": cfg.position_weights is not None,
        f"embed_bound={cfg.embed_bound}": cfg.embed_bound is not None,
        f"residual_scale={cfg.residual_scale:g}": cfg.residual_scale != 1,
        f"d_out={cfg.d_out}": cfg.d_out != 1,
    }
    return [name for name, present in others.items() if present]


def read_layer(model: HookedTransformer) -> LayerForm:
    """The form of a transformer that is one layer of linear attention, exactly and in float64.

    Raises:
        InputError: naming what else the model has: layers, norms, an MLP, positions, another score
            function.
    """
    found = beyond_a_layer(model.shape)
    if found:
        raise InputError(
            f"this model is no single layer of linear self-attention, it has {', '.join(found)}: "
            "expected n_layers=1, attn_only, score_fn='linear', score_norm='labelled', no norm and "
            "no positions"
        )
    # With a constant 1 as last coordinate of every token each bias is one more row of a matrix.
    weights = {name: weight.detach().double() for name, weight in model.state_dict().items()}
    W_E = weights["embed.W_E"]
    W_U = weights["unembed.W_U"]
    out = W_U[:, 0]
    bias = model.read_in_bias.detach().double()
    embed = torch.cat([W_E, bias[None]])

    def read(letter: str) -> Float[Tensor, "head wide d_head"]:
        projected = embed @ weights[f"blocks.0.attn.W_{letter}"]
        bias = weights[f"blocks.0.attn.b_{letter}"][:, None]
        constant = F.pad(bias, (0, 0, embed.shape[0] - 1, 0))
        return projected + constant

    W_O = weights["blocks.0.attn.W_O"]
    values = read("V") @ W_O @ out
    products = read("K") @ read("Q").transpose(1, 2)
    forms = products * model.blocks[0].attn.scale
    # What skips attention: the embedding, and the biases behind attention.
    b_O = weights["blocks.0.attn.b_O"]
    b_U = weights["unembed.b_U"]
    direct = embed @ out
    direct[-1] += b_O @ out + b_U[0]
    return LayerForm(values, forms, direct)
