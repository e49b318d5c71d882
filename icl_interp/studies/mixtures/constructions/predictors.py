"""Predictors of known truth: Bayes over a mixture, ridge, one family's, and what lies between.

The mixture has weights about +1 and about -1, unless something else is said. Ridge is the predictor
of one normal law with its mean and variance.
"""

from dataclasses import replace

import torch

from icl_interp.baselines.base import Predictor
from icl_interp.baselines.mixture import BayesMixture
from icl_interp.experiments.calibration import NO, OPEN, YES, Case, Construction, between
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.constructed import newton
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import Prompts
from icl_interp.studies.mixtures.claims.bayes_outside import BAYES_CLAIM, OUTSIDE_CLAIM
from icl_interp.studies.mixtures.measurements.laws import (
    ONE,
    bayes,
    combinations,
    laws_of,
    single_laws,
)
from icl_interp.tasks.distributions import Normal
from icl_interp.tasks.mixture import Mixture
from icl_interp.tasks.regression import LinearRegression

BAYES = BAYES_CLAIM.id
OUTSIDE = OUTSIDE_CLAIM.id
DIM = 4
FAMILY = LinearRegression(n_dims=DIM, n_points=21, noise_std=0.5)
CONFIG = HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2, n_ctx=42, d_in=DIM)
STEPS = 14  # of Newton's iteration: enough to invert the covariance of 20 examples
RARE = 0.02  # probability of combinations, for what expects them


def mixture(*laws: Normal, shares: tuple[float, ...] = ()) -> Mixture:
    """Families of linear functions with these laws of weights."""
    families = [replace(FAMILY, weights=law) for law in laws]
    return Mixture.of(*families, shares=shares)


def centres(g: torch.Generator, spread: float = 0.25) -> Mixture:
    """Weights about two opposite centres."""
    centre = between(g, 0.95, 1.05)
    return mixture(Normal(spread, mean=centre), Normal(spread, mean=-centre))


def on_the_way(task: Mixture, start: Predictor, share: float, wrong: float = 0.0) -> Case:
    """What a predictor says, and a share of the way to the Bayes predictor of the mixture.

    Args:
        task: the mixture.
        start: says where the way begins.
        share: of the way.
        wrong: standard deviations of f(x) that are added; the sum of the inputs tells their sign.
    """
    best = bayes(task)

    def predict(prompts: Prompts) -> torch.Tensor:
        first = start.predict(prompts)
        last = best.predict(prompts)
        said = torch.lerp(first, last, share)
        total = prompts.xs.double().sum(-1, keepdim=True)
        return said + wrong * DIM**0.5 * torch.sin(7 * total)

    model = HookedTransformer(CONFIG, seed=0)
    return Case(model, task, predict)


def a_little_wrong(task: Mixture, wrong: float) -> Case:
    """Bayes, and an error of its own of which D is half of the square."""
    return on_the_way(task, bayes(task), 1.0, wrong)


def from_ridge(share: float, g: torch.Generator) -> Case:
    """So far from ridge to Bayes: D is (1 - share)^2 of that of ridge."""
    task = centres(g)
    law = single_laws(task)[ONE]
    ridge = BayesMixture([law])
    return on_the_way(task, ridge, share)


def from_wide(share: float, g: torch.Generator) -> Case:
    """So far to Bayes from the Bayes predictor of a wider mixture, which has combinations in it."""
    task = centres(g)
    seed = int(between(g, 1, 1e6))
    known = bayes(task).laws
    others = bayes(combinations(task, seed)).laws
    laws = [*known, *others]
    n = len(known)
    m = len(others)
    shares = [(1 - RARE) / n] * n + [RARE / m] * m
    wide = BayesMixture(laws, tuple(shares))
    return on_the_way(task, wide, share)


def _one_family(g: torch.Generator) -> Case:
    """It takes all functions for those of the first family."""
    centre = between(g, 0.95, 1.05)
    up = Normal(0.75, mean=centre)
    down = Normal(0.75, mean=-centre)
    task = mixture(up, down)
    law = laws_of(task)[0]
    return on_the_way(task, BayesMixture([law]), 0.0)


def _wrong_shares(g: torch.Generator) -> Case:
    task = centres(g)
    rare = 10 ** between(g, -9, -8)
    laws = laws_of(task)
    other = BayesMixture(laws, (1 - rare, rare))
    return on_the_way(task, other, 0.0)


def _alike(g: torch.Generator) -> Case:
    centre = between(g, 0.05, 0.1)
    up = Normal(1.0, mean=centre)
    down = Normal(1.0, mean=-centre)
    task = mixture(up, down)
    return a_little_wrong(task, 0.05)


def _by_newton(g: torch.Generator) -> Case:
    task = centres(g, between(g, 0.1, 0.12))
    start = between(g, 0.015, 0.02)
    model = newton(task.n_points, STEPS, start, DIM)
    return Case(model, task)


CONSTRUCTIONS: tuple[Construction, ...] = (
    Construction(
        "Bayes over two centres, a little wrong",
        "its own error is at most 1.1 % of the mean square, and gains nothing anywhere",
        lambda g: a_little_wrong(centres(g), between(g, 0.05, 0.15)),
        {BAYES: YES, OUTSIDE: YES},
    ),
    Construction(
        "the predictor of one of two families",
        "with few examples it takes functions of the other family for its own",
        _one_family,
        {BAYES: NO},
    ),
    Construction(
        "ridge on a mixture of two centres",
        "it knows how large weights are, and of no centres: combinations are nothing special",
        lambda g: from_ridge(0.0, g),
        {BAYES: NO, OUTSIDE: NO},
    ),
    Construction(
        "Bayes over two centres with wrong shares",
        "with few examples it keeps to the family that it takes for common; far from Bayes on the "
        "mixture, it supports nothing outside",
        _wrong_shares,
        {BAYES: NO, OUTSIDE: OPEN},
    ),
    Construction(
        "Bayes over two families that are nearly one",
        "one normal law predicts the same",
        _alike,
        {BAYES: OPEN, OUTSIDE: OPEN},
    ),
    Construction(
        "Bayes over a wider mixture",
        "one function in fifty may be a combination: on the mixture it is nearly the same",
        lambda g: from_wide(0.0, g),
        {BAYES: YES, OUTSIDE: NO},
    ),
    Construction(
        "Newton's iteration in the weights, trained on narrow families",
        "least squares knows no families, and is right on combinations after 20 examples",
        _by_newton,
        {OUTSIDE: NO},
    ),
)
