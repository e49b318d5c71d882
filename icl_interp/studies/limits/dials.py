"""Dials of `limits`, for power curves: each takes hand-built models across a claim's threshold."""

import functools

import torch
from torch import Tensor

from icl_interp.baselines.regression import LeastSquares
from icl_interp.experiments.calibration import Case
from icl_interp.experiments.power import Dial
from icl_interp.models.attention import Attention
from icl_interp.models.blank import blank
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import Prompts
from icl_interp.studies.limits.constructions import (
    functions,
    layers,
    learned,
    mechanisms,
    trainings,
)
from icl_interp.studies.limits.constructions.layers import number
from icl_interp.studies.limits.constructions.trainings import Wrong
from icl_interp.tasks.distributions import Uniform
from icl_interp.tasks.functions import Polynomial

CONSTANTS = Polynomial(
    degrees=(0,), inputs=Uniform(-1, 1), coefficients=Uniform(-4, 4), n_points=20
)
DEGREES = (2, 4)  # trained on, where functions of degrees 1 and 3 are asked for as well


# ---- far from the training data ------------------------------------------------------------------


def layer(
    alphas: list[float], written: list[float], slope: float = 1.0, **change: object
) -> HookedTransformer:
    """f = slope x + sum_h written_h m_h(x), m_h the mixture of tokens under scores alpha_h x x_j.

    Nothing is random.
    """
    n_heads = len(alphas)
    model = blank(n_heads + 2, n_heads=n_heads, d_head=1, **change)
    attn = model.blocks[0].attn
    read_out = model.unembed.W_U
    with torch.no_grad():
        # Coordinate 0 holds x; each head writes into one of its own.
        model.embed.W_E[0, 0] = 1
        _heads(attn, alphas, written, first=1)
        attn.W_V[:, 0, 0] = 1
        read_out[:-1, 0] = 1
        read_out[0, 0] = slope
    return model


def _heads(attn: Attention, alphas: list[float], written: list[float], first: int) -> None:
    """Scores alpha_h x x_j, and what each head writes into its coordinate, from the first on."""
    n_heads = len(alphas)
    places = range(first, first + n_heads)
    attn.W_K[:, 0, 0] = 1
    attn.W_Q[:, 0, 0] = torch.tensor(alphas)
    attn.W_O[range(n_heads), 0, places] = torch.tensor(written).double()


def of_labels(alphas: list[float], written: list[float], slope: float = 0.0) -> Case:
    """f = slope x + sum_h written_h m_h(x), m_h the mixture of labels under scores alpha_h x x_j.

    The query's own is 0.

    Functions are constants, so the mean of 39 labels and this 0 is right up to 3 %.
    """
    n_heads = len(alphas)
    model = blank(n_heads + 3, n_heads=n_heads, d_head=1, d_in=2)
    attn = model.blocks[0].attn
    read_in = model.embed.W_E
    read_out = model.unembed.W_U
    with torch.no_grad():
        # Coordinate 0 holds x and 1 the label; each head writes into one of its own.
        read_in[0, 0] = 1
        read_in[1, 1] = 1
        _heads(attn, alphas, written, first=2)
        attn.W_V[:, 1, 0] = 1
        read_out[2:-1, 0] = 1
        read_out[0, 0] = slope
    task = CONSTANTS.with_points(40)
    return Case(model, task)


def mostly_constant(share: float, g: torch.Generator) -> HookedTransformer:
    """A pre-norm model whose read-in of x is constant over the width but for a share.

    That share is all that centring keeps.
    """
    model = layers.random_pre_norm(g, d_in=2)
    weights = model.embed.W_E
    with torch.no_grad():
        read_in = weights[0].clone()
        centred = read_in - read_in.mean()
        weights[0] = 1 + share * centred
    return model


def cubic_beside_the_mean(share: float) -> HookedTransformer:
    """f = x + share times a cubic + the mean of the tokens, which a second head takes.

    Its scores are 1.
    """
    model = layer([1.0, 0.0], [share, 1.0], score_fn="linear", score_norm="visible")
    attn = model.blocks[0].attn
    with torch.no_grad():
        attn.b_Q[1] = 1
        attn.b_K[1] = 1
        attn.W_K[1] = 0
    return model


# ---- which functions, which algorithm ------------------------------------------------------------


def _shrunk(which: tuple[int, ...], share: float, g: torch.Generator) -> Case:
    """Least squares that is told the degree: 0.95 of the truth.

    For these degrees it is 1 - share of the truth.
    """
    task = functions.task_of(g, DEGREES)
    missing = dict.fromkeys(range(5), 0.05)
    missing |= dict.fromkeys(which, share)
    predictor = functions.informed(task, missing)
    return functions.case_of(g, task, predictor)


def _clipped(most: float, g: torch.Generator) -> Case:
    """Least squares that ends at a number, for lines within 1."""
    inputs = Uniform(-1, 1)
    coefficients = Uniform(-0.5, 0.5)
    task = Polynomial(degrees=(1,), inputs=inputs, coefficients=coefficients, n_points=12)
    predictor = functions.saturating(LeastSquares(task), most)
    return functions.case_of(g, task, predictor)


def _offset(offset: float, g: torch.Generator) -> Case:
    """Least squares that is told the degree, and a number added.

    The number is in units of a coefficient's standard deviation.
    """
    task = functions.task_of(g, DEGREES)
    exact = functions.informed(task, {})

    def moved(prompts: Prompts) -> Tensor:
        return exact(prompts) + offset * task.coefficients.std

    return functions.case_of(g, task, moved)


def _tossed(share: float, g: torch.Generator) -> Case:
    """Least squares, and a share of it that a coin adds or takes off."""
    task = functions.lines(g)
    predictor = functions.tossed(LeastSquares(task), share)
    return functions.case_of(g, task, predictor)


# ---- kinds of training ---------------------------------------------------------------------------


def _norm_arms(without: Wrong, normed: Wrong, g: torch.Generator) -> Case:
    """Models without a norm and with one, and what is wrong with either."""
    wrong_without = trainings.jittered(g, without)
    wrong_normed = trainings.jittered(g, normed)
    return trainings.norm_arms(g, wrong_without, wrong_normed)


def _plateau(power: float, g: torch.Generator) -> Case:
    """Models trained on other intervals, whose plateaus come later by a power of the interval."""
    return trainings.plateaus(g, onset=(power, power), cost=(1.2, 1.3))


DIALS: tuple[Dial, ...] = (
    Dial(
        "share of a logarithm in the prediction",
        mechanisms.SATURATES,
        "an early plateau and, after the last norm, log(1 + |x|) times this share of the bound on "
        "the plateau",
        lambda v, g: mechanisms.logarithm_beside(g, v, v),
        (1.0, 0.1, 0.03, 0.01, 0.003, 0.001, 1e-4, 1e-5, 0.0),
    ),
    Dial(
        "share of x in the stream that centring keeps",
        mechanisms.CAUSE,
        "the rest of the read-in of x is constant over the width, and the norm takes it off",
        mostly_constant,
        (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 1e-1, 1.0),
    ),
    Dial(
        "share of x in the values",
        mechanisms.FAILURE,
        "a step and a norm; what values hold of x makes the prediction grow like a cubic once the "
        "norm is frozen",
        lambda v, g: mechanisms.step_and_norm(g, (v, v)),
        (0.25, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6, 0.0),
    ),
    Dial(
        "share of the labels that is left far out",
        mechanisms.ERASED,
        "one head forgets the labels as the query grows, the other keeps this share of them",
        lambda v, g: of_labels([number(g, 0.05, 0.2), 0.0], [1.0 - v, v]),
        (1.0, 0.5, 0.3, 0.22, 0.18, 0.1, 1e-3, 1e-5, 0.0),
    ),
    Dial(
        "share of a cubic in the prediction",
        mechanisms.LINEAR,
        "a line, and a head of linear scores, whose weight for the query itself grows like its "
        "square",
        lambda v, g: cubic_beside_the_mean(v * number(g, 0.5, 2)),
        (1.0, 1e-10, 1e-11, 1e-12, 1e-13, 1e-15, 0.0),
    ),
    Dial(
        "score of the query itself",
        mechanisms.HIGH_NORM,
        "labels are averaged until the query attends to itself, the later the smaller its score "
        "for x = 1",
        lambda v, g: learned.averaged_beside_itself(g, v, v),
        (1e-10, 1e-9, 1e-8, 2e-8, 3e-8, 5e-8, 1e-7, 1e-4),
    ),
    # ---- attention -------------------------------------------------------------------------------
    Dial(
        "alpha of scores -alpha x x_j",
        layers.HARDMAX,
        "far out a head with scores -alpha x x_j attends to the extreme token, with alpha = 0 to "
        "all alike",
        lambda v, g: layers.scalar_layer(g, -v),
        (0.0, 1e-5, 0.03, 0.12, 0.25, 0.5, 1.0, 3.0, 10.0, 30.0),
    ),
    Dial(
        "alpha of scores alpha x x_j",
        layers.UNIFORM,
        "scores of tokens in [-1, 1] differ by 2 alpha at most: the smaller that is, the nearer is "
        "a plain mean",
        lambda v, g: layers.scalar_layer(g, v),
        (6.0, 3.0, 2.0, 1.8, 1.7, 1.6, 1.5, 1.0, 0.0),
    ),
    Dial(
        "share of a step that no head takes",
        mechanisms.NECESSARY,
        "a sum over the prompt takes this share of a gradient step, and a head the rest",
        lambda v, g: mechanisms.step_beside_attention(g, v, v),
        (0.9, 0.6, 0.4, 0.3, 0.2, 0.1, 0.05, 0.0),
    ),
    # ---- which functions, which algorithm --------------------------------------------------------
    Dial(
        "score of a label in a head that tells degrees",
        mechanisms.ALIKE,
        "the head attends to large labels, which lines do not have; a small score hardly tells "
        "them apart",
        lambda v, g: mechanisms.smoother_that_tells_degrees(g, v, v),
        (20.0, 10.0, 5.0, 2.0, 1.0, 0.5, 0.2),
    ),
    Dial(
        "share of the truth that is missing",
        functions.MATCHES,
        "least squares that is told the degree, times 1 - share",
        lambda v, g: _shrunk((1, 2, 3, 4), v, g),
        (0.3, 0.26, 0.24, 0.2, 0.15, 0.12, 0.1, 0.09, 0.05, 0.0),
    ),
    Dial(
        "share that is missing for degree 2",
        functions.ALIKE,
        "1 - s times the truth, with s = 0.05 for every other degree: error rates are s^2",
        functools.partial(_shrunk, (2,)),
        (0.3, 0.15, 0.1, 0.09, 0.085, 0.08, 0.07, 0.05),
    ),
    Dial(
        "share that is missing for degrees not seen in training",
        functions.UNSEEN,
        "1 - s times the truth, with s = 0.05 for degrees trained on: error rates are s^2",
        functools.partial(_shrunk, (1, 3)),
        (0.3, 0.15, 0.1, 0.09, 0.085, 0.08, 0.07, 0.05),
    ),
    Dial(
        "largest number that is predicted",
        functions.CONTINUOUS,
        "least squares that ends at this number",
        _clipped,
        (1.0, 1.5, 1.8, 2.0, 2.1, 2.2, 2.3, 2.5, 3.0),
    ),
    Dial(
        "offset, in standard deviations of a coefficient",
        functions.UNKNOWN,
        "least squares that is told the degree, and a number added to its predictions",
        _offset,
        (0.3, 0.2, 0.15, 0.12, 0.1, 0.08, 0.05, 0.02, 0.0),
    ),
    Dial(
        "share of the prediction that a coin adds or takes off",
        functions.ALGORITHM,
        "with a share s the similarity to least squares is 1 / (1 + s^2)",
        _tossed,
        (0.0, 0.1, 0.2, 0.23, 0.3, 0.45, 0.5, 0.55, 0.65, 0.8),
    ),
    # ---- kinds of training -----------------------------------------------------------------------
    Dial(
        "what is wrong without a norm over what is wrong with one",
        trainings.BETTER,
        "1 - s times the truth, with s = 0.12 with a norm: errors are s^2",
        lambda v, g: _norm_arms(Wrong(0.12 * v), Wrong(0.12), g),
        (1.3, 1.15, 1.1, 1.05, 1.0, 0.95, 0.9, 0.87, 0.7),
    ),
    Dial(
        "tilt without a norm over tilt with one",
        trainings.NEAR,
        "errors of 0.01 c^2 + t^2 x^2 for the constant c, with t = 0.12 with a norm",
        lambda v, g: _norm_arms(Wrong(0.1, 0.12 * v), Wrong(0.1, 0.12), g),
        (1.5, 1.3, 1.15, 1.0, 0.9, 0.8, 0.7, 0.6, 0.4),
    ),
    Dial(
        "what is wrong with the wider models over what is wrong with the others",
        trainings.SIZE,
        "1 - s times the truth: the ratio of errors is the square",
        lambda v, g: trainings.two_widths(g, v, v),
        (0.54, 0.62, 0.66, 0.7, 0.78, 0.82, 0.86, 1.0),
    ),
    Dial(
        "what is wrong with attention only over what is wrong with MLPs",
        mechanisms.SUFFICIENT,
        "1 - s times the truth, with s = 0.1 with MLPs: the ratio of errors is the square",
        lambda v, g: trainings.mlp_arms(g, (0.1 * v, 0.1 * v), (0.1, 0.1)),
        (2.5, 2.0, 1.75, 1.65, 1.5, 1.4, 1.35, 1.0),
        quantity="ratio",
    ),
    Dial(
        "power of the training interval with which plateaus come later",
        trainings.LARGER,
        "what the norm does comes later by this power of the half-width, and errors grow by a "
        "power of 1.2 to 1.3",
        _plateau,
        (-0.5, -0.25, -0.15, 0.0, 0.15, 0.25, 0.5, 1.5),
    ),
)
