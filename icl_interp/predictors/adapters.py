"""Three kinds of predictors as one: an object, a function and an estimator of scikit-learn."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icl_interp.adapters.adapted import Adapted
from icl_interp.baselines import scikit
from icl_interp.baselines.base import predictions
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError, shown
from icl_interp.prompts import Prompts

ROWS = 4096  # prompts that an object or a function is shown at once
Library = Literal["numpy", "torch"]


class Outside(ABC):
    """A predictor of which nothing is known but what it predicts; float64 in and out.

    Args:
        source: what predicts.
        name: of it, in reports.

    Attributes:
        reads_prompts: whether it is shown whole prompts, with the label of the query in them. What
            is shown the examples alone cannot read that label.
    """

    reads_prompts = False

    def __init__(self, source: Any, name: str | None = None) -> None:
        self.source = source
        self.name = name or _name(source)

    @abstractmethod
    def answers(
        self, prompts: Prompts, queries: Float[Tensor, "batch query dim"]
    ) -> Float[Tensor, "batch query target"]:
        """Predictions for queries behind the examples of prompts.

        Args:
            prompts: their examples are all points but the last one.
            queries: of each prompt.

        Raises:
            InputError: what was returned has another shape, or is no array of numbers.
        """

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The prediction for the query of each prompt; NaN at the other points.

        So one prompt costs one fit, and `icl_interp.evaluate` scores the query alone.
        """
        prompts = prompts.double()
        out = torch.full_like(prompts.ys, torch.nan)
        out[:, -1:] = self.answers(prompts, prompts.xs[:, -1:])
        return out

    def _in_shape(self, given: Any, shape: tuple[int, ...]) -> Float[Tensor, "row target"]:
        """What a predictor returned for some rows, as a float64 tensor (row, target)."""
        asked = shape if shape[-1] > 1 else shape[:-1]
        try:
            out = torch.as_tensor(given).detach().to("cpu", torch.float64)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"{self.name} must return an array of numbers of shape {asked}, but returned "
                f"{shown(given)} ({type(given).__name__})"
            ) from error
        if tuple(out.shape) not in (asked, shape):
            raise InputError(
                f"{self.name} must return a value for each query, shape {asked} here, but returned "
                f"shape {tuple(out.shape)}"
            )
        return out.reshape(shape)


def _repeated(
    prompts: Prompts, queries: Float[Tensor, "batch query dim"]
) -> Iterator[tuple[Prompts, Float[Tensor, "row dim"]]]:
    """Prompts once for each of their queries, and these queries; some thousand rows at a time."""
    n = queries.shape[1]
    step = max(1, ROWS // n)
    for start in range(0, len(prompts), step):
        part = prompts[start : start + step].double()
        rows = torch.arange(len(part)).repeat_interleave(n)
        own = queries[start : start + step].double()
        yield part[rows], own.flatten(0, 1)


class _Object(Outside):
    """Anything with `predict(prompts)`."""

    reads_prompts = True

    def answers(
        self, prompts: Prompts, queries: Float[Tensor, "batch query dim"]
    ) -> Float[Tensor, "batch query target"]:
        """Each query in the place of the last point, whose label is 0."""
        parts = []
        for part, x_query in _repeated(prompts, queries):
            xs = part.xs.clone()
            xs[:, -1] = x_query
            ys = part.ys.clone()
            ys[:, -1] = 0.0
            said = predictions(self.source, replace(part, xs=xs, ys=ys))
            parts.append(said[:, -1])
        return torch.cat(parts).unflatten(0, queries.shape[:2])

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """Its own predictions, at every point."""
        return predictions(self.source, prompts.double())


class _Function(Outside):
    """A function (xs, ys, x_query) -> y_query, batched over prompts."""

    def __init__(self, source: Any, name: str | None = None, library: Library = "numpy") -> None:
        super().__init__(source, name)
        self.library = library

    def answers(
        self, prompts: Prompts, queries: Float[Tensor, "batch query dim"]
    ) -> Float[Tensor, "batch query target"]:
        """The function of each context once for each of its queries."""
        parts = []
        for part, x_query in _repeated(prompts, queries):
            ys = part.ys[:, :-1]
            if prompts.n_targets == 1:
                ys = ys[..., 0]
            said = self._call(part.xs[:, :-1], ys, x_query)
            parts.append(self._in_shape(said, (len(part), prompts.n_targets)))
        return torch.cat(parts).unflatten(0, queries.shape[:2])

    def _call(self, xs: Tensor, ys: Tensor, x_query: Tensor) -> Any:
        """What the function returns for arrays of its own library."""
        if self.library == "torch":
            return self.source(xs, ys, x_query)
        return self.source(xs.numpy(), ys.numpy(), x_query.numpy())


class _Estimator(Outside):
    """An estimator of scikit-learn: a fresh clone is fitted to the examples of each prompt."""

    def answers(
        self, prompts: Prompts, queries: Float[Tensor, "batch query dim"]
    ) -> Float[Tensor, "batch query target"]:
        """One fit a context, which then predicts all of its queries."""
        tools = scikit.fitting_tools(self.name)
        prompts = prompts.double()
        xs = prompts.xs[:, :-1].numpy()
        ys = prompts.ys[:, :-1]
        if prompts.n_targets == 1:
            ys = ys[..., 0]
        ys = ys.numpy()
        asked = queries.double().numpy()
        shape = (asked.shape[1], prompts.n_targets)
        out = torch.empty(len(xs), *shape, dtype=torch.float64)
        # Parameters are checked with the first fit, for there are many.
        for row in range(len(xs)):
            with tools.config_context(skip_parameter_validation=row > 0, assume_finite=row > 0):
                fitted = tools.clone(self.source).fit(xs[row], ys[row])
                out[row] = self._in_shape(fitted.predict(asked[row]), shape)
        return out


def from_object(predictor: Any, name: str | None = None) -> Outside:
    """A predictor with `predict(prompts) -> (batch, point, target)`.

    Its prediction of a point may use the points before it and the input of that point. Where it
    says nothing it gives NaN.

    Args:
        predictor: the object.
        name: in reports; its own `name`, or that of its class, by default.

    Raises:
        InputError: it has no `predict`.
    """
    if not callable(getattr(predictor, "predict", None)) or isinstance(predictor, type):
        raise InputError(
            f"from_object takes an object with predict(prompts), but got {shown(predictor)}"
        )
    return _Object(predictor, name)


def from_function(
    function: Callable[..., Any], name: str | None = None, library: Library = "numpy"
) -> Outside:
    """A function `(xs, ys, x_query) -> y_query`, batched over prompts.

    Args:
        function: takes `xs` (batch, example, dim), `ys` (batch, example) and `x_query` (batch,
            dim), and returns (batch,). For vector values `ys` is (batch, example, target), and the
            function returns (batch, target).
        name: in reports; the function's own by default.
        library: whose arrays the function takes, "numpy" or "torch"; float64. It may return either.

    Raises:
        InputError: no function, or no such library.

    >>> import numpy as np
    >>> from icl_interp.tasks import LinearRegression
    >>> prompts = LinearRegression(n_dims=2, n_points=5).sample(3, torch.Generator())
    >>> def nearest(xs, ys, x_query):
    ...     at = ((xs - x_query[:, None]) ** 2).sum(-1).argmin(1)
    ...     return ys[np.arange(len(ys)), at]
    >>> from_function(nearest).predict(prompts)[:, -1].shape
    torch.Size([3, 1])
    """
    if not callable(function) or isinstance(function, type):
        raise InputError(f"from_function takes a function, but got {shown(function)}")
    try:
        inspect.signature(function).bind("xs", "ys", "x_query")
    except TypeError as error:
        raise InputError(
            f"a predictor is a function of (xs, ys, x_query), but {_name(function)} takes other "
            "arguments"
        ) from error
    except ValueError:  # a builtin that does not tell
        pass
    if library not in ("numpy", "torch"):
        raise InputError(f'library must be "numpy" or "torch", but got {shown(library)}')
    return _Function(function, name, library)


def from_estimator(estimator: Any, name: str | None = None) -> Outside:
    """An estimator of scikit-learn as a predictor: one fit a context.

    Args:
        estimator: with `fit(xs, ys)`, `predict(xs)` and `get_params`. It is cloned, and stays as it
            is.
        name: in reports; what it prints as by default.

    Raises:
        InputError: no estimator, a class in the place of an object, or scikit-learn is missing.

    >>> from sklearn.linear_model import Ridge
    >>> from_estimator(Ridge(alpha=0.5)).name
    'Ridge(alpha=0.5)'
    """
    if not _is_estimator(estimator):
        hint = " (call the class: Ridge())" if isinstance(estimator, type) else ""
        raise InputError(
            "from_estimator takes an estimator of scikit-learn, with fit, predict and get_params, "
            f"but got {shown(estimator)}{hint}"
        )
    scikit.fitting_tools(type(estimator).__name__)
    return _Estimator(estimator, name or " ".join(str(estimator).split()))


def recognised(source: Any) -> Outside | None:
    """What predicts without weights, as one; None for models and all that `load` reads.

    A torch module counts as a model, whatever methods it has: `from_object` makes it a predictor.
    One that was adapted is judged from its outputs.

    Args:
        source: what `icl_interp.analyze` was given.
    """
    if isinstance(source, Outside):
        return source
    if isinstance(source, Adapted):
        return from_object(source, type(source.module).__name__)
    if isinstance(source, (str, Path, Checkpoint, nn.Module, type)):
        return None
    if _is_estimator(source):
        return from_estimator(source)
    if callable(getattr(source, "predict", None)):
        return from_object(source)
    return from_function(source) if inspect.isroutine(source) else None


def _is_estimator(source: Any) -> bool:
    if isinstance(source, type):
        return False
    return all(hasattr(source, part) for part in ("fit", "predict", "get_params"))


def _name(source: Any) -> str:
    own = getattr(source, "name", None)
    if own is None:
        own = getattr(source, "__name__", None)
    if isinstance(own, str):
        return own
    return type(source).__name__
