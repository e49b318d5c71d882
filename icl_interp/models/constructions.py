"""Models whose truth is known, with hand-set weights: what the claims are calibrated on.

Each construction is drawn at random within a family in which the verdict follows from the weights. Names of the letters
in `EXPECTED`: supported, contradicted, inconclusive, not_applicable; a claim that is not listed is not scored.

Source of the scalar attention layer: Naim & Asher (2025), appendix G.1, with tokens x_1, ..., x_p, x embedded as x W.
A head's scores are alpha x x_j and it writes the mixture of tokens times zeta. Embedding with a single direction makes
both exact: W_Q and W_K read x off the stream, W_V reads it and W_O writes zeta.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator

N_CTX = 40
WIDTH = 8
HARDMAX, UNIFORM = "limits.softmax_hardmax", "limits.softmax_uniform"
SATURATES, CAUSE = "limits.layernorm_saturation", "limits.layernorm_causes_saturation"
ERASED, LINEAR, ORTHOGONAL = "limits.context_erased", "limits.linear_asymptote", "heads.orthogonality"
YES, NO, OPEN = "supported", "contradicted", "inconclusive"


@dataclass(frozen=True)
class Construction:
    """A family of models with a known truth.

    Attributes:
        name: short, for tables.
        why: the reason for the expected verdicts, in a sentence.
        build: a draw of the family, from a generator.
        expected: verdict by claim.
    """

    name: str
    why: str
    build: Callable[[torch.Generator], HookedTransformer]
    expected: dict[str, str]

    def draw(self, seed: int) -> HookedTransformer:
        """One member, in float64."""
        model = self.build(generator(seed, f"construction/{self.name}"))
        return model.double().eval()


def _uniform(g: torch.Generator, low: float, high: float, *shape: int) -> Tensor:
    return torch.rand(shape, generator=g, dtype=torch.float64) * (high - low) + low


def _signed(g: torch.Generator, low: float, high: float, *shape: int) -> Tensor:
    """Numbers of random sign, bounded away from 0."""
    return _uniform(g, low, high, *shape) * torch.randint(0, 2, shape, generator=g).mul(2).sub(1)


def _direction(g: torch.Generator) -> Tensor:
    """A vector of unit size per coordinate whose centred part is not small."""
    vector = _signed(g, 0.5, 1.5, WIDTH)
    vector[0], vector[1] = vector[0].abs(), -vector[1].abs()
    return vector


def scalar_layer(
    g: torch.Generator, alpha: float, *, n_layers: int = 1, norm: str | None = None, position: str = "pre"
) -> HookedTransformer:
    """Attention over scalar tokens: scores alpha x x_j, the mixture of tokens written along a random zeta.

    With several layers the later ones have random weights that write more than they find, so that what they read of the
    context shows.
    """
    cfg = HookedTransformerConfig(
        n_layers=n_layers, d_model=WIDTH, n_heads=1, d_head=1, n_ctx=N_CTX, attn_only=True, normalization_type=norm,
        norm_position=position, positional_embedding_type="none", use_attn_scale=False,
    )  # fmt: skip
    model = HookedTransformer(cfg).double()
    embed, zeta = _direction(g), _signed(g, 0.3, 0.7, WIDTH)
    # The read-out sees both the stream and what the head writes.
    read_out = _signed(g, 0.5, 1.0, WIDTH)
    with torch.no_grad():
        for block in model.blocks:
            for name, parameter in block.attn.named_parameters():
                # Small scores: a layer that attends to one sign of token only would read the same of every context.
                size = 2.0 if name in ("W_V", "W_O") else 0.1
                parameter.copy_(torch.randn(parameter.shape, generator=g, dtype=torch.float64) * size)
        first = model.blocks[0].attn
        for parameter in first.parameters():
            parameter.zero_()
        reader = embed / embed.square().sum()
        first.W_K[0, :, 0], first.W_V[0, :, 0], first.W_Q[0, :, 0] = reader, reader, alpha * reader
        first.W_O[0, 0] = zeta
        # The slope of f must be away from 0, or "one line" is a line whose slope is rounding.
        if read_out @ (embed + zeta) * (read_out @ embed) < 0 or (read_out @ embed).abs() < 0.5:
            read_out = read_out + embed * (1 - read_out @ embed) / embed.square().sum()
        if (read_out @ zeta).abs() < 0.2:
            read_out = read_out + zeta * 0.5 / zeta.square().sum()
        if n_layers > 1:
            # What the last layer reads of the context must be seen, whatever else is drawn.
            read_out = read_out + model.blocks[-1].attn.W_O[0, 0]
        model.embed.W_E.copy_(embed[None])
        model.unembed.W_U.copy_(read_out[:, None])
    return model


def random_pre_norm(g: torch.Generator, d_in: int = 1) -> HookedTransformer:
    """Two pre-norm blocks with MLPs and random weights of moderate size."""
    cfg = HookedTransformerConfig(n_layers=2, d_model=16, n_heads=2, d_mlp=32, n_ctx=N_CTX, d_in=d_in)
    model = HookedTransformer(cfg).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".ln" in name or name.startswith("ln_"):
                continue
            # Scores are kept small enough for no head to be near a hardmax, whatever the query.
            size = 0.25 if ".W_Q" in name or ".W_K" in name else 0.4
            parameter.copy_(torch.randn(parameter.shape, generator=g, dtype=torch.float64) * size)
        model.embed.W_E.copy_(_signed(g, 0.5, 1.5, d_in, 16))
        model.embed.W_E[:, 0], model.embed.W_E[:, 1] = 1.0, -1.0
    return model


def constant_read_in(g: torch.Generator) -> HookedTransformer:
    """`random_pre_norm` that reads x the same into every coordinate: centring removes it. Labels (stacked) are read."""
    model = random_pre_norm(g, d_in=2)
    with torch.no_grad():
        model.embed.W_E[0].fill_(float(_signed(g, 0.5, 1.5, 1)))
    return model


def blind_read_out(g: torch.Generator) -> HookedTransformer:
    """`random_pre_norm` whose read-out is orthogonal to the direction the stream takes far out: the plateau is c."""
    model = random_pre_norm(g)
    far = model.embed.W_E[0] - model.embed.W_E[0].mean()
    with torch.no_grad():
        read_out = model.unembed.W_U[:, 0]
        read_out -= far * (read_out @ far) / (far @ far)
    return model


def _alpha(low: float, high: float, sign: int) -> Callable[[torch.Generator], HookedTransformer]:
    return lambda g: scalar_layer(g, sign * float(_uniform(g, low, high, 1)))


def _post(n_layers: int) -> Callable[[torch.Generator], HookedTransformer]:
    return lambda g: scalar_layer(g, float(_uniform(g, 3, 6, 1)), n_layers=n_layers, norm="LN", position="post")


CONSTRUCTIONS: tuple[Construction, ...] = (
    Construction(
        "scalar layer, alpha > 0",
        "far out the query outweighs every token and attends to itself: f is one line and forgets the context",
        _alpha(3, 6, 1),
        {HARDMAX: YES, UNIFORM: NO, ERASED: YES, LINEAR: YES},
    ),
    Construction(
        "scalar layer, alpha < 0",
        "far out the head attends to the extreme token, which stays in the intercept",
        _alpha(3, 6, -1),
        {HARDMAX: YES, UNIFORM: NO, ERASED: NO, LINEAR: YES},
    ),
    Construction(
        "scalar layer, alpha = 0",
        "all scores are 0: an exact average at every x",
        _alpha(0, 1e-12, 0),
        {HARDMAX: NO, UNIFORM: YES, ERASED: NO, LINEAR: YES},
    ),
    Construction(
        "one post-norm layer, alpha > 0",
        "the line of the first row, normalised: one plateau a direction, reached like 1/x",
        _post(1),
        {HARDMAX: YES, UNIFORM: NO, SATURATES: YES, CAUSE: YES, ERASED: YES},
    ),
    Construction(
        "two post-norm layers",
        "the second layer reads ordinary keys with a query that stands still: a plateau for each context",
        _post(2),
        {SATURATES: YES, CAUSE: YES, ERASED: NO},
    ),
    Construction(
        "pre-norm, random weights",
        "the stream grows like x W and the final norm divides by its size",
        random_pre_norm,
        {HARDMAX: NO, SATURATES: YES, CAUSE: YES, ERASED: YES, ORTHOGONAL: OPEN},
    ),
    Construction(
        "pre-norm, read-in constant over the width",
        "centring removes the query: f never depended on its size, and no scale has anything to do with it",
        constant_read_in,
        {HARDMAX: NO, SATURATES: OPEN, CAUSE: NO, ERASED: NO},
    ),
    Construction(
        "pre-norm, read-out blind to the far direction",
        "what grows is not read: the plateau is the certificate's centre",
        blind_read_out,
        {HARDMAX: NO, SATURATES: YES, ERASED: YES},
    ),
)


def scalar_dial(score_range: float, seed: int) -> HookedTransformer:
    """A scalar layer whose alpha is a dial: from an average (0) to a hardmax (large), for power curves."""
    return scalar_layer(generator(seed, "construction/dial"), score_range).double().eval()
