"""Checks of tasks: fields that hide a property, sizes, shapes of results, numbers too large.

A task of one's own may return anything. A shape that is off by an axis would broadcast against
predictions, and a model would be trained on it without a word.
"""

import inspect
import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, shown, whole
from icl_interp.prompts import Prompts


@runtime_checkable
class Sized(Protocol):
    """What is asked of a task here."""

    @property
    def dim(self) -> int:
        """Coordinates of an input."""
        ...

    @property
    def n_targets(self) -> int:
        """Coordinates of a value."""
        ...

    autoregressive: ClassVar[bool]  # whether the value at each point is the input of the next one

    def sample_points(
        self, parameters: Tensor, n_points: int, generator: torch.Generator, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """The points (xs, ys) of one prompt a row."""
        ...


def check_fields(cls: type) -> None:
    """Refuse a field without a default that hides an inherited property: setting it would fail."""
    for name in inspect.get_annotations(cls):
        if isinstance(getattr(cls, name, None), property):
            raise InputError(
                f"{cls.__name__}.{name} is a property of every task, so a field of that name needs "
                f"a default, for example `{name}: int = 2`; or call the field otherwise and return "
                f"it from a property {name}"
            )


def check_sizes(task: Sized) -> None:
    """Refuse numbers of coordinates that are not whole, and path values unlike the next inputs.

    A path's values must have as many coordinates as its inputs.
    """
    name = type(task).__name__
    for size in ("dim", "n_targets"):
        value = getattr(task, size)
        if callable(value):
            raise InputError(
                f"{name}.{size} must be a number, but is a method: put @property above it"
            )
        whole(value, f"{name}.{size}", 1)
    if task.autoregressive and task.n_targets != task.dim:
        raise InputError(
            f"{name} is autoregressive: its values are the next inputs and need as many "
            f"coordinates, but it has dim={task.dim} and n_targets={task.n_targets}; make these "
            "equal, or leave autoregressive out"
        )


def shaped(
    task: Sized,
    returned: object,
    duty: str,
    size: Sequence[int],
    axis: Literal["dim", "n_targets"] = "n_targets",
) -> Float[Tensor, "batch point coordinate"]:
    """What a method of a task returned, with the axis of targets that numbers may leave out.

    Args:
        task: whose method it is.
        returned: by the method.
        duty: names the method and what it must return.
        size: of the batch, and points of a prompt.
        axis: what the last axis holds.

    Raises:
        InputError: no tensor of real numbers, or one of another shape.
    """
    n_coordinates = getattr(task, axis)
    wanted = (*size, n_coordinates)
    what = (
        f"{type(task).__name__}.{duty}, shape {wanted} here (the last axis is "
        f"{axis}={n_coordinates}), but returned"
    )
    if not isinstance(returned, Tensor):
        raise InputError(f"{what} {_in_words(returned)} in place of a torch tensor")
    values = returned
    if axis == "n_targets" and n_coordinates == 1 and returned.ndim == 2:
        values = returned[..., None]
    if values.shape != wanted:
        raise InputError(f"{what} shape {tuple(returned.shape)}")
    if not values.is_floating_point():
        raise InputError(f"{what} numbers of {returned.dtype}: convert them with .to(xs.dtype)")
    return values


def sampled(
    task: Sized,
    parameters: Float[Tensor, "batch parameter"],
    n_points: int,
    generator: torch.Generator,
    dtype: torch.dtype,
) -> tuple[Float[Tensor, "batch point dim"], Float[Tensor, "batch point target"]]:
    """`sample_points` of a task, with the axis of targets that numbers may leave out.

    Raises:
        InputError: it returned anything but inputs and values of these shapes.
    """
    drawn = task.sample_points(parameters, n_points, generator, dtype)
    if not isinstance(drawn, tuple) or len(drawn) != 2:
        raise InputError(
            f"{type(task).__name__}.sample_points must return a tuple (xs, ys) of two tensors, but "
            f"returned {_in_words(drawn)}"
        )
    size = (len(parameters), n_points)
    xs = shaped(task, drawn[0], "sample_points must return inputs xs", size, "dim")
    ys = shaped(task, drawn[1], "sample_points must return values ys", size)
    return xs, ys


def checked(task: Sized, prompts: Prompts) -> Prompts:
    """The prompts, if an error can be computed on them.

    The sum of some million squares must be a finite number.

    Raises:
        InputError: numbers that are NaN, infinite or too large for their dtype.
    """
    largest_number = torch.finfo(prompts.ys.dtype).max
    limit = 1e-3 * largest_number**0.5
    dtype = str(prompts.ys.dtype).removeprefix("torch.")
    for name, values in (("inputs", prompts.xs), ("values", prompts.ys)):
        largest = values.abs().amax().item()
        if math.isnan(largest):
            raise InputError(
                f"{name} of this {type(task).__name__} reach nan: numbers overflow in {dtype}, or "
                "its functions are not defined at these inputs; choose laws of a smaller range"
            )
        if not largest <= limit:
            raise InputError(
                f"{name} of this {type(task).__name__} reach {largest:.2g}, and squares of numbers "
                f"beyond {limit:.0e} overflow in {dtype}: choose laws of a smaller range"
            )
    return prompts


def _in_words(returned: object) -> str:
    """What came in place of something else."""
    if isinstance(returned, Tensor):
        return f"one tensor of shape {tuple(returned.shape)}"
    if returned is None:
        return "None"
    return f"{shown(returned)} ({type(returned).__name__})"


def draws(generator: Any) -> None:
    """Refuse what is no generator of random numbers.

    Raises:
        InputError: it is anything but a torch.Generator.
    """
    if not isinstance(generator, torch.Generator):
        raise InputError(
            f"a torch.Generator is needed to draw prompts, but got {shown(generator)}: pass "
            "torch.Generator().manual_seed(0), say"
        )
