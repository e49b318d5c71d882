"""Mixtures whose Bayes predictors are known, and the laws that models of them are compared with.

Families are linear functions whose weights are independent and normal. Each family has a mean and a
standard deviation of its own. Inputs and noise are alike, so only labels tell families apart.
"""

import math
from dataclasses import replace

import torch

from icl_interp.analyses.facts import Facts, needs_task
from icl_interp.baselines.mixture import BayesMixture, NormalWeights
from icl_interp.provenance import generator
from icl_interp.tasks.base import Task
from icl_interp.tasks.distributions import Normal
from icl_interp.tasks.mixture import Mixture
from icl_interp.tasks.regression import LinearRegression

ONE = "one normal law"
COMBINATIONS = 8  # families of combinations, each with shares of its own


def needs_laws(facts: Facts) -> str | None:
    """Why the Bayes predictor of a model's mixture is not known; None where it is."""
    reason = needs_task(facts, Mixture)
    if reason:
        return reason
    assert isinstance(facts.task, Mixture)
    task = facts.task
    noises = {getattr(one, "noise_std", 0.0) for one in task.tasks}
    first = task.tasks[0]
    usual = task.has_normal_weights and len(noises) == 1 and min(noises) > 0
    if usual and task.n_tasks is None and is_asked(first):
        return None
    return (
        "The claim is about mixtures of noisy linear functions with queries like the examples. "
        "They have independent normal weights, whose mean and standard deviation are all that "
        "families differ in. This mixture is another one."
    )


def is_asked(one: Task) -> bool:
    """Whether queries of a family are drawn like its examples."""
    return isinstance(one, LinearRegression) and one.query is None and not one.single_orthant


def laws_of(task: Mixture) -> list[NormalWeights]:
    """The law of each family."""
    found = []
    for one in task.tasks:
        assert isinstance(one, LinearRegression)
        assert isinstance(one.weights, Normal)
        law = NormalWeights(one, one.noise_std, one.weights.mean, one.weights.std)
        found.append(law)
    return found


def bayes(task: Mixture) -> BayesMixture:
    """The Bayes predictor of a mixture."""
    return BayesMixture(laws_of(task), task.shares)


def single_laws(task: Mixture) -> dict[str, NormalWeights]:
    """The law of each family, and the normal one with the mixture's mean and variance, by name.

    The posterior mean of the last one is ridge regression: it knows how large weights are.

    >>> five = LinearRegression(n_dims=2, n_points=5, noise_std=1.0, weights=Normal(1.0, mean=5.0))
    >>> zero = replace(five, weights=Normal(1.0))
    >>> one = single_laws(Mixture.of(five, zero, shares=(0.8, 0.2)))[ONE]
    >>> one.mean, round(one.std**2, 9)  # 1 within families, and 5^2 x .8 x .2 between them
    (4.0, 5.0)
    """
    laws = laws_of(task)
    found = {}
    mean = 0.0
    square = 0.0
    for number, (share, law) in enumerate(zip(task.shares, laws, strict=True), 1):
        found[f"family {number}"] = law
        mean += share * law.mean
        square += share * (law.std**2 + law.mean**2)
    found[ONE] = replace(laws[0], mean=mean, std=math.sqrt(square - mean**2))
    return found


def combinations(task: Mixture, seed: int) -> Mixture:
    """Convex combinations of one function of each family, as a mixture of families of their own.

    A sum of independent normal weights is normal: with shares s it has the mean sum_c s_c mean_c
    and the variance sum_c s_c^2 std_c^2. So the Bayes predictor of combinations is known as well.

    Args:
        task: of the families.
        seed: draws the shares; none is more than twice another.
    """
    laws = laws_of(task)
    first = task.tasks[0]
    assert isinstance(first, LinearRegression)
    # Shares, none more than twice another.
    stream = generator(seed, "mixtures/shares")
    sizes = 1 + torch.rand(COMBINATIONS, len(laws), generator=stream, dtype=torch.float64)
    # The law of each sum.
    families = []
    for row in sizes.tolist():
        mean = 0.0
        variance = 0.0
        for size, law in zip(row, laws, strict=True):
            share = size / sum(row)
            mean += share * law.mean
            variance += (share * law.std) ** 2
        weights = Normal(math.sqrt(variance), mean=mean)
        families.append(replace(first, weights=weights))
    return Mixture.of(*families)
