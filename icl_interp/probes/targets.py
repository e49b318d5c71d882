"""What a learned probe may look for in an activation: quantities of a prompt, by name.

A token has seen some of the examples only, so what is running depends on their number. All of them
count in bidirectional attention.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.baselines.base import features_of
from icl_interp.baselines.local import KNearest
from icl_interp.baselines.regression import LeastSquares
from icl_interp.errors import InputError, shown, unknown
from icl_interp.models.tokens import Encoding
from icl_interp.prompts import Prompts

ROUNDING = 1e-5  # of the largest label
CONSTANT = 1e-9  # spread of a target, in units of its size, up to which there is nothing to find
Values = Callable[[Prompts, Any, int], Tensor]


@dataclass(frozen=True)
class Target:
    """A quantity of a prompt at a token that has seen some examples.

    Attributes:
        name: of the quantity.
        values: of prompts, the task and the number of examples seen: `(batch, coordinate)`.
        effect: how f(x_query) changes with each coordinate, `(batch, coordinate)`, in units of y
            per unit of the target; None where that is not known.
    """

    name: str
    values: Values
    effect: Callable[[Prompts, Any], Tensor] | None = None


def _coefficients(prompts: Prompts, task: Any, seen: int) -> Tensor:
    return prompts.parameters


def _by_parameters(prompts: Prompts, task: Any) -> Tensor:
    """df(x_query) / d parameters."""
    parameters = prompts.parameters.detach().clone()
    parameters.requires_grad_()
    query = prompts.xs[:, -1:]
    with torch.enable_grad():
        value = task.targets(parameters, query)
        total = value.sum()
    return torch.autograd.grad(total, parameters)[0]


def _degree(prompts: Prompts, task: Any, seen: int) -> Tensor:
    """The highest power with a coefficient other than 0."""
    there = prompts.parameters != 0
    powers = torch.arange(there.shape[1]).to(there.device)
    degree = (there * powers).amax(1, keepdim=True)
    return degree.double()


def _noise_level(prompts: Prompts, task: Any, seen: int) -> Tensor:
    """The root mean square of what labels have beside f(x), over the examples seen."""
    _need(seen, "noise level")
    clean = task.targets(prompts.parameters, prompts.xs)
    noise = _not_rounding(prompts.ys - clean, prompts)[:, :seen]
    return noise.square().mean((1, 2))[:, None].sqrt()


def _moment(prompts: Prompts, task: Any, seen: int) -> Tensor:
    """Phi' y / n over the examples seen."""
    _need(seen, "X'y")
    features = features_of(task, prompts.xs)[:, :seen]
    ys = prompts.ys[:, :seen]
    return (features.mT @ ys / seen).flatten(1)


def _least_squares(prompts: Prompts, task: Any, seen: int) -> Tensor:
    """The coefficients fitted to the examples seen."""
    _need(seen, "least squares")
    shown_only = prompts.first(seen + 1)
    return LeastSquares(task).coefficients(shown_only)[:, -1].flatten(1)


def _by_features(prompts: Prompts, task: Any) -> Tensor:
    return features_of(task, prompts.xs)[:, -1]


def _residual(prompts: Prompts, task: Any, seen: int) -> Tensor:
    """The last label seen, less what least squares on those before it predicts."""
    _need(seen, "residuals")
    shown_only = prompts.first(seen)
    predicted = LeastSquares(task).predict(shown_only)
    residual = prompts.ys[:, seen - 1] - predicted[:, -1]
    return _not_rounding(residual, prompts)


def _neighbour(prompts: Prompts, task: Any, seen: int) -> Tensor:
    """The label of the example, of those seen, that is nearest to the query."""
    _need(seen, "neighbour's label")
    kept = [*range(seen), prompts.n_points - 1]
    xs = prompts.xs[:, kept]
    ys = prompts.ys[:, kept]
    nearest = KNearest(1).predict(replace(prompts, xs=xs, ys=ys))
    return nearest[:, -1]


TARGETS = {
    "coefficients": Target("coefficients", _coefficients, _by_parameters),
    "degree": Target("degree", _degree),
    "noise level": Target("noise level", _noise_level),
    "X'y": Target("X'y", _moment),
    "least squares": Target("least squares", _least_squares, _by_features),
    "residuals": Target("residuals", _residual),
    "neighbour's label": Target("neighbour's label", _neighbour),
}


def target_of(given: Any) -> Target:
    """A target by its name, as it is, or of a function `prompts -> (batch,)`.

    Raises:
        InputError: an unknown name, or nothing of these.

    >>> target_of("degree").name
    'degree'
    """
    if isinstance(given, Target):
        return given
    if isinstance(given, str):
        if given not in TARGETS:
            raise unknown("target", given, TARGETS)
        return TARGETS[given]
    if not callable(given):
        raise InputError(
            f"a target is a name or a function of prompts, but got {shown(given)}: names are "
            f"{', '.join(TARGETS)}"
        )
    name = getattr(given, "__name__", "target")
    return Target(name, lambda prompts, task, seen: torch.as_tensor(given(prompts)))


def values_of(
    target: Target, prompts: Prompts, task: Any, seen: int
) -> Float[Tensor, "batch coordinate"]:
    """The target of each prompt, in float64.

    Raises:
        InputError: it is no number or vector for each prompt, is not finite, or is the same in all
            prompts; a token that has seen no example where examples are needed.
    """
    prompts = prompts.double()
    try:
        values = target.values(prompts, task, seen).detach().double().cpu()
    except AttributeError as error:
        raise InputError(f"the target {target.name!r} needs a task that has it: {error}") from error
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or len(values) != len(prompts):
        got = tuple(values.shape)
        raise InputError(
            f"the target {target.name!r} must be a number or a vector for each of {len(prompts)} "
            f"prompts, but has shape {got}"
        )
    if not torch.isfinite(values).all():
        raise InputError(f"the target {target.name!r} holds NaN or infinite numbers")
    if not varying(values).any():
        raise InputError(
            f"the target {target.name!r} is the same in all prompts, so there is nothing to find: "
            "choose prompts among which it differs"
        )
    return values


def varying(values: Float[Tensor, "batch coordinate"]) -> Tensor:
    """Which coordinates differ between prompts."""
    spread = values.std(0, correction=0)
    size = values.abs().amax(0)
    return spread > CONSTANT * size


def n_seen(encoding: Encoding, n_points: int, position: int, attention_dir: str) -> int:
    """Examples whose labels a token has seen.

    >>> from icl_interp.models.tokens import Interleaved
    >>> [n_seen(Interleaved(), 3, position, "causal") for position in range(5)]
    [0, 1, 1, 2, 2]
    """
    n_examples = n_points - 1
    kinds = encoding.kinds(n_points)
    if attention_dir != "causal":
        return n_examples
    if not encoding.shows_values:  # a value comes as the next input
        return position
    labelled = [kind for kind in kinds[: position + 1] if "y" in kind]
    return min(len(labelled), n_examples)


def _not_rounding(values: Tensor, prompts: Prompts) -> Tensor:
    """Differences of labels, 0 where they are no more than what float32 rounds off."""
    size = float(prompts.ys.abs().max())
    return values.where(values.abs() > ROUNDING * size, 0.0)


def _need(seen: int, name: str) -> None:
    if seen < 1:
        raise InputError(f"the target {name!r} needs a token that has seen an example")
