"""Which examples make a prediction: its exact derivatives in labels and inputs, and their kernel.

The derivatives in the labels are the *hat row* of the query: for a predictor that is linear in the
labels, the prediction is this row times the labels, whatever the labels are. Least squares, ridge,
gradient descent from 0 and kernel averages have closed hat rows. Comparing rows asks how a model
uses its examples, and not only what comes out.

Source: Hoaglin & Welsch (1978), "The hat matrix in regression and ANOVA"; Koh & Liang (2017),
"Understanding black-box predictions via influence functions", for examples of training.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.baselines import named, reference, regression
from icl_interp.baselines.base import Predictor, predictions
from icl_interp.baselines.local import Averaging, KNearest, NadarayaWatson
from icl_interp.errors import InputError, shown, whole
from icl_interp.models import tokens as encodings
from icl_interp.models.hooked import HookedModel
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import HookedTransformer, chunks
from icl_interp.probes.base import ModelWithEncoding, resolve, with_weights
from icl_interp.probes.units import mean_over_functions, rank_correlation, ratio_over_functions
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.resampling import r_squared
from icl_interp.results import make_array, table_of_rows

N_PROMPTS = 64  # functions drawn where no prompts are given
N_DIRECTIONS = 8  # random changes of all labels, for second differences
AT_ONCE = 64  # prompts of a pass of gradients
STEP = 1e-4  # of finite differences, in standard deviations of what is moved
# The gradient of these is not the derivative: hardmax is differentiated as softmax.
NOT_BY_GRADIENT = ("hardmax",)
# Baselines whose prediction is linear in the labels.
LINEAR = (
    *(regression.LeastSquares, regression.Ridge, regression.GradientDescent),
    *(regression.AveragingEstimator, reference.BestRidge),
    *(Averaging, KNearest, NadarayaWatson),
)
# In labels (batch, example), and in inputs (batch, example, dim) where these are asked for.
Derivatives = tuple[Tensor, Tensor | None]
Ask = Callable[[Prompts], Float[Tensor, " batch"]]


@dataclass(frozen=True, eq=False)
class ExampleInfluence:
    """How the prediction at the query depends on each example of its prompt.

    The route is automatic differentiation in float64, through the model as it is, with whatever
    is attached to it. Predictors without weights, adapted modules (a copy in float64), and hardmax,
    whose gradient is another function's, are asked at both sides of each label instead (central
    differences; exact up to rounding where the prediction is linear in the labels).

    Assumes that a label may be moved by itself: so paths, whose values come again as inputs, are
    refused, and so are vectors.

    Attributes:
        prompts: the last point is the query.
        predictions: at the query, (prompt).
        weights: the hat row dy_hat / dy_i, (prompt, example).
        slopes: dy_hat / dx_i, (prompt, example, dim), in units of y per unit of x; None where it
            was not asked for.
        ask: prompts to predictions at the query.
        task: of the checkpoint, for `beside`; None where there is none.

    Raises:
        InputError: values that are vectors; an encoding of paths; a prompt without an example;
            numbers that are not finite.

    Least squares is exact at its examples, so its hat row times the labels is its prediction:

    >>> from icl_interp import tasks
    >>> task = tasks.LinearRegression(n_dims=2, n_points=6)
    >>> prompts = task.sample(8, generator(0, "doc"))
    >>> row = ExampleInfluence.measure(regression.LeastSquares(task), prompts)
    >>> again = (row.weights.values * prompts.ys[:, :-1, 0].double().numpy()).sum(1)
    >>> bool(abs(again - row.predictions.values).max() < 1e-9)
    True
    """

    prompts: Prompts
    predictions: DataArray
    weights: DataArray
    slopes: DataArray | None
    ask: Ask
    task: Any = None

    @classmethod
    def measure(
        cls,
        source: Any,
        prompts: Prompts | None = None,
        *,
        encoding: Encoding | str | None = None,
        inputs: bool = True,
        seed: int = 0,
    ) -> Self:
        """Measure it on some prompts.

        Args:
            source: a checkpoint, a model, or anything with `predict(prompts)`.
            prompts: of any functions; by default 64 functions of the checkpoint's task.
            encoding: of a bare model.
            inputs: also the derivatives in the inputs.
            seed: of the prompts that are drawn.
        """
        task = getattr(source, "task", None)
        if prompts is None:
            prompts = _drawn(task, seed)
        _check(prompts)
        prompts = prompts.double()
        # Gradients where these are derivatives, differences elsewhere.
        ask, by_gradient = asked(source, prompts, encoding)
        route = _by_gradient if by_gradient else _by_differences
        weights, slopes = route(ask, prompts, inputs)
        with torch.no_grad():
            predicted = ask(prompts)
        _check_finite(predicted, "predictions")
        _check_finite(weights, "derivatives")
        note = "by automatic differentiation" if by_gradient else "by central differences"
        axes: dict[str, Any] = {"prompt": range(len(prompts))}
        out = make_array(predicted.numpy(), axes, "y")
        axes["example"] = range(prompts.n_points - 1)
        row = make_array(weights.numpy(), axes, "", f"dy_hat / dy_i, {note}")
        if slopes is not None:
            axes["dim"] = range(prompts.xs.shape[-1])
            slopes = make_array(slopes.numpy(), axes, "y / x", f"dy_hat / dx_i, {note}")
        return cls(prompts, out, row, slopes, ask, task)

    @property
    def total(self) -> DataArray:
        """The sum of the hat row, (prompt): 1 for a predictor that copies constant labels."""
        return self.weights.sum("example")

    @property
    def effective_examples(self) -> DataArray:
        """(sum |w_i|)^2 / sum w_i^2, (prompt): how many equal weights would be as uneven.

        Source: Kish (1965), *Survey sampling*, section 11.7: the effective sample size.
        """
        total = abs(self.weights).sum("example")
        square = (self.weights**2).sum("example")
        return total**2 / square.where(square > 0)

    @property
    def distances(self) -> DataArray:
        """|x_i - x_query|, (prompt, example)."""
        xs = self.prompts.xs
        apart = xs[:, :-1] - xs[:, -1:]
        away = torch.linalg.vector_norm(apart, dim=-1)
        out = self.weights.copy(data=away.cpu().numpy())
        return out.assign_attrs(units="x", note="distance to the query")

    def leave_one_out(self) -> DataArray:
        """The prediction without example i, less the prediction with it: (prompt, example).

        Later examples move up by one place. Where a model has learned positions this is a part of
        the change.

        Raises:
            InputError: prompts of one example.
        """
        n = self.prompts.n_points
        if n < 3:
            raise InputError("leaving an example out needs prompts of at least two examples")
        without = []
        for i in range(n - 1):
            fewer = _without(self.prompts, i)
            without.append(self._asked(fewer))
        change = np.stack(without, 1) - self._before
        out = self.weights.copy(data=change)
        note = "prediction without an example, less the one with it"
        return out.assign_attrs(units="y", note=note)

    def swapped(self) -> DataArray:
        """What happens if example i gets the label of the next one: (which, prompt, example).

        "exact" is the change of the prediction; "first order" is w_i times the label's change. The
        last example gets the label of the first.
        """
        ys = self.prompts.ys[:, :-1]
        changes = ys.roll(-1, dims=1) - ys
        n_prompts, n_examples, _ = ys.shape
        # One label at a time.
        exact = []
        for i in range(n_examples):
            change = torch.zeros_like(ys)
            change[:, i] = changes[:, i]
            moved = _moved(self.prompts, change)
            exact.append(self._asked(moved))
        found = np.stack(exact, 1) - self._before
        by_label = changes[..., 0].cpu().numpy()
        first = self.weights.values * by_label
        axes: dict[str, Any] = {"which": ("exact", "first order")}
        axes["prompt"] = range(n_prompts)
        axes["example"] = range(n_examples)
        both = np.stack([found, first])
        return make_array(both, axes, "y", "example i gets the label of the next one")

    def _asked(self, prompts: Prompts) -> np.ndarray:
        out = self.ask(prompts)
        return out.detach().cpu().numpy()

    @property
    def _before(self) -> np.ndarray:
        return self.predictions.values[:, None]

    def nonlinearity(self, seed: int = 0) -> DataArray:
        """Second differences over first ones, (prompt): 0 where the prediction is linear in y.

        With d a random change of all labels, as large as the labels' deviation in their prompt:
        |y_hat(y + d) - 2 y_hat(y) + y_hat(y - d)| / |y_hat(y + d) - y_hat(y - d)|, root mean
        squares over `N_DIRECTIONS` draws of d. Also 0 where no label counts.

        Args:
            seed: of the changes.
        """
        ys = self.prompts.ys[:, :-1]
        size = _spread(ys)
        draw = generator(seed, "probes/influence")
        middle = self.predictions.values
        second = np.zeros_like(middle)
        first = np.zeros_like(middle)
        # All labels move together, so that products of two of them show, too.
        for _ in range(N_DIRECTIONS):
            normal = torch.randn(ys.shape, generator=draw, dtype=torch.float64)
            change = size * normal.to(ys)
            up = self._asked(_moved(self.prompts, change))
            down = self._asked(_moved(self.prompts, -change))
            second += (up - 2 * middle + down) ** 2
            first += (up - down) ** 2
        counts = first > 0
        first[~counts] = 1.0
        ratio = np.sqrt(counts * second / first)
        out = self.predictions.copy(data=ratio)
        return out.assign_attrs(units="", note="second differences over first ones")

    def summary(self) -> pd.DataFrame:
        """What the rows are like, a number each with its interval over functions.

        Rows of the table:

        * "sum of weights": mean of `total`.
        * "effective examples": mean of `effective_examples`.
        * "nonlinearity": mean of `nonlinearity`.
        * "distance": mean rank correlation of the weights with the distance to the query; below 0
          where near examples count more.
        * "row times labels": R2 of sum_i w_i y_i for the prediction; 1 for what is linear in y.
        * "swaps": R2 of first-order changes for exact ones, of `swapped`.

        Raises:
            InputError: prompts of one function.
        """
        ys = self.prompts.ys[:, :-1, 0].cpu().numpy()
        predicted = self.predictions.values
        # What the row and its first-order changes miss.
        by_row = (self.weights.values * ys).sum(1)
        missed = (predicted - by_row) ** 2
        swapped = self.swapped()
        exact, first = swapped.values
        missed_swaps = ((exact - first) ** 2).mean(1)
        swaps = (exact**2).mean(1)
        near = rank_correlation(self.weights.values, self.distances.values)
        mean = partial(mean_over_functions, prompts=self.prompts)
        share = partial(ratio_over_functions, prompts=self.prompts, of=r_squared)
        found = {
            "sum of weights": mean(self.total.values),
            "effective examples": mean(self.effective_examples.values),
            "nonlinearity": mean(self.nonlinearity().values),
            "distance": mean(near),
            "row times labels": share(missed, predicted**2),
            "swaps": share(missed_swaps, swaps),
        }
        rows = []
        for name, interval in found.items():
            rows.append({"name": name, **_ends("value", interval)})
        return table_of_rows(rows)

    def kernel(self, bins: int = 8) -> pd.DataFrame:
        """The mean weight by distance to the query: the kernel that the model looks like.

        Args:
            bins: of distances, with equally many examples in each.

        Returns:
            Columns distance (mean of the bin), weight, low, high (95 % interval over functions).

        Raises:
            InputError: prompts of one function, or fewer than two bins.
        """
        bins = whole(bins, "bins", 2)
        away, weights = self.distances.values, self.weights.values
        shares = np.linspace(0, 1, bins + 1)
        inner = np.quantile(away, shares[1:-1])
        of = np.searchsorted(inner, away, side="right")
        rows = []
        for i in range(bins):
            inside = (of == i).astype(float)
            if not inside.any():  # equal distances
                continue
            weight = (inside * weights).mean(1)
            share = inside.mean(1)
            found = ratio_over_functions(weight, share, self.prompts)
            middle = float(np.average(away, weights=inside))
            rows.append({"distance": middle, **_ends("weight", found)})
        return table_of_rows(rows, "mean weight of examples by their distance to the query")

    def beside(self, predictors: Mapping[str, Predictor] | None = None) -> pd.DataFrame:
        """How far the hat rows are from those of other predictors, nearest first.

        Args:
            predictors: by name; by default the classical ones for the checkpoint's task that are
                linear in the labels: least squares, ridge, steps of gradient descent, averages,
                neighbours and kernels.

        Returns:
            Columns predictor; distance, sum |w - v|^2 / sum |w|^2 for the predictor's rows v, with
            low and high (95 % interval over functions); cosine of all rows taken together.

        Raises:
            InputError: no predictors and no task, or prompts of one function.
        """
        rows = []
        predictors = predictors or self._classical()
        mine = self.weights.values
        size = (mine**2).sum(1)
        for name, predictor in predictors.items():
            theirs = hat_rows(predictor, self.prompts).numpy()
            away = ((mine - theirs) ** 2).sum(1)
            found = ratio_over_functions(away, size, self.prompts)
            row = {"predictor": name, **_ends("distance", found)}
            row["cosine"] = _cosine(mine, theirs)
            rows.append(row)
        rows.sort(key=lambda row: row["distance"])
        return table_of_rows(rows, "hat rows: sum |w - v|^2 / sum |w|^2")

    def _classical(self) -> dict[str, Predictor]:
        if self.task is None:
            raise InputError(
                "beside() needs predictors by name, because no task came with the source: for "
                "example {'least squares': LeastSquares(task)}"
            )
        every = named.classical(self.task)
        return {name: one for name, one in every.items() if isinstance(one, LINEAR)}


def hat_rows(predictor: Predictor, prompts: Prompts) -> Float[Tensor, "batch example"]:
    """d y_hat / d y_i of a predictor, by central differences in float64.

    They are exact up to rounding for one that is linear in the labels.

    The mean of the labels weighs each alike:

    >>> from icl_interp import tasks
    >>> prompts = tasks.LinearRegression(n_dims=2, n_points=5).sample(3, generator(0, "doc"))
    >>> hat_rows(Averaging(), prompts).round(decimals=9).tolist()[0]
    [0.25, 0.25, 0.25, 0.25]
    """
    prompts = prompts.double()
    ask, _ = asked(predictor, prompts, None)
    return _by_differences(ask, prompts, inputs=False)[0]


def asked(source: Any, prompts: Prompts, encoding: Encoding | str | None) -> tuple[Ask, bool]:
    """Predictions at the query as a function of prompts, and whether their gradient is right.

    Raises:
        InputError: the source predicts nothing, or its encoding shows no values.
    """
    if not isinstance(source, (HookedModel, ModelWithEncoding)):
        if not isinstance(source, Predictor):
            raise InputError(
                "influence is asked of a checkpoint, a model, or an object with predict(prompts), "
                f"but got {shown(source)}"
            )
        return lambda given: predictions(source, given)[:, -1, 0], False
    given, found = resolve(source, encoding)
    found = found or encodings.infer_from(prompts, given.cfg.d_in)
    if not found.shows_values:
        raise InputError(
            f"the encoding {encodings.name_of(found)} shows paths, whose values come again as "
            "inputs, so no label can be moved by itself: ask about functions"
        )
    if not isinstance(given, HookedTransformer):
        # An adapted module predicts in its own precision, and float32 is too coarse to differ.
        return partial(_at_query, copy.deepcopy(given).double(), found), False
    model = with_weights(given, "influence")
    # A copy, so that the model keeps its type; hooks of an open context act on it, too.
    model = copy.deepcopy(model).double().requires_grad_(False)
    return partial(_at_query, model, found), model.cfg.score_fn not in NOT_BY_GRADIENT


def _at_query(model: HookedModel, encoding: Encoding, prompts: Prompts) -> Float[Tensor, " batch"]:
    tokens = encoding.encode(prompts).to(model.numbers)
    n_tokens = tokens.shape[1]
    parts = []
    for rows in chunks(model, len(tokens), n_tokens):
        out = model(tokens[rows], [n_tokens - 1])
        parts.append(out[:, 0, 0])
    return torch.cat(parts).cpu()


def _by_gradient(ask: Ask, prompts: Prompts, inputs: bool) -> Derivatives:
    """Derivatives by automatic differentiation: prompts are independent, so a pass takes many."""
    weights = []
    slopes = []
    # The graph of a pass is let go before the next one.
    for start in range(0, len(prompts), AT_ONCE):
        part = prompts[start : start + AT_ONCE]
        xs = part.xs.detach().clone()
        ys = part.ys.detach().clone()
        xs.requires_grad_()
        ys.requires_grad_()
        with torch.enable_grad():
            followed = replace(part, xs=xs, ys=ys)
            out = ask(followed).sum()
        # The query's own label and input are no examples.
        given = [xs, ys]
        of_x, of_y = torch.autograd.grad(out, given, allow_unused=True, materialize_grads=True)
        weights.append(of_y[:, :-1, 0].cpu())
        slopes.append(of_x[:, :-1].cpu())
    return torch.cat(weights), torch.cat(slopes) if inputs else None


@torch.no_grad()
def _by_differences(ask: Ask, prompts: Prompts, inputs: bool) -> Derivatives:
    """Derivatives by central differences, an example and a coordinate at a time."""
    weights = _differences(ask, prompts, "ys")[..., 0]
    slopes = _differences(ask, prompts, "xs") if inputs else None
    return weights, slopes


def _differences(ask: Ask, prompts: Prompts, what: str) -> Tensor:
    """Of all prompts, in "xs" or "ys": (batch, example, coordinate)."""
    values = getattr(prompts, what)
    examples = values[:, :-1]
    size = float(examples.std(correction=0))
    step = STEP * (size or 1.0)
    out = torch.zeros_like(examples, device="cpu")
    _, n_examples, n_coordinates = examples.shape
    for i in range(n_examples):
        for coordinate in range(n_coordinates):
            change = torch.zeros_like(values)
            change[:, i, coordinate] = step
            up = ask(replace(prompts, **{what: values + change}))
            down = ask(replace(prompts, **{what: values - change}))
            slope = (up - down) / (2 * step)
            out[:, i, coordinate] = slope.cpu()
    return out


def _moved(prompts: Prompts, change: Tensor) -> Prompts:
    """The prompts with other labels of their examples."""
    ys = prompts.ys.clone()
    ys[:, :-1] += change
    return replace(prompts, ys=ys)


def _without(prompts: Prompts, i: int) -> Prompts:
    """The prompts without example i."""
    kept = [k for k in range(prompts.n_points) if k != i]
    xs = prompts.xs[:, kept]
    ys = prompts.ys[:, kept]
    return replace(prompts, xs=xs, ys=ys)


def _spread(values: Tensor) -> Tensor:
    """The standard deviation over examples, 1 where there is none."""
    spread = values.std(1, correction=0, keepdim=True)
    return spread.where(spread > 0, 1.0)


def _drawn(task: Any, seed: int) -> Prompts:
    if task is None:
        raise InputError(
            "no task came with the source, so pass prompts: task.sample(64, generator)"
        )
    return task.sample(N_PROMPTS, generator(seed, "probes/influence/prompts"))


def _check(prompts: Any) -> None:
    if not isinstance(prompts, Prompts):
        raise InputError(f"influence is asked on Prompts, but got {shown(prompts)}")
    if prompts.n_targets != 1:
        raise InputError(
            "influence is that on a number, but these values are vectors of "
            f"{prompts.n_targets} coordinates: ask about one with prompts.by_coordinate and a "
            "predictor of that coordinate"
        )
    if prompts.n_points < 2 or not len(prompts):
        raise InputError(f"there is no example to ask about in {prompts}")
    _check_finite(prompts.xs, "inputs")
    _check_finite(prompts.ys[:, :-1], "labels")


def _check_finite(values: Tensor, what: str) -> None:
    bad = ~torch.isfinite(values)
    if bad.any():
        n = int(bad.sum())
        raise InputError(f"{what} must be finite, but {n} of {values.numel()} are not")


def _ends(name: str, interval: Any) -> dict[str, float]:
    return {name: interval.value, "low": interval.low, "high": interval.high}


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Of all numbers together; NaN where one is 0."""
    inner = float((a * b).sum())
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return inner / size if size else np.nan
