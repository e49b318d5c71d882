"""Predictions that need no example: the mean of the law of functions, or of a function's values."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.baselines.base import Zero
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator

DRAWN = 4096  # prompts that the mean of a function's values is taken over


@runtime_checkable
class HasMean(Protocol):
    """A law of functions that knows its mean, such as a task."""

    def expected(self, xs: Float[Tensor, "batch point dim"]) -> Float[Tensor, "batch point target"]:
        """E[f(x)]."""
        ...


@dataclass(frozen=True)
class LawMean:
    """Predicts E[f(x)] over the law of the functions (`Task.expected`), without using any example.

    A constant that is added to every function is added to it, too, so that errors relative to it
    stay what they are. In a centred law it is 0.
    """

    task: HasMean
    name: str = "law mean"

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """E[f(x)] at each point."""
        return self.task.expected(prompts.xs.double())


@dataclass(frozen=True)
class MeanValue:
    """Predicts one number at every x: the mean of the values of a task's functions at its inputs.

    Where every function is one, `LawMean` is that function, which leaves nothing to explain. This
    constant is what R^2 is relative to then.

    Args:
        task: gives the prompts that the mean is over, with `sample`.
    """

    task: Any
    name: str = "mean value"

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The mean value at each point."""
        return self._values().mean(0).expand(prompts.ys.shape)

    def is_zero(self) -> bool:
        """Whether it cannot be told from 0: within 4 standard errors over independent prompts."""
        values = self._values()
        limit = 4 * values.std(0) / DRAWN**0.5
        return bool((values.mean(0).abs() <= limit).all())

    def _values(self) -> Float[Tensor, "batch target"]:
        """The mean over the points of each of `DRAWN` prompts; the stream is fixed."""
        draw = generator(0, "baselines/mean value")
        prompts = self.task.sample(DRAWN, draw, dtype=torch.float64)
        return prompts.ys.mean(1)


ZERO = Zero.name
LAW = LawMean.name
VALUE = MeanValue.name
RELATIVE = {
    ZERO: "R2 compares with always predicting 0, the mean over functions",
    LAW: "R2 compares with always predicting the mean over functions",
    VALUE: "R2 compares with always predicting the mean value of the one function",
}


def without_examples(task: Any) -> Zero | LawMean | MeanValue:
    """The predictor that R^2 is relative to: it knows the law of functions, but uses no example.

    That is `LawMean`, or `Zero` where the law is centred. Where every function is one, it is its
    `MeanValue`, because E[f(x)] is the function itself then.

    Args:
        task: with `single_function`, `centred`, `expected` and `sample`.
    """
    if not task.single_function:
        return Zero() if task.centred else LawMean(task)
    value = MeanValue(task)
    return Zero() if value.is_zero() else value


def uninformed(names: Iterable[str]) -> str:
    """Which of some predictors, by name, R^2 is relative to: `RELATIVE` says it in words."""
    for name in names:
        if name in (LAW, VALUE):
            return name
    return ZERO
