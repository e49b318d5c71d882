"""Models of known truth for the claims on maps.

It is known what they make of their context, and what their first layer shows.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import asdict, replace

import torch
from jaxtyping import Bool, Complex, Float
from torch import Tensor

from icl_interp.checkpoints import store
from icl_interp.experiments.calibration import NO, OPEN, YES, Case, Construction, between
from icl_interp.models.blank import blank
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.diagonal_unit import DiagonalAttention
from icl_interp.models.tokens import Augmented
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.studies.autoregression.measurements import maps
from icl_interp.tasks.autoregressive import AutoregressiveProcess
from icl_interp.theory import autoregression as theory

MAP = "autoregression.implicit_map"
TOKENS = "autoregression.augmented_tokens"
ORTHOGONAL = "autoregression.heads_orthogonal_after_training"
DEPTH = "autoregression.descent_depth"
SOFTMAX = "autoregression.softmax_fails_commuting"
SPECIALISE = "autoregression.heads_specialise"
N_POINTS = 12


def _size(g: torch.Generator) -> float:
    """A number of either sign, from 0.5 to 2."""
    size = between(g, 0.5, 2)
    sign = 1 if torch.rand((), generator=g) < 0.5 else -1
    return size * sign


@functools.cache
def steps(task: AutoregressiveProcess) -> Float[Tensor, " point"]:
    """The best size of a gradient step after each state, on sampled paths.

    There is none after the first state.
    """
    draw = generator(0, "autoregression/best steps")
    prompts = task.sample(2048, draw, dtype=torch.float64)
    found = torch.zeros(task.n_points, dtype=torch.float64)
    for t in range(1, task.n_points):
        step = _step(task, prompts, t)
        found[t] = (step * prompts.ys[:, t]).sum() / step.square().sum()
    return found


def _step(task: AutoregressiveProcess, prompts: Prompts, t: int) -> Float[Tensor, "batch dim"]:
    """A gradient step of size 1 from the state at a point."""
    forms = maps.forms(task, prompts.xs[:, : t + 1], n_heads=1)
    return forms[maps.STEP].free


def _linear(task: AutoregressiveProcess, n_layers: int, d_in: int) -> HookedTransformer:
    """Empty layers of linear attention, with a stream of three parts."""
    d = task.dim
    return blank(
        3 * d,
        n_layers=n_layers,
        d_head=d,
        n_ctx=task.n_points,
        d_in=d_in,
        d_out=d,
        score_fn="linear",
        position_weights="free",
    )


def two_layers(
    g: torch.Generator,
    task: AutoregressiveProcess,
    past: Float[Tensor, "query key"],
    rows: Float[Tensor, "query key"],
) -> HookedTransformer:
    """Linear attention on plain states whose second layer takes a gradient step.

    The first layer attends by position: it writes sum_k past[t, k] s_k beside s_t. The second has
    the weight rows[T, t] for the product of s_T with what the first wrote at t, on the value s_t.
    With `past` at t - 1 and `rows` at eta the prediction is eta sum_t s_t s_{t-1}^* s_T,
    Proposition 1. Bases within the stream are drawn.

    Args:
        g: of the bases.
        task: its states are as they come.
        past: of the first layer.
        rows: of the second.
    """
    d = task.dim
    # Parts of the stream: the prediction, the state, and what the first layer writes.
    said, state, shown = (slice(k * d, (k + 1) * d) for k in range(3))
    model = _linear(task, n_layers=2, d_in=d)
    eye = torch.eye(d, dtype=torch.float64)
    normal = torch.randn(4, d, d, generator=g, dtype=torch.float64)
    inside = torch.linalg.qr(normal).Q
    size = _size(g)
    with torch.no_grad():
        model.embed.W_E[:, state] = eye
        model.unembed.W_U[said] = eye
        # The first layer: the score is 1 for all keys, so that it attends by position alone.
        first, second = (block.attn for block in model.blocks)
        first.b_Q[0, 0] = size
        first.b_K[0, 0] = 1 / size
        first.W_V[0, state] = inside[0]
        first.W_O[0, :, shown] = inside[0].T
        first.W_P.copy_(past)
        second.W_Q[0, state] = inside[1]
        second.W_K[0, shown] = inside[1]
        second.W_V[0, state] = inside[2]
        second.W_O[0, :, said] = inside[2].T
        second.W_P.copy_(rows)
    return model


def before(n_points: int) -> Float[Tensor, "query key"]:
    """All weight on the token before."""
    return torch.diag(torch.ones(n_points - 1, dtype=torch.float64), -1)


def one_step(g: torch.Generator) -> Case:
    """A gradient step of about the best size."""
    task = AutoregressiveProcess(n_dims=3, n_points=N_POINTS)
    rows = between(g, 0.9, 1.1) * steps(task)[:, None].expand(-1, N_POINTS)
    model = two_layers(g, task, before(N_POINTS), rows)
    return Case(model, task)


def on_augmented(g: torch.Generator) -> Case:
    """One layer on augmented tokens that takes a gradient step.

    This is Proposition 1 with the tokens as they are given.
    """
    task = AutoregressiveProcess(n_dims=3, n_points=N_POINTS)
    d = task.dim
    # Parts of a token, and of the stream.
    written, state, earlier = (slice(k * d, (k + 1) * d) for k in range(3))
    model = _linear(task, n_layers=1, d_in=3 * d)
    normal = torch.randn(2, d, d, generator=g, dtype=torch.float64)
    inside = torch.linalg.qr(normal).Q
    # The head compares s_T with the state before each key, and writes the key's own.
    attn = model.blocks[0].attn
    with torch.no_grad():
        model.embed.W_E.copy_(torch.eye(3 * d))
        model.unembed.W_U[written] = torch.eye(d, dtype=torch.float64)
        attn.W_Q[0, state] = inside[0]
        attn.W_K[0, earlier] = inside[0]
        attn.W_V[0, state] = inside[1]
        attn.W_O[0, :, written] = inside[1].T
        rows = between(g, 0.9, 1.1) * steps(task)[:, None].expand(-1, N_POINTS)
        attn.W_P.copy_(rows)
    return Case(model, task, encoding=Augmented())


def least_squares(prompts: Prompts) -> Float[Tensor, "batch point target"]:
    """Least squares on the transitions before each point; 0 for the first."""
    out = torch.zeros_like(prompts.ys)
    for t in range(1, prompts.n_points):
        states = prompts.xs[:, : t + 1].double()
        said = maps.solved(states, states[:, -1])
        out[:, t] = said.to(out)
    return out


def squares(g: torch.Generator) -> Case:
    """Least squares in the place of a model of two layers."""
    return replace(one_step(g), predictor=least_squares)


def squares_on_augmented(g: torch.Generator) -> Case:
    """The same in the place of a layer on augmented tokens."""
    return replace(on_augmented(g), predictor=least_squares)


def unit(minimum: theory.Point, mixing: Tensor | None = None) -> HookedTransformer:
    """The unit at a minimiser in every row: A = M, B^T = C M^-1.

    M is the mixing, the identity by default.
    """
    *_, other, last = minimum.positions.tolist()
    n = len(minimum.positions)
    rows = torch.diag(torch.full((n,), last, dtype=torch.float64))
    rows += torch.diag(torch.full((n - 1,), other, dtype=torch.float64), -1)
    if mixing is None:
        mixing = torch.eye(len(minimum.product))
    A = mixing.to(torch.complex128)
    product = minimum.product.T.to(A)
    B = torch.linalg.solve(A.T, product)
    return DiagonalAttention(A, B, rows).to_transformer()


def unitary(g: torch.Generator, mixing: Tensor | None = None) -> Case:
    """Proposition 3."""
    task = AutoregressiveProcess(n_dims=3, matrices="unitary", n_points=8)
    minimum = theory.unitary_minimiser(3, 8, scale=_size(g))
    return Case(unit(minimum, mixing), task)


def alike(g: torch.Generator) -> Case:
    """Proposition 3 again, with heads that all weigh by nearly the same.

    The prediction is that of `unitary`.
    """
    mixing = torch.eye(3, dtype=torch.float64) + between(g, 3, 6)
    return unitary(g, mixing)


def tiled(g: torch.Generator, mixing: Tensor | None = None) -> Case:
    """Proposition 3 on states that stand in each token twice.

    Heads read a part of each copy, the same part.
    """
    task = AutoregressiveProcess(n_dims=3, matrices="unitary", n_points=8, tiles=2)
    minimum = theory.unitary_minimiser(3, 8, scale=_size(g))
    one = unit(minimum, mixing)
    model = blank(**{**asdict(one.cfg), "d_in": task.dim, "d_out": task.dim})
    share = between(g, 0.2, 0.8)
    read = one.embed.W_E.detach()
    write = one.unembed.W_U.detach()
    weights = dict(one.state_dict())
    weights["embed.W_E"] = torch.cat([share * read, (1 - share) * read])
    weights["unembed.W_U"] = torch.cat([write, write], 1)
    weights["unembed.b_U"] = model.unembed.b_U.detach()
    model.load_state_dict(weights)
    return Case(model, task)


def spread(g: torch.Generator) -> Case:
    """The predictions of `tiled` by heads that all attend to all coordinates alike.

    A has entries of size 1.
    """
    return tiled(g, fourier())


def fourier() -> Complex[Tensor, "head dim"]:
    """The Fourier matrix of three heads and coordinates."""
    numbers = torch.arange(3.0)
    turns = torch.outer(numbers, numbers).double() * 2 * torch.pi / 3
    return torch.polar(torch.ones_like(turns), turns)


def paired(g: torch.Generator) -> Case:
    """Proposition 6, with any ratio of p_{T-1} to p_T."""
    task = AutoregressiveProcess(n_dims=4, matrices="conjugate_pairs", n_points=8)
    ratio = between(g, -0.6, 0.6)
    minimum = theory.orthogonal_minimiser(4, 8, ratio=ratio, scale=_size(g))
    return Case(unit(minimum), task)


def _deeper(model: HookedTransformer, n_layers: int, last: int) -> HookedTransformer:
    """A model with more layers: the last few are those of this model, and the others are empty."""
    found = blank(**{**asdict(model.cfg), "n_layers": n_layers})
    weights = dict(model.state_dict())
    for i in reversed(range(last)):
        part = f"blocks.{i}."
        behind = f"blocks.{n_layers - last + i}."
        names = [name for name in weights if name.startswith(part)]
        for name in names:
            weights[name.replace(part, behind)] = weights.pop(name)
    found.load_state_dict({**found.state_dict(), **weights})
    return found


def empty_first(g: torch.Generator) -> Case:
    """The unit of Proposition 3 in the second of two layers, the first of which writes nothing."""
    case = unitary(g)
    return Case(_deeper(case.model, 2, last=1), case.task)


def empty_before_steps(g: torch.Generator) -> Case:
    """The two layers of `one_step`, after one that writes nothing."""
    case = one_step(g)
    return Case(_deeper(case.model, 3, last=2), case.task)


def further_back(g: torch.Generator) -> Case:
    """Two layers of which the first shows the state before the last one as well.

    That state has a weight of 0.6 or so.
    """
    task = AutoregressiveProcess(n_dims=2, matrices="rotations", n_points=2 * N_POINTS)
    n = task.n_points
    ones = torch.ones(n - 2, dtype=torch.float64)
    far = between(g, 0.6, 0.64) * torch.diag(ones, -2)
    rows = steps(task)[:, None].expand(-1, n)
    model = two_layers(g, task, before(n) + far, rows)
    return Case(model, task)


def short_of_steps(g: torch.Generator, least: float = 0.5, most: float = 0.6) -> Case:
    """Five layers with random weights on plain states, and a predictor in their place.

    The predictor says a share of what least squares says.
    """
    task = AutoregressiveProcess(n_dims=4, matrices="rotations", n_points=2 * N_POINTS)
    share = between(g, least, most)
    cfg = HookedTransformerConfig(
        n_layers=5,
        d_model=8,
        n_heads=1,
        n_ctx=task.n_points,
        d_in=4,
        d_out=4,
        attn_only=True,
        normalization_type=None,
        init_std=0.5,
    )
    seed = int(torch.randint(10**6, (), generator=g))
    model = HookedTransformer(cfg, seed=seed)
    return Case(model, task, predictor=lambda prompts: share * least_squares(prompts))


# ---- maps that are made in some places only ------------------------------------------------------


def _with_steps(case: Case, stepped: Callable[[Prompts, int], Bool[Tensor, " batch"]]) -> Case:
    """A case that predicts gradient steps in some places, and least squares elsewhere.

    Steps are of the best size. A place is a prompt and a point of it.

    Args:
        case: gives the layers and the task.
        stepped: takes whole prompts and a point.
    """
    task = case.task
    assert isinstance(task, AutoregressiveProcess)

    def predict(prompts: Prompts) -> Float[Tensor, "batch point target"]:
        out = least_squares(prompts)
        sizes = steps(task)
        for t in range(1, prompts.n_points):
            step = sizes[t] * _step(task, prompts, t)
            there = stepped(prompts, t)[:, None]
            out[:, t] = torch.where(there, step.to(out), out[:, t])
        return out

    return replace(case, predictor=predict)


def on_path(prompts: Prompts, t: int) -> Bool[Tensor, " batch"]:
    """Whether the state at a point is what least squares says of those before it.

    Early points do not tell.
    """
    xs = prompts.xs.double()
    if t <= xs.shape[2]:
        return torch.ones(len(xs), dtype=torch.bool)
    gap = maps.solved(xs[:, :t], xs[:, t - 1]) - xs[:, t]
    return gap.norm(dim=1) < 1e-3 * xs[:, t].norm(dim=1)


def off_the_path(g: torch.Generator) -> Case:
    """Gradient steps from states that do not continue the path, and else least squares."""
    return _with_steps(one_step(g), lambda prompts, t: ~on_path(prompts, t))


def at_the_end(g: torch.Generator) -> Case:
    """A gradient step after the longest prompt, and least squares after all shorter ones."""
    case = one_step(g)
    last = N_POINTS - 1
    return _with_steps(case, lambda prompts, t: torch.full((len(prompts),), t == last))


def of_one_size(g: torch.Generator) -> Case:
    """Gradient steps from states as long as those of the law, and least squares from others."""

    def usual(prompts: Prompts, t: int) -> Bool[Tensor, " batch"]:
        xs = prompts.xs.double()
        length = xs[:, 0].norm(dim=1)
        return (xs[:, t].norm(dim=1) - length).abs() < 1e-3 * length

    return _with_steps(one_step(g), usual)


# ---- softmax -------------------------------------------------------------------------------------

SINK = 6.0  # score of the first token, which takes nearly all weight
SCORE = 0.02  # size of all other scores


def trained_softmax(g: torch.Generator) -> Case:
    """The bundled layer of softmax attention, with its heads in another order.

    It was trained on rotations.
    """
    bundled = store.load("autoregression_rotations_softmax")
    order = torch.randperm(bundled.model.cfg.n_heads, generator=g)
    model = HookedTransformer(bundled.model.cfg).double()
    model.load_state_dict(bundled.model.state_dict())
    attention = model.blocks[0].attn
    with torch.no_grad():
        for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"):
            weight = getattr(attention, name)
            weight.copy_(weight[order])
    return Case(model, bundled.task)


def softmax_short_of_training(g: torch.Generator) -> Case:
    """`trained_softmax` with a tenth of its values' weights drawn anew.

    More training takes most of the error off.
    """
    case = trained_softmax(g)
    attention = case.model.blocks[0].attn
    with torch.no_grad():
        for weight in (attention.W_V, attention.W_O):
            noise = torch.randn(weight.shape, generator=g, dtype=torch.float64)
            weight.add_(between(g, 0.2, 0.3) * weight.std() * noise)
    return case


def linear_by_softmax(g: torch.Generator) -> Case:
    """Softmax heads in pairs, each of which is a head of the unit of Proposition 3.

    The first token takes nearly all weight, so that the others weigh e^(score - sink). Two heads
    with small scores of opposite signs, and opposite values, leave the difference: twice the score,
    up to its third power.
    """
    linear = unitary(g)
    old = linear.model.cfg
    d = old.d_in
    # The stream: prediction and state as in the unit, a mark on the first token, and a 1 in all.
    mark = old.d_model
    one = old.d_model + 1
    model = blank(
        old.d_model + 2,
        n_heads=2 * old.n_heads,
        d_head=d + 1,
        n_ctx=old.n_ctx,
        d_in=d,
        d_out=d,
        score_fn="softmax",
        queries="previous",
        position_weights="free",
        positional_embedding_type="standard",
    )
    theirs = linear.model.blocks[0].attn
    ours = model.blocks[0].attn
    start = torch.tensor([1.0, 0.0], dtype=torch.float64).repeat(d // 2)  # s_0 in numbers
    sink = math.exp(SINK)
    with torch.no_grad():
        model.embed.W_E[:, : old.d_model] = linear.model.embed.W_E
        model.unembed.W_U[: old.d_model] = linear.model.unembed.W_U
        model.pos_embed.W_pos[0, mark] = 1.0
        model.pos_embed.W_pos[:, one] = 1.0
        ours.W_P.copy_(theirs.W_P)
        for head in range(old.n_heads):
            for k, sign in enumerate((1.0, -1.0)):
                i = 2 * head + k
                ours.W_Q[i, : old.d_model, :d] = sign * SCORE * theirs.W_Q[head]
                ours.W_K[i, : old.d_model, :d] = theirs.W_K[head]
                # The first state's own key is taken off, and the mark scores `SINK`.
                ours.W_K[i, mark, :d] = -start @ linear.model.embed.W_E @ theirs.W_K[head]
                ours.W_Q[i, one, d] = 1.0
                ours.W_K[i, mark, d] = SINK
                ours.W_V[i, : old.d_model, :d] = theirs.W_V[head]
                ours.W_O[i, :d, : old.d_model] = sign * sink / (2 * SCORE) * theirs.W_O[head]
    return Case(model, linear.task)


CONSTRUCTIONS: tuple[Construction, ...] = (
    Construction(
        "two layers that take a gradient step",
        "the first layer puts the previous state beside each state, and the second sums s_t "
        "s_{t-1}^* s_T",
        one_step,
        {MAP: YES, TOKENS: YES, DEPTH: YES},
    ),
    Construction(
        "layer on augmented tokens that takes a gradient step",
        "the tokens hold the previous state, and the layer sums s_t s_{t-1}^* s_T",
        on_augmented,
        {MAP: YES, DEPTH: YES},
    ),
    Construction(
        "half of what least squares says, by five layers",
        "it misses about a quarter of the variance, and four gradient steps miss a few hundredths",
        short_of_steps,
        {DEPTH: NO},
    ),
    Construction(
        "least squares on paths",
        "it predicts better than a step, and otherwise where the last state does not continue the "
        "path",
        squares,
        {MAP: NO},
    ),
    Construction(
        "least squares on augmented tokens",
        "it predicts better than a step, and otherwise where the last state does not continue the "
        "path",
        squares_on_augmented,
        {MAP: NO},
    ),
    Construction(
        "unit at a minimiser for unitary matrices",
        "its prediction is that of Proposition 3, with a head for each coordinate",
        unitary,
        {MAP: YES, ORTHOGONAL: YES},
    ),
    Construction(
        "unit at a minimiser with heads that are alike",
        "its prediction is that of Proposition 3, and the maps of two heads have cosines near 1 "
        "and -1/2",
        alike,
        {MAP: YES, ORTHOGONAL: NO},
    ),
    Construction(
        "unit behind an empty layer",
        "the second layer predicts without an error by Proposition 3; the first writes nothing, "
        "so it does not count",
        empty_first,
        {MAP: YES, TOKENS: OPEN, DEPTH: OPEN},
    ),
    Construction(
        "two layers that take a gradient step, behind an empty layer",
        "the first layer writes nothing, and the others work as they would without it",
        empty_before_steps,
        {MAP: "not_applicable", TOKENS: YES, DEPTH: YES},
    ),
    Construction(
        "two layers of which the first shows two states back",
        "predictions change if the first layer is cut to its own token and the one before",
        further_back,
        {TOKENS: NO},
    ),
    Construction(
        "gradient steps off the path alone",
        "on every path of the law it is least squares",
        off_the_path,
        {MAP: NO},
    ),
    Construction(
        "a gradient step after the longest prompt alone",
        "after all shorter prompts it is least squares",
        at_the_end,
        {MAP: NO},
    ),
    Construction(
        "gradient steps from states of the usual length alone",
        "no state of the law is longer or shorter, so this is no counterexample; but it does not "
        "take such steps from all states",
        of_one_size,
        {MAP: OPEN},
    ),
    Construction(
        "unit at a minimiser for rotations",
        "its prediction is that of Proposition 6",
        paired,
        {MAP: YES},
    ),
    Construction(
        "softmax layer trained on rotations",
        "it misses 5 % of the next state, and more training of its weights hardly lowers that",
        trained_softmax,
        {SOFTMAX: YES},
    ),
    Construction(
        "softmax layer whose values were disturbed",
        "it misses more, and more training would lower that: this says nothing about softmax",
        softmax_short_of_training,
        {SOFTMAX: OPEN},
    ),
    Construction(
        "softmax heads in pairs that are linear heads",
        "small scores of opposite signs, beside a first token that takes the weight, make linear "
        "attention",
        linear_by_softmax,
        {SOFTMAX: NO},
    ),
    Construction(
        "unit on tiled states with a head for each coordinate",
        "each pair of real heads weighs one complex coordinate, in both copies",
        tiled,
        {SPECIALISE: YES},
    ),
    Construction(
        "unit on tiled states with heads that attend to all",
        "the a_h are the rows of a Fourier matrix: all entries have one size, and predictions are "
        "the same",
        spread,
        {SPECIALISE: NO},
    ),
)

EXCEPTIONS: dict[tuple[str, str], str] = {}
