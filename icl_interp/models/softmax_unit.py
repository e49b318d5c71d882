"""A unit of softmax attention whose keys are the labelled examples.

It is given by itself and inside a `HookedTransformer`.

The unit adds to each token z_i of a prompt h(z_i) = sum_j a_ij W_V z_j with a_i the softmax over j
of (W_K z_j)^T W_Q z_i, where j runs over the n labelled examples (x_j; y_j) and not over the query
(x_q; 0). The prediction is the last coordinate at the query. Source: Collins, Parulekar, Mokhtari,
Sanghavi & Shakkottai (2024), slides by A. Mokhtari, ITA 2024, "Learning Model: One Layer of Softmax
Self-Attention", equations (1) and (2). Tokens are as `tokens.Stacked` makes them:
`(batch, token, d + 1)`.

Its counterpart with linear attention, yhat = (1/n) sum_i y_i x_i^T M x_q, is
`single_layers.LinearSelfAttention.from_product(M)`: the query is a key there, but its value is its
label slot, which holds 0.
"""

import math
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icl_interp.errors import InputError
from icl_interp.models.blank import blank
from icl_interp.models.hooks import HookedRootModule, HookPoint, at
from icl_interp.models.single_layers import beyond_attention
from icl_interp.models.tokens import Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import Prompts

Wide = Float[Tensor, "d_in d_in"]  # d_in = dim + 1
Tokens = Float[Tensor, "batch token d_in"]
_HOOKS = ("resid_pre", "q", "k", "v", "attn_scores", "pattern", "attn_out", "resid_post")
_ALONE = {"attention_dir": "bidirectional", "keys": "labelled"}


class SoftmaxAttention(HookedRootModule):
    """Z + h(Z), equation (1), with every step at a hook point.

    Equation (2) is `SoftmaxAttention.from_product(M)`.

    The slides' h has no residual term. It makes no difference to the prediction, because the
    query's label slot is 0.

    Hooks, named as in a block of `HookedTransformer`: `hook_resid_pre` and `hook_resid_post`
    (batch, token, d_in), `hook_q`, `hook_k`, `hook_v` (W_Q z, W_K z, W_V z of every token),
    `hook_attn_scores` (the query's column at -inf) and `hook_pattern` (batch, query, key),
    `hook_attn_out` (h).

    Args:
        w_k: W_K, (d + 1, d + 1).
        w_q: W_Q, (d + 1, d + 1).
        w_v: W_V, (d + 1, d + 1).

    >>> unit = SoftmaxAttention.from_product(torch.zeros(2, 2))  # the mean of the labels
    >>> unit(torch.tensor([[[1., 0., 5.], [0., 1., 3.], [2., 4., 0.]]]))[0, -1, -1].item()
    4.0
    """

    W_K: Wide
    W_Q: Wide
    W_V: Wide
    hook_resid_pre: HookPoint
    hook_q: HookPoint
    hook_k: HookPoint
    hook_v: HookPoint
    hook_attn_scores: HookPoint
    hook_pattern: HookPoint
    hook_attn_out: HookPoint
    hook_resid_post: HookPoint

    def __init__(self, w_k: Wide, w_q: Wide, w_v: Wide) -> None:
        super().__init__()
        shape = tuple(w_k.shape)
        square = len(shape) == 2 and shape[0] == shape[1]
        alike = w_q.shape == shape and w_v.shape == shape
        if not square or not alike or shape[0] < 2:
            raise InputError(
                "W_K, W_Q and W_V must all be (d + 1, d + 1) for inputs of d coordinates, but got "
                f"{shape}, {tuple(w_q.shape)}, {tuple(w_v.shape)}"
            )
        self.W_K = nn.Parameter(w_k.detach().clone())
        self.W_Q = nn.Parameter(w_q.detach().clone())
        self.W_V = nn.Parameter(w_v.detach().clone())
        for name in _HOOKS:
            setattr(self, f"hook_{name}", HookPoint())
        self.setup()

    @classmethod
    def from_product(cls, product: Float[Tensor, "dim dim"]) -> Self:
        """The unit of equation (2), yhat = sum_i y_i softmax_i(x_i^T M x_q), with this M.

        It has M_K = I and M_Q = M.
        """
        d = len(product)
        w_k, w_q, w_v = product.new_zeros(3, d + 1, d + 1)
        w_k[:d, :d] = torch.eye(d)
        w_q[:d, :d] = product.detach()
        w_v[-1, -1] = 1
        return cls(w_k, w_q, w_v)

    @property
    def product(self) -> Float[Tensor, "dim dim"]:
        """M = M_K^T M_Q from the blocks of W_K and W_Q on x, in float64.

        It describes the whole unit only where `is_kernel`.
        """
        m_k = self.W_K.detach().double()[:, :-1]
        m_q = self.W_Q.detach().double()[:, :-1]
        return m_k.T @ m_q

    @property
    def is_kernel(self) -> bool:
        """Whether it is a unit of equation (2).

        Then scores depend on x only, and the label itself is read out.
        """
        w_k = self.W_K.detach().double()
        w_q = self.W_Q.detach().double()
        # What the label of a key adds to its score; that of the query is 0.
        own = w_k[:, -1] @ w_q[:, :-1]
        read_out = self.W_V.detach().double()[-1]
        label = torch.zeros_like(read_out)
        label[-1] = 1
        return not own.any() and torch.equal(read_out, label)

    def forward(self, tokens: Tokens) -> Tokens:
        """Z + h(Z) of every token; the last entry of it is the prediction."""
        d_in = len(self.W_V)
        if tokens.ndim != 3 or tokens.shape[-1] != d_in or tokens.shape[1] < 2:
            raise InputError(
                f"tokens must be (batch, token, d_in={d_in}): labelled examples, then the query; "
                f"but got {tuple(tokens.shape)}"
            )
        stream = at(self.hook_resid_pre, tokens)
        q = self.hook_q(stream @ self.W_Q.T)
        k = self.hook_k(stream @ self.W_K.T)
        v = self.hook_v(stream @ self.W_V.T)
        # The query is no key.
        n_tokens = tokens.shape[1]
        places = torch.arange(n_tokens, device=tokens.device)
        is_query = places == n_tokens - 1
        products = q @ k.transpose(1, 2)
        scores = self.hook_attn_scores(products.masked_fill(is_query, -math.inf))
        pattern = self.hook_pattern(scores.softmax(-1))
        attended = self.hook_attn_out(pattern @ v)
        return self.hook_resid_post(stream + attended)

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The prediction of the query in float64; NaN for other points, whose labels are shown."""
        tokens = Stacked().encode(prompts.double())
        predictions = torch.full_like(prompts.ys, torch.nan, dtype=torch.float64)
        with torch.no_grad():
            out = self(tokens.to(self.W_V))
        predictions[:, -1] = out.double()[:, -1, -1:]
        return predictions

    def to_transformer(self, n_ctx: int) -> HookedTransformer:
        """A `HookedTransformer` whose stream is Z + h(Z), and so has every tool.

        Its config says `unit="KQV"`.
        """
        width = len(self.W_V)
        model = blank(width, d_head=width, n_ctx=n_ctx, d_in=width, unit="KQV", **_ALONE)
        model = model.to(self.W_V)
        attention = model.blocks[0].attn
        identity = torch.eye(width).to(self.W_V)
        with torch.no_grad():
            model.embed.W_E.copy_(identity)
            model.unembed.W_U[-1] = 1
            attention.W_O.copy_(identity[None])
            attention.W_K.copy_(self.W_K.T[None])
            attention.W_Q.copy_(self.W_Q.T[None])
            attention.W_V.copy_(self.W_V.T[None])
        return model.eval()


def read_softmax_unit(model: HookedTransformer, tolerance: float = 0.0) -> SoftmaxAttention:
    """The softmax unit, in float64, that equals a transformer of one softmax head.

    The stream and the head may have any width.

    Of W_V only the last row can be known, what the prediction reads. W_K and W_Q are known by their
    product: W_K is the identity here, and W_Q all of W_K^T W_Q. A bias of keys adds the same to
    every score of a query and drops out.

    Args:
        model: a transformer of one layer of softmax attention over labelled examples.
        tolerance: the largest bias, or weight past attention, that is taken for none.

    Raises:
        InputError: naming what else the model has: layers, heads, norms, an MLP, positions, other
            scores or keys, or biases larger than the tolerance.
    """
    cfg = model.shape
    found = beyond_attention(cfg, "softmax")
    if cfg.n_heads != 1:
        found.append(f"n_heads={cfg.n_heads}")
    if cfg.keys != "labelled":
        found.append(f"keys={cfg.keys!r}")
    if found:
        raise InputError(
            "this model is no single head of softmax attention over labelled examples, it has "
            f"{', '.join(found)}: expected n_layers=1, n_heads=1, attn_only, score_fn='softmax', "
            "keys='labelled', no norm and no positions"
        )
    # What the head reads from tokens and writes to the read-out.
    weights = {name: weight.detach().double() for name, weight in model.state_dict().items()}
    embed = weights["embed.W_E"]
    out = weights["unembed.W_U"][:, 0]
    start = model.read_in_bias.detach().double()

    def read(letter: str) -> tuple[Float[Tensor, "d_in d_head"], Float[Tensor, " d_head"]]:
        w = weights[f"blocks.0.attn.W_{letter}"][0]
        bias = weights[f"blocks.0.attn.b_{letter}"][0]
        return embed @ w, start @ w + bias

    k, _ = read("K")
    q, b_q = read("Q")
    v, b_v = read("V")
    W_O = weights["blocks.0.attn.W_O"][0]
    write = W_O @ out

    # What a unit lacks: scores of single keys, what skips attention, and a constant.
    scale = model.blocks[0].attn.scale
    of_keys = scale * k @ b_q
    direct = (embed @ out)[:-1]  # of the query's x; its label slot is 0
    b_O = weights["blocks.0.attn.b_O"]
    b_U = weights["unembed.b_U"]
    skipping = (start + b_O) @ out
    constant = skipping + b_U[0] + b_v @ write
    outside = max(float(part.abs().max()) for part in (of_keys, direct, constant))
    if outside > tolerance:
        raise InputError(
            f"biases or weights past attention reach {outside:.2g}, which a softmax unit does not "
            "have: raise tolerance to ignore them"
        )
    d_in = len(embed)
    w_k = torch.eye(d_in, dtype=torch.float64)
    w_q = scale * k @ q.T
    w_v = k.new_zeros(d_in, d_in)
    w_v[-1] = v @ write
    return SoftmaxAttention(w_k, w_q, w_v)
