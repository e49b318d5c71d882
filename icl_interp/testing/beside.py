"""Models in which the object of a claim is idle, beside something else that makes the prediction.

A map, a window or a head that weights hold is worth nothing where the model predicts by other
means. So a known model is put beside another one: the weights of the first are all there, and the
predictions are the second's. A verdict must then be the second model's, or none.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.models.attention import KeysValues
from icl_interp.models.config import HookedTransformerConfig as Config
from icl_interp.models.folding import attentions, mlps, writers
from icl_interp.models.transformer import HookedTransformer
from icl_interp.testing import null_models
from icl_interp.testing.reparameterisations.base import freed, made, weights_of

FACTORS = {"queries times 4": 4.0, "queries over 4": 0.25}  # rivals that attend otherwise
ALIKE = (
    "score_fn",
    "score_norm",
    "keys",
    "queries",
    "position_weights",
    "attention_dir",
    "residual_scale",
)
WIDEST = 512  # of a stream that holds two models: they are to be measured in seconds


class Idle(NamedTuple):
    """A model with an idle object, its name, and the model whose predictions it makes."""

    name: str
    model: HookedTransformer
    rival: HookedTransformer


# ---- one stream ----------------------------------------------------------------------------------


def no_common_stream(idle: Config, rival: Config) -> str | None:
    """Why two models cannot run beside each other in one stream; None where they can."""
    if idle.normalization_type or rival.normalization_type:
        return "norms see every coordinate of the stream, also those of the other model"
    if idle.mlp_only or rival.mlp_only:
        return "one of them has no attention"
    if idle.positions_in_scores or rival.positions_in_scores:
        return "positions act on the scores of one of them, by head and width of heads"
    if idle.embed_bound or rival.embed_bound:
        return "the bound on what a token is read in as sees both"
    names = (*ALIKE, "d_in", "d_out")
    other = [name for name in names if getattr(idle, name) != getattr(rival, name)]
    if not (idle.attn_only or rival.attn_only) and idle.act_fn != rival.act_fn:
        other.append("act_fn")
    if other:
        return f"they differ in {', '.join(other)}"
    return "they are too wide" if idle.d_model + rival.d_model > WIDEST else None


def side_by_side(idle: HookedTransformer, rival: HookedTransformer) -> HookedTransformer:
    """Both models in one stream, each with coordinates, heads and hidden units of its own.

    The rival alone is read out. Everything is in float64.

    Raises:
        InputError: no model can hold both; the message says why.
    """
    one = idle.cfg
    other = rival.cfg
    if reason := no_common_stream(one, other):
        raise InputError(f"these two models cannot stand in one stream: {reason}")
    positions = [cfg.positional_embedding_type for cfg in (one, other)]
    cfg = Config(
        n_layers=max(one.n_layers, other.n_layers),
        d_model=one.d_model + other.d_model,
        n_heads=one.n_heads + other.n_heads,
        d_head=max(one.head_width, other.head_width),
        d_mlp=one.mlp_width + other.mlp_width,
        n_ctx=min(one.n_ctx, other.n_ctx),
        d_in=other.d_in,
        d_out=other.d_out,
        act_fn=one.act_fn if other.attn_only else other.act_fn,
        normalization_type=None,
        attn_only=one.attn_only and other.attn_only,
        positional_embedding_type="standard" if "standard" in positions else "none",
        use_attn_scale=False,
        init_std=0.0,
        **{name: getattr(other, name) for name in ALIKE},
    )
    weights = weights_of(HookedTransformer(cfg).double())
    _put_positions(weights, idle, rival)
    _put(weights, rival, 0, 0, 0)
    _put(weights, idle, other.d_model, other.n_heads, other.mlp_width)
    weights["unembed.W_U"][other.d_model :] = 0
    weights["unembed.b_U"] = weights_of(rival)["unembed.b_U"]
    return made(weights, cfg)


def _put(
    weights: dict[str, Tensor], model: HookedTransformer, stream: int, head: int, unit: int
) -> None:
    """Put a model's weights into a larger one's, from these places on."""
    cfg = freed(model.cfg)
    own = weights_of(model)
    # The larger model does not scale scores, so queries take that up.
    for part in attentions(cfg):
        for name in ("W_Q", "b_Q"):
            own[part + name] *= model.blocks[0].attn.scale
    at_stream = slice(stream, stream + cfg.d_model)
    at_head = slice(head, head + cfg.n_heads)
    at_unit = slice(unit, unit + cfg.mlp_width)
    within = slice(0, cfg.head_width)
    everything = slice(None)
    # Where each weight stands in the larger one.
    places: dict[str, tuple[slice, ...]] = {
        "embed.W_E": (everything, at_stream),
        "embed.b_E": (at_stream,),
        "unembed.W_U": (at_stream, everything),
    }
    for part in attentions(cfg):
        places |= {f"{part}W_{letter}": (at_head, at_stream, within) for letter in "QKV"}
        places |= {f"{part}b_{letter}": (at_head, within) for letter in "QKV"}
        places |= {f"{part}W_O": (at_head, within, at_stream), f"{part}b_O": (at_stream,)}
    for part in mlps(cfg):
        places |= {f"{part}W_in": (at_stream, at_unit), f"{part}b_in": (at_unit,)}
        places |= {f"{part}W_out": (at_unit, at_stream), f"{part}b_out": (at_stream,)}
    for name, place in places.items():
        weights[name][place] = own[name]
    if "pos_embed.W_pos" in own:
        n = len(weights["pos_embed.W_pos"])
        weights["pos_embed.W_pos"][:, at_stream] = own["pos_embed.W_pos"][:n]


def _put_positions(weights: dict[str, Tensor], *models: HookedTransformer) -> None:
    """Put the weights of positions into a larger model; all heads of a layer share them."""
    for model in models:
        for name, weight in weights_of(model).items():
            if not name.endswith(("attn.W_P", "attn.W_Q_pos", "attn.W_K_pos")):
                continue
            n = len(weights[name])
            # A row of W_P may be cut: nobody sees the rest. Rows of the others are multiplied.
            whole = name.endswith("W_P") or len(weight) == n
            for other in models:
                theirs = weights_of(other).get(name, weight)
                if not whole or not torch.equal(theirs[:n, :n], weight[:n, :n]):
                    raise InputError(
                        "these two models cannot stand in one stream: heads of a layer share their "
                        "weights of positions, and theirs differ"
                    )
            weights[name] = weight[:n, :n].clone()


# ---- a path of its own ---------------------------------------------------------------------------


def no_cover(idle: HookedTransformer, rival: HookedTransformer) -> str | None:
    """Why a model cannot be covered by another one; None where it can."""
    one = idle.cfg
    other = rival.cfg
    if type(idle) is not HookedTransformer or type(rival) is not HookedTransformer:
        return "one of them is of a class of its own"
    if one.mlp_only or other.mlp_only:
        return "one of them has no attention"
    names = ("d_in", "d_out", "attention_dir")
    differ = [name for name in names if getattr(one, name) != getattr(other, name)]
    if one.query_is_unseen and not other.query_is_unseen:
        differ.append("keys")
    if differ:
        return f"they differ in {', '.join(differ)}"
    if one.n_ctx > other.n_ctx:
        return "the prompts of one are too long for the other"
    return None


class Covered(HookedTransformer):
    """A transformer with all weights of one model, whose predictions are those of another.

    Its blocks run and its hooks fire, and what they make is thrown away. Every way to run it gives
    the same predictions: a run that is taken up from a stream reads the tokens off it.
    """

    _rival: tuple[
        HookedTransformer, ...
    ]  # not a module of this one: it has no weights that anybody could find

    @classmethod
    def of(cls, idle: HookedTransformer, rival: HookedTransformer) -> "Covered":
        """The one model with the predictions of the other, in float64.

        Raises:
            InputError: they do not read the same prompts.
        """
        if reason := no_cover(idle, rival):
            raise InputError(f"one of these models cannot stand in front of the other: {reason}")
        found = cls(idle.cfg).double().eval()
        found.load_state_dict(weights_of(idle))
        found._rival = (made(weights_of(rival), rival.cfg),)
        return found

    @property
    def rival(self) -> HookedTransformer:
        """The model that predicts, where and in the precision in which this one is."""
        (rival,) = self._rival
        mine = self.unembed.W_U
        its = rival.unembed.W_U
        if (mine.dtype, mine.device) != (its.dtype, its.device):
            self._rival = (rival.to(mine),)
        return self._rival[0]

    def forward(
        self,
        tokens: Float[Tensor, "batch token d_in"],
        positions: range | Sequence[int] | None = None,
    ) -> Float[Tensor, "batch query d_out"]:
        """The rival's predictions at every token, or at `positions` only."""
        self._check(tokens)
        super().resume(self._embed(tokens), 0, positions)
        return self.rival(tokens, positions)

    def resume(
        self, stream: Float[Tensor, "batch token d_model"], block: int, positions: Any = None
    ) -> Float[Tensor, "batch query d_out"]:
        """Likewise, from the stream before a block."""
        super().resume(stream, block, positions)
        return self.rival(self._tokens(stream, block, slice(0, stream.shape[1])), positions)

    def remember(self, tokens: Float[Tensor, "batch token d_in"]) -> list[KeysValues]:
        """What both models remember of a context, this one's first."""
        return [*super().remember(tokens), *self.rival.remember(tokens)]

    def after(
        self, memory: list[KeysValues], tokens: Float[Tensor, "batch token d_in"], position: int
    ) -> Float[Tensor, "batch token d_out"]:
        """The rival's predictions for alternative last tokens."""
        stream = next(self.streams_after(memory, tokens, position))
        super().resume_after(memory, stream, 0)
        return self.rival.after(memory[self.cfg.n_layers :], tokens, position)

    def resume_after(
        self, memory: list[KeysValues], stream: Float[Tensor, "batch token d_model"], block: int
    ) -> Float[Tensor, "batch token d_out"]:
        """Likewise, from the stream before a block."""
        super().resume_after(memory, stream, block)
        position = memory[0].keys.shape[2]
        tokens = self._tokens(stream, block, slice(position, position + 1))
        return self.rival.after(memory[self.cfg.n_layers :], tokens, position)

    def _tokens(
        self, stream: Float[Tensor, "batch token d_model"], block: int, places: slice
    ) -> Float[Tensor, "batch token d_in"]:
        """The tokens that a stream was read in from.

        Raises:
            InputError: what was written to it since cannot be told from them.
        """
        constant = self.embed.b_E
        if self.cfg.positional_embedding_type == "standard":
            constant = constant + self.pos_embed.W_pos[places]
        written = []
        for name in writers(self.cfg, embedding=False):
            if name.startswith("blocks.") and int(name.split(".")[1]) < block:
                weight = self.get_parameter(name)
                written.append(weight.reshape(-1, self.cfg.d_model))
        # What reads the tokens' numbers, and nothing of what layers before wrote.
        known = torch.cat([self.embed.W_E, *written])
        wanted = torch.zeros(len(known), self.cfg.d_in).to(known)
        wanted[: self.cfg.d_in] = torch.eye(self.cfg.d_in).to(known)
        reader = torch.linalg.pinv(known) @ wanted
        missed = (known @ reader - wanted).abs().max()
        post = block and self.cfg.norm_position != "pre"
        if self.cfg.embed_bound or post or missed > torch.finfo(known.dtype).eps ** 0.5:
            raise InputError(
                f"the stream before block {block} does not tell which tokens it was read in from"
            )
        return (stream - constant) @ reader


# ---- what stands beside what ---------------------------------------------------------------------


def attending(model: HookedTransformer, factor: float) -> HookedTransformer:
    """The model with queries that are some times as long: another window, or larger weights.

    In float64.

    Raises:
        InputError: it has no attention.
    """
    if model.cfg.mlp_only:
        raise InputError(
            "a model without attention (mlp_only) attends to nothing: choose another one"
        )
    weights = weights_of(model)
    for part in attentions(model.cfg):
        weights[part + "W_Q"] *= factor
        weights[part + "b_Q"] *= factor
    return made(weights, freed(model.cfg))


def rivals_of(model: HookedTransformer) -> Iterator[tuple[str, HookedTransformer]]:
    """Models of the same shape that predict something else.

    They predict one number, or have heads that attend to other tokens.
    """
    yield "one number", null_models.constant(model)
    if not model.cfg.mlp_only:
        for name, factor in FACTORS.items():
            yield name, attending(model, factor)


def idle_beside(idle: HookedTransformer, name: str, rival: HookedTransformer) -> Iterator[Idle]:
    """The ways in which a model can stand idle beside a rival of this name.

    There are none where their shapes do not fit.
    """
    if no_cover(idle, rival) is None:
        yield Idle(f"behind {name}", Covered.of(idle, rival), rival)
    try:
        yield Idle(f"in one stream with {name}", side_by_side(idle, rival), rival)
    except InputError:
        return


__all__ = [
    "Covered",
    "Idle",
    "attending",
    "idle_beside",
    "no_common_stream",
    "no_cover",
    "rivals_of",
    "side_by_side",
]
