"""The best predictor that knows that coefficients are uniform, but not the degree of a function."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import lsq_linear
from torch import Tensor

from icl_interp.baselines import prefixes
from icl_interp.baselines.base import Powers, whole
from icl_interp.errors import InputError
from icl_interp.prompts import Prompts, by_coordinate

INSIDE = 1e-9  # of the interval's length: so far outside a coefficient still counts as inside


@dataclass(frozen=True)
class BayesUniformPrior:
    """Posterior mean of the next value for polynomials with coefficients from U(low, high).

    Labels are seen without noise.

    The degree is drawn uniformly from `degrees`. Of vectors each coordinate is predicted by itself,
    as though it had a degree of its own. Points that outnumber the coefficients determine the
    function, so there the posterior is a single function. It is the limit of posteriors under
    normal noise, as the noise goes to 0: that concentrates where the squared error is smallest
    among all functions that the law can draw. So the prediction is that of least squares with every
    coefficient kept within [low, high], with the degree that leaves the smallest error.

    On data of the law itself this is the function itself. On functions that the law cannot draw,
    such as functions scaled by 3, the posterior without noise does not exist. Its limit does, and
    is the nearest function that the law can draw: somebody who believes in the law never says more
    than its largest function.

    Where the points do not outnumber the coefficients, the posterior is uniform on a polytope, and
    there is no prediction here. Under a normal law the limit is least squares itself; see
    `BayesOverDegrees`.

    Where the free fit leaves the interval, `scipy.optimize.lsq_linear` solves it. Source: Stark &
    Parker (1995), Bounded-variable least squares.

    Args:
        degrees: those that can come, equally likely.
        low: end of the coefficients' interval. high: its other end.
        first: the first point that is predicted; by default the first one that has as many points
            before it as the largest degree has coefficients. Fewer points take less time.

    >>> import torch
    >>> xs = torch.tensor([[0.0, 1.0, -1.0, 0.5]], dtype=torch.float64)[..., None]
    >>> ys = 4 * xs  # a slope of 4, larger than any slope that can come
    >>> prompts = Prompts(xs, ys, torch.zeros(1, 2), torch.zeros(1).long())
    >>> round(float(BayesUniformPrior((1,), -1, 1).predict(prompts)[0, 3]), 9)
    0.5
    """

    degrees: tuple[int, ...]
    low: float
    high: float
    first: int = 0
    name: str = "Bayes over degrees, uniform prior"

    def __post_init__(self) -> None:
        object.__setattr__(self, "degrees", tuple(self.degrees))
        if not self.degrees:
            raise InputError(
                "degrees must name at least one degree, for example (1, 3, 5), but got none"
            )
        for degree in self.degrees:
            whole("a degree", degree, 0)
        if not self.low < self.high:
            raise InputError(
                f"coefficients need an interval, its lower end first, but got ({self.low}, "
                f"{self.high})"
            )
        whole("first", self.first, 0)

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The prediction of each point that enough points come before; NaN for the others."""
        largest = max(self.degrees)
        first = max(self.first, largest + 1)
        out = torch.full(prompts.ys.shape, torch.nan, dtype=torch.float64)
        if first >= prompts.n_points:
            return out
        # An interval that holds 0 has every function of a smaller degree among those of the largest
        # one.
        degrees = (largest,) if self.low <= 0 <= self.high else self.degrees
        for target, one in enumerate(by_coordinate(prompts)):
            fits = []
            errors = []
            for degree in degrees:
                fit, error = self._fitted(degree, first, one)
                fits.append(fit)
                errors.append(error)
            best = torch.stack(errors).argmin(0, keepdim=True)
            out[:, first:, target] = torch.stack(fits).gather(0, best)[0]
        return out

    def _fitted(
        self, degree: int, first: int, prompts: Prompts
    ) -> tuple[Float[Tensor, "batch point"], Float[Tensor, "batch point"]]:
        """The fit of one degree, with its error.

        Returns the value at each point from `first` on, and the squared error on the points before
        it.
        """
        n = degree + 1
        features = Powers(degree).features(prompts.xs.double())
        no_prior = features.new_zeros(n + 1, n + 1)
        factors = prefixes.factors(features, prompts.ys.double(), no_prior)[:, first:]
        w = prefixes.solve(factors, n)[..., 0]
        error = factors[..., n, n].square()
        slack = INSIDE * (self.high - self.low)
        within = (w >= self.low - slack) & (w <= self.high + slack)
        inside = within.all(-1)  # false where it is not unique
        ends = (self.low, self.high)
        for row, point in (~inside).nonzero().tolist():
            triangle = np.asarray(factors[row, point, :n])
            fit = lsq_linear(triangle[:, :n], triangle[:, n], ends, method="bvls")
            w[row, point] = torch.from_numpy(fit.x)
            error[row, point] += 2 * float(fit.cost)
        values = (features[:, first:] * w).sum(-1)
        return values, error
