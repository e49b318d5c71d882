"""The Bayes predictor with a uniform prior, against quadrature as the noise goes to 0.

It is also tested where it does not apply.
"""

import itertools

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.baselines import LeastSquares
from icl_interp.baselines.base import Powers
from icl_interp.baselines.uniform import BayesUniformPrior
from icl_interp.errors import InputError
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.provenance import generator

GRID = 401  # points a coefficient


def prompts_of(parameters, n_points=7) -> Prompts:
    """Prompts of polynomials with these coefficients, lowest degree first."""
    parameters = torch.tensor(parameters, dtype=torch.float64)
    xs = (
        2
        * torch.rand(
            len(parameters), n_points, 1, generator=generator(1, "test/xs"), dtype=torch.float64
        )
        - 1
    )
    ys = (xs ** torch.arange(parameters.shape[1])) @ parameters[:, :, None]
    return Prompts(xs, ys, parameters, torch.arange(len(parameters)))


def by_quadrature(prompts: Prompts, degrees, low: float, high: float, noise: float) -> np.ndarray:
    """The posterior mean at the query under normal noise, by sums over a grid.

    The grid holds all coefficients of every degree.
    """
    found = []
    for x, y in zip(prompts.xs[..., 0].numpy(), as_numbers(prompts.ys).numpy(), strict=True):
        logs, values = [], []
        for degree in degrees:
            axes = [np.linspace(low, high, GRID)] * (degree + 1)
            w = np.stack([one.ravel() for one in np.meshgrid(*axes, indexing="ij")], -1)
            said = w @ (x[:, None] ** np.arange(degree + 1)).T
            # Each degree is equally likely, and so is each of its coefficients.
            logs.append(-((said[:, :-1] - y[:-1]) ** 2).sum(-1) / (2 * noise**2) - np.log(len(w)))
            values.append(said[:, -1])
        log, value = np.concatenate(logs), np.concatenate(values)
        weight = np.exp(log - log.max())
        found.append((weight * value).sum() / weight.sum())
    return np.array(found)


CASES = [
    ((1,), -1, 1, [[0.3, -0.6], [2.5, -0.7], [-0.2, 2.0], [-2.8, 2.9], [1.4, -1.2]]),
    (
        (0, 1),
        0.5,
        1.5,
        [[0.9, 0.0], [1.2, 0.8], [3.0, 0.1], [2.5, 3.0]],
    ),  # no function of degree 1 is a constant
]


def check_limit(predictor):
    """The posterior mean converges as the noise goes to 0, up to the quadrature's own grid."""
    for degrees, low, high, parameters in CASES:
        prompts = prompts_of(parameters)
        said = as_numbers(predictor(degrees, low, high).predict(prompts))[:, -1].numpy()
        off = [
            np.abs(by_quadrature(prompts, degrees, low, high, s) - said).max()
            for s in (0.3, 0.1, 0.03)
        ]
        assert off[0] > 2 * off[1] > 4 * off[2]
        assert off[2] < 0.03


class Clamped(BayesUniformPrior):
    """A mutant that moves each coefficient of the free fit into its range.

    That is not the least-squares fit with coefficients in the range.
    """

    def predict(self, prompts):
        features = Powers(max(self.degrees)).features(prompts.xs)
        w = torch.linalg.lstsq(features[:, :-1], prompts.ys[:, :-1]).solution.clamp(
            self.low, self.high
        )
        return features @ w


class Free(BayesUniformPrior):
    """Knows no interval."""

    def predict(self, prompts):
        return LeastSquares(Powers(max(self.degrees))).predict(prompts)


class OneDegree(BayesUniformPrior):
    """Takes the largest degree, whatever the error that it leaves."""

    def __post_init__(self):
        object.__setattr__(self, "degrees", (max(self.degrees),))


@pytest.mark.slow
def test_it_is_the_limit_of_little_noise():
    check_limit(BayesUniformPrior)
    for mutant in (Clamped, Free, OneDegree):
        must_fail(check_limit, mutant)


def test_it_is_exact_on_functions_of_the_law():
    """On all degrees and points, from as many points on as the largest degree has coefficients."""
    parameters = [[0.4, -0.3, 0, 0], [0.1, 0.9, -0.8, 0.99], [-1.0, 1.0, 1.0, -1.0]]
    prompts = prompts_of(parameters, n_points=9)
    out = BayesUniformPrior((1, 3), -1, 1).predict(prompts)
    assert out[:, :4].isnan().all()
    assert torch.allclose(out[:, 4:], prompts.ys[:, 4:], rtol=0, atol=1e-6)
    late = BayesUniformPrior((1, 3), -1, 1, first=8).predict(prompts)
    assert late[:, :8].isnan().all()
    assert torch.allclose(late[:, 8], out[:, 8])
    assert BayesUniformPrior((9,), -1, 1).predict(prompts).isnan().all()


@pytest.mark.slow
def test_no_other_function_of_the_law_is_nearer():
    """The error on the points seen is the smallest on a fine grid of coefficients."""
    prompts = prompts_of([[2.0, -1.7], [0.2, 3.0]])
    predictor = BayesUniformPrior((1,), -1, 1)
    for row in range(2):
        x, y = prompts.xs[row, :-1, 0], prompts.ys[row, :-1, 0]
        # The line it fits, from its values at two queries.
        a, b = (
            float(
                predictor.predict(
                    Prompts(
                        torch.cat([x, at]).view(1, -1, 1),
                        torch.cat([y, y[:1]]).view(1, -1, 1),
                        prompts.parameters[:1],
                        prompts.function[:1],
                    )
                )[0, -1, 0]
            )
            for at in (torch.tensor([0.0]).double(), torch.tensor([1.0]).double())
        )
        error = float(((a + (b - a) * x - y) ** 2).sum())
        grid = np.linspace(-1, 1, 101)
        least = min(float(((v + w * x - y) ** 2).sum()) for v, w in itertools.product(grid, grid))
        assert error <= least + 1e-9
        assert -1 - 1e-9 <= a <= 1 + 1e-9
        assert -1 - 1e-9 <= b - a <= 1 + 1e-9


def test_bad_input():
    with pytest.raises(InputError, match="at least one degree"):
        BayesUniformPrior((), -1, 1)
    with pytest.raises(InputError, match="a degree must be a whole number"):
        BayesUniformPrior((-1,), -1, 1)
    with pytest.raises(InputError, match="its lower end first"):
        BayesUniformPrior((1,), 1, -1)
    with pytest.raises(InputError, match="first must be a whole number"):
        BayesUniformPrior((1,), -1, 1, first=-1)
