"""Models of known truth for claims about attention, layers and the boundary of the plateau.

Several claims ask for a model that learned its task. The ones here do: they take a step of gradient
descent on least squares (linear attention), or smooth the labels of the context over the inputs
(softmax attention).
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.checkpoints.companions import Role
from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.experiments.calibration import NO, OPEN, YES, Case, Construction
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.studies.limits.constructions.layers import (
    CAUSE,
    ERASED,
    HIDDEN,
    LABEL,
    LINEAR,
    MARK,
    N_CTX,
    SATURATES,
    TOKEN,
    WRITTEN,
    hand_set,
    head_of,
    number,
    scalar_layer,
)
from icl_interp.tasks.distributions import Normal, Uniform
from icl_interp.tasks.functions import Polynomial
from icl_interp.tasks.regression import LinearRegression

FAILURE = "limits.layernorm_causes_failure"
IMMEDIATE = "limits.boundary_immediate"
HIGH_NORM = "limits.no_icl_at_high_norm"
NECESSARY = "limits.attention_necessary"
SUFFICIENT = "limits.attention_sufficient"
LAST = "limits.last_layer"
ALIKE = "limits.patterns_alike"
SQUARE = 4  # the coordinate that holds x^2, or a second mark
ALIGNED_WIDTH = 8
Path = Callable[[Float[Tensor, "batch token d_in"]], Float[Tensor, "batch token"]]


# ---- a step of gradient descent ------------------------------------------------------------------


def linear_task(g: torch.Generator, lean: float = 0.0) -> LinearRegression:
    """y = w x with 39 examples: one step of the right size misses 2 % of the variance of y.

    Args:
        g: draws the laws.
        lean: the mean of w, in units of its standard deviation.
    """
    half_width = number(g, 0.5, 2)
    spread = number(g, 0.5, 2)
    inputs = Uniform(-half_width, half_width)
    weights = Normal(spread, lean * spread)
    return LinearRegression(n_dims=1, inputs=inputs, weights=weights, n_points=N_CTX)


def _rate(g: torch.Generator, task: LinearRegression) -> float:
    """The step, within 5 % of 1 / E x^2, that takes w from 0 to sum_j y_j x_j / (n E x^2)."""
    return number(g, 0.95, 1.05) / task.inputs.std**2


def step_in_layers(g: torch.Generator, *shares: float, lean: float = 0.0, **change: Any) -> Case:
    """f = (rate / n) sum_j y_j x_j x, of which each layer writes a share.

    It is one step of gradient descent, from 0.

    Source: von Oswald et al. (2023), *Transformers learn in-context by gradient descent*,
    Proposition 1.
    """
    task = linear_task(g, lean)
    rate = _rate(g, task)
    settings = {"n_layers": len(shares), "d_in": 2, "score_fn": "linear", "score_norm": "labelled"}
    model = hand_set(g, **(settings | change))
    with torch.no_grad():
        for layer, share in enumerate(shares):
            head = head_of(model, layer)
            head.W_Q[TOKEN, 0] = rate
            head.W_K[TOKEN, 0] = 1
            head.W_V[LABEL, 0] = 1
            head.W_O[0, WRITTEN] = share / model.unembed.W_U[WRITTEN, 0]
    return Case(model, task)


def step_elsewhere(g: torch.Generator) -> Case:
    """The first layer writes the step where no read-out looks; the second carries it to one."""
    case = step_in_layers(g, 1.0, 0.0, d_model=5, positional_embedding_type="standard")
    model = case.model
    with torch.no_grad():
        first = head_of(model, 0)
        second = head_of(model, 1)
        size = float(first.W_O[0, WRITTEN])
        first.W_O[0, WRITTEN] = 0
        first.W_O[0, MARK] = 1
        for weights in (second.W_Q, second.W_K, second.W_V):
            weights.zero_()
        # The query attends to itself, with a weight of 1.
        model.pos_embed.W_pos[-1, SQUARE] = 1
        second.b_Q[0] = N_CTX - 1
        second.W_K[SQUARE, 0] = 1
        second.W_V[MARK, 0] = 1
        second.W_O[0, WRITTEN] = size
    return case


def step_in_first_and_rest(g: torch.Generator) -> Case:
    """The first of two layers writes at least 70 % of the step, the second what is left of it."""
    rest = number(g, 0, 0.3)
    return step_in_layers(g, 1 - rest, rest)


def step_twice(g: torch.Generator) -> Case:
    """The first layer takes the step and writes it where nothing reads it.

    The second takes it again for the read-out.
    """
    case = step_in_layers(g, 0.0, 1.0)
    with torch.no_grad():
        head_of(case.model).W_O[0, MARK] = number(g, 0.5, 2)
    return case


def step_and_norm(g: torch.Generator, cubic: tuple[float, float] = (0, 0)) -> Case:
    """A step, then LayerNorm of a stream in which a constant is the largest part.

    In distribution the norm divides by the constant. The constant is small enough for x to outweigh
    it at 10 half-widths. Each quantity has two coordinates of opposite sign, so that centring does
    nothing. With `cubic` (from, to) values read some of x too, what this adds to the slope is taken
    off by the read-out, and the query's own weight, which grows like x^2, makes f grow like x^3
    once frozen.
    """
    case = step_in_layers(g, 1.0, d_model=8, normalization_type="LN", norm_position="post")
    model = case.model
    task = case.task
    assert isinstance(task, LinearRegression)
    assert isinstance(task.weights, Normal)
    spread = task.weights.std
    constant = number(g, 2, 2.5) * task.inputs.interval[1]
    with torch.no_grad():
        attn = model.blocks[0].attn
        # The scale is to depend on the query, not on the function: what is written is small beside
        # x.
        attn.W_O *= 0.1 / spread
        model.unembed.W_U *= 10 * spread
        model.embed.b_E[MARK] = constant
        if cubic[1]:
            read = number(g, *cubic) * spread
            attn.W_V[0, TOKEN, 0] = read
            model.unembed.W_U[TOKEN, 0] = -read * attn.W_Q[0, TOKEN, 0] * task.inputs.std**2
        for mirrored in (model.embed.W_E, model.embed.b_E, attn.W_O):
            mirrored[..., 4:] = -mirrored[..., :4]
        model.unembed.W_U *= constant / 2  # the root of the mean square of two coordinates of eight
    return case


def idle_norm(g: torch.Generator) -> HookedTransformer:
    """A scalar layer and a norm whose eps outweighs every variance up to |x| = 1e6.

    The norm divides by a constant there. From about 1e12 on it divides by |x| as any norm does, and
    f is level: the onset lies beyond what is measured.
    """
    model = scalar_layer(g, number(g, 3, 6), norm="LN", position="post")
    idle = HookedTransformer(replace(model.cfg, eps=1e20)).double()
    idle.load_state_dict(model.state_dict())
    return idle


class Beside(HookedTransformer):
    """A transformer with a path beside its blocks: the path's prediction is added at each token.

    Only `forward` knows the path, so attention must look both ways (`remember` and `after` are for
    causal models).
    """

    path: Path

    @classmethod
    def of(cls, model: HookedTransformer, path: Path) -> "Beside":
        """The model with a path beside it."""
        found = cls(model.cfg).double()
        found.load_state_dict(model.state_dict())
        found.path = path
        return found

    def forward(
        self,
        tokens: Float[Tensor, "batch token d_in"],
        positions: range | Sequence[int] | None = None,
    ) -> Float[Tensor, "batch query d_out"]:
        """Predictions at every token, or at `positions` only."""
        predictions = super().forward(tokens, positions)
        added = self.path(tokens)[..., None]
        if positions is not None:
            added = added[:, list(positions)]
        return predictions + added


def step_beside_attention(g: torch.Generator, low: float, high: float) -> Case:
    """A share of the step is a sum over the prompt that no head takes, the rest is the head's."""
    share = number(g, low, high)
    case = step_in_layers(g, 1 - share, attention_dir="bidirectional")
    rate = head_of(case.model).W_Q[TOKEN, 0].item()

    def path(tokens: Tensor) -> Tensor:
        x = tokens[..., TOKEN]
        y = tokens[..., LABEL]
        products = (x * y)[:, :-1]
        return share * rate * products.mean(1, keepdim=True) * x

    return replace(case, model=Beside.of(case.model, path))


# ---- a stream that the read-out is aligned with --------------------------------------------------


def aligned(g: torch.Generator, low: float, high: float, **change: Any) -> HookedTransformer:
    """f = r x / sqrt(x^2 + x0^2), with an x0 from low to 1.2 high in every context.

    It is a pre-norm model. The final norm sees x v + b + m c with orthogonal v, b and c, and the
    read-out is along v. The head writes m, a mean of normalised tokens, so |m| is at most the root
    of the width, and c is small enough for that.
    """
    settings = {
        "n_layers": 1,
        "d_model": ALIGNED_WIDTH,
        "n_heads": 1,
        "d_head": 1,
        "n_ctx": N_CTX,
        "attn_only": True,
        "positional_embedding_type": "none",
    }
    model = HookedTransformer(HookedTransformerConfig(**(settings | change))).double()
    noise = torch.randn(ALIGNED_WIDTH, 4, generator=g, dtype=torch.float64)
    # The others are orthogonal to the constant vector, so that centring does nothing.
    noise[:, 0] = 1
    _, v, b, c = torch.linalg.qr(noise).Q.T
    x0 = number(g, low, high)
    size = number(g, 0.5, 2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_gain = name.endswith(("ln1.w", "ln_final.w"))
            parameter.fill_(1 if is_gain else 0)
        model.embed.W_E[0] = size * v
        model.embed.b_E[:] = size * x0 * b
        head = head_of(model)
        head.W_V[:, 0] = v
        head.W_O[0] = 0.6 * size * x0 / math.sqrt(ALIGNED_WIDTH) * c
        model.unembed.W_U[:, 0] = number(g, 0.5, 2) * v
    return model


def logarithm_beside(g: torch.Generator, low: float = 1, high: float = 2) -> Case:
    """An early plateau, plus log(1 + |x|) times once or twice the certificate's half-width.

    The logarithm is added after the last norm.
    """
    model = aligned(g, 0.3, 2, attention_dir="bidirectional")
    half_width = math.sqrt(ALIGNED_WIDTH) * model.unembed.W_U.norm().item()
    slope = number(g, low, high) * half_width

    def path(tokens: Tensor) -> Tensor:
        return slope * tokens[..., TOKEN].abs().log1p()

    return Case(Beside.of(model, path))


# ---- smoothing -----------------------------------------------------------------------------------


def smoother(g: torch.Generator, task: Polynomial, n_heads: int = 1) -> Case:
    """The labels of the context averaged with weights exp(-(x - x_j)^2 / (2 h^2)).

    Scores are (x x_j - x_j^2 / 2) / h^2. The MLP of the first layer makes the squares:
    gelu(z) + gelu(-z) is z erf(z / sqrt 2), which is sqrt(2 / pi) z^2 for small z. Without it the
    head prefers the extremes. Source: Nadaraya (1964), *On estimating regression*.
    """
    low, high = task.inputs.interval
    root = number(g, 14, 18) / (high - low)
    precision = root**2
    model = hand_set(
        g,
        n_layers=2,
        n_heads=n_heads,
        d_in=2,
        d_model=5,
        d_mlp=2,
        attn_only=False,
        positional_embedding_type="standard",
    )
    mlp = model.blocks[0].mlp
    small = 0.05 / max(abs(low), abs(high))
    with torch.no_grad():
        mlp.W_in[TOKEN] = torch.tensor([small, -small])
        mlp.W_out[:, SQUARE] = math.sqrt(math.pi / 2) / small**2
        # Scores: the first coordinate of keys makes x x_j, the second the square and the mask.
        model.pos_embed.W_pos[-1, MARK] = 1
        head = head_of(model, 1)
        head.W_Q[TOKEN, 0] = precision
        head.W_K[TOKEN, 0] = 1
        head.b_Q[1] = 1
        head.W_K[SQUARE, 1] = -precision / 2
        head.W_K[MARK, 1] = -HIDDEN
        head.W_V[LABEL, 0] = 1
        head.W_O[0, WRITTEN] = 1 / model.unembed.W_U[WRITTEN, 0]
    return Case(model, task)


def smoother_beside_attention_only(g: torch.Generator) -> Case:
    """A smoother of centred polynomials, and beside it the same without its MLPs."""
    half_width = number(g, 0.5, 2)
    size = number(g, 0.5, 2)
    inputs = Uniform(-half_width, half_width)
    coefficients = Uniform(-size, size)
    task = Polynomial(degrees=(1, 2), inputs=inputs, coefficients=coefficients, n_points=N_CTX)
    case = smoother(g, task)
    other = HookedTransformer(replace(case.model.cfg, attn_only=True)).double()
    weights = case.model.state_dict()
    other.load_state_dict({name: weights[name] for name in other.state_dict()})
    config = RunConfig(other.cfg, task, "stacked")
    beside = Checkpoint(other, task, Stacked(), config)
    return replace(case, companions={Role("attention only"): beside})


def smoother_that_tells_degrees(g: torch.Generator, low: float = 15, high: float = 25) -> Case:
    """A smoother with a second head that attends to the largest labels, if no line reaches them.

    With coefficients from 1 to 1.2 and inputs from 0.5 to 1.5 lines stay below 3, and degree 2
    reaches 4 at x = 1.4. The head adds a twentieth of what it attends to, so that little depends on
    it.
    """
    task = Polynomial(
        degrees=(1, 2), inputs=Uniform(0.5, 1.5), coefficients=Uniform(1, 1.2), n_points=N_CTX
    )
    case = smoother(g, task, n_heads=2)
    model = case.model
    with torch.no_grad():
        second = head_of(model, 1, 1)
        second.b_Q[0] = number(g, low, high)
        second.W_K[LABEL, 0] = 1
        second.W_K[MARK, 0] = number(g, 3.3, 3.7)  # the query's own key, whose label is 0
        second.W_V[LABEL, 0] = 1
        second.W_O[0, WRITTEN] = 0.05 / model.unembed.W_U[WRITTEN, 0]
    return case


CONSTRUCTIONS: tuple[Construction, ...] = (
    Construction(
        "a step of gradient descent, learned",
        "the slope that the context asks for at a query of any size, from one head alone: without "
        "it 0, while a guess from the query alone would know the mean of slopes, which is 1.5 "
        "times their standard deviation",
        lambda g: step_in_layers(g, 1.0, lean=1.5),
        {HIGH_NORM: NO, ERASED: NO, LINEAR: NO, NECESSARY: YES},
    ),
    Construction(
        "a step of gradient descent on centred slopes",
        "without its head it predicts 0, the mean of the functions: exactly the error of the best "
        "guess without context",
        lambda g: step_in_layers(g, 1.0),
        {NECESSARY: YES},
    ),
    Construction(
        "a step in the last of two layers",
        "the first layer writes nothing, and the query alone tells no more than the mean of the "
        "functions",
        lambda g: step_in_layers(g, 0.0, 1.0, lean=1.5),
        {LAST: YES},
    ),
    Construction(
        "a step in the first of two layers",
        "the second layer writes a part of what the first has written already",
        step_in_first_and_rest,
        {LAST: NO},
    ),
    Construction(
        "a step in the first layer, in another basis",
        "the second layer carries what the first has written to where it is read: the prediction "
        "is there before it, and lost without it",
        step_elsewhere,
        {LAST: OPEN},
    ),
    Construction(
        "a step in both of two layers, read from the last",
        "nothing reads what the first layer writes; the prediction is made of what the second "
        "writes",
        step_twice,
        {LAST: YES},
    ),
    Construction(
        "a step and a norm",
        "in distribution the norm divides by a constant, far out by |x|; with the scale frozen f "
        "is right at any x",
        step_and_norm,
        {SATURATES: YES, CAUSE: YES, FAILURE: YES, ERASED: NO, HIGH_NORM: YES},
    ),
    Construction(
        "a step with a self term, and a norm",
        "with the scale frozen f grows like a cubic: the norm keeps the error small",
        functools.partial(step_and_norm, cubic=(0.2, 0.3)),
        {SATURATES: YES, CAUSE: YES, FAILURE: NO, HIGH_NORM: YES},
    ),
    Construction(
        "a norm that divides by its eps",
        "f is the line of the layer before the norm, 1e10 times smaller, until it levels off at "
        "about 1e12",
        idle_norm,
        {SATURATES: OPEN, CAUSE: OPEN},
    ),
    Construction(
        "a step beside attention",
        "with all heads at their mean at least 70 % of the step is left",
        functools.partial(step_beside_attention, low=0.7, high=0.95),
        {NECESSARY: NO},
    ),
    Construction(
        "a fifth of a step beside attention",
        "with all heads at their mean a fifth of the step is left, and so two thirds of the "
        "squared error",
        functools.partial(step_beside_attention, low=0.16, high=0.22),
        {NECESSARY: OPEN},
    ),
    Construction(
        "an aligned stream, early plateau",
        "f is within r (x0 / x)^2 / 2 of its end, and x0 is at most 1.44; nothing is learned",
        lambda g: aligned(g, 0.3, 1.2),
        {SATURATES: YES, CAUSE: YES, ERASED: OPEN, IMMEDIATE: YES, HIGH_NORM: OPEN},
    ),
    Construction(
        "an aligned stream, late plateau",
        "f is within r (x0 / x)^2 / 2 of its end, and x0 is at least 60; untrained controls are "
        "level at once",
        lambda g: aligned(g, 60, 300),
        {SATURATES: YES, CAUSE: YES, IMMEDIATE: OPEN},
    ),
    Construction(
        "a logarithm after the last norm",
        "f grows by more than r each decade, for good",
        logarithm_beside,
        {SATURATES: NO, IMMEDIATE: OPEN},
    ),
    Construction(
        "a smoother, with and without MLPs",
        "patterns depend on inputs alone; without the squares that its MLP makes the head attends "
        "to the extreme point",
        smoother_beside_attention_only,
        {SUFFICIENT: OPEN, LAST: YES, ALIKE: YES},
    ),
    Construction(
        "a smoother that tells degrees",
        "for lines one of two heads attends to itself, for degree 2 to the largest labels",
        smoother_that_tells_degrees,
        {NECESSARY: YES, ALIKE: NO},
    ),
)
# What `icl_interp.testing.check_study` does not find in these, by (rule, subject), and why.
# What a norm does to a far query does not depend on the context, nor does the claim say so.
_QUERY = (
    "The claim is about the path of the query alone. A model that sees no context has that path as "
    "well."
)
EXCEPTIONS: dict[tuple[str, str], str] = {}
for _claim in (SATURATES, CAUSE, IMMEDIATE):
    EXCEPTIONS["ignorance", f"{_claim} of blind"] = _QUERY
    EXCEPTIONS["ignorance", f"{_claim} of all but blind"] = _QUERY
