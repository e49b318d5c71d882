"""Predictors of known truth: ridge, the Bayes predictor of a pool, and what lies between."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.experiments.calibration import NO, OPEN, YES, Case, Construction, between
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.constructed import newton
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import Prompts
from icl_interp.studies.diversity.claims.new_functions import NEW_FUNCTIONS_CLAIM
from icl_interp.studies.diversity.measurements.distances import rivals
from icl_interp.tasks.regression import LinearRegression

NEW_FUNCTIONS = NEW_FUNCTIONS_CLAIM.id
DIM = 4
TASK = LinearRegression(n_dims=DIM, n_points=21, noise_std=0.5, n_tasks=32)
STEPS = 14  # of Newton's iteration: enough to invert the covariance of 20 examples
POOLS = (8, 256)  # functions, at least and at most


def case_of(task: LinearRegression, share: float, wrong: float = 0.0) -> Case:
    """What ridge says, and a share of the way to what the Bayes predictor of the pool says.

    The squared distances from both are share^2 and (1 - share)^2 of that between them.

    Args:
        task: with the pool.
        share: of the way.
        wrong: what is added, of the size of a label; the last input tells its sign.
    """
    ridge, pool = rivals(task)

    def predict(prompts: Prompts) -> Float[Tensor, "batch point target"]:
        by_ridge = ridge.predict(prompts)
        by_pool = pool.predict(prompts)
        said = torch.lerp(by_ridge, by_pool, share)
        total = prompts.xs.double().sum(-1, keepdim=True)
        return said + wrong * DIM**0.5 * torch.sin(7 * total)

    cfg = HookedTransformerConfig(
        n_layers=1, d_model=8, n_heads=2, n_ctx=task.n_points, d_in=DIM + 1
    )
    return Case(HookedTransformer(cfg, seed=0), task, predict)


def of_a_pool(g: torch.Generator) -> LinearRegression:
    """The task with another pool: its size is even in the logarithm."""
    least, most = POOLS
    share = between(g, 0, 1)
    n_tasks = round(least * (most / least) ** share)
    seed = int(between(g, 1, 1e6))
    return replace(TASK, n_tasks=n_tasks, pool_seed=seed)


def on_the_way(share: float, g: torch.Generator) -> Case:
    """So far from ridge to the pool, on a pool of its own."""
    return case_of(of_a_pool(g), share)


def _like_ridge(g: torch.Generator) -> Case:
    share = between(g, 0.0, 0.3)
    return on_the_way(share, g)


def _like_the_pool(g: torch.Generator) -> Case:
    share = between(g, 0.7, 1.0)
    return on_the_way(share, g)


def _halfway(g: torch.Generator) -> Case:
    share = between(g, 0.45, 0.55)
    return on_the_way(share, g)


def _like_neither(g: torch.Generator) -> Case:
    """Wrong by 18 % of a label's mean square and more: half of the square of what is added."""
    task = of_a_pool(g)
    wrong = between(g, 0.6, 0.7)
    return case_of(task, 0.0, wrong)


def _beyond(g: torch.Generator) -> Case:
    """As far from ridge as the pool is, on the other side: 5 % to 7 % of the mean square."""
    task = replace(TASK, n_tasks=1024, pool_seed=int(between(g, 1, 1e6)))
    return case_of(task, between(g, -1.1, -0.9))


def _by_newton(g: torch.Generator) -> Case:
    """Weights that carry out least squares, which is close to ridge after 20 examples."""
    task = of_a_pool(g)
    start = between(g, 0.015, 0.02)
    return Case(newton(task.n_points, STEPS, start, DIM), task)


CONSTRUCTIONS: tuple[Construction, ...] = (
    Construction(
        "ridge, up to a third of the way to the pool",
        "the squared distance from ridge is at most a fifth of that from the pool: .3^2 / .7^2",
        _like_ridge,
        {NEW_FUNCTIONS: YES},
    ),
    Construction(
        "the pool, up to a third of the way to ridge",
        "the squared distance from ridge is at least five times that from the pool",
        _like_the_pool,
        {NEW_FUNCTIONS: NO},
    ),
    Construction(
        "halfway from ridge to the pool",
        "both squared distances are the same up to a factor of 1.5",
        _halfway,
        {NEW_FUNCTIONS: OPEN},
    ),
    Construction(
        "ridge, with something wrong of its own",
        "it is nearer to ridge, and like neither",
        _like_neither,
        {NEW_FUNCTIONS: OPEN},
    ),
    Construction(
        "beyond ridge, away from the pool",
        "the pool predicts more like ridge than it does, or as much",
        _beyond,
        {NEW_FUNCTIONS: OPEN},
    ),
    Construction(
        "Newton's iteration in the weights, trained on a pool",
        "least squares knows no pool, and differs from ridge by the penalty alone",
        _by_newton,
        {NEW_FUNCTIONS: YES},
    ),
)
