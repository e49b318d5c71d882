"""Pairs of prompts that differ in one thing, and how far a prediction goes from one to the other.

Patching puts what a model computes on a *clean* prompt into its run on a *corrupted* one. A
`Contrast` holds both, prompt by prompt. What patching moves is the prediction at the query: the
recovered share says how much of the way from the corrupted to the clean prediction it goes.

Every contrast changes one thing of fresh prompts of a task:

>>> import icl_interp
>>> task = icl_interp.load("affine").task
>>> pairs = labels(task, n_functions=4)
>>> bool((pairs.clean.xs == pairs.corrupted.xs).all())
True
>>> bool((pairs.clean.ys == pairs.corrupted.ys).any())
False
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from icl_interp.errors import InputError, real, whole
from icl_interp.models.transformer import chunks, model_in, tokens_in
from icl_interp.products import fast
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.provenance import generator
from icl_interp.tasks.base import Task

N_FUNCTIONS = 128
# Root mean square of the change, in standard deviations of the clean prediction, up to which there
# is no way to go: float32 rounds at about 1e-6 of these.
STILL = 1e-3


@dataclass(frozen=True)
class Contrast:
    """Clean prompts and corrupted ones, which differ in one thing.

    Attributes:
        kind: what differs.
        clean: prompts whose activations are put in.
        corrupted: prompt i is the i-th clean one with that thing changed.

    Raises:
        InputError: prompts of two shapes, or numbers that are not finite.
    """

    kind: str
    clean: Prompts
    corrupted: Prompts

    def __post_init__(self) -> None:
        for name in ("xs", "ys"):
            one = getattr(self.clean, name)
            other = getattr(self.corrupted, name)
            if one.shape != other.shape:
                raise InputError(
                    f"{name} of clean and corrupted prompts must have one shape, but got "
                    f"{tuple(one.shape)} and {tuple(other.shape)}"
                )
            if not (one.isfinite().all() and other.isfinite().all()):
                raise InputError(f"{name} of a contrast must be finite, but some are NaN or inf")

    def __len__(self) -> int:
        return len(self.clean)

    def __getitem__(self, rows: slice) -> "Contrast":
        """Some of the pairs."""
        return Contrast(self.kind, self.clean[rows], self.corrupted[rows])

    @property
    def units(self) -> Int[np.ndarray, " batch"]:
        """The unit of each pair, which statistics resample: the function of its clean prompt."""
        function = self.clean.function.numpy()
        return np.unique(function, return_inverse=True)[1]


def one_label(
    task: Task, *, example: int = 0, n_functions: int = N_FUNCTIONS, seed: int = 0
) -> Contrast:
    """The label of one example is that of another function at the same input.

    Args:
        task: of the prompts.
        example: which, counted from 0.
        n_functions: pairs of prompts.
        seed: of the draws.

    Raises:
        InputError: no such example, or a task whose labels cannot be changed alone.
    """
    clean, others = _two(task, n_functions, seed, "one label")
    whole(example, "example", 0, clean.n_points - 2)
    ys = clean.ys.clone()
    ys[:, example] = others.ys[:, example]
    changed = replace(clean, ys=ys)
    return Contrast("one label", clean, changed)


def one_input(
    task: Task, *, example: int = 0, n_functions: int = N_FUNCTIONS, seed: int = 0
) -> Contrast:
    """The input of one example is another draw of the same law; its label stays.

    Args:
        task: of the prompts.
        example: which, counted from 0.
        n_functions: pairs of prompts.
        seed: of the draws.

    Raises:
        InputError: no such example, or a task whose inputs cannot be changed alone.
    """
    clean = _fresh(task, n_functions, seed, "one input")
    whole(example, "example", 0, clean.n_points - 2)
    others = _fresh(task, n_functions, seed, "one input", "inputs")
    xs = clean.xs.clone()
    xs[:, example] = others.xs[:, example]
    changed = replace(clean, xs=xs)
    return Contrast("one input", clean, changed)


def labels(task: Task, *, n_functions: int = N_FUNCTIONS, seed: int = 0) -> Contrast:
    """All labels are those of another function, at the same inputs.

    Args:
        task: of the prompts.
        n_functions: pairs of prompts.
        seed: of the draws.

    Raises:
        InputError: a task of one function, or one whose labels cannot be changed alone.
    """
    clean, others = _two(task, n_functions, seed, "labels")
    return Contrast("labels", clean, others)


def order(task: Task, *, n_functions: int = N_FUNCTIONS, seed: int = 0) -> Contrast:
    """The same examples in another order, each prompt in its own.

    Args:
        task: of the prompts.
        n_functions: pairs of prompts.
        seed: of the draws.

    Raises:
        InputError: a task whose examples have an order of their own.
    """
    clean = _fresh(task, n_functions, seed, "order")
    draws = generator(seed, "contrasts/order")
    changed = clean.reordered(draws)
    return Contrast("order", clean, changed)


def query(task: Task, *, n_functions: int = N_FUNCTIONS, seed: int = 0) -> Contrast:
    """Another query of the same function after the same examples.

    Args:
        task: of the prompts.
        n_functions: pairs of prompts.
        seed: of the draws.

    Raises:
        InputError: a task whose queries cannot be changed alone.
    """
    clean = _fresh(task, n_functions, seed, "query")
    others = _fresh(task, n_functions, seed, "query", "inputs")
    xs = clean.xs.clone()
    xs[:, -1] = others.xs[:, -1]
    ys = clean.ys.clone()
    ys[:, -1:] = task.targets(clean.parameters, xs[:, -1:])
    changed = replace(clean, xs=xs, ys=ys)
    return Contrast("query", clean, changed)


def noise(task: Task, *, std: float, n_functions: int = N_FUNCTIONS, seed: int = 0) -> Contrast:
    """Normal noise is added to the labels of the examples.

    Args:
        task: of the prompts.
        std: standard deviation of the noise, in units of y.
        n_functions: pairs of prompts.
        seed: of the draws.

    Raises:
        InputError: no positive standard deviation, or a task whose labels cannot be changed alone.
    """
    real(std, "std", 0, above=True)
    clean = _fresh(task, n_functions, seed, "noise")
    draws = generator(seed, "contrasts/noise")
    drawn = torch.randn(clean.ys.shape, generator=draws)
    drawn[:, -1] = 0.0  # the query has no label
    ys = clean.ys + std * drawn.to(clean.ys)
    changed = replace(clean, ys=ys)
    return Contrast("noise", clean, changed)


KINDS: dict[str, Callable[..., Contrast]] = {
    "one label": one_label,
    "one input": one_input,
    "labels": labels,
    "order": order,
    "query": query,
    "noise": noise,
}


def _fresh(task: Any, n: int, seed: int, kind: str, stream: str = "clean") -> Prompts:
    """Prompts of as many functions, each with a unit of its own."""
    if not isinstance(task, Task):
        raise InputError(f"a contrast needs a task, but got a {type(task).__name__}")
    if task.autoregressive:
        raise InputError(
            f"contrasts of the kind {kind!r} change one thing of a prompt, but in a path each "
            "value is the next input: make a Contrast of prompts of your own"
        )
    whole(n, "n_functions", 2)
    draws = generator(seed, f"contrasts/{stream}")
    drawn = task.sample(n, draws)
    units = torch.arange(n)
    return replace(drawn, function=units)


def _two(task: Any, n: int, seed: int, kind: str) -> tuple[Prompts, Prompts]:
    """Prompts, and those of other functions at the same inputs."""
    clean = _fresh(task, n, seed, kind)
    if task.single_function:
        raise InputError(
            f"contrasts of the kind {kind!r} need two functions, but every prompt of this task "
            "has the same one"
        )
    # Noise of labels stays: the others differ by the values of the function.
    draws = generator(seed, "contrasts/functions")
    drawn = task.draw_parameters(n, draws, clean.xs.dtype)
    other = task.targets(drawn, clean.xs)
    own = task.targets(clean.parameters, clean.xs)
    ys = clean.ys + (other - own)
    return clean, replace(clean, ys=ys, parameters=drawn)


@dataclass(frozen=True)
class Way:
    """The way that the prediction at the query goes from corrupted to clean prompts.

    Attributes:
        start: the prediction on each corrupted prompt.
        end: the prediction on each clean prompt.
        units: the unit of each pair, counted from 0.
    """

    start: Float[Tensor, " batch"]
    end: Float[Tensor, " batch"]
    units: Int[np.ndarray, " batch"]

    @classmethod
    def of(cls, model: Any, contrast: Contrast) -> "Way":
        """Run a model on both.

        Args:
            model: a checkpoint.
            contrast: its prompts.

        Raises:
            InputError: predictions that are vectors or not finite, or that hardly differ.
        """
        start = at_query(model, contrast.corrupted)
        end = at_query(model, contrast.clean)
        if not (start.isfinite().all() and end.isfinite().all()):
            raise InputError("predictions of a contrast must be finite, but some are NaN or inf")
        squares = (end - start).square()
        change = float(squares.mean().sqrt())
        spread = float(end.std(unbiased=False))
        if change <= STILL * spread or change == 0:
            raise InputError(
                f"the prediction hardly differs between clean and corrupted prompts (root mean "
                f"square {change:.2g}, beside a spread of {spread:.2g}), so no share of the "
                f"change is defined: choose another contrast than {contrast.kind!r}"
            )
        return cls(start, end, contrast.units)

    def by_unit(
        self, predictions: Float[Tensor, "*batch prompt"]
    ) -> tuple[Float[np.ndarray, "*batch unit"], Float[np.ndarray, " unit"]]:
        """Numerators and denominators of the recovered share, summed over the prompts of a unit.

        Args:
            predictions: under some edit, of each prompt.
        """
        moved = predictions - self.start
        along = self._summed(moved * self.length)
        squares = self._summed(self.length.square())
        return along, squares

    def share(self, predictions: Float[Tensor, " prompt"]) -> float:
        """The recovered share: sum of (prediction - start) (end - start) over that of squares.

        It is 0 where the prediction stays and 1 where it goes all the way. It is the slope of what
        moved against the way, so prompts with a long way count more, and none has a denominator
        near 0 of its own.

        >>> start, end = torch.zeros(2), torch.tensor([1.0, 3.0])
        >>> Way(start, end, np.arange(2)).share(end / 2)
        0.5
        """
        moved, length = self.by_unit(predictions)
        share = moved.sum() / length.sum()
        return float(share)

    @property
    def length(self) -> Float[Tensor, " batch"]:
        """How far the prediction goes, with its sign."""
        return self.end - self.start

    def _summed(self, values: Float[Tensor, "*batch prompt"]) -> np.ndarray:
        """Sums over the prompts of each unit."""
        numbers = np.asarray(values, dtype=float)
        every = np.arange(self.units.max() + 1)
        belongs = self.units[:, None] == every
        return numbers @ belongs.astype(float)


@fast()
@torch.no_grad()
def at_query(model: Any, prompts: Prompts | Tensor) -> Float[Tensor, " batch"]:
    """The prediction at the query of each prompt, in float64.

    Args:
        model: a checkpoint, or whatever `tokens_in` takes.
        prompts: or tokens.

    Raises:
        InputError: predictions that are vectors.
    """
    inner = model_in(model)
    tokens = tokens_in(prompts, model)
    parts = []
    for rows in chunks(inner, len(tokens), tokens.shape[1]):
        out = inner(tokens[rows])
        parts.append(out[:, -1])
    predictions = torch.cat(parts)
    numbers = as_numbers(predictions)
    return numbers.double().cpu()
