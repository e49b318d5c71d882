"""Bayes predictors over laws of functions: over a pool of functions, and over a mixture of laws.

A law here is anything with `given(prompts)`: the posterior mean of each point from those before it,
and the log of how likely the points before it are. A mixture of laws weighs their means by that.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.baselines import prefixes
from icl_interp.baselines.base import Features, features_of, positive
from icl_interp.errors import InputError, shown
from icl_interp.prompts import Prompts

HELD = 2**22  # values of pool functions that are held at once


class Given(NamedTuple):
    """What a law says of prompts.

    Attributes:
        mean: of each point, given the points before it.
        evidence: log density of the labels before each point, without -log(2 pi) / 2 a label.
    """

    mean: Float[Tensor, "batch point target"]
    evidence: Float[Tensor, "batch point"]


@runtime_checkable
class Belief(Protocol):
    """A law of functions with labels under normal noise."""

    def given(self, prompts: Prompts) -> Given:
        """Posterior means, and the evidence of the points before each."""
        ...


@dataclass(frozen=True)
class NormalWeights:
    """Functions <w, phi> with independent w from N(mean, std^2), and labels with normal noise.

    The posterior mean is ridge regression towards the mean weights. Targets are independent.

    Attributes:
        task: the features phi.
        noise: standard deviation of a label about its value; positive, or evidences are infinite.
        mean: of each weight.
        std: of each weight.
    """

    task: Features
    noise: float
    mean: float = 0.0
    std: float = 1.0

    def __post_init__(self) -> None:
        positive("noise", self.noise)
        positive("std", self.std)

    def given(self, prompts: Prompts) -> Given:
        """Posterior means, and the evidence of the points before each."""
        features = features_of(self.task, prompts.xs.double())
        ys = prompts.ys.double()
        n = features.shape[-1]
        prior = torch.full((n, prompts.n_targets), self.mean, dtype=torch.float64)
        # The posterior covariance is noise^2 (R' R)^-1.
        first = prefixes.prior_rows(prior, self.noise / self.std)
        factors = prefixes.factors(features, ys, first)
        mean = prefixes.at_next_point(features, prefixes.solve(factors, n))
        triangle = factors[..., :n, :n].mT
        whitened = torch.linalg.solve_triangular(triangle, features[..., None], upper=False)
        spread = 1 + whitened.square().sum((-2, -1))
        variance = (self.noise**2 * spread)[..., None]
        each = -0.5 * ((ys - mean).square() / variance + variance.log())
        return Given(mean, _before(each.sum(-1)))


@dataclass(frozen=True, eq=False)
class PoolLaw:
    """Functions of a finite pool, equally likely, and labels with normal noise.

    Attributes:
        task: with `pool`, the parameters of its functions, and `targets`, their values.
        noise: standard deviation of a label about its value.
    """

    task: Any
    noise: float

    def __post_init__(self) -> None:
        positive("noise", self.noise)

    def given(self, prompts: Prompts) -> Given:
        """Posterior means, and the evidence of the points before each."""
        pool = self.task.pool
        size = max(1, HELD // (len(pool) * prompts.n_points * prompts.n_targets))
        parts = []
        for start in range(0, len(prompts), size):
            parts.append(self._given(prompts[start : start + size], pool))
        means, evidences = zip(*parts, strict=True)
        return Given(torch.cat(means), torch.cat(evidences))

    def _given(self, prompts: Prompts, pool: Float[Tensor, "function parameter"]) -> Given:
        n_prompts = len(prompts)
        n = len(pool)
        xs = prompts.xs.double()
        # Every function of the pool at the points of every prompt.
        inputs = xs.repeat_interleave(n, 0)
        values = self.task.targets(pool.repeat(n_prompts, 1), inputs)
        values = values.unflatten(0, (n_prompts, n))
        missed = (values - prompts.ys.double()[:, None]).square().sum(-1)
        variance = torch.tensor(self.noise**2, dtype=torch.float64)
        each = -0.5 * (missed / variance + prompts.n_targets * variance.log())
        zeros = torch.zeros_like(each[..., :1])
        before = torch.cat([zeros, each[..., :-1].cumsum(-1)], -1)
        shares = before.softmax(1)
        mean = (shares[..., None] * values).sum(1)
        return Given(mean, before.logsumexp(1) - math.log(n))


@dataclass(frozen=True)
class BayesPool:
    """Posterior mean over a pool of functions: the discrete least squares estimator (dMMSE).

    Source: Raventos, Paul, Chen & Ganguli (2023), "Pretraining task diversity and the emergence of
    non-Bayesian in-context learning for regression", equation (3).

    Attributes:
        task: with a pool (`n_tasks`).
        noise: standard deviation of labels. Without noise one function is certain as soon as it is
            the only one that fits; a small number stands for that.
        name: in tables.

    >>> from icl_interp.provenance import generator
    >>> from icl_interp.tasks.regression import LinearRegression
    >>> task = LinearRegression(n_dims=3, n_points=4, n_tasks=2)
    >>> prompts = task.sample(5, generator(0, "doc"), dtype=torch.float64)
    >>> missed = BayesPool(task, 1e-3).predict(prompts) - prompts.ys
    >>> bool(missed[:, 1:].abs().max() < 1e-6)  # one point tells two functions apart
    True
    """

    task: Any
    noise: float
    name: str = "Bayes over the pool"

    def __post_init__(self) -> None:
        if getattr(self.task, "n_tasks", None) is None:
            raise InputError(
                f"a {type(self.task).__name__} without n_tasks has no pool to weigh: give it one, "
                "or use ridge regression"
            )
        positive("noise", self.noise)

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The posterior mean at each point; that of the pool at the first."""
        return PoolLaw(self.task, self.noise).given(prompts).mean


@dataclass(frozen=True, eq=False)
class BayesMixture:
    """Posterior mean where a function follows one of several laws, and which is unknown.

    E[f(x) | prefix] = sum_c P(c | prefix) E[f(x) | prefix, c], with one law for all targets.

    Source: Panwar, Ahuja & Goyal (2024), "In-context learning through the Bayesian prism",
    section 3.

    Attributes:
        laws: what functions follow.
        shares: how likely each law is before any point is seen; equally by default.
        name: in tables.
    """

    laws: Sequence[Belief]
    shares: tuple[float, ...] = ()
    name: str = "Bayes over the mixture"

    def __post_init__(self) -> None:
        if not self.laws:
            raise InputError("a mixture needs one law at least, but got none")
        shares = self.shares or (1 / len(self.laws),) * len(self.laws)
        if len(shares) != len(self.laws) or min(shares) <= 0:
            raise InputError(
                f"shares must be {len(self.laws)} positive numbers, one a law, but got "
                f"{shown(self.shares)}"
            )
        object.__setattr__(self, "shares", shares)

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The posterior mean at each point; that of the prior at the first."""
        means, weights = self._weighed(prompts)
        return (weights[..., None] * means).sum(0)

    def posterior(self, prompts: Prompts) -> Float[Tensor, "batch point law"]:
        """P(law | the points before each point)."""
        return self._weighed(prompts)[1].movedim(0, -1)

    def _weighed(
        self, prompts: Prompts
    ) -> tuple[Float[Tensor, "law batch point target"], Float[Tensor, "law batch point"]]:
        """The mean of each law, and its probability."""
        each = [law.given(prompts) for law in self.laws]
        means = torch.stack([one.mean for one in each])
        evidences = torch.stack([one.evidence for one in each])
        prior = torch.tensor(self.shares, dtype=torch.float64).log()
        return means, (evidences + prior[:, None, None]).softmax(0)


def _before(each: Float[Tensor, "batch point"]) -> Float[Tensor, "batch point"]:
    """Sums over the points before each point."""
    return torch.cat([torch.zeros_like(each[:, :1]), each[:, :-1].cumsum(1)], 1)
