"""Models whose truth is known, with hand-set weights: what the claims are calibrated on.

Each construction is drawn at random within a family in which the verdict follows from the weights.

Source of the scalar attention layer: Naim & Asher (2025), appendix G.1, with tokens x_1, ..., x_p,
x embedded as x W. A head's scores are alpha x x_j and it writes the mixture of tokens times zeta.
Embedding with a single direction makes both exact: W_Q and W_K read x off the stream, W_V reads it
and W_O writes zeta.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from icl_interp.experiments.calibration import NO, OPEN, YES, Construction, between
from icl_interp.models.blank import blank
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer

N_CTX = 40
WIDTH = 8
N_POINTS = 20  # of the calibration's prompts
# Coordinates of the streams that are laid out by hand: the token (or x, with y in the next), what
# heads write, a mark.
TOKEN, LABEL, WRITTEN, MARK = range(4)
# Taken off a score to hide a key: more than x^2 at 1e10, so the pattern has an exact 0 there.
HIDDEN = 1e25
HARDMAX = "limits.softmax_hardmax"
UNIFORM = "limits.softmax_uniform"
SATURATES = "limits.layernorm_saturation"
CAUSE = "limits.layernorm_causes_saturation"
ERASED = "limits.context_erased"
LINEAR = "limits.linear_asymptote"
number = partial(between, dtype=torch.float64)  # what most families of this study draw


class Head(NamedTuple):
    """The weights of one head: views, so that what is written here is written into the model."""

    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor
    b_Q: Tensor


def head_of(model: HookedTransformer, layer: int = 0, at: int = 0) -> Head:
    """A head of a layer, the first one unless told otherwise."""
    attn = model.blocks[layer].attn
    return Head(attn.W_Q[at], attn.W_K[at], attn.W_V[at], attn.W_O[at], attn.b_Q[at])


def _uniform(g: torch.Generator, low: float, high: float, *shape: int) -> Tensor:
    unit = torch.rand(shape, generator=g, dtype=torch.float64)
    return unit * (high - low) + low


def _signed(g: torch.Generator, low: float, high: float, *shape: int) -> Tensor:
    """Numbers of random sign, bounded away from 0."""
    size = _uniform(g, low, high, *shape)
    sign = torch.randint(0, 2, shape, generator=g).mul(2).sub(1)
    return size * sign


def _direction(g: torch.Generator) -> Tensor:
    """A vector of unit size per coordinate whose centred part is not small."""
    vector = _signed(g, 0.5, 1.5, WIDTH)
    vector[0] = vector[0].abs()
    vector[1] = -vector[1].abs()
    return vector


def scalar_layer(
    g: torch.Generator,
    alpha: float,
    *,
    n_layers: int = 1,
    norm: Literal["LN"] | None = None,
    position: Literal["pre", "post"] = "pre",
    context: float = 0.0,
) -> HookedTransformer:
    """Attention over scalar tokens: scores alpha x x_j, the mixture written along a random zeta.

    With several layers the later ones have random weights that write more than they find, so that
    what they read of the context shows.

    Args:
        g: draws the weights.
        alpha: of the scores.
        n_layers: how many.
        norm: of every layer.
        position: of the norm.
        context: what the read-out makes of the mixture at least, of the slope of f without it.
    """
    model = blank(
        WIDTH,
        n_layers=n_layers,
        d_head=1,
        n_ctx=N_CTX,
        normalization_type=norm,
        norm_position=position,
    )
    embed = _direction(g)
    zeta = _signed(g, 0.3, 0.7, WIDTH)
    # The read-out sees both the stream and what the head writes.
    read_out = _signed(g, 0.5, 1.0, WIDTH)
    with torch.no_grad():
        for block in model.blocks:
            for name, parameter in block.attn.named_parameters():
                # Small scores: a layer that attends to one sign of token only would read the same
                # of every context.
                size = 2.0 if name in ("W_V", "W_O") else 0.1
                noise = torch.randn(parameter.shape, generator=g, dtype=torch.float64)
                parameter.copy_(noise * size)
        # The first layer is written down: it reads x off the stream and writes along zeta.
        for parameter in model.blocks[0].attn.parameters():
            parameter.zero_()
        first = head_of(model)
        reader = embed / embed.square().sum()
        first.W_K[:, 0] = reader
        first.W_V[:, 0] = reader
        first.W_Q[:, 0] = alpha * reader
        first.W_O[0] = zeta
        # The slope of f must be away from 0, or "one line" is a line whose slope is rounding.
        slope = read_out @ embed
        slope_with_head = read_out @ (embed + zeta)
        if slope_with_head * slope < 0 or slope.abs() < 0.5:
            read_out = read_out + embed * (1 - slope) / embed.square().sum()
        least = max(0.2, context * float((read_out @ embed).abs()))
        if (read_out @ zeta).abs() < least:
            read_out = read_out + zeta * (2 * least + 0.1) / zeta.square().sum()
        if n_layers > 1:
            # What the last layer reads of the context must be seen, whatever else is drawn.
            read_out = read_out + head_of(model, -1).W_O[0]
        model.embed.W_E.copy_(embed[None])
        model.unembed.W_U.copy_(read_out[:, None])
    return model


def random_pre_norm(g: torch.Generator, d_in: int = 1) -> HookedTransformer:
    """Two pre-norm blocks with MLPs and random weights of moderate size."""
    cfg = HookedTransformerConfig(
        n_layers=2, d_model=16, n_heads=2, d_mlp=32, n_ctx=N_CTX, d_in=d_in
    )
    model = HookedTransformer(cfg).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".ln" in name or name.startswith("ln_"):
                continue
            # Scores are kept small enough for no head to be near a hardmax, whatever the query.
            size = 0.25 if ".W_Q" in name or ".W_K" in name else 0.4
            noise = torch.randn(parameter.shape, generator=g, dtype=torch.float64)
            parameter.copy_(noise * size)
        read_in = model.embed.W_E
        read_in.copy_(_signed(g, 0.5, 1.5, d_in, 16))
        read_in[:, 0] = 1.0
        read_in[:, 1] = -1.0
    return model


def constant_read_in(g: torch.Generator) -> HookedTransformer:
    """`random_pre_norm` that reads x the same into every coordinate: centring removes it.

    Labels (stacked) are read.
    """
    model = random_pre_norm(g, d_in=2)
    with torch.no_grad():
        model.embed.W_E[0].fill_(float(_signed(g, 0.5, 1.5, 1)))
    return model


def blind_read_out(g: torch.Generator) -> HookedTransformer:
    """`random_pre_norm` whose read-out is orthogonal to the direction the stream takes far out.

    The plateau is c.
    """
    model = random_pre_norm(g)
    read_in = model.embed.W_E[0]
    far = read_in - read_in.mean()
    with torch.no_grad():
        read_out = model.unembed.W_U[:, 0]
        read_out -= far * (read_out @ far) / (far @ far)
    return model


def hand_set(g: torch.Generator, **change: Any) -> HookedTransformer:
    """All weights 0, but each number of a token has its coordinate, and the head's is read out.

    What makes scores, and what the head reads, is left to fill in.
    """
    settings = {"d_model": 4, "d_head": 2, "n_ctx": N_CTX}
    model = blank(**(settings | change))
    coordinates = range(model.cfg.d_in)
    with torch.no_grad():
        model.embed.W_E[coordinates, coordinates] = 1
        head_of(model).W_O[0, WRITTEN] = 1
        model.unembed.W_U[WRITTEN, 0] = float(_signed(g, 0.5, 1.5, 1))
    return model


def nadaraya_watson(g: torch.Generator, beta: float) -> HookedTransformer:
    """The labels of the context averaged with weights exp(beta x x_j).

    The query's own column is hidden by position.
    """
    model = hand_set(g, d_in=2, n_ctx=N_POINTS, positional_embedding_type="standard")
    with torch.no_grad():
        head = head_of(model)
        head.W_Q[TOKEN, 0] = beta
        head.W_K[TOKEN, 0] = 1
        head.W_V[LABEL, 0] = 1
        # The last position is marked, and the mark is taken off its score.
        model.pos_embed.W_pos[-1, MARK] = 1
        head.b_Q[1] = 1
        head.W_K[MARK, 1] = -HIDDEN
    return model


def linear_scores(g: torch.Generator) -> HookedTransformer:
    """Scores x x_j as weights, also the query's own x^2, on scalar tokens: f grows like x^3."""
    model = hand_set(g, score_fn="linear", score_norm="visible")
    with torch.no_grad():
        head = head_of(model)
        head.W_Q[TOKEN, 0] = float(_signed(g, 0.5, 2, 1))
        head.W_K[TOKEN, 0] = 1
        head.W_V[TOKEN, 0] = 1
        model.unembed.W_U[TOKEN, 0] = float(_signed(g, 0.5, 1.5, 1))
    return model


def gradient_step(g: torch.Generator) -> HookedTransformer:
    """f = eta / N sum_j y_j x_j x: one step of gradient descent on least squares, from 0.

    Source: von Oswald et al. (2023), *Transformers learn in-context by gradient descent*,
    Proposition 1.
    """
    model = hand_set(g, d_in=2, score_fn="linear", score_norm="labelled")
    with torch.no_grad():
        head = head_of(model)
        head.W_Q[TOKEN, 0] = number(g, 0.5, 2)
        head.W_K[TOKEN, 0] = 1
        head.W_V[LABEL, 0] = 1
    return model


def positional(
    g: torch.Generator, low: float, high: float, first: int, step: int
) -> HookedTransformer:
    """Scalar tokens, of which every step-th, from the first on, scores higher than the rest.

    So f = x + their mixture.
    """
    model = hand_set(g, positional_embedding_type="standard")
    with torch.no_grad():
        head = head_of(model)
        model.pos_embed.W_pos[first::step, MARK] = 1
        head.b_Q[1] = 1
        head.W_K[MARK, 1] = number(g, low, high)
        head.W_V[TOKEN, 0] = 1
        model.unembed.W_U[TOKEN, 0] = float(_signed(g, 0.5, 1.5, 1))
    return model


def nearly_hardmax(g: torch.Generator) -> HookedTransformer:
    """Far out a head puts .87 to .93 of its weight on the first token, and never more.

    So delta is about .1. The norm lets its scores level off: what makes them is a constant of the
    stream, which x drowns. A bias that the constant cancels in distribution is then left over.
    """
    model = blank(
        8,
        d_head=2,
        n_ctx=2 * N_POINTS,
        normalization_type="LN",
        positional_embedding_type="standard",
        eps=1e-12,
    )
    size = model.cfg.d_model
    mark = 10.0
    delta = number(g, 0.07, 0.13)
    gap = math.log((2 * N_POINTS - 2) * (1 - delta) / delta)
    pair = torch.tensor([1.0, -1.0])  # of no mean, so that centring leaves it
    with torch.no_grad():
        # Coordinates 0 and 1 hold x, 2 and 3 the constant, 4 and 5 the mark of the first token.
        model.embed.W_E[0, :2] = pair
        model.embed.b_E[2:4] = pair
        model.pos_embed.W_pos[0, 4:6] = mark * pair
        head = head_of(model)
        # The norm divides by sqrt(2 (x^2 + 1) / size) at the query, and by sqrt(2
        # (x^2 + 1 + mark^2) / size) there.
        head.W_K[4, 0] = math.sqrt(2 / size) * math.sqrt(1 + 1 / mark**2)
        head.b_Q[0] = gap
        head.W_Q[2, 0] = -gap / 1.8
        head.W_V[0, 1] = 1
        head.W_O[1, 6] = 1
        model.unembed.W_U[6, 0] = float(_signed(g, 0.5, 1.5, 1))
    return model


def unread(g: torch.Generator) -> HookedTransformer:
    """A hardmax far out that writes nothing: W_O = 0."""
    model = scalar_layer(g, float(_signed(g, 3, 6, 1)))
    with torch.no_grad():
        model.blocks[0].attn.W_O.zero_()
    return model


def late_onset(g: torch.Generator) -> HookedTransformer:
    """`constant_read_in` but for one part in 1e8 to 1e7, all of x that centring keeps.

    It wins beyond |x| = 1e6 only.
    """
    model = random_pre_norm(g, d_in=2)
    with torch.no_grad():
        read_in = model.embed.W_E[0].clone()
        share = 10 ** number(g, -8, -7)
        model.embed.W_E[0] = 1 + share * (read_in - read_in.mean())
    return model


def one_coordinate(g: torch.Generator) -> HookedTransformer:
    """`random_pre_norm` of width 1: centring leaves 0, and f is a constant."""
    cfg = HookedTransformerConfig(n_layers=1, d_model=1, n_heads=1, d_head=1, d_mlp=4, n_ctx=N_CTX)
    model = HookedTransformer(cfg).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(_signed(g, 0.3, 1.5, *parameter.shape))
    return model


def _alpha(
    low: float, high: float, sign: int, context: float = 0.0
) -> Callable[[torch.Generator], HookedTransformer]:
    return lambda g: scalar_layer(g, sign * number(g, low, high), context=context)


def _post(n_layers: int) -> Callable[[torch.Generator], HookedTransformer]:
    return lambda g: scalar_layer(g, number(g, 3, 6), n_layers=n_layers, norm="LN", position="post")


CONSTRUCTIONS: tuple[Construction, ...] = (
    Construction(
        "scalar layer, alpha > 0",
        "far out the query outweighs every token and attends to itself: f is one line and forgets "
        "the context",
        _alpha(3, 6, 1),
        {HARDMAX: YES, UNIFORM: NO, ERASED: OPEN, LINEAR: YES},
    ),
    Construction(
        "scalar layer, alpha < 0",
        "far out the head attends to the extreme token, which stays in the intercept",
        # Large, so that two tokens are hardly ever so close that 1e4 does not tell them apart. The
        # extreme token varies little between contexts, so it is read out large.
        _alpha(15, 30, -1, context=0.25),
        {HARDMAX: YES, UNIFORM: NO, LINEAR: YES},
    ),
    Construction(
        "scalar layer, alpha = 0",
        "all scores are 0: an exact average at every x",
        _alpha(0, 1e-12, 0),
        {HARDMAX: NO, UNIFORM: YES, LINEAR: YES},
    ),
    Construction(
        "one post-norm layer, alpha > 0",
        "the line of the first row, normalised: one plateau a direction, reached like 1/x",
        _post(1),
        {HARDMAX: YES, UNIFORM: NO, SATURATES: YES, CAUSE: YES},
    ),
    Construction(
        "two post-norm layers",
        "the second layer reads ordinary keys with a query that no longer moves: a plateau for "
        "each context",
        _post(2),
        {SATURATES: YES, CAUSE: YES},
    ),
    Construction(
        "pre-norm, random weights",
        "the stream grows like x W and the final norm divides by its size",
        random_pre_norm,
        {HARDMAX: NO, SATURATES: YES, CAUSE: YES, ERASED: OPEN},
    ),
    Construction(
        "pre-norm, read-in constant over the width",
        "centring removes the query: f never depended on its size, and no scale is the reason",
        constant_read_in,
        {HARDMAX: NO, SATURATES: OPEN, CAUSE: NO},
    ),
    Construction(
        "pre-norm, read-out blind to the far direction",
        "what grows is not read: the plateau is the certificate's centre",
        blind_read_out,
        {HARDMAX: NO, SATURATES: YES},
    ),
    Construction(
        "pre-norm, onset beyond the range",
        "one part in 1e7 of the read-in survives centring: f levels off farther out than is "
        "measured",
        late_onset,
        {SATURATES: OPEN, CAUSE: OPEN, ERASED: OPEN},
    ),
    Construction(
        "norm over one coordinate",
        "centring a single number leaves 0: a constant output, which no claim is about",
        one_coordinate,
        {SATURATES: OPEN, CAUSE: OPEN, ERASED: OPEN},
    ),
    Construction(
        "Nadaraya-Watson, beta = 0",
        "the plain mean of the labels, whatever the query is",
        lambda g: nadaraya_watson(g, 0.0),
        {HARDMAX: NO, UNIFORM: YES, LINEAR: OPEN},
    ),
    Construction(
        "Nadaraya-Watson, moderate beta",
        "in distribution a smooth average, far out the label of the extreme point",
        lambda g: nadaraya_watson(g, number(g, 15, 30)),
        {HARDMAX: YES, UNIFORM: NO, LINEAR: OPEN},
    ),
    Construction(
        "linear attention with a self term",
        "the query's own weight grows like its square: f is a cubic, not a line",
        linear_scores,
        {LINEAR: NO},
    ),
    Construction(
        "one step of gradient descent",
        "a line through 0, with the slope that the context asks for",
        gradient_step,
        {LINEAR: NO},
    ),
    Construction(
        "uniform over the labels",
        "it weights every y alike and no x, wherever the query is: an average, but not over all "
        "that the query sees",
        lambda g: positional(g, 25, 40, 1, 2),
        {HARDMAX: OPEN, UNIFORM: NO, LINEAR: YES},
    ),
    Construction(
        "sink on the first token",
        "all weight is on one token wherever the query is: distance did not make that hardmax, "
        "and no other head is left",
        lambda g: positional(g, 15, 25, 0, N_CTX),
        {HARDMAX: OPEN, UNIFORM: NO, LINEAR: YES},
    ),
    Construction(
        "nearly a hardmax",
        "far out a tenth of the weight stays on other tokens, however far the query goes",
        nearly_hardmax,
        {HARDMAX: NO},
    ),
    Construction(
        "a head that writes nothing",
        "far out a hardmax, but no prediction depends on it",
        unread,
        {HARDMAX: OPEN, UNIFORM: OPEN, ERASED: OPEN, LINEAR: OPEN},
    ),
)
