"""A model's weights stacked over layers, and output directions, under TransformerLens' names."""

from dataclasses import replace
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, shown
from icl_interp.models import folding
from icl_interp.models.blocks import Blocks, Embed, PosEmbed, Unembed
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.hooks import FactoredMatrix
from icl_interp.models.layers import Norm, TanhNorm


class WeightProperties:
    """The weights that analyses read off a model at once.

    Among them are `W_Q` of every layer, the read-out of a channel, and sums of biases.
    """

    # What the model that inherits these has.
    cfg: HookedTransformerConfig
    embed: Embed
    pos_embed: PosEmbed
    blocks: Blocks
    ln_final: Norm | TanhNorm
    unembed: Unembed

    @property
    def W_E(self) -> Float[Tensor, "d_in d_model"]:
        """The read-in matrix."""
        return self.embed.W_E

    @property
    def W_pos(self) -> Float[Tensor, "n_ctx d_model"]:
        """A vector for each position."""
        if (kind := self.cfg.positional_embedding_type) != "standard":
            raise InputError(f"this model has no W_pos (positional_embedding_type={kind!r})")
        return self.pos_embed.W_pos

    @property
    def read_in_bias(self) -> Float[Tensor, " d_model"]:
        """What every token of the stream gets: `b_E`, and the vector that all positions share.

        Raises:
            InputError: vectors of positions differ, or positions act on scores.
        """
        if self.cfg.positions_in_scores:
            raise InputError(
                "positions act on this model's scores (positional_embedding_type="
                f"{self.cfg.positional_embedding_type!r}), so its tokens differ by their places"
            )
        if self.shape.positional_embedding_type != "none":
            raise InputError("this model adds another vector to each token: its positions differ")
        b_E = self.embed.b_E
        return b_E if self.cfg.positional_embedding_type == "none" else b_E + self.W_pos[0]

    @property
    def shape(self) -> HookedTransformerConfig:
        """The config of what weights compute: one vector at all positions is but a bias."""
        if self.cfg.positional_embedding_type != "standard" or self.W_pos.is_meta:
            return self.cfg
        differ = bool((self.W_pos != self.W_pos[:1]).any())
        return self.cfg if differ else replace(self.cfg, positional_embedding_type="none")

    @property
    def W_U(self) -> Float[Tensor, "d_model d_out"]:
        """The read-out matrix."""
        return self.unembed.W_U

    @property
    def b_U(self) -> Float[Tensor, " d_out"]:
        """The read-out's bias."""
        return self.unembed.b_U

    @property
    def W_Q(self) -> Float[Tensor, "layer head d_model d_head"]:
        """Every head's map to queries."""
        return self._stacked("attn", "W_Q")

    @property
    def W_K(self) -> Float[Tensor, "layer head d_model d_head"]:
        """Every head's map to keys."""
        return self._stacked("attn", "W_K")

    @property
    def W_V(self) -> Float[Tensor, "layer head d_model d_head"]:
        """Every head's map to values."""
        return self._stacked("attn", "W_V")

    @property
    def W_O(self) -> Float[Tensor, "layer head d_head d_model"]:
        """Every head's output map."""
        return self._stacked("attn", "W_O")

    @property
    def b_Q(self) -> Float[Tensor, "layer head d_head"]:
        """Biases of queries."""
        return self._stacked("attn", "b_Q")

    @property
    def b_K(self) -> Float[Tensor, "layer head d_head"]:
        """Biases of keys."""
        return self._stacked("attn", "b_K")

    @property
    def b_V(self) -> Float[Tensor, "layer head d_head"]:
        """Biases of values."""
        return self._stacked("attn", "b_V")

    @property
    def b_O(self) -> Float[Tensor, "layer d_model"]:
        """Biases of what each layer's attention writes."""
        return self._stacked("attn", "b_O")

    @property
    def W_in(self) -> Float[Tensor, "layer d_model d_mlp"]:
        """Every MLP's first matrix."""
        return self._stacked("mlp", "W_in")

    @property
    def b_in(self) -> Float[Tensor, "layer d_mlp"]:
        """Biases of the hidden units."""
        return self._stacked("mlp", "b_in")

    @property
    def W_out(self) -> Float[Tensor, "layer d_mlp d_model"]:
        """Every MLP's second matrix."""
        return self._stacked("mlp", "W_out")

    @property
    def b_out(self) -> Float[Tensor, "layer d_model"]:
        """Biases of what each layer's MLP writes."""
        return self._stacked("mlp", "b_out")

    @property
    def OV(self) -> FactoredMatrix:
        """Every head's map from its input to its output, (layer, head, d_model, d_model)."""
        return FactoredMatrix(self.W_V, self.W_O)

    @property
    def QK(self) -> FactoredMatrix:
        """Every head's bilinear form of query and key, (layer, head, d_model, d_model)."""
        return FactoredMatrix(self.W_Q, self.W_K.transpose(-1, -2))

    def folded(self) -> Self:
        """A new model of the same function: gains folded into what reads them, writers centred.

        `folded().OV` and `folded().QK` then hold all that a head does to the stream, as products of
        two factors whose singular values and vectors (`.S`, `.U`, `.V`) never need the whole map.

        Raises:
            InputError: a model whose norms do not stand before what reads the stream.

        >>> from icl_interp.models.transformer import HookedTransformer
        >>> config = HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2, init_std=1.0)
        >>> model = HookedTransformer(config).double()
        >>> tokens = torch.linspace(-1, 1, 5).double()[None, :, None]
        >>> bool((model.folded()(tokens) - model(tokens)).abs().max() < 1e-10)
        True
        >>> model.folded().OV.S.shape  # (layer, head, d_head)
        torch.Size([1, 2, 4])
        """
        return folding.folded(self)

    def _stacked(self, part: str, name: str) -> Tensor:
        """One weight of all layers."""
        if part == "attn" and self.cfg.mlp_only:
            raise InputError(f"this model has no attention (mlp_only), so it has no {name}")
        if part == "mlp" and self.cfg.attn_only:
            raise InputError(f"this model has no MLP (attn_only), so it has no {name}")
        return torch.stack([getattr(getattr(block, part), name) for block in self.blocks])

    def accumulated_bias(
        self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True
    ) -> Float[Tensor, " d_model"]:
        """Sum of the output biases of the blocks before `layer`.

        With `mlp_input`, the bias of this layer's attention is included.

        Raises:
            InputError: a norm stands between these biases and the stream.
        """
        if not self.cfg.heads_write_to_stream:
            raise InputError(
                "biases of sublayers do not add up in this model's stream: it normalises what each "
                "sublayer writes (norm_position='output')"
            )
        total = torch.zeros_like(self.unembed.W_U[:, 0])
        for i, block in enumerate(self.blocks[: layer + mlp_input]):
            if not self.cfg.mlp_only:
                total = total + block.attn.b_O
            if include_mlp_biases and not self.cfg.attn_only and i < layer:
                total = total + block.mlp.b_out
        return self.cfg.residual_scale * total

    def tokens_to_residual_directions(
        self, tokens: int | Tensor
    ) -> Float[Tensor, "*channels d_model"]:
        """The direction in the residual stream that an output channel reads.

        `ActivationCache.logit_attrs` calls this method.

        TransformerLens calls an output by its token; here it is a channel, 0 to d_out - 1. The
        final norm's gain is part of the direction (TransformerLens folds it into W_U beforehand),
        so that attributions of a whole decomposition add up to the prediction less what no prompt
        changes: b_U, and W_U applied to the norm's bias.

        Args:
            tokens: a channel, or a tensor of channels of any shape.

        Raises:
            InputError: text, or a channel that the model does not have.
        """
        d_out = self.cfg.d_out
        if not isinstance(tokens, (int, Tensor)):
            raise _no_channel(tokens, d_out)
        channels = torch.as_tensor(tokens)
        whole = not (channels.is_floating_point() or channels.dtype == torch.bool)
        if not whole or bool(((channels < 0) | (channels >= d_out)).any()):
            raise _no_channel(tokens, d_out)
        gain = getattr(self.ln_final, "w", None) if hasattr(self, "ln_final") else None
        directions = self.W_U if gain is None else gain[:, None] * self.W_U
        return directions.T[channels.to(directions.device)]

    def to_single_token(self, string: str) -> int:
        """TransformerLens' way from text to a token; there is no text here."""
        raise _no_channel(string, self.cfg.d_out)


def _no_channel(given: object, d_out: int) -> InputError:
    return InputError(
        f"an output is named by its channel, a whole number from 0 to {d_out - 1} or a tensor of "
        f"these, but got {shown(given)}"
    )
