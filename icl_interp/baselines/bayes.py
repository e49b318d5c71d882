"""The best predictor that knows the law of the functions, but not the degree of this function."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.baselines.base import Law, Powers, positive, whole
from icl_interp.baselines.mixture import BayesMixture, NormalWeights
from icl_interp.errors import InputError
from icl_interp.prompts import Prompts, as_numbers, by_coordinate


@dataclass(frozen=True)
class BayesOverDegrees:
    """Posterior mean of the next value when the degree of the polynomial is unknown.

    The prior is uniform over `degrees`, with Gaussian coefficients.

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
        mixture = self._mixture()
        of_coordinates = list(map(mixture.predict, by_coordinate(prompts)))
        return torch.cat(of_coordinates, -1)

    def posterior(self, prompts: Prompts) -> Float[Tensor, "batch point degree"]:
        """P(degree | the points before each point), where values are numbers."""
        as_numbers(prompts.ys)
        return self._mixture().posterior(prompts)

    def _mixture(self) -> BayesMixture:
        """Normal coefficients of each degree, all degrees equally likely."""
        mean = float(self.coefficients.mean)
        std = self.coefficients.std
        laws = []
        for degree in self.degrees:
            laws.append(NormalWeights(Powers(degree), self.noise * std, mean, std))
        return BayesMixture(laws)
