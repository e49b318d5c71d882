"""Models of known truth for the claims on maps: what they make of their context, and what their first layer shows."""

import functools
from dataclasses import asdict, replace

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from icl_interp.experiments.calibration import NO, YES, Case, Construction, between
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

MAP, TOKENS, ORTHOGONAL, DEPTH, SOFTMAX, SPECIALISE = (
    f"autoregression.{name}"
    for name in (
        "implicit_map",
        "augmented_tokens",
        "heads_orthogonal_after_training",
        "descent_depth",
        "softmax_fails_commuting",
        "heads_specialise",
    )
)
N_POINTS = 12


def _size(g: torch.Generator) -> float:
    """A number of either sign, from 0.5 to 2."""
    return between(g, 0.5, 2) * (1 if torch.rand((), generator=g) < 0.5 else -1)


@functools.cache
def steps(task: AutoregressiveProcess) -> Float[Tensor, " point"]:
    """The best size of a gradient step after each state, on sampled paths; none after the first state."""
    prompts = task.sample(2048, generator(0, "autoregression/best steps"), dtype=torch.float64)
    found = torch.zeros(task.n_points, dtype=torch.float64)
    for t in range(1, task.n_points):
        step = maps.forms(task, prompts.xs[:, : t + 1], n_heads=1)[maps.STEP].free
        found[t] = (step * prompts.ys[:, t]).sum() / step.square().sum()
    return found


def two_layers(
    g: torch.Generator, task: AutoregressiveProcess, past: Float[Tensor, "query key"], rows: Float[Tensor, "query key"]
) -> HookedTransformer:
    """Linear attention on plain states: the first layer attends by position, the second takes a gradient step.

    The first writes sum_k past[t, k] s_k beside s_t, whatever the states are; the second has the weight rows[T, t] for
    the product of s_T with what the first has written at t, on the value s_t. With `past` at t - 1 and `rows` at eta
    the prediction is eta sum_t s_t s_{t-1}^* s_T, Proposition 1. Bases within the stream are drawn.

    Args:
        g: of the bases.
        task: its states are as they come.
        past: of the first layer.
        rows: of the second.
    """
    d = task.dim
    at = [slice(k * d, (k + 1) * d) for k in range(3)]  # the prediction, the state, what the first layer writes
    model = blank(
        3 * d, n_layers=2, d_head=d, n_ctx=task.n_points, d_in=d, d_out=d, score_fn="linear", position_weights="free"
    )
    eye = torch.eye(d, dtype=torch.float64)
    inside = torch.linalg.qr(torch.randn(4, d, d, generator=g, dtype=torch.float64)).Q
    size = _size(g)
    with torch.no_grad():
        model.embed.W_E[:, at[1]], model.unembed.W_U[at[0]] = eye, eye
        first, second = (block.attn for block in model.blocks)
        first.b_Q[0, 0], first.b_K[0, 0] = size, 1 / size  # the score is 1 for all keys
        first.W_V[0, at[1]], first.W_O[0, :, at[2]] = inside[0], inside[0].T
        first.W_P.copy_(past)
        second.W_Q[0, at[1]], second.W_K[0, at[2]] = inside[1], inside[1]
        second.W_V[0, at[1]], second.W_O[0, :, at[0]] = inside[2], inside[2].T
        second.W_P.copy_(rows)
    return model


def before(n_points: int) -> Float[Tensor, "query key"]:
    """All weight on the token before."""
    return torch.diag(torch.ones(n_points - 1, dtype=torch.float64), -1)


def _stepping(g: torch.Generator, task: AutoregressiveProcess, share: float) -> Case:
    """Steps of this share of the best size."""
    n = task.n_points
    return Case(two_layers(g, task, before(n), share * steps(task)[:, None].expand(-1, n)), task)


def one_step(g: torch.Generator) -> Case:
    """A gradient step of about the best size."""
    return _stepping(g, AutoregressiveProcess(n_dims=3, n_points=N_POINTS), between(g, 0.9, 1.1))


def on_augmented(g: torch.Generator) -> Case:
    """One layer on augmented tokens that takes a gradient step: Proposition 1 with the tokens as they are given."""
    task = AutoregressiveProcess(n_dims=3, n_points=N_POINTS)
    d, n = task.dim, task.n_points
    written, state, earlier = (slice(k * d, (k + 1) * d) for k in range(3))  # of a token, and of the stream
    model = blank(3 * d, n_layers=1, d_head=d, n_ctx=n, d_in=3 * d, d_out=d, score_fn="linear", position_weights="free")
    inside = torch.linalg.qr(torch.randn(2, d, d, generator=g, dtype=torch.float64)).Q
    with torch.no_grad():
        model.embed.W_E.copy_(torch.eye(3 * d))
        model.unembed.W_U[written] = torch.eye(d, dtype=torch.float64)
        (attn,) = (block.attn for block in model.blocks)
        attn.W_Q[0, state], attn.W_K[0, earlier] = inside[0], inside[0]
        attn.W_V[0, state], attn.W_O[0, :, written] = inside[1], inside[1].T
        attn.W_P.copy_(between(g, 0.9, 1.1) * steps(task)[:, None].expand(-1, n))
    return Case(model, task, encoding=Augmented())


def least_squares(prompts: Prompts) -> Float[Tensor, "batch point target"]:
    """Least squares on the transitions before each point; 0 for the first."""
    out = torch.zeros_like(prompts.ys)
    for t in range(1, prompts.n_points):
        states = prompts.xs[:, : t + 1].double()
        out[:, t] = maps.solved(states, states[:, -1]).to(out)
    return out


def squares(g: torch.Generator) -> Case:
    """Least squares in the place of a model of two layers."""
    case = one_step(g)
    return Case(case.model, case.task, predictor=least_squares)


def squares_on_augmented(g: torch.Generator) -> Case:
    """The same in the place of a layer on augmented tokens."""
    return replace(on_augmented(g), predictor=least_squares)


def unit(minimum: theory.Point, mixing: Tensor | None = None) -> HookedTransformer:
    """The unit at a minimiser in every row: A = M, B^T = C M^-1 with the mixing M, the identity by default."""
    *_, other, last = minimum.positions.tolist()
    n, d = len(minimum.positions), len(minimum.product)
    rows = torch.diag(torch.full((n,), last, dtype=torch.float64))
    rows += torch.diag(torch.full((n - 1,), other, dtype=torch.float64), -1)
    A = (torch.eye(d) if mixing is None else mixing).to(torch.complex128)
    B = torch.linalg.solve(A.T, minimum.product.T.to(torch.complex128))
    return DiagonalAttention(A, B, rows).to_transformer()


def unitary(g: torch.Generator) -> Case:
    """Proposition 3."""
    task = AutoregressiveProcess(n_dims=3, matrices="unitary", n_points=8)
    return Case(unit(theory.unitary_minimiser(3, 8, scale=_size(g))), task)


def alike(g: torch.Generator) -> Case:
    """Proposition 3 again, with heads that all weigh by nearly the same: the prediction is that of `unitary`."""
    task = AutoregressiveProcess(n_dims=3, matrices="unitary", n_points=8)
    mixing = torch.eye(3, dtype=torch.float64) + between(g, 3, 6)
    return Case(unit(theory.unitary_minimiser(3, 8, scale=_size(g)), mixing), task)


def tiled(g: torch.Generator, mixing: Tensor | None = None) -> Case:
    """Proposition 3 on states that stand in each token twice: heads read a part of each copy, the same part."""
    task = AutoregressiveProcess(n_dims=3, matrices="unitary", n_points=8, tiles=2)
    one = unit(theory.unitary_minimiser(3, 8, scale=_size(g)), mixing)
    model = blank(**{**asdict(one.cfg), "d_in": task.dim, "d_out": task.dim})
    share = between(g, 0.2, 0.8)
    read, write = one.embed.W_E.detach(), one.unembed.W_U.detach()
    weights = {**one.state_dict(), "embed.W_E": torch.cat([share * read, (1 - share) * read])}
    weights |= {"unembed.W_U": torch.cat([write, write], 1), "unembed.b_U": model.unembed.b_U.detach()}
    model.load_state_dict(weights)
    return Case(model, task)


def spread(g: torch.Generator) -> Case:
    """The same predictions by heads that all attend to all coordinates alike: A has entries of size 1."""
    return tiled(g, fourier())


def fourier() -> Complex[Tensor, "head dim"]:
    """The Fourier matrix of three heads and coordinates."""
    turns = torch.outer(torch.arange(3.0), torch.arange(3.0)).double() * 2 * torch.pi / 3
    return torch.polar(torch.ones(3, 3, dtype=torch.float64), turns)


def paired(g: torch.Generator) -> Case:
    """Proposition 6, with any ratio of p_{T-1} to p_T."""
    task = AutoregressiveProcess(n_dims=4, matrices="conjugate_pairs", n_points=8)
    point = theory.orthogonal_minimiser(4, 8, ratio=between(g, -0.6, 0.6), scale=_size(g))
    return Case(unit(point), task)


def _deeper(model: HookedTransformer, n_layers: int, last: int) -> HookedTransformer:
    """A model of as many layers that are empty but for the last few, which are those of this one."""
    found = blank(**{**asdict(model.cfg), "n_layers": n_layers})
    weights = dict(model.state_dict())
    for i in reversed(range(last)):
        part = f"blocks.{i}."
        names = [name for name in weights if name.startswith(part)]
        weights |= {name.replace(part, f"blocks.{n_layers - last + i}."): weights.pop(name) for name in names}
    found.load_state_dict({**found.state_dict(), **weights})
    return found


def empty_first(g: torch.Generator) -> Case:
    """The unit of Proposition 3 in the second of two layers, the first of which writes nothing."""
    case = unitary(g)
    return Case(_deeper(case.model, 2, last=1), case.task)


def short_of_steps(g: torch.Generator, least: float = 0.5, most: float = 0.6) -> Case:
    """Five layers on plain states, and a share of what least squares says in their place."""
    task = AutoregressiveProcess(n_dims=4, matrices="rotations", n_points=2 * N_POINTS)
    share, n = between(g, least, most), task.n_points
    model = two_layers(g, task, before(n), steps(task)[:, None].expand(-1, n))
    return Case(_deeper(model, 5, last=2), task, predictor=lambda prompts: share * least_squares(prompts))


def short_of_softmax(g: torch.Generator, least: float, most: float) -> Case:
    """A layer of softmax attention, and the next state less a share of it in its place."""
    task = AutoregressiveProcess(n_dims=4, matrices="rotations", n_points=N_POINTS)
    cfg = HookedTransformerConfig(
        n_layers=1, d_model=8, n_heads=4, n_ctx=N_POINTS, d_in=4, d_out=4, attn_only=True, normalization_type=None
    )
    share = 1 - between(g, least, most)
    model = HookedTransformer(cfg, seed=int(torch.randint(10**6, (), generator=g)))
    return Case(model, task, predictor=lambda prompts: share * prompts.ys)


MAPS: tuple[Construction, ...] = (
    Construction(
        "two layers that take a gradient step",
        "the first layer puts the state before beside each state, the second sums s_t s_{t-1}^* s_T",
        one_step,
        {MAP: YES, TOKENS: YES, DEPTH: YES},
    ),
    Construction(
        "layer on augmented tokens that takes a gradient step",
        "the tokens hold the state before, and the layer sums s_t s_{t-1}^* s_T",
        on_augmented,
        {MAP: YES, DEPTH: YES},
    ),
    Construction(
        "half of what least squares says, by five layers",
        "a quarter of the variance is missed or nearly so, and four gradient steps miss a few hundredths",
        short_of_steps,
        {DEPTH: NO},
    ),
    Construction(
        "least squares on paths",
        "it predicts better than a step, and otherwise where the last state does not continue the path",
        squares,
        {MAP: NO},
    ),
    Construction(
        "least squares on augmented tokens",
        "it predicts better than a step, and otherwise where the last state does not continue the path",
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
        "its prediction is that of Proposition 3, and the maps of two heads have cosines near 1 and -1/2",
        alike,
        {MAP: YES, ORTHOGONAL: NO},
    ),
    Construction(
        "unit behind an empty layer",
        "the second layer predicts without an error by Proposition 3, and takes nothing from the first",
        empty_first,
        {MAP: NO, TOKENS: NO, DEPTH: YES},
    ),
    Construction("unit at a minimiser for rotations", "its prediction is that of Proposition 6", paired, {MAP: YES}),
    Construction(
        "softmax layer that misses some of the state",
        "in its place stands the next state less 0.15 to 0.5 of it: the normalised error is the square of that",
        lambda g: short_of_softmax(g, 0.15, 0.5),
        {SOFTMAX: YES},
    ),
    Construction(
        "softmax layer that misses nothing",
        "in its place stands the next state less 0 to 0.02 of it: the normalised error is the square of that",
        lambda g: short_of_softmax(g, 0.0, 0.02),
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
        "a_h are the rows of a Fourier matrix: all entries have one size, and predictions are the same",
        spread,
        {SPECIALISE: NO},
    ),
)

CONSTRUCTIONS = MAPS
EXCEPTIONS: dict[tuple[str, str], str] = {}
