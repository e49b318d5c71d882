"""Attention over numeric tokens with every step at a hook point, and a short way for sweeps.

A sweep puts many queries behind one context.
"""

import math
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from icl_interp.models import positions
from icl_interp.models import scores as score_functions
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.hooks import HookPoint, at, listened
from icl_interp.products import linear

Projections = dict[str, tuple[Tensor, Tensor]]
# What each head reads for its queries ("Q"), keys or values where this is not what all heads read.
Apart = Mapping[str, Float[Tensor, "batch token head d_model"]]
NOTHING: Apart = MappingProxyType({})
# Projections put together, by the id of their layer and by letters, while the weights of these
# layers are fixed (`HookedTransformer.fixed_weights`). Not kept in the layers: another thread, or a
# copy, must not find them there.
FIXED: ContextVar[Mapping[int, Projections]] = ContextVar(
    "layers of fixed weights", default=MappingProxyType({})
)


class KeysValues(NamedTuple):
    """What an attention layer remembers of a context: keys and values.

    With `queries="previous"` also the queries that the context makes.
    """

    keys: Float[Tensor, "batch head token d_head"]
    values: Float[Tensor, "batch head token d_head"]
    queries: Float[Tensor, "batch head token d_head"] | None = None

    def first(self, n: int) -> "KeysValues":
        """What the layer remembers of the first n tokens."""
        queries = None if self.queries is None else self.queries[:, :, :n]
        return KeysValues(self.keys[:, :, :n], self.values[:, :, :n], queries)

    @property
    def is_finite(self) -> bool:
        """Whether every number is."""
        return all(bool(part.isfinite().all()) for part in self if part is not None)

    def like(self, tensor: Tensor) -> "KeysValues":
        """Room for as much in the type and on the device of a tensor."""
        keys = tensor.new_empty(self.keys.shape)
        values = tensor.new_empty(self.values.shape)
        queries = None
        if self.queries is not None:
            queries = tensor.new_empty(self.queries.shape)
        return KeysValues(keys, values, queries)

    def copied_to(self, room: "KeysValues") -> "KeysValues":
        """The same numbers, copied into `room`, which takes at least as many prompts.

        The copy has the type and device of `room`.
        """
        n = len(self.keys)
        keys = room.keys[:n].copy_(self.keys)
        values = room.values[:n].copy_(self.values)
        queries = None
        if self.queries is not None and room.queries is not None:
            queries = room.queries[:n].copy_(self.queries)
        return KeysValues(keys, values, queries)


class Attention(nn.Module):
    """Multi-head attention.

    Shapes at the hooks: `hook_q`, `hook_k`, `hook_v`, `hook_z` (batch, token, head, d_head);
    `hook_attn_scores` (after masking with -inf, before the score function) and `hook_pattern`
    (batch, head, query, key), with `position_weights` in it; `hook_result`, each head's own
    addition to the stream with `residual_scale` in it, (batch, token, head, d_model), computed only
    when somebody listens to it. `hook_q` is the query that a token has: with `queries="previous"`
    it was made by another. With rotary positions queries and keys are turned behind their hooks;
    numbers that ALiBi and relative positions add are in the scores that `hook_attn_scores` shows.

    Explicit matrix products, not torch's fused attention: at the 40 tokens of these prompts they
    take half the time on a CPU, and every step can be hooked. On a GPU the fused kernel runs when
    nobody listens to scores or pattern.
    """

    W_Q: Float[Tensor, "head d_model d_head"]
    W_K: Float[Tensor, "head d_model d_head"]
    W_V: Float[Tensor, "head d_model d_head"]
    W_O: Float[Tensor, "head d_head d_model"]
    # Only with position_weights: one matrix, or the two whose product stands in its place.
    W_P: Float[Tensor, "n_ctx n_ctx"]
    W_Q_pos: Float[Tensor, "n_ctx n_ctx"]
    W_K_pos: Float[Tensor, "n_ctx n_ctx"]
    # Only with relative positions: by distance, with those of later keys first where they are seen.
    W_R: Float[Tensor, "head distance"]
    b_Q: Float[Tensor, "head d_head"]
    b_K: Float[Tensor, "head d_head"]
    b_V: Float[Tensor, "head d_head"]
    b_O: Float[Tensor, " d_model"]
    hook_q: HookPoint
    hook_k: HookPoint
    hook_v: HookPoint
    hook_attn_scores: HookPoint
    hook_pattern: HookPoint
    hook_z: HookPoint
    hook_result: HookPoint

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.cfg = cfg
        d_head = cfg.head_width
        for letter in "QKV":
            weight = nn.Parameter(torch.empty(cfg.n_heads, cfg.d_model, d_head))
            bias = nn.Parameter(torch.zeros(cfg.n_heads, d_head))
            setattr(self, f"W_{letter}", weight)
            setattr(self, f"b_{letter}", bias)
        self.W_O = nn.Parameter(torch.empty(cfg.n_heads, d_head, cfg.d_model))
        self.b_O = nn.Parameter(torch.zeros(cfg.d_model))
        if cfg.position_weights:
            alike = cfg.position_weights == "similarity"
            for name in ("W_Q_pos", "W_K_pos") if alike else ("W_P",):
                weight = nn.Parameter(torch.empty(cfg.n_ctx, cfg.n_ctx))
                setattr(self, name, weight)
        self.positions = cfg.positional_embedding_type
        if self.positions == "relative":
            both = cfg.attention_dir == "bidirectional"
            # Distance 0 stands here.
            self.middle = cfg.n_ctx - 1 if both else 0
            self.W_R = nn.Parameter(torch.empty(cfg.n_heads, self.middle + cfg.n_ctx))
        for name in ("q", "k", "v", "attn_scores", "pattern", "z", "result"):
            setattr(self, f"hook_{name}", HookPoint())
        self.scale = 1 / math.sqrt(d_head) if cfg.use_attn_scale else 1.0
        # None: fused on a GPU where the steps between are not read. True and False are for tests.
        self.fused: bool | None = None
        # A mask, and whether no query of it sees the last token. A plain attribute: masks do not
        # belong in the state dict. One tuple, so that a thread never finds half of what another one
        # left.
        self._mask: tuple[Tensor, bool] = (torch.empty(0), False)

    def forward(
        self,
        x: Float[Tensor, "batch token d_model"],
        rows: slice | None = None,
        memory: list[KeysValues] | None = None,
        apart: Apart = NOTHING,
    ) -> Float[Tensor, "batch query d_model"]:
        """Attention of every token, or of the tokens in `rows` only, over all tokens they see.

        Keys and values are appended to `memory` where one is given, for `after`: then no token is
        the query. What heads read `apart` stands in the place of x for these projections; whoever
        gives it asks for all rows.
        """
        # Queries, keys and values. `made` are queries that the next token uses.
        made = None
        if self.cfg.queries:
            made, k, v = self._project(x, "QKV", apart)
            q = F.pad(made[:, :-1], (0, 0, 0, 0, 1, 0))  # the first token has none before it
            if rows is not None:
                q = q[:, rows]
        elif rows is None:
            q, k, v = self._project(x, "QKV", apart)
        else:
            (q,) = self._project(x[:, rows], "Q")
            k, v = self._project(x, "KV")
        q = at(self.hook_q, q)
        k = at(self.hook_k, k)
        v = at(self.hook_v, v)
        if self.positions == "rotary":
            places = torch.arange(x.shape[1], device=x.device, dtype=x.dtype)
            q = positions.turned(q, places if rows is None else places[rows])
            k = positions.turned(k, places)
        if memory is not None:
            queries = None if made is None else _by_head(made)
            memory.append(KeysValues(_by_head(k), _by_head(v), queries))
        if self._use_fused(q, rows):
            z = F.scaled_dot_product_attention(
                q.transpose(1, 2),
                k.transpose(1, 2),
                v.transpose(1, 2),
                is_causal=self.cfg.attention_dir == "causal",
                scale=self.scale,
            )
            return self._write(z.transpose(1, 2))

        # The same step by step: scores, pattern, and the values that it weighs.
        hide_query = self.cfg.keys == "labelled" and memory is None
        mask = self._visibility(x, rows, hide_query)
        scores = torch.baddbmm(mask, _merge(q), _merge(k).transpose(1, 2), alpha=self.scale)
        by_head = scores.view(-1, self.cfg.n_heads, *scores.shape[1:])
        added = self._added(x.shape[1], x)
        if added is not None:
            by_head = by_head + (added if rows is None else added[:, rows])
        pattern = self._pattern(by_head, self._by_position(mask, rows))
        z = torch.bmm(pattern.reshape(scores.shape), _merge(v))
        z = z.view(-1, self.cfg.n_heads, *z.shape[1:])
        return self._write(z.transpose(1, 2))

    def remember(
        self, x: Float[Tensor, "batch token d_model"], apart: Apart = NOTHING
    ) -> KeysValues:
        """Keys and values of every token."""
        k, v = self._project(x, "KV", apart)
        k = at(self.hook_k, k)
        v = at(self.hook_v, v)
        if self.positions == "rotary":
            places = torch.arange(x.shape[1], device=x.device, dtype=x.dtype)
            k = positions.turned(k, places)
        queries = None
        if self.cfg.queries:
            (made,) = self._project(x, "Q", apart)
            queries = _by_head(made)
        return KeysValues(_by_head(k), _by_head(v), queries)

    def after(
        self, x: Float[Tensor, "batch query d_model"], context: KeysValues, apart: Apart = NOTHING
    ) -> Float[Tensor, "batch query d_model"]:
        """Attention of alternative last tokens: each sees the context and itself, but no other.

        Row i of the pattern is what the last row would be in a prompt that ends in token i, its own
        weight last.
        """
        q, k, v = self._project(x, "QKV", apart)
        if context.queries is not None:
            q = context.queries[:, :, -1].unsqueeze(1).expand_as(q)
        q = at(self.hook_q, q)
        k = at(self.hook_k, k)
        v = at(self.hook_v, v)
        n = context.keys.shape[2] + 1
        if self.positions == "rotary":
            # All of them stand at the place behind the context.
            places = x.new_full((x.shape[1],), n - 1)
            q = positions.turned(q, places)
            k = positions.turned(k, places)
        q = q.transpose(1, 2)
        k = k.transpose(1, 2)
        v = v.transpose(1, 2)

        # Scores of the context's keys, then the token's own.
        q = q * self.scale  # fewer numbers than the scores
        own = (q * k).sum(-1, keepdim=True)
        if self.cfg.keys == "labelled":
            own = torch.full_like(own, -math.inf)
        of_context = q @ context.keys.transpose(-1, -2)
        scores = torch.cat([of_context, own], -1)
        added = self._added(n, x)
        if added is not None:
            scores = scores + added[:, -1:]
        weights = None
        if self.cfg.position_weights:
            weights = self._by_position(x.new_zeros(1, n), slice(n - 1, n))
        pattern = self._pattern(scores, weights)
        z = pattern[..., :-1] @ context.values + pattern[..., -1:] * v
        return self._write(z.transpose(1, 2))

    def _project(
        self, x: Tensor, letters: str, apart: Apart = NOTHING
    ) -> list[Float[Tensor, "batch token head d_head"]]:
        """Several projections by one matrix product, which is what makes it fast.

        Those of what heads read apart are made head by head.
        """
        weights, biases = self._together(letters)
        flat = linear(x, weights, biases)
        heads = (self.cfg.n_heads, self.cfg.head_width)
        every = flat.view(*x.shape[:2], len(letters), *heads)
        made = list(every.unbind(2))
        for place, letter in enumerate(letters):
            if letter in apart:
                weight = getattr(self, f"W_{letter}")
                bias = getattr(self, f"b_{letter}")
                projected = torch.einsum("bthd,hde->bthe", apart[letter], weight)
                made[place] = projected + bias
        return made

    def _together(self, letters: str) -> tuple[Tensor, Tensor]:
        """Weights and biases of several projections as those of one."""
        known = None if torch.compiler.is_compiling() else FIXED.get().get(id(self))
        if known is not None and letters in known:
            return known[letters]
        each = torch.stack([getattr(self, f"W_{letter}") for letter in letters])
        weights = each.transpose(2, 3).flatten(0, 2)
        biases = torch.stack([getattr(self, f"b_{letter}") for letter in letters]).flatten()
        if known is not None:
            known[letters] = weights, biases
        return weights, biases

    def _pattern(
        self,
        scores: Float[Tensor, "batch head query key"],
        by_position: Float[Tensor, "#query key"] | None,
    ) -> Float[Tensor, "batch head query key"]:
        scores = self.hook_attn_scores(scores)
        pattern = score_functions.apply(self.cfg.score_fn, scores, self.cfg.score_norm)
        if by_position is not None:
            pattern = pattern * by_position
        return self.hook_pattern(pattern)

    def _added(self, n_tokens: int, like: Tensor) -> Float[Tensor, "head query key"] | None:
        """What positions add to the scores of so many tokens; None where they add nothing."""
        if self.positions == "alibi":
            steps = positions.slopes(self.cfg.n_heads, like)
            apart = positions.distances(n_tokens, like).abs()
            return -steps[:, None, None] * apart
        if self.positions == "relative":
            apart = positions.distances(n_tokens, like)
            # Later keys that are hidden get a number of no meaning, which the mask covers.
            return self.W_R[:, (self.middle + apart).clamp(min=0)]
        return None

    def _by_position(
        self, mask: Float[Tensor, "*query key"], rows: slice | None
    ) -> Float[Tensor, "query key"] | None:
        """The factors of these queries' weights, by position; None without `position_weights`."""
        if self.cfg.position_weights is None:
            return None
        weights = self.by_places(mask.shape[-1])
        if rows is not None:
            weights = weights[rows]
        if self.cfg.position_weights == "free":
            return weights
        return (weights + mask).softmax(-1)

    def by_places(self, n_tokens: int) -> Float[Tensor, "query key"]:
        """The learned numbers of positions, before a softmax where `position_weights` has one.

        Those of the first `n_tokens` positions; without `position_weights` there are none.
        """
        if self.cfg.position_weights == "similarity":
            queries = self.W_Q_pos[:n_tokens]
            keys = self.W_K_pos[:n_tokens]
            return queries @ keys.T
        return self.W_P[:n_tokens, :n_tokens]

    def _write(
        self, z: Float[Tensor, "batch query head d_head"]
    ) -> Float[Tensor, "batch query d_model"]:
        z = self.hook_z(z)
        W_O, b_O = self.writing
        if listened(self.hook_result):
            result = torch.einsum("bqhe,hed->bqhd", z, W_O)
            untouched = None if torch.is_grad_enabled() else result.clone()
            result = self.hook_result(result)
            # A sum of heads rounds otherwise than one product: who only read must leave the output
            # bit-identical.
            if untouched is None or not torch.equal(result, untouched):
                return result.sum(2) + b_O
        return linear(z.flatten(2), W_O.flatten(0, 1).T, b_O)

    @property
    def writing(self) -> tuple[Float[Tensor, "head d_head d_model"], Float[Tensor, " d_model"]]:
        """The maps by which heads write to the stream, and the bias: W_O and b_O, scaled.

        The factor is `residual_scale`.
        """
        factor = self.cfg.residual_scale
        if factor == 1:
            return self.W_O, self.b_O
        return factor * self.W_O, factor * self.b_O

    def _visibility(
        self, x: Tensor, rows: slice | None, hide_query: bool
    ) -> Float[Tensor, "query key"]:
        """0 where a query sees a key, -inf where not; kept between calls, as it rarely changes."""
        n = x.shape[1]
        mask, hides_query = self._mask
        known = mask.shape == (n, n) and mask.dtype == x.dtype and mask.device == x.device
        if not known or hides_query != hide_query:
            mask = torch.zeros(n, n, dtype=x.dtype, device=x.device)
            if self.cfg.attention_dir == "causal":
                later = torch.ones_like(mask, dtype=torch.bool).triu(1)
                mask = mask.masked_fill(later, -math.inf)
            if hide_query:
                mask[:, -1] = -math.inf
            self._mask = mask, hide_query
        if rows is None:
            return mask
        return mask[rows]

    def _use_fused(self, q: Tensor, rows: slice | None) -> bool:
        if self.fused is False or self.cfg.score_fn != "softmax" or rows is not None:
            return False
        if self.cfg.keys or self.cfg.queries or self.cfg.position_weights:
            return False
        if self.positions in ("alibi", "relative"):
            return False
        unread = not (listened(self.hook_attn_scores) or listened(self.hook_pattern))
        return unread and (self.fused is True or q.is_cuda)


def _by_head(
    t: Float[Tensor, "batch token head d_head"],
) -> Float[Tensor, "batch head token d_head"]:
    """The same tensor with the tokens of each head together in memory.

    What is remembered once is multiplied many times, and faster so.
    """
    return t.transpose(1, 2).contiguous()


def _merge(t: Float[Tensor, "batch token head d_head"]) -> Float[Tensor, "batch*head token d_head"]:
    """Batch and heads as one axis, the form batched matrix products are fastest in."""
    return t.transpose(1, 2).flatten(0, 1)
