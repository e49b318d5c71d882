"""Smoothers with kernels that no polynomial describes, and others.

In the others weights depend on more than the inputs, or a head stands idle.
"""

import math
from collections.abc import Callable, Sequence
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.analyses.sizes import N_CONTEXTS, N_UNITS
from icl_interp.experiments.calibration import Case, between
from icl_interp.models.attention import Attention, KeysValues
from icl_interp.models.blank import blank
from icl_interp.models.tokens import Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.tasks.distributions import Uniform
from icl_interp.tasks.functions import Polynomial

AFFINE = Polynomial(degrees=(1,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=20)
KNOTS = 400  # of the piecewise linear functions that an MLP computes
STEPS = 32  # of the ramps whose products make min(x, x')
# Coordinates of the stream: input, label, and those of features.
X = 0
Y = 1
FIRST = 2

Feature = Callable[[Float[Tensor, " point"]], Float[Tensor, " point"]]


# ---- kernels of scalar inputs --------------------------------------------------------------------


def with_features(features: Sequence[Feature]) -> HookedTransformer:
    """Two layers: an MLP writes features of x, and a head without scores averages the labels.

    Features are piecewise linear.
    """
    width = FIRST + len(features)
    model = blank(
        width,
        n_layers=2,
        d_head=width,
        d_mlp=KNOTS,
        n_ctx=AFFINE.n_points,
        d_in=2,
        act_fn="relu",
        attn_only=False,
        attention_dir="bidirectional",
        keys="labelled",
    )
    knots = torch.linspace(-1, 1, KNOTS + 1, dtype=torch.float64)
    values = torch.stack([feature(knots) for feature in features], 1)
    slopes = values.diff(dim=0) / knots.diff()[:, None]
    with torch.no_grad():
        model.embed.W_E[:, :FIRST] = torch.eye(2)
        # A unit of the MLP for each knot adds what the slope changes by there.
        mlp = model.blocks[0].mlp
        mlp.W_in[X] = 1
        starts = knots[:-1]
        mlp.b_in.copy_(-starts)
        mlp.W_out[:, FIRST:] = torch.cat([slopes[:1], slopes.diff(dim=0)])
        mlp.b_out[FIRST:] = values[0]
        attention = model.blocks[1].attn
        attention.W_K[0] = torch.eye(width)
        _averages_labels(attention, Y)
        model.unembed.W_U[Y, 0] = 1
    return model


def _averages_labels(attention: Attention, out: int) -> None:
    """The head averages labels and writes this into a coordinate of the stream."""
    attention.W_V[0, Y, 0] = 1
    attention.W_O[0, 0, out] = 1


def periodic(g: torch.Generator) -> Case:
    """Weights exp(b cos k (x - x_i)), up to several periods over the inputs' interval."""
    b = between(g, 6, 25)
    k = math.pi * between(g, 2.5, 4)
    return periodic_kernel(b, k)


def periodic_kernel(b: float, k: float) -> Case:
    """Weights exp(b cos k (x - x_i))."""
    model = with_features([lambda x: (k * x).cos(), lambda x: (k * x).sin()])
    with torch.no_grad():
        attention = model.blocks[1].attn
        attention.W_Q[0, FIRST:, FIRST:] = b * torch.eye(2)
    return Case(model, AFFINE, encoding=Stacked())


def laplace(g: torch.Generator) -> Case:
    """Weights exp(-|x - x_i| / h), from |x - x'| = x + x' - 2 min(x, x').

    min(x, x') + 1 is a sum of products of ramps, up to the ramps' width: the kernel is nearly
    Laplace's, and a kernel in any case.
    """
    h = between(g, 0.05, 0.2)
    width = 2 / STEPS
    starts = [-1 + width * i for i in range(STEPS)]
    ramps = [lambda x, at=at: ((x - at) / width).clamp(0, 1) for at in starts]
    model = with_features([*ramps, torch.ones_like])
    with torch.no_grad():
        attention = model.blocks[1].attn
        w_q = attention.W_Q[0]
        w_q[FIRST:-1, FIRST:-1] = 2 * width / h * torch.eye(STEPS)
        w_q[-1, X] = -1 / h  # the feature 1 of the query meets x of the example
    return Case(model, AFFINE, encoding=Stacked())


def tilted_by_labels(g: torch.Generator) -> Case:
    """Weights exp(c m x_i), where m is the mean label of the prompt.

    One head writes m, the next one reads it.
    """
    model = blank(
        4,
        n_layers=2,
        d_head=1,
        n_ctx=AFFINE.n_points,
        d_in=2,
        attention_dir="bidirectional",
        keys="labelled",
    )
    mean = 2
    out = 3
    with torch.no_grad():
        model.embed.W_E[:, :2] = torch.eye(2)
        first = model.blocks[0].attn
        second = model.blocks[1].attn
        _averages_labels(first, mean)
        _averages_labels(second, out)
        c = between(g, 20, 40)
        second.W_Q[0, mean, 0] = c
        second.W_K[0, X, 0] = 1
        model.unembed.W_U[out, 0] = 1
    # A report's own sample: half of it leaves a third of the draws open, since a kernel that is
    # found without a family needs many prompts to be told apart from this one.
    return Case(model, AFFINE, encoding=Stacked(), n_units=N_UNITS, n_contexts=N_CONTEXTS)


# ---- a head that stands idle ---------------------------------------------------------------------

Scores = Callable[[Tensor, Tensor, Tensor], Tensor]  # of (xs, ys, query), for each example


class SmoothedBeside(HookedTransformer):
    """A unit of equation (1) or (2) whose head has a share in the prediction.

    A smoother beside it makes the rest.

    It is one model: whole prompts, and queries after a context, give the same. Predictions before
    the query are the head's share alone.
    """

    scores: Scores
    share: float

    @classmethod
    def of(cls, unit: HookedTransformer, scores: Scores, share: float = 0.0) -> Self:
        """The unit with a smoother of these scores beside its head."""
        model = cls(unit.cfg).double()
        model.load_state_dict(unit.state_dict())
        model.scores = scores
        model.share = share
        return model.eval()

    def _smoothed(self, xs: Tensor, ys: Tensor, queries: Tensor) -> Tensor:
        """The average of the labels at each query, (batch, query, 1).

        It reads xs (batch, example, dim), ys (batch, example) and queries (batch, query, dim).
        """
        rows = [self.scores(xs, ys, query) for query in queries.unbind(1)]
        weights = torch.stack(rows, 1).softmax(-1)
        average = torch.einsum("bqn,bn->bq", weights, ys)
        rest = 1 - self.share
        return rest * average[..., None]

    def resume(
        self, stream: Tensor, block: int, positions: range | Sequence[int] | None = None
    ) -> Float[Tensor, "batch query d_out"]:
        """Whole prompts; the smoother reads the stream, which is the tokens."""
        d = stream.shape[-1] - 1
        xs = stream[:, :-1, :d]
        ys = stream[:, :-1, d]
        query = stream[:, -1:, :d]
        before = torch.zeros_like(stream[:, :-1, :1])
        added = torch.cat([before, self._smoothed(xs, ys, query)], 1)
        if positions is not None:
            added = added[:, list(positions)]
        own = super().resume(stream, block, positions)
        return self.share * own + added

    def resume_after(
        self, memory: list[KeysValues], stream: Tensor, block: int
    ) -> Float[Tensor, "batch token d_out"]:
        """Queries after a context.

        The head's keys and values are the inputs and the labels of the context.
        """
        d = stream.shape[-1] - 1
        context = memory[0]
        xs = context.keys[:, 0, :, :d]
        ys = context.values[:, 0, :, d]
        beside = self._smoothed(xs, ys, stream[..., :d])
        own = super().resume_after(memory, stream, block)
        return self.share * own + beside


def by_window(w: float) -> Scores:
    """Scores of the window w I."""
    return lambda xs, ys, query: w * torch.einsum("bnd,bd->bn", xs, query)


def by_window_and_labels(w: float, tilt: float) -> Scores:
    """The same, and more for small labels: a smoother that distrusts large ones."""
    untilted = by_window(w)
    return lambda xs, ys, query: untilted(xs, ys, query) - tilt * ys.abs()
