"""A batch of in-context prompts, and the one glossary of axes.

Axes, the same word in every annotation of the package:

    batch     prompts; function-major when several contexts share a function
    point     points of a prompt in order; the last one is the query
    dim       coordinates of an input x
    target    coordinates of a value y = f(x); one for functions whose values are numbers
    token     positions of the sequence a model reads
    parameter coefficients of the function, lowest degree first, padded with zeros
    d_in d_out d_model d_mlp head d_head layer    the model's widths
    query key                                     token positions of an attention pattern
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from icl_interp.errors import InputError, counted


@dataclass(frozen=True)
class Prompts:
    """Points (x, f(x)) of one function per prompt.

    Attributes:
        xs: inputs, `(batch, point, dim)`.
        ys: f(x) at every point, `(batch, point, target)`; the last one is what the query asks for.
            `(batch, point)` is taken as one target. `as_numbers(ys)` gives that back.
        parameters: what identifies f, `(batch, parameter)`; zero columns for a task with a fixed
            function.
        function: index of the function of each prompt, `(batch,)`. Prompts with the same index
            differ in their context only: statistics resample functions, not prompts.
    """

    xs: Float[Tensor, "batch point dim"]
    ys: Float[Tensor, "batch point target"] | Float[Tensor, "batch point"]
    parameters: Float[Tensor, "batch parameter"]
    function: Int[Tensor, " batch"]

    def __post_init__(self) -> None:
        for name in ("xs", "ys", "parameters", "function"):
            value = getattr(self, name)
            if not isinstance(value, Tensor):
                raise InputError(
                    f"{name} of prompts must be a torch.Tensor, but got a "
                    f"{type(value).__name__}: torch.as_tensor(...) makes one"
                )
        if self.ys.ndim == 2:
            object.__setattr__(self, "ys", self.ys[..., None])

    def __len__(self) -> int:
        return self.xs.shape[0]

    def __repr__(self) -> str:
        # The functions are not counted: their indices may lie on another device, and a repr should
        # cost nothing.
        values = f", values of {self.n_targets} coordinates" if self.n_targets > 1 else ""
        n_prompts = counted(len(self), "prompt")
        n_dims = counted(self.xs.shape[2], "dimension")
        return f"Prompts({n_prompts} of {self.n_points} points in {n_dims}{values})"

    @property
    def n_targets(self) -> int:
        """Coordinates of a value."""
        return self.ys.shape[2]

    @property
    def n_points(self) -> int:
        """Points of a prompt, the query included."""
        return self.xs.shape[1]

    def __getitem__(self, rows: slice | Tensor) -> "Prompts":
        """Some of the prompts."""
        return Prompts(self.xs[rows], self.ys[rows], self.parameters[rows], self.function[rows])

    def first(self, n_points: int) -> "Prompts":
        """The same prompts cut to their first `n_points` points.

        The last of these is then the query.
        """
        return replace(self, xs=self.xs[:, :n_points], ys=self.ys[:, :n_points])

    def reordered(self, generator: torch.Generator) -> "Prompts":
        """The examples of each prompt in a random order of its own, the query last as before."""
        n_prompts = len(self)
        last = self.n_points - 1
        order = torch.rand(n_prompts, last, generator=generator).argsort(-1)
        order = torch.cat([order, torch.full((n_prompts, 1), last)], 1)
        rows = torch.arange(n_prompts)[:, None]
        return replace(self, xs=self.xs[rows, order], ys=self.ys[rows, order])

    def double(self) -> "Prompts":
        """The same numbers in float64."""
        parameters = self.parameters.double()
        return replace(self, xs=self.xs.double(), ys=self.ys.double(), parameters=parameters)


def by_coordinate(prompts: Prompts) -> list[Prompts]:
    """The prompts once for each coordinate of their values, with that coordinate alone."""
    found = []
    for i in range(prompts.n_targets):
        found.append(replace(prompts, ys=prompts.ys[..., i : i + 1]))
    return found


def as_numbers(values: Float[Tensor, "*batch target"]) -> Float[Tensor, "*batch"]:
    """The values of functions whose values are numbers: the last axis, which holds one, is dropped.

    Raises:
        InputError: the values are vectors.

    >>> as_numbers(torch.zeros(4, 10, 1)).shape
    torch.Size([4, 10])
    """
    if values.shape[-1] != 1:
        n = values.shape[-1]
        raise InputError(
            f"this is for functions whose values are numbers, but these are vectors of {n} "
            "coordinates"
        )
    return values[..., 0]


def squared_sizes(values: Float[Tensor, "*batch target"]) -> Float[Tensor, "*batch"]:
    """Squares of numbers, and squared lengths of vectors: sums over the last axis.

    >>> squared_sizes(torch.tensor([[3.0, 4.0], [0.0, 2.0]]))
    tensor([25.,  4.])
    """
    return values.square().sum(-1)
