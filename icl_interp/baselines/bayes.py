"""The best prediction of somebody who knows the law of the functions, but not the degree of this one."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.baselines import prefixes
from icl_interp.baselines.base import Law, Powers, positive, whole
from icl_interp.errors import InputError
from icl_interp.prompts import Prompts, as_numbers, by_coordinate


@dataclass(frozen=True)
class BayesOverDegrees:
    """Posterior mean of the next value when the degree is unknown: uniform over `degrees`, Gaussian coefficients.

    Of vectors it predicts each coordinate by itself, as though each had a degree of its own.

    E[f(x) | prefix] = sum_d P(d | prefix) E[f(x) | prefix, d], in closed form for a model that
    differs from the task in two ways: coefficients are normal with the mean and variance of
    `coefficients` (not uniform, say), and labels carry normal noise with a standard deviation of
    `noise` times theirs. The noise makes evidences finite: without it a degree that fits exactly
    would be certain, and one that does not impossible. Which degree is at work is then plain from
    about d + 2 points on, and from there the predictor is as good as least squares that knows it.

    Args:
        degrees: those that can come, equally likely.
        coefficients: their law; mean and std are used.
        noise: standard deviation of the labels' noise over that of a coefficient.
    """

    degrees: tuple[int, ...]
    coefficients: Law
    noise: float = 1e-4
    name: str = "Bayes over degrees"

    def __post_init__(self) -> None:
        object.__setattr__(self, "degrees", tuple(self.degrees))
        if not self.degrees:
            raise InputError(
                "degrees must name at least one degree, for example (1, 3, 5), but got none"
            )
        for degree in self.degrees:
            whole("a degree", degree, 0)
        positive("noise", self.noise)

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The posterior mean at each point; that of the prior at the first."""
        return torch.stack([self._predicted(one) for one in by_coordinate(prompts)], -1)

    def _predicted(self, prompts: Prompts) -> Float[Tensor, "batch point"]:
        """Of values that are numbers."""
        means, evidences = zip(
            *(self._given(degree, prompts) for degree in self.degrees), strict=True
        )
        weights = torch.stack(evidences).softmax(0)
        return (weights * torch.stack(means)).sum(0)

    def posterior(self, prompts: Prompts) -> Float[Tensor, "batch point degree"]:
        """P(degree | the points before each point), where values are numbers."""
        return torch.stack(
            [self._given(degree, prompts)[1] for degree in self.degrees], -1
        ).softmax(-1)

    def _given(
        self, degree: int, prompts: Prompts
    ) -> tuple[Float[Tensor, "batch point"], Float[Tensor, "batch point"]]:
        """(mean of the next value, log evidence of the points before it), were this the degree."""
        features, ys = Powers(degree).features(prompts.xs.double()), prompts.ys.double()
        prior = torch.full((degree + 1, 1), float(self.coefficients.mean), dtype=torch.float64)
        # The posterior mean is ridge regression around the prior's mean, its covariance noise^2 (R'
        # R)^-1.
        factors = prefixes.factors(features, ys, prefixes.prior_rows(prior, self.noise))
        mean = as_numbers(prefixes.at_next_point(features, prefixes.solve(factors, degree + 1)))
        whitened = torch.linalg.solve_triangular(
            factors[..., :-1, :-1].mT, features[..., None], upper=False
        )
        variance = (self.noise * self.coefficients.std) ** 2 * (1 + whitened.square().sum((-2, -1)))
        each = -0.5 * ((as_numbers(ys) - mean).square() / variance + variance.log())
        return mean, torch.cat([torch.zeros_like(each[:, :1]), each[:, :-1].cumsum(1)], 1)
