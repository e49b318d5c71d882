"""Kernel ridge regression on every prefix."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.baselines.base import positive
from icl_interp.baselines.local import distances
from icl_interp.prompts import Prompts


@dataclass(frozen=True)
class KernelRidge:
    """k(x)' (K + penalty I)^-1 y with the kernel exp(-beta |x - x'|^2), fitted to each prefix.

    It is the posterior mean of a Gaussian process with this covariance, whose labels have noise of
    variance `penalty`. Source: Rasmussen & Williams (2006), equation (2.25).
    `sklearn.kernel_ridge.KernelRidge` has no batches; its fits are the same.

    Attributes:
        beta: the kernel's width is 1 / sqrt(2 beta).
        penalty: added to the diagonal.
        name: in tables.
    """

    beta: float
    penalty: float
    name: str = "kernel ridge"

    def __post_init__(self) -> None:
        positive("beta", self.beta)
        positive("penalty", self.penalty)

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The fit to each prefix at the next point; 0 before the first point."""
        kernel = torch.exp(-self.beta * distances(prompts))
        ys = prompts.ys.double()
        identity = torch.eye(prompts.n_points, dtype=kernel.dtype, device=kernel.device)
        # The factor of a prefix is a corner of that of all points.
        factor = torch.linalg.cholesky(kernel + self.penalty * identity)
        out = [torch.zeros_like(ys[:, 0])]
        for k in range(1, prompts.n_points):
            weights = torch.cholesky_solve(ys[:, :k], factor[:, :k, :k])
            out.append((kernel[:, k, :k, None] * weights).sum(1))
        return torch.stack(out, 1)
