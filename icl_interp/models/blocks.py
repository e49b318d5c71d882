"""The parts of a `HookedTransformer`: read-in, blocks of attention and MLP, read-out."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, overload

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from icl_interp.errors import InputError
from icl_interp.models.attention import NOTHING, Apart, Attention, KeysValues
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.hooks import HookPoint, at, listened
from icl_interp.models.layers import MLP, Norm, TanhNorm, make_norm

Tokens = Float[Tensor, "batch token d_in"]
Stream = Float[Tensor, "batch token d_model"]
Kept = Float[Tensor, "batch query d_model"]  # the stream at the tokens somebody asked for
# Relative difference from which a norm's output is not what the norm itself makes: more than any
# two kernels differ by in float32.
EDITED = 1e-3


class Embed(nn.Module):
    """Read-in: v = tokens W_E + b_E, or v b / sqrt(b^2 + |v|^2) where `embed_bound` b is set.

    Of the ways to keep |v| below b this one has a derivative everywhere and maps no two vectors to
    one (a clip at b would give every far query of a direction the same vector, so that nothing
    after it could be measured). For |v| well below b it is the identity up to a factor
    1 - |v|^2 / (2 b^2).
    """

    W_E: Float[Tensor, "d_in d_model"]
    b_E: Float[Tensor, " d_model"]

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.bound = cfg.embed_bound
        self.W_E = nn.Parameter(torch.empty(cfg.d_in, cfg.d_model))
        self.b_E = nn.Parameter(torch.zeros(cfg.d_model))

    def forward(self, tokens: Tokens) -> Stream:
        """Each token's vector."""
        v = F.linear(tokens, self.W_E.T, self.b_E)
        if self.bound is None:
            return v
        # As 1 / sqrt(1 + |v / b|^2), whose square does not overflow before |v| itself is out of all
        # proportion.
        return v * (1 + (v / self.bound).square().sum(-1, keepdim=True)).rsqrt()


class PosEmbed(nn.Module):
    """A learned vector for each position."""

    W_pos: Float[Tensor, "n_ctx d_model"]

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.W_pos = nn.Parameter(torch.empty(cfg.n_ctx, cfg.d_model))


class Unembed(nn.Module):
    """Read-out: stream W_U + b_U."""

    W_U: Float[Tensor, "d_model d_out"]
    b_U: Float[Tensor, " d_out"]

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.W_U = nn.Parameter(torch.empty(cfg.d_model, cfg.d_out))
        self.b_U = nn.Parameter(torch.zeros(cfg.d_out))

    def forward(self, stream: Stream) -> Float[Tensor, "batch token d_out"]:
        """The prediction at each token."""
        return F.linear(stream, self.W_U.T, self.b_U)


class Block(nn.Module):
    """Attention, then an MLP, each added to the residual stream.

    With `norm_position` "pre" each reads the normalised stream, with "post" the sum is normalised,
    with "both" attention reads ln1 of the stream and ln2 normalises the sum, and with "output" what
    each adds is normalised: x + norm(f(x)), the layer that the code of Sander et al. (2024)
    iterates. `hook_attn_out` and `hook_mlp_out` are what is added, so after such a norm, and with
    `residual_scale` in it.

    `hook_q_input`, `hook_k_input` and `hook_v_input` are what each head reads for its queries, keys
    and values, (batch, token, head, d_model), and `hook_mlp_in` what the MLP reads: the stream,
    before the norm in between, as in TransformerLens. Those of heads are made where somebody
    listens to them. What is edited there passes through the norm, but not by its hook points, which
    show what all heads read.
    """

    # Which of these a block has, the config says.
    attn: Attention
    mlp: MLP
    ln1: Norm | TanhNorm
    ln2: Norm | TanhNorm
    hook_attn_out: HookPoint
    hook_mlp_out: HookPoint
    hook_q_input: HookPoint
    hook_k_input: HookPoint
    hook_v_input: HookPoint
    hook_mlp_in: HookPoint

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.cfg = cfg
        # Sublayers, then norms: those that the config asks for.
        if not cfg.mlp_only:
            self.attn = Attention(cfg)
            self.hook_attn_out = HookPoint()
            for letter in "qkv":
                setattr(self, f"hook_{letter}_input", HookPoint())
        if not cfg.attn_only:
            self.mlp = MLP(cfg)
            self.hook_mlp_out = HookPoint()
            self.hook_mlp_in = HookPoint()
        if cfg.normalization_type and not cfg.mlp_only:
            self.ln1 = make_norm(cfg)
        if cfg.normalization_type and (not cfg.attn_only or cfg.norm_position == "both"):
            self.ln2 = make_norm(cfg)
        self.hook_resid_pre, self.hook_resid_mid, self.hook_resid_post = (
            HookPoint(),
            HookPoint(),
            HookPoint(),
        )

    def forward(
        self, stream: Stream, rows: slice | None = None, memory: list[KeysValues] | None = None
    ) -> Kept:
        """The stream after this block: at every token, or only at the tokens in `rows`."""
        return self._run(stream, lambda x, apart: self.attn(x, rows, memory, apart), rows)

    def remember(self, stream: Stream) -> KeysValues:
        """Keys and values of every token, without computing what this block adds to the stream."""
        stream = self.hook_resid_pre(stream)
        read = self._read(stream, "ln1")
        letters = "QKV" if self.cfg.queries else "KV"
        return self.attn.remember(read, self._apart(stream, read, letters))

    def after(self, stream: Stream, context: KeysValues) -> Stream:
        """The stream of alternative last tokens, each after the same context."""
        return self._run(stream, lambda x, apart: self.attn.after(x, context, apart))

    def _run(
        self, stream: Stream, attend: Callable[[Stream, Apart], Kept], rows: slice | None = None
    ) -> Kept:
        stream = self.hook_resid_pre(stream)
        kept = stream if rows is None else stream[:, rows]
        if not self.cfg.mlp_only:
            read = self._read(stream, "ln1")
            written = self._write(attend(read, self._apart(stream, read)), "ln1")
            kept = self._join(kept, self.hook_attn_out(written), "ln1")
        kept = self.hook_resid_mid(kept)
        if not self.cfg.attn_only:
            written = self._write(self.mlp(self._read(at(self.hook_mlp_in, kept), "ln2")), "ln2")
            kept = self._join(kept, self.hook_mlp_out(written), "ln2")
        return self.hook_resid_post(kept)

    def _read(self, stream: Stream, norm: str) -> Stream:
        """What a sublayer sees: the stream, normalised where a norm stands before it."""
        return getattr(self, norm)(stream) if self.cfg.sublayers_read_normed else stream

    def _apart(self, stream: Stream, read: Stream, letters: str = "QKV") -> Apart:
        """What heads read, each for itself, where somebody edits it or asks for gradients.

        Args:
            stream: before this block.
            read: what all heads read: the stream, through the norm in between if there is one.
            letters: of the projections that are made.

        Raises:
            InputError: hooks of that norm change what it makes, so that what it would make of an
                edited stream is not known.
        """
        found: dict[str, Tensor] = {}
        for letter in letters:
            hook = getattr(self, f"hook_{letter.lower()}_input")
            if not listened(hook):
                continue
            shared = stream.unsqueeze(2).expand(-1, -1, self.cfg.n_heads, -1)
            own = hook(shared.clone())
            # Who only read must leave the output bit-identical.
            if torch.is_grad_enabled() or not torch.equal(own, shared):
                found[letter] = own
        if not found or not self.cfg.sublayers_read_normed:
            return found or NOTHING
        usual = self.ln1.unhooked(stream)
        if (usual - read).abs().max() > EDITED * (1 + usual.abs().max()):
            raise InputError(
                "hook_q_input, hook_k_input and hook_v_input come before ln1, whose own hooks are "
                "edited too: edit one of both"
            )
        return {letter: self.ln1.unhooked(own) for letter, own in found.items()}

    def _write(self, output: Kept, norm: str) -> Kept:
        """What a sublayer adds: its output, normalised where the norm stands there."""
        return getattr(self, norm)(output) if self.cfg.norm_position == "output" else output

    def _join(self, stream: Stream, addition: Stream, norm: str) -> Stream:
        """The stream with a sublayer's output added, normalised where a norm stands behind it."""
        if self.cfg.norm_position == "both":
            norm = "ln2"
        total = stream + addition
        return total if self.cfg.stream_is_a_sum else getattr(self, norm)(total)


if TYPE_CHECKING:

    class Blocks(nn.ModuleList):
        """A `ModuleList` of blocks: to a type checker its members are no more than modules."""

        @overload
        def __getitem__(self, idx: slice) -> "Blocks": ...
        @overload
        def __getitem__(self, idx: int) -> Block: ...
        def __getitem__(self, idx: int | slice) -> "Block | Blocks": ...
        def __iter__(self) -> Iterator[Block]: ...

else:
    Blocks = nn.ModuleList
