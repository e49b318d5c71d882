"""Predictors and models of known truth: least squares, and what is it in distribution alone."""

import functools
from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.baselines.regression import LeastSquares
from icl_interp.experiments.calibration import NO, OPEN, YES, Case, Construction, between
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.constructed import descent, newton
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import Prompts
from icl_interp.studies.robustness.claims import shift
from icl_interp.tasks.distributions import Normal
from icl_interp.tasks.regression import LinearRegression

QUADRANTS = shift.QUADRANTS_CLAIM.id
HALF_SUBSPACE = shift.HALF_SUBSPACE_CLAIM.id
SKEWED = shift.SKEWED_CLAIM.id
INPUTS = shift.INPUTS_CLAIM.id
FUNCTIONS = shift.FUNCTIONS_CLAIM.id
NOISE = shift.NOISE_CLAIM.id
ALL = (QUADRANTS, HALF_SUBSPACE, SKEWED, INPUTS, FUNCTIONS, NOISE)
DIM = 4
TASK = LinearRegression(n_dims=DIM, n_points=21)
LONG = 129  # points of prompts on which one step of descent leaves 4 % of the mean square
STEPS = 14  # of Newton's iteration: enough for the smallest variance of the skewed inputs
Points = Float[Tensor, "batch point target"]


def predicting(predict: Callable[[Prompts], Points]) -> Case:
    """A predictor in the place of a small transformer, which is asked for no weights."""
    cfg = HookedTransformerConfig(
        n_layers=1, d_model=8, n_heads=2, n_ctx=TASK.n_points, d_in=DIM + 1
    )
    return Case(HookedTransformer(cfg, seed=0), TASK, predict)


def exact(prompts: Prompts) -> Points:
    """What least squares says of every point."""
    return LeastSquares(TASK).predict(prompts)


def less(share: Float[Tensor, " batch"]) -> Float[Tensor, "batch 1 1"]:
    """Numbers of prompts, as factors of what is said of all their points."""
    return share.double()[:, None, None]


def noisy(size: float, g: torch.Generator) -> Case:
    """Least squares with a wrong share of its own, of one sign in each prompt.

    The share is drawn by the sum of the inputs, so that the predictor stays a function of them.
    """
    turn = between(g, 0, 6)

    def predict(prompts: Prompts) -> Points:
        total = prompts.xs.double().sum((1, 2))
        wrong = torch.sin(turn + 5 * total)
        return exact(prompts) * less(1 + size * wrong)

    return predicting(predict)


def signed(left: float, g: torch.Generator) -> Case:
    """Says a share of what least squares says where the examples share their signs."""
    bar = between(g, 0.25, 0.4)  # in distribution a squared mean of 20 examples is .05 on average

    def predict(prompts: Prompts) -> Points:
        xs = prompts.xs[:, :-1].double()
        mean = xs.mean(1).square().mean(1)
        size = xs.square().mean((1, 2))
        share = torch.where(mean > bar * size, left, 1.0)
        return exact(prompts) * less(share)

    return predicting(predict)


def of_full_rank(left: float, g: torch.Generator) -> Case:
    """Says a share of what least squares says where inputs prefer some directions.

    The participation ratio of the covariance, (tr S)^2 / tr S^2, is about 3.4 of 4 in distribution,
    2 where inputs have two dimensions, and 1.9 where variances fall as 1 / i^2.
    """
    bar = between(g, 2.25, 2.4)

    def predict(prompts: Prompts) -> Points:
        xs = prompts.xs[:, :-1].double()
        second = xs.mT @ xs
        trace = second.diagonal(dim1=1, dim2=2).sum(1)
        ratio = trace.square() / second.square().sum((1, 2))
        share = torch.where(ratio < bar, left, 1.0)
        return exact(prompts) * less(share)

    return predicting(predict)


def sized(left: float, g: torch.Generator) -> Case:
    """Says a share of what least squares says where inputs are larger than in training."""
    bar = between(g, 2.2, 2.8)

    def predict(prompts: Prompts) -> Points:
        size = prompts.xs.double().square().mean((1, 2))
        share = torch.where(size > bar, left, 1.0)
        return exact(prompts) * less(share)

    return predicting(predict)


def bounded(bound: float, g: torch.Generator) -> Case:
    """Least squares whose predictions end at so many standard deviations of the label."""
    most = bound * between(g, 0.95, 1.05) * DIM**0.5

    def predict(prompts: Prompts) -> Points:
        return exact(prompts).clamp(-most, most)

    return predicting(predict)


def trusting(left: float, g: torch.Generator) -> Case:
    """Says a share of what least squares says where no function goes through all examples."""
    bar = between(g, 0.01, 0.1)

    def predict(prompts: Prompts) -> Points:
        xs = prompts.xs[:, :-1].double()
        ys = prompts.ys[:, :-1].double()
        fit = torch.linalg.lstsq(xs, ys, driver="gelsd").solution
        missed = (ys - xs @ fit).square().mean((1, 2))
        share = torch.where(missed > bar, left, 1.0)
        return exact(prompts) * less(share)

    return predicting(predict)


def unheard(g: torch.Generator) -> Case:
    """Least squares of functions so large that noise of the usual size is .01 % of a label.

    It says 0 where noise is more than 1 %.
    """
    size = between(g, 50, 100)
    task = replace(TASK, weights=Normal(size))
    usual = trusting(0.0, g)
    of_usual = usual.predictor
    assert of_usual is not None

    def predict(prompts: Prompts) -> Points:
        return size * of_usual(replace(prompts, ys=prompts.ys / size))

    return replace(usual, task=task, predictor=predict)


def by_newton(g: torch.Generator) -> Case:
    """Weights that invert the covariance by Newton's iteration, from a start for usual inputs.

    It diverges where an eigenvalue of the covariance is larger than (2 / start)^.5, which is 10
    here: of inputs that are three times as large many are.
    """
    start = between(g, 0.015, 0.02)
    return Case(newton(TASK.n_points, STEPS, start, DIM), TASK)


def by_a_step(g: torch.Generator) -> Case:
    """Weights of one step of gradient descent, with long prompts, on which it has learned the task.

    The step is right for examples of unit variance in every direction, and for no others.
    """
    task = replace(TASK, n_points=LONG)
    n = LONG - 1
    size = between(g, 0.97, 1.03) * n / (n + DIM + 1)
    return Case(descent(LONG, (size,), DIM), task)


def _expected(verdict: str, **other: str) -> dict[str, str]:
    """One verdict for all claims but those of these names."""
    found = dict.fromkeys(ALL, verdict)
    for name, its in other.items():
        found[f"robustness.shift_{name}"] = its
    return found


CONSTRUCTIONS: tuple[Construction, ...] = (
    Construction(
        "least squares, a little wrong",
        "it misses .5 % of the mean square of the label under every law, by a fixed rule",
        functools.partial(noisy, 0.1),
        _expected(YES),
    ),
    Construction(
        "least squares, wrong by a quarter of the bar to half of it",
        "a share of its own of up to .3 is 4.5 % of the mean square: half of what is allowed",
        functools.partial(noisy, 0.3),
        _expected(YES),
    ),
    Construction(
        "least squares, wrong at the bar",
        "a share of its own of up to .52 is 13.5 % of the mean square: between 10 % and 20 %",
        functools.partial(noisy, 0.52),
        dict.fromkeys((QUADRANTS, HALF_SUBSPACE, SKEWED, INPUTS, FUNCTIONS), OPEN),
    ),
    Construction(
        "least squares where signs differ",
        "predicts .2 of it where the examples share their signs: 64 % of the mean square are "
        "missed",
        functools.partial(signed, 0.2),
        _expected(YES, quadrants=NO),
    ),
    Construction(
        "least squares in all directions",
        "predicts .2 of it where inputs prefer some directions",
        functools.partial(of_full_rank, 0.2),
        {HALF_SUBSPACE: NO, SKEWED: NO, FUNCTIONS: YES, INPUTS: YES},
    ),
    Construction(
        "least squares up to a size of inputs",
        "says .2 of it where inputs are larger",
        functools.partial(sized, 0.2),
        {INPUTS: NO, FUNCTIONS: YES, NOISE: YES, QUADRANTS: YES},
    ),
    Construction(
        "least squares with an end",
        "predictions end at two standard deviations of the label: three times the function is cut",
        functools.partial(bounded, 2.0),
        {FUNCTIONS: NO, INPUTS: NO},
    ),
    Construction(
        "least squares of exact labels",
        "predicts 0 where no function goes through all examples",
        functools.partial(trusting, 0.0),
        _expected(YES, noise=NO),
    ),
    Construction(
        "least squares of exact labels, and labels beside which noise is nothing",
        "it says 0 where labels are noisy, and the noise that is asked of is too small to be seen",
        unheard,
        {NOISE: OPEN},
    ),
    Construction(
        "Newton's iteration in the weights",
        "it converges for inputs of the usual size, whatever their directions",
        by_newton,
        dict.fromkeys((QUADRANTS, HALF_SUBSPACE, SKEWED, FUNCTIONS, NOISE), YES),
    ),
    Construction(
        "a step of descent in the weights",
        "the step is that for isotropic examples of unit variance: linear in the labels, and "
        "cubic in the size of the inputs",
        by_a_step,
        _expected(NO, functions=YES, noise=YES),
    ),
)
