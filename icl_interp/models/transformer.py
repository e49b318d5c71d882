"""`HookedTransformer`: the model class, for prompts of numbers."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.models import weights
from icl_interp.models.attention import FIXED, Attention, KeysValues
from icl_interp.models.blocks import Block, Blocks, Embed, PosEmbed, Stream, Tokens, Unembed
from icl_interp.models.complex_heads import make_diagonal
from icl_interp.models.config import DISTRIBUTIONS, HookedTransformerConfig
from icl_interp.models.fixed import fix_weights, leave_out_biases, read_tokens
from icl_interp.models.hooked import HookedModel
from icl_interp.models.hooks import READS, HookedRootModule, HookPoint, at, listened
from icl_interp.models.layers import Norm, TanhNorm, make_norm
from icl_interp.models.properties import WeightProperties
from icl_interp.prompts import Prompts
from icl_interp.provenance import LARGEST_FACTS, build, generator, read_json

CACHED = 4 * 2**20  # bytes of the widest activation, in `chunks`
MOST_AT_ONCE = 128  # prompts


class HookedTransformer(WeightProperties, HookedModel):
    """A transformer over numbers with TransformerLens' hook names, weight names and weight shapes.

    Args:
        cfg: the hyperparameters.
        seed: of the fresh weights, drawn from N(0, init_std^2); no global generator is touched.

    >>> config = HookedTransformerConfig(n_layers=2, d_model=16, n_heads=2, n_ctx=12)
    >>> model = HookedTransformer(config)
    >>> model(torch.zeros(3, 10, 1)).shape
    torch.Size([3, 10, 1])
    >>> _, cache = model.run_with_cache(torch.zeros(3, 10, 1))
    >>> cache["blocks.1.attn.hook_pattern"].shape
    torch.Size([3, 2, 10, 10])
    """

    # Only with learned positions there is a `pos_embed`, and only where the config has a final norm
    # an `ln_final`.
    pos_embed: PosEmbed
    hook_pos_embed: HookPoint
    ln_final: Norm | TanhNorm

    def __init__(self, cfg: HookedTransformerConfig, seed: int = 0) -> None:
        super().__init__()
        self._cfg = cfg
        self.embed = Embed(cfg)
        self.hook_embed = HookPoint()
        if cfg.positional_embedding_type == "standard":
            self.pos_embed = PosEmbed(cfg)
            self.hook_pos_embed = HookPoint()
        self.blocks = Blocks(Block(cfg) for _ in range(cfg.n_layers))
        if cfg.has_final_norm:
            self.ln_final = make_norm(cfg)
        self.unembed = Unembed(cfg)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if (
                    ".W_" in name and not parameter.is_meta
                ):  # on the meta device there are only shapes
                    noise = torch.randn(parameter.shape, generator=generator(seed, f"init/{name}"))
                    parameter.copy_(noise * cfg.init_std)
        if cfg.read_in == "token":
            read_tokens(self)
        if cfg.no_bias:
            leave_out_biases(self, cfg.no_bias)
        if cfg.unit == "diagonal":
            make_diagonal(self)
        elif cfg.unit:
            fix_weights(self, cfg.unit)
        self.setup()
        self._modules_with_hooks = list(self.modules())

    @property
    def cfg(self) -> HookedTransformerConfig:
        """The hyperparameters; `cfg.device` says where the weights are now."""
        device = str(self.unembed.W_U.device)
        if self._cfg.device != device:
            self._cfg = self._cfg.on(device)
        return self._cfg

    @cfg.setter
    def cfg(self, cfg: HookedTransformerConfig) -> None:
        self._cfg = cfg

    def forward(
        self, tokens: Tokens, positions: range | Sequence[int] | None = None
    ) -> Float[Tensor, "batch query d_out"]:
        """Predictions at every token, or at `positions` only (evenly spaced and increasing).

        Asking for the positions that are read spares the last block all other work. With any hook
        attached every position is computed, so that a listener sees what it expects.

        Raises:
            InputError: tokens of another width, more of them than `n_ctx`, or positions that are
                not among them.
        """
        self._check(tokens)
        if self.cfg.keys and tokens.shape[1] < 2:
            raise InputError(
                "with keys='labelled' a prompt needs a labelled example before the query, but got "
                "none"
            )
        return self.resume(self._embed(tokens), 0, positions)

    def resume(
        self, stream: Stream, block: int, positions: range | Sequence[int] | None = None
    ) -> Float[Tensor, "batch query d_out"]:
        """Predictions from the stream before a block, its `hook_resid_pre`.

        This is the rest of a forward pass.

        Runs that differ from this block on only, as those under an intervention there, share what
        lies before it.
        """
        wanted = None if positions is None else _as_slice(positions, stream.shape[1])
        rows = None if self._anyone_listens() else wanted
        for one in self.blocks[block:-1]:
            stream = one(stream)
        out = self._read_out(self.blocks[-1](stream, rows))
        return out if wanted == rows else out[:, wanted]

    def remember(self, tokens: Tokens) -> list[KeysValues]:
        """Keys and values of a context in every layer with attention, as the input of `after`.

        It needs a model with `cfg.query_is_unseen`.

        Nothing reads what the last block makes of the context, so it is not computed and hooks
        there do not fire.
        """
        if not self.cfg.query_is_unseen:
            raise InputError(
                "a bidirectional context changes with the query, so its keys and values cannot be "
                "kept"
            )
        self._check(tokens)
        if self.cfg.mlp_only:
            return []
        memory: list[KeysValues] = []
        stream = self._embed(tokens)
        for block in self.blocks[:-1]:
            stream = block(stream, memory=memory)
        return [*memory, self.blocks[-1].remember(stream)]

    def after(
        self, memory: list[KeysValues], tokens: Tokens, position: int
    ) -> Float[Tensor, "batch token d_out"]:
        """Predictions for alternative last tokens after the same context.

        Each token of the input stands at `position`.

        The context's keys and values do not depend on the last token, so a sweep over it costs one
        token a point. Hooks fire as they do in `forward`; their token axis runs over the
        alternatives.
        """
        return self.resume_after(memory, next(self.streams_after(memory, tokens, position)), 0)

    def streams_after(
        self, memory: list[KeysValues], tokens: Tokens, position: int
    ) -> Iterator[Stream]:
        """The stream of alternative last tokens before each block, in order, for `resume_after`."""
        self._check_width(tokens)
        known = memory[0].keys.shape[2] if memory else position
        if position != known or not 0 <= position < self.cfg.n_ctx:
            raise InputError(
                f"alternative last tokens of a context of {known} tokens stand at position "
                f"{known}, below n_ctx={self.cfg.n_ctx}; got position {position}"
            )
        stream = self._embed(tokens, position)
        for i in range(self.cfg.n_layers):
            yield stream
            stream = self._after(i, stream, memory)

    def resume_after(
        self, memory: list[KeysValues], stream: Stream, block: int
    ) -> Float[Tensor, "batch token d_out"]:
        """`after` from the stream before a block.

        Runs that differ only from this block on share what lies before.
        """
        for i in range(block, self.cfg.n_layers):
            stream = self._after(i, stream, memory)
        return self._read_out(stream)

    def _after(self, i: int, stream: Stream, memory: list[KeysValues]) -> Stream:
        block = self.blocks[i]
        return block(stream) if self.cfg.mlp_only else block.after(stream, memory[i])

    @contextmanager
    def fixed_weights(self) -> Iterator[None]:
        """A context in which no weight changes: what is made of weights alone is then made once.

        Worth it for many short runs without gradients, as of alternative last tokens. It is the
        business of this thread alone, and of this model: copies that are made meanwhile have their
        own weights.
        """
        known = FIXED.get()
        layers = [id(module) for module in self.modules() if isinstance(module, Attention)]
        token = FIXED.set({**known, **{layer: known.get(layer, {}) for layer in layers}})
        try:
            yield
        finally:
            FIXED.reset(token)

    def _embed(self, tokens: Tokens, position: int | None = None) -> Stream:
        stream = self.hook_embed(self.embed(tokens))
        if self.cfg.positional_embedding_type != "standard":
            return stream
        n = tokens.shape[1]
        vectors = (
            self.pos_embed.W_pos[:n]
            if position is None
            else self.pos_embed.W_pos[position].expand(n, -1)
        )
        return stream + at(self.hook_pos_embed, vectors.expand(tokens.shape[0], -1, -1))

    def _read_out(self, stream: Stream) -> Float[Tensor, "batch token d_out"]:
        return self.unembed(self.ln_final(stream) if hasattr(self, "ln_final") else stream)

    def _anyone_listens(self) -> bool:
        return any(listened(module) for module in self._modules_with_hooks)

    def _check_width(self, tokens: Tensor) -> None:
        if not isinstance(tokens, Tensor):
            raise InputError(
                f"a model reads tokens, a tensor of shape (batch, token, d_in={self.cfg.d_in}), "
                f"but got {_kind(tokens)}: encode prompts with encoding.encode(prompts), or call "
                "predict(prompts)"
            )
        if tokens.ndim != 3 or tokens.shape[-1] != self.cfg.d_in:
            raise InputError(
                f"tokens must have shape (batch, token, d_in={self.cfg.d_in}), but got "
                f"{tuple(tokens.shape)}"
            )
        weight = self.unembed.W_U
        if tokens.dtype != weight.dtype and not torch.is_autocast_enabled(tokens.device.type):
            raise InputError(
                f"tokens are {_dtype(tokens)} and weights {_dtype(weight)}: pass "
                "tokens.to(model.unembed.W_U.dtype), or convert the model"
            )

    def _check(self, tokens: Tensor) -> None:
        self._check_width(tokens)
        if not tokens.shape[1]:
            raise InputError("a prompt needs at least one token, but these have none")
        if tokens.shape[1] > self.cfg.n_ctx:
            raise InputError(
                f"n_ctx={self.cfg.n_ctx} tokens is too short for a prompt of {tokens.shape[1]}: "
                "shorten the prompts, or train a model with a larger n_ctx"
            )

    @property
    def numbers(self) -> Float[Tensor, "d_model d_out"]:
        """The read-out matrix: tokens have its dtype and stand on its device."""
        return self.unembed.W_U

    @property
    def no_entropy(self) -> str | None:
        """Why its attention weights are no distribution over keys, and so have no entropy."""
        if self.cfg.mlp_only:
            return "this model has no attention"
        if self.cfg.score_fn == "linear":
            return (
                "linear scores are no distribution over keys (they can be negative), so they have "
                "no entropy"
            )
        if self.cfg.score_fn not in DISTRIBUTIONS:
            return (
                f"{self.cfg.score_fn} weights need not add up to 1, so they are no distribution "
                "and have no entropy"
            )
        return None

    @property
    def usual_names(self) -> Callable[[str], bool]:
        """What heads and MLPs read (`READS`) are copies of the stream, one a head: not kept."""
        return _not_read_apart

    def _check_gradients(self, names: Collection[str], tokens: Any) -> None:
        kept = " ".join(names)
        if "_input" in kept and ".ln1." in kept and self.cfg.sublayers_read_normed:
            raise InputError(
                "gradients of hook_q_input, hook_k_input or hook_v_input pass by the hooks of ln1, "
                "whose own gradients would lack them: ask for them in two runs"
            )
        self._check_width(tokens)

    def _sources(self) -> list[Tensor]:
        # Gradients flow back to the vectors of positions, too, so that every hook on the way has
        # one.
        if hasattr(self, "pos_embed") and self.pos_embed.W_pos.requires_grad:
            return [self.pos_embed.W_pos]
        return []

    def widest(self, n_tokens: int) -> int:
        """Numbers in the widest activation of a prompt: see `widest_bytes`."""
        cfg = self.cfg
        per_token = max(cfg.mlp_width, 3 * cfg.n_heads * cfg.head_width, cfg.n_heads * n_tokens)
        return per_token * n_tokens

    @property
    def norms(self) -> dict[str, Norm]:
        """Every norm that divides by a scale, by its name, in the order of the forward pass.

        A Tanh norm has no scale.
        """
        return {name: module for name, module in self.named_modules() if isinstance(module, Norm)}

    @classmethod
    def from_checkpoint(cls, folder: str | Path) -> Self:
        """The model of a run folder (`config.json` and `model.safetensors`)."""
        folder = Path(folder)
        config = read_json(folder / "config.json", LARGEST_FACTS)
        if not isinstance(config, dict) or not isinstance(config.get("model"), dict):
            raise InputError(
                f"{folder / 'config.json'} has no 'model' section: is it the config of a run "
                "folder?"
            )
        values = {key: value for key, value in config["model"].items() if key != "kind"}
        cfg = build(HookedTransformerConfig, values, "config.json, section model")
        return weights.load_model(cls, cfg, folder / "model.safetensors").eval()


def chunks(model: HookedModel, n: int, n_tokens: int, fewest: int = 8) -> list[slice]:
    """Prompts in parts whose widest activation stays in the processor's cache.

    Larger parts take more time and memory.

    A part has at least `fewest` prompts.

    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=64, n_heads=2))
    >>> chunks(model, 200, 40)
    [slice(0, 102, None), slice(102, 200, None)]
    """
    step = max(fewest, min(MOST_AT_ONCE, CACHED // widest_bytes(model, n_tokens)))
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


def widest_bytes(model: HookedModel, n_tokens: int) -> int:
    """Bytes of the widest activation of a prompt.

    The candidates are an MLP's hidden layer, queries, keys and values, and scores.

    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=64, n_heads=2))
    >>> widest_bytes(model, 40) == 4 * 40 * 256, widest_bytes(model, 400) == 4 * 400 * 2 * 400
    (True, True)
    """
    return model.widest(n_tokens) * model.numbers.element_size()


def _not_read_apart(name: str) -> bool:
    """Whether a hook shows more than a copy of the stream."""
    return not name.endswith(READS)


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def model_in(given: Any) -> Any:
    """The model itself, or that of whatever holds one, such as a `Checkpoint`.

    Raises:
        InputError: neither.

    >>> import icl_interp
    >>> checkpoint = icl_interp.load("affine")
    >>> model_in(checkpoint) is checkpoint.model is model_in(checkpoint.model)
    True
    """
    model = given if isinstance(given, HookedRootModule) else getattr(given, "model", None)
    if not isinstance(model, HookedRootModule):
        raise InputError(f"a HookedTransformer or a Checkpoint is needed, but got {_kind(given)}")
    return model


def tokens_in(given: Any, holder: Any) -> Tensor:
    """Tokens themselves, or prompts as the encoding of a `Checkpoint` reads them.

    Args:
        given: tokens or prompts.
        holder: the checkpoint, or a bare model, which reads tokens only.

    Raises:
        InputError: neither, or prompts for a bare model.
    """
    if isinstance(given, Tensor):
        return given
    encoding = getattr(holder, "encoding", None)
    if isinstance(given, Prompts) and encoding is not None:
        return encoding.encode(given).to(model_in(holder).numbers)
    raise InputError(
        f"tokens are needed, a tensor of shape (batch, token, d_in), but got {_kind(given)}: pass "
        "checkpoint.encoding.encode(prompts), or the checkpoint in the model's place"
    )


def _as_slice(positions: range | Sequence[int], n_tokens: int) -> slice:
    """Evenly spaced positions as a slice (a view, not a copy)."""
    if isinstance(positions, Tensor):
        positions = [int(position) for position in positions]
    steps = {b - a for a, b in pairwise(positions)} or {1}
    if (
        not positions
        or len(steps) > 1
        or min(steps) < 1
        or positions[0] < 0
        or positions[-1] >= n_tokens
    ):
        raise InputError(
            f"positions must be evenly spaced, increasing and within 0 to {n_tokens - 1}, but got "
            f"{list(positions)}"
        )
    return slice(positions[0], positions[-1] + 1, steps.pop())
