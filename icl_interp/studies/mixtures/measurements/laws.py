"""Which mixtures have Bayes predictors in closed form, and the laws that a model is compared with.

Families here are linear functions whose weights are independent and normal, each family with a mean
and a standard deviation of its own. Inputs and noise are the same in all, so that only labels tell
which family a function is of.
"""

import math
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.algorithms.rivals import normal_laws
from icl_interp.analyses.facts import Facts, needs_task
from icl_interp.baselines.mixture import BayesMixture, NormalWeights
from icl_interp.provenance import generator
from icl_interp.tasks.distributions import Normal
from icl_interp.tasks.mixture import Mixture
from icl_interp.tasks.regression import LinearRegression

BAYES = "Bayes predictor of the mixture"
ONE = "one normal law"
STANDARD = Normal(1.0)
COMBINATIONS = 8  # families of combinations, each with shares of its own


def needs_laws(facts: Facts) -> str | None:
    """Why a model has no mixture whose Bayes predictor is known; None if it has."""
    reason = needs_task(facts, Mixture)
    if reason:
        return reason
    assert isinstance(facts.task, Mixture)
    wrong = _wrong(facts.task)
    if wrong:
        return (
            "The claim is about mixtures of noisy linear functions whose normal weights differ by "
            f"mean and standard deviation alone; here {wrong}."
        )
    return None


def _wrong(task: Mixture) -> str:
    """What keeps the Bayes predictor from being known in closed form; empty for nothing."""
    first = task.tasks[0]
    if task.n_tasks is not None:
        return "functions are from a finite pool"
    for one in task.tasks:
        if type(one) is not LinearRegression or not isinstance(one.weights, Normal):
            return f"one family is a {type(one).__name__} with other weights or values"
        if not one.noise_std:
            return "labels have no noise"
        if one.query is not None or one.single_orthant:
            return "queries are not like the examples"
        if replace(one, weights=STANDARD) != replace(first, weights=STANDARD):
            return "families differ in inputs or noise, too"
    return ""


def bayes(task: Mixture) -> BayesMixture:
    """The Bayes predictor of a mixture."""
    return BayesMixture(normal_laws(task), task.shares)


def mean_weight(task: Mixture) -> float:
    """The mean of each weight over the whole mixture.

    >>> five = LinearRegression(n_dims=2, n_points=5, weights=Normal(1.0, mean=5.0))
    >>> mean_weight(Mixture.of(five, LinearRegression(n_dims=2, n_points=5), shares=(0.8, 0.2)))
    4.0
    """
    total = 0.0
    for share, law in zip(task.shares, normal_laws(task), strict=True):
        total += share * law.mean
    return total


def rivals(task: Mixture) -> dict[str, NormalWeights]:
    """Single normal laws by name: each family, and one with the mixture's mean and variance.

    The last one is a ridge regression that knows how large weights are, but of no families.
    """
    laws = normal_laws(task)
    found = {}
    for number, law in enumerate(laws, 1):
        found[f"family {number}"] = law
    mean = mean_weight(task)
    square = 0.0
    for share, law in zip(task.shares, laws, strict=True):
        square += share * (law.std**2 + law.mean**2)
    found[ONE] = replace(laws[0], mean=mean, std=math.sqrt(square - mean**2))
    return found


def drawn_shares(n_families: int, seed: int) -> Float[Tensor, "combination family"]:
    """Shares of convex combinations: no family has more than twice the share of another.

    >>> shares = drawn_shares(2, seed=0)
    >>> shares.shape, bool((shares.sum(1) - 1).abs().max() < 1e-12), bool(shares.min() > 1 / 3)
    (torch.Size([8, 2]), True, True)
    """
    stream = generator(seed, "mixtures/shares")
    sizes = 1 + torch.rand(COMBINATIONS, n_families, generator=stream, dtype=torch.float64)
    return sizes / sizes.sum(1, keepdim=True)


def combinations(task: Mixture, seed: int) -> Mixture:
    """Convex combinations of one function of each family, as a mixture over their shares.

    A sum of independent normal weights is normal. So the family of shares s has weights of mean
    sum_c s_c mean_c and variance sum_c s_c^2 std_c^2, and its Bayes predictor is known as well.

    Source: after Yadlowsky, Doshi & Tripuraneni (2023), section 4, who combine functions of two
    families.

    Args:
        task: of the families.
        seed: draws the shares.
    """
    first = task.tasks[0]
    assert isinstance(first, LinearRegression)
    laws = normal_laws(task)
    families = []
    for shares in drawn_shares(len(laws), seed).tolist():
        mean = 0.0
        variance = 0.0
        for share, law in zip(shares, laws, strict=True):
            mean += share * law.mean
            variance += share**2 * law.std**2
        weights = Normal(math.sqrt(variance), mean=mean)
        families.append(replace(first, weights=weights))
    return Mixture.of(*families)
