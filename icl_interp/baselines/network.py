"""A two-layer ReLU network trained by gradient descent on the points of a prompt."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim.adam import adam

from icl_interp.baselines.base import positive, whole
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator

# The settings of `torch.optim.Adam`. That class would import torch's compiler, which takes seconds
# and leaves a folder.
ADAM: dict[str, Any] = {
    "fused": True,
    "amsgrad": False,
    "beta1": 0.9,
    "beta2": 0.999,
    "eps": 1e-8,
    "weight_decay": 0.0,
    "maximize": False,
}
# The weights and biases of the hidden layer, then those of the output, of one network for each
# prompt.
Weights = tuple[
    Float[Tensor, "batch dim hidden"],
    Float[Tensor, "batch 1 hidden"],
    Float[Tensor, "batch hidden target"],
    Float[Tensor, "batch 1 target"],
]


@dataclass(frozen=True)
class TwoLayerNetwork:
    """A relu(W x + b) + c, trained with Adam on the mean squared error of the points seen so far.

    Training has `steps` steps, and each step uses all of these points.

    Source: Garg et al. (2022), for two-layer networks; the defaults are those of
    `get_relevant_baselines` in their src/models.py. Every prefix of every prompt trains a network
    of its own. Here all of them start from the same weights, uniform between +-1 / sqrt(number of
    inputs of the layer), so that predictions depend on the prompt and on `seed` only. The time of a
    prediction is proportional to the number of points squared.

    Attributes:
        hidden: units of the hidden layer.
        steps: of Adam.
        learning_rate: of Adam.
        seed: of the weights before the first step.
    """

    hidden: int = 100
    steps: int = 100
    learning_rate: float = 5e-3
    seed: int = 0

    def __post_init__(self) -> None:
        whole("hidden", self.hidden, 1)
        whole("steps", self.steps, 0)
        whole("seed", self.seed, 0)
        positive("learning_rate", self.learning_rate)

    @property
    def name(self) -> str:
        """With its hidden units and steps."""
        return f"two-layer network, {self.hidden} units, {self.steps} step{'s' * (self.steps != 1)}"

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The network of each prefix at the next point; 0 before the first point."""
        xs = prompts.xs.double()
        ys = prompts.ys.double()
        out = torch.zeros_like(ys)
        for k in range(1, prompts.n_points):
            weights = self._trained(xs[:, :k], ys[:, :k])
            out[:, k : k + 1] = _value(weights, xs[:, k, None])
        return out

    def initial(self, dim: int, n_targets: int = 1) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The weights before the first step, in float64.

        Args:
            dim: coordinates of an input.
            n_targets: coordinates of a value.

        Returns:
            W transposed, (dim, hidden); b, (1, hidden); A transposed, (hidden, target); c, (1,
            target).
        """
        stream = generator(self.seed, "baselines/network")

        def uniform(n_in: int, n_rows: int, n_columns: int) -> Tensor:
            """Between -1 and 1 over the root of the number of inputs."""
            draw = torch.rand((n_rows, n_columns), generator=stream, dtype=torch.float64)
            return 1 / math.sqrt(n_in) * (2 * draw - 1)

        first = uniform(dim, dim, self.hidden)
        bias = uniform(dim, 1, self.hidden)
        last = uniform(self.hidden, self.hidden, n_targets)
        offset = uniform(self.hidden, 1, n_targets)
        return first, bias, last, offset

    def _trained(
        self, xs: Float[Tensor, "batch point dim"], ys: Float[Tensor, "batch point target"]
    ) -> Weights:
        """One network for each prompt, trained on all of these points."""
        weights = []
        for part in self.initial(xs.shape[-1], ys.shape[-1]):
            one_each = part.expand(len(xs), *part.shape)
            weights.append(one_each.clone())
        first, bias, last, offset = weights
        means = list(map(torch.zeros_like, weights))
        squares = list(map(torch.zeros_like, weights))
        counts = [torch.zeros(()) for _ in weights]
        for _ in range(self.steps):
            with torch.enable_grad():
                for part in weights:
                    part.requires_grad_()
                out = _value((first, bias, last, offset), xs)
                loss = (out - ys).square().mean((1, 2)).sum()
                gradients = torch.autograd.grad(loss, weights)
            # Adam works number by number, so that networks that are trained together do not know of
            # one another.
            with torch.no_grad():
                adam(
                    weights,
                    list(gradients),
                    means,
                    squares,
                    [],
                    counts,
                    lr=self.learning_rate,
                    **ADAM,
                )
        return first.detach(), bias.detach(), last.detach(), offset.detach()


def _value(
    weights: Weights, xs: Float[Tensor, "batch point dim"]
) -> Float[Tensor, "batch point target"]:
    """The output of each prompt's network at its points."""
    first, bias, last, offset = weights
    return (xs @ first + bias).relu() @ last + offset
