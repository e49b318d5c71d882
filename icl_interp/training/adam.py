"""Adam, as torch computes it, with its state by parameter name."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim.adam import adam


class Adam:
    """`torch.optim.Adam(..., fused=True)`, bit for bit, through the function that it calls.

    The class itself would import torch's compiler. That import takes seconds, makes a cache folder
    outside the run folder, and sets an environment variable.

    Attributes:
        state: for each parameter's name "step" (the number of steps, a scalar), and both moments,
            "exp_avg" and "exp_avg_sq", of the parameter's shape.
    """

    def __init__(self, named: Iterable[tuple[str, nn.Parameter]]) -> None:
        self.named = dict(named)
        self.state: dict[str, dict[str, Tensor]] = {
            name: {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
                "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
            }
            for name, parameter in self.named.items()
        }

    def step(self, learning_rate: float) -> None:
        """Update every parameter by its gradient, which is 0 for fixed ones, and drop the gradients."""
        # The kernel reads moments and gradients up to the size of the parameter, whatever their own
        # size is.
        state = [self.state[name] for name in self.named]
        with torch.no_grad():
            adam(
                list(self.named.values()),
                [_gradient(parameter) for parameter in self.named.values()],
                [moments["exp_avg"] for moments in state],
                [moments["exp_avg_sq"] for moments in state],
                [],
                [moments["step"] for moments in state],
                fused=True,
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=learning_rate,
                weight_decay=0.0,
                eps=1e-8,
                maximize=False,
            )
        for parameter in self.named.values():
            parameter.grad = None


def _gradient(parameter: nn.Parameter) -> Tensor:
    if not parameter.requires_grad:  # fixed: with moments of 0 it stays bit by bit what it is
        return torch.zeros_like(parameter)
    assert parameter.grad is not None, "a step follows a backward pass"
    return parameter.grad
