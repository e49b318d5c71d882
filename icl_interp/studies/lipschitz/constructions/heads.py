"""Models of known truth for four claims of `lipschitz`.

The claims are on smoothers, other Lipschitz constants, families and linear attention.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.experiments.calibration import NO, OPEN, YES, Case, Construction, between
from icl_interp.models.blank import LINEAR, blank
from icl_interp.models.single_layers import LinearSelfAttention
from icl_interp.models.softmax_unit import SoftmaxAttention
from icl_interp.models.transformer import HookedTransformer
from icl_interp.studies.lipschitz.constructions import kernels
from icl_interp.studies.lipschitz.constructions.units import COVARIANCE, OPTIMAL, unit_with
from icl_interp.studies.lipschitz.measurements import window_family
from icl_interp.studies.lipschitz.measurements.transfer_errors import best_window
from icl_interp.tasks.ridge import LinkName, RidgeFunction
from icl_interp.tasks.vectors import Sphere

SMOOTHER = "lipschitz.kernel_smoother"
TRANSFER = "lipschitz.transfer"
ADAPTS = "lipschitz.window_adapts"
STRAIGHT = "lipschitz.linear_attention_does_not_adapt"
# Labelled examples and coordinates, so that all draws share theory's table.
N = 40
D = 3
BOUND = 2.5  # of predictions, over L: no function of the task is as large
BUMPS = 36  # features of a point on the circle
HALF_ANGLE = math.radians(24)  # how far each feature reaches


def _task(
    g: torch.Generator,
    link: LinkName = "relu",
    noise: tuple[float, float] = (0.3, 0.5),
    dim: int = D,
    n: int = N,
) -> RidgeFunction:
    """Ridge functions on the unit sphere with L from 0.5 to 3, and noise relative to L."""
    lipschitz = between(g, 0.5, 3)
    noise_std = lipschitz * between(g, *noise)
    return RidgeFunction(
        inputs=Sphere(dim), link=link, lipschitz=lipschitz, noise_std=noise_std, n_points=n + 1
    )


# ---- smoothers -----------------------------------------------------------------------------------


def any_matrix(g: torch.Generator) -> Case:
    """The unit of equation (2) with a random M, neither symmetric nor of one sign."""
    task = _task(g)
    matrix = 2 * torch.randn(D, D, generator=g, dtype=torch.float64)
    unit = SoftmaxAttention.from_product(matrix)
    return Case(unit.to_transformer(N + 1), task)


def _weights(scale: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """W_K, W_Q and W_V of a unit with M = scale I that reads labels."""
    w_k, w_q, w_v = torch.zeros(3, D + 1, D + 1, dtype=torch.float64)
    w_k[:D, :D] = torch.eye(D)
    w_q[:D, :D] = scale * torch.eye(D)
    w_v[-1, -1] = 1
    return w_k, w_q, w_v


def weights_by_labels(g: torch.Generator, low: float = 5, high: float = 8) -> Case:
    """Scores grow with the label: what is read out is nearly the largest label."""
    task = _task(g, "linear")
    model = SoftmaxAttention(*_weights()).to_transformer(N + 1)
    with torch.no_grad():
        attention = model.blocks[0].attn
        slope = between(g, low, high) / task.lipschitz
        attention.W_K[0, -1, -1] = slope
        attention.b_Q[0, -1] = 1
    return Case(model, task)


def inputs_averaged(g: torch.Generator) -> Case:
    """Weights by a window, on a coordinate of the inputs in the place of the labels."""
    scale = between(g, 2, 6)
    w_k, w_q, w_v = _weights(scale)
    w_v[-1] = 0
    w_v[-1, 0] = 1
    unit = SoftmaxAttention(w_k, w_q, w_v)
    return Case(unit.to_transformer(N + 1), _task(g))


# ---- other Lipschitz constants -------------------------------------------------------------------


def at_best_window(g: torch.Generator) -> Case:
    """M = w* I for the task."""
    task = _task(g)
    matrix = best_window(task) * torch.eye(D, dtype=torch.float64)
    unit = SoftmaxAttention.from_product(matrix)
    return Case(unit.to_transformer(N + 1), task)


def bounded(g: torch.Generator, bound: float = BOUND) -> Case:
    """M = w* I, then an MLP that cuts predictions off at `bound` L.

    By default that is more than the task's functions reach.
    """
    task = _task(g)
    # Coordinates of the stream: x, the label, the average of the labels, and one to spare.
    label = D
    out = D + 1
    model = blank(
        D + 3,
        d_head=D,
        d_mlp=2,
        n_ctx=N + 1,
        d_in=D + 1,
        act_fn="relu",
        attn_only=False,
        attention_dir="bidirectional",
        keys="labelled",
    )
    with torch.no_grad():
        model.embed.W_E[: D + 1, : D + 1] = torch.eye(D + 1)
        attention = model.blocks[0].attn
        attention.W_K[0, :D] = torch.eye(D)
        attention.W_Q[0, :D] = best_window(task) * torch.eye(D)
        attention.W_V[0, label, 0] = 1
        attention.W_O[0, 0, out] = 1
        # The prediction p becomes p - (p - b)_+ + (-p - b)_+, where b = `bound` L.
        mlp = model.blocks[0].mlp
        mlp.W_in[out] = torch.tensor([1.0, -1.0])
        mlp.b_in.fill_(-(bound * task.lipschitz))
        mlp.W_out[:, out] = torch.tensor([-1.0, 1.0])
        model.unembed.W_U[out, 0] = 1
    return Case(model, task)


# ---- idle heads ----------------------------------------------------------------------------------


def idle_beside(factor: float, g: torch.Generator, tilt: float = 0.0, share: float = 0.0) -> Case:
    """M = w* I in a head that writes nothing, beside a smoother with a multiple of w*.

    The smoother may read labels too.
    """
    case = at_best_window(g)
    task = case.task
    assert isinstance(task, RidgeFunction)
    best = best_window(task)
    w = factor * best
    if tilt:
        scores = kernels.by_window_and_labels(w, tilt / task.lipschitz)
    else:
        scores = kernels.by_window(w)
    unit = unit_with(best * torch.eye(D, dtype=torch.float64), N + 1)
    model = kernels.SmoothedBeside.of(unit, scores, share)
    return Case(model, task)


# ---- families ------------------------------------------------------------------------------------


def in_family(factor: float, g: torch.Generator) -> Case:
    """M a multiple of w* I, on the task of the family that comes with the package.

    Its config says that it was trained as these runs were: that is what makes it one of them.
    """
    task = RidgeFunction(
        inputs=Sphere(window_family.D),
        link="relu",
        lipschitz=1.0,
        noise_std=between(g, 0.3, 1.0),
        n_points=window_family.N + 1,
    )
    window = factor * best_window(task)
    matrix = window * torch.eye(window_family.D, dtype=torch.float64)
    unit = unit_with(matrix, window_family.N + 1)
    recipe = window_family.recipe_of(window_family.UNIT)
    return Case(unit, task, training=recipe.training)


def typed_in(g: torch.Generator) -> Case:
    """M = w* I, and nothing tells that it was trained."""
    return replace(in_family(1.0, g), training=None)


def trained_otherwise(g: torch.Generator) -> Case:
    """M = w* I, of a run with another learning rate than the runs of the family."""
    case = in_family(1.0, g)
    assert case.training is not None
    rate = between(g, 0.1, 0.5) * case.training.learning_rate
    training = replace(case.training, learning_rate=rate)
    return replace(case, training=training)


# ---- linear attention ----------------------------------------------------------------------------


def straight(g: torch.Generator) -> Case:
    """Linear attention with M = c I, near the best."""
    task = _task(g)
    c = D * between(g, 0.6, 0.9)
    product = c * torch.eye(D, dtype=torch.float64)
    layer = LinearSelfAttention.from_product(product)
    return Case(layer.to_transformer(N + 1), task)


def bumps() -> Float[Tensor, "bump dim"]:
    """Directions of the features, evenly on the circle."""
    numbers = torch.arange(BUMPS, dtype=torch.float64)
    return _on_circle(2 * math.pi * numbers / BUMPS)


def _on_circle(angles: Float[Tensor, " point"]) -> Float[Tensor, "point dim"]:
    return torch.stack([angles.cos(), angles.sin()], -1)


def featured(g: torch.Generator) -> Case:
    """An MLP makes local features of each token; linear attention on these is a window."""
    d = 2
    task = _task(g, noise=(0.25, 0.35), dim=d, n=100)
    # Coordinates of the stream: x, the label, the prediction, and the features from `first` on.
    label = d
    out = d + 1
    first = d + 2
    model = blank(
        first + BUMPS,
        n_layers=2,
        d_head=BUMPS,
        d_mlp=BUMPS,
        n_ctx=task.n_points,
        d_in=d + 1,
        act_fn="relu",
        attn_only=False,
        **LINEAR,
    )
    directions = bumps()
    edge = math.cos(HALF_ANGLE)
    # The mean product of the features of two points: weights are divided by it.
    around = torch.linspace(0, 2 * math.pi, 2000, dtype=torch.float64)
    circle = _on_circle(around[:-1])
    features = (circle @ directions.T - edge).relu()
    products = features @ features[0]
    mean = float(products.mean())
    with torch.no_grad():
        model.embed.W_E[: d + 1, : d + 1] = torch.eye(d + 1)
        # The first layer's MLP adds the features to each token.
        mlp = model.blocks[0].mlp
        mlp.W_in[:d] = directions.T
        mlp.W_out[:, first:] = torch.eye(BUMPS)
        mlp.b_in.fill_(-edge)
        # The second layer's attention weighs labels by products of features.
        attention = model.blocks[1].attn
        attention.W_Q[0, first:] = torch.eye(BUMPS)
        attention.W_K[0, first:] = torch.eye(BUMPS)
        attention.W_V[0, label, 0] = 1
        attention.W_O[0, 0, out] = 1 / mean
        model.unembed.W_U[out, 0] = 1
    return Case(model, task)


Make = Callable[[torch.Generator], "Case | HookedTransformer"]

HEADS: tuple[Construction, ...] = (
    Construction(
        "softmax unit with any M",
        "it is a smoother by equation (2), whatever M is",
        any_matrix,
        {SMOOTHER: YES},
    ),
    Construction(
        "softmax unit whose scores read labels",
        "weights depend on labels: it predicts nearly the largest one",
        weights_by_labels,
        {SMOOTHER: NO},
    ),
    Construction(
        "softmax unit that averages inputs",
        "its weights are those of a kernel, but it does not average labels",
        inputs_averaged,
        {SMOOTHER: NO},
    ),
    Construction(
        "softmax unit at the best window, other L",
        "M = w* I: its risk is that of theory's window at every L'",
        at_best_window,
        {TRANSFER: YES, SMOOTHER: YES},
    ),
    Construction(
        "softmax unit with bounded predictions",
        "as good as the best window at its own L; at 10 L values lie beyond the bound",
        bounded,
        {TRANSFER: NO},
    ),
    Construction(
        "softmax unit at the best window, with a family",
        "the window of this task's L and noise, of a kind whose runs follow both",
        functools.partial(in_family, 1.0),
        {ADAPTS: YES},
    ),
    Construction(
        "softmax unit at four times the best window, with a family",
        "the window is not where runs of this kind have it",
        functools.partial(in_family, 4.0),
        {ADAPTS: NO},
    ),
    Construction(
        "softmax unit at the best window, typed in",
        "weights that were never trained show nothing about a kind of training",
        typed_in,
        {ADAPTS: "not_applicable"},
    ),
    Construction(
        "softmax unit at the best window, trained otherwise",
        "the runs that come with the package were trained with another learning rate",
        trained_otherwise,
        {ADAPTS: OPEN},
    ),
    Construction(
        "smoother with a periodic kernel",
        "weights exp(b cos k (x - x_i)) depend on the inputs alone, and no polynomial describes "
        "their logarithm",
        kernels.periodic,
        {SMOOTHER: YES},
    ),
    Construction(
        "smoother with a Laplace kernel",
        "weights exp(-|x - x_i| / h) depend on the inputs alone, and their logarithm has a kink",
        kernels.laplace,
        {SMOOTHER: YES},
    ),
    Construction(
        "smoother tilted by the mean label",
        "weights depend on the labels of the whole prompt, so they come from no kernel",
        kernels.tilted_by_labels,
        {SMOOTHER: NO},
    ),
    Construction(
        "idle softmax unit at the best window, beside a wide window",
        "M = w* I predicts nothing: the path beside it smooths with .3 w*, so M says nothing about "
        "the model",
        functools.partial(idle_beside, 0.3),
        {OPTIMAL: OPEN, COVARIANCE: OPEN, SMOOTHER: OPEN},
    ),
    Construction(
        "idle softmax unit at the best window, beside a narrow window",
        "M = w* I predicts nothing: the path beside it smooths with 4 w*",
        functools.partial(idle_beside, 4.0),
        {OPTIMAL: OPEN, COVARIANCE: OPEN, SMOOTHER: OPEN},
    ),
    Construction(
        "idle softmax unit at the best window, beside the same window",
        "what M says is right, but M is not what predicts",
        functools.partial(idle_beside, 1.0),
        {OPTIMAL: OPEN, COVARIANCE: OPEN, SMOOTHER: OPEN},
    ),
    Construction(
        "softmax unit at the best window with half of the prediction, beside a narrow window",
        "the other half is smoothed with 6 w*: M is used, but it does not make the prediction",
        functools.partial(idle_beside, 6.0, share=0.5),
        {OPTIMAL: OPEN, COVARIANCE: OPEN},
    ),
    Construction(
        "idle softmax unit at the best window, beside a smoother that reads labels",
        "the path weighs by labels as well, which no window does",
        functools.partial(idle_beside, 1.0, tilt=3.0),
        {OPTIMAL: OPEN, COVARIANCE: OPEN, SMOOTHER: OPEN},
    ),
    Construction(
        "linear attention with M = c I",
        "the weight of an example is x_i . x_q up to a factor",
        straight,
        {STRAIGHT: YES},
    ),
    Construction(
        "linear attention on local features",
        "products of features that are 0 far away make a window, and errors fall below a linear "
        "function's",
        featured,
        {STRAIGHT: NO},
    ),
)

EXCEPTIONS: dict[tuple[str, str], str] = {}
