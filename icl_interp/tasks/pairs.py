"""Whether functions of a task come in antithetic pairs: a test of what its class says.

A pair is right where its partner follows the law of the task: of functions, inputs and noise. That
the law of the parameters is symmetric about a centre, and that noise is symmetric and independent
of the function, no finite sample proves, so a class has to say it (`mean_parameters`,
`symmetric_noise`). What it says is tried here all the same.
"""

import weakref
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.provenance import generator as stream
from icl_interp.tasks import checks

TRIED = 256  # functions, each with one prompt
NOISY = 4096  # prompts whose noise is tried
NUMBERS = 2**17  # of the inputs of these prompts, at most
HEIGHTS = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0)  # in standard deviations
# Of an antisymmetric statistic, divided by the root of its sum of squares. Where partners are
# exchangeable it is beyond t with a probability of at most 2 exp(-t^2 / 2) (Hoeffding 1963): here
# 5e-11, for any law and any number of draws.
BEYOND = 7.0
ROUNDING = 1e-9  # of the largest number beside it
WIDEST = 256  # numbers of a function that are tried


class Paired(checks.Sized, Protocol):
    """What is asked of a task here."""

    n_points: int

    @property
    def says_symmetric_noise(self) -> bool:
        """Whether the class says that its noise is symmetric."""
        ...

    def sample_parameters(
        self, n_functions: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Tensor:
        """Parameters of independent functions."""
        ...

    def mean_parameters(self, parameters: Tensor) -> Tensor | None:
        """The centre of the law."""
        ...

    def targets(self, parameters: Tensor, xs: Tensor) -> Tensor:
        """f(x)."""
        ...


# Answers by the id of a task, while it lives: nothing may stand in a task's own attributes but its
# fields.
_KNOWN: dict[int, tuple[weakref.ref[Any], str | None]] = {}


def why_none(task: Paired) -> str | None:
    """`tried`, once for each task."""
    key = id(task)
    known = _KNOWN.get(key)
    if known and known[0]() is task:
        return known[1]
    answer = tried(task)
    _KNOWN[key] = weakref.ref(task, lambda _: _KNOWN.pop(key, None)), answer
    return answer


def tried(task: Paired) -> str | None:
    """What keeps a task's functions from being drawn in pairs, in words; None where nothing does.

    The class is asked before: here its laws are tried, on `TRIED` functions of a fixed stream.

    1. Values are affine in the parameters about the centre: f_A + f_B = 2 f_centre at the inputs of
       a prompt.
    2. Inputs and noise do not depend on the function: the same draws give both partners the same
       inputs, and labels that differ from their values by the same numbers.
    3. Parameters, values and noise are symmetric: A and its partner B are exchangeable, so that
       sums of functions of both differ by chance only.
    """
    parameters = task.sample_parameters(TRIED, stream(0, "tasks/paired"), torch.float64)
    centre = task.mean_parameters(parameters)
    if centre is None:
        return "their law is not known to be symmetric"
    partner = 2 * centre - parameters
    xs, ys = _points(task, parameters)
    xs_of_partner, ys_of_partner = _points(task, partner)
    # 1. Values.
    one = task.targets(parameters, xs)
    other = task.targets(partner, xs)
    middle = task.targets(centre, xs)
    size = (one.abs() + other.abs() + 2 * middle.abs()).amax()
    if not _none(one + other - 2 * middle, size):
        return "their values are not affine in the parameters"
    # 2. Inputs and noise.
    if not torch.equal(xs, xs_of_partner):
        return "their inputs depend on the function"
    noise = ys - one
    size = size + ys.abs().amax()
    if not _none(noise - (ys_of_partner - other), size):
        return "their noise depends on the function, or is not added to its values"
    # 3. Symmetry; of noise, where there is any.
    if not _exchangeable(parameters, partner) or not _exchangeable(one, other):
        return "their law is not symmetric about mean_parameters"
    if _none(noise, size):
        return None
    if not task.says_symmetric_noise:
        return UNSAID
    if not _noise_is_symmetric(task):
        return "the law of their noise is not symmetric about 0, as the class says"
    return None


def _noise_is_symmetric(task: Paired) -> bool:
    """Whether labels miss values upwards as they do downwards.

    This is tried at each point, over a prompt, and along each input.
    """
    n = max(TRIED, min(NOISY, NUMBERS // (task.n_points * task.dim)))
    parameters = task.sample_parameters(n, stream(1, "tasks/paired"), torch.float64)
    xs, ys = _points(task, parameters)
    values = task.targets(parameters, xs)
    noise = ys - values
    size = values.abs().amax() + ys.abs().amax()
    noise = noise.where(noise.abs() > ROUNDING * size, 0.0)
    if not _exchangeable(noise, -noise) or not _exchangeable(noise, -noise, together=True):
        return False
    centred = xs - xs.mean((0, 1))
    along = noise[:, :, None, :] * centred[..., None]
    return all(_exchangeable(part, -part, together=True) for part in along.unbind(2)[:WIDEST])


UNSAID = (
    "their labels have noise, which is negated in a pair, and the class that draws it "
    "(sample_points) does not say symmetric_noise = True: that it is added to values, has a law "
    "that is symmetric about 0 and does not depend on the function"
)


def _points(task: Paired, parameters: Tensor) -> tuple[Tensor, Tensor]:
    """The same draws, whatever the function."""
    draws = stream(0, "tasks/paired points")
    return checks.sampled(task, parameters, task.n_points, draws, torch.float64)


def _none(difference: Tensor, size: Tensor) -> bool:
    """Whether it is nothing but rounding."""
    return bool((difference.abs() <= ROUNDING * size).all())


def _exchangeable(
    a: Float[Tensor, "row *n"], b: Float[Tensor, "row *n"], together: bool = False
) -> bool:
    """Whether rows and their partners differ by no more than chance, number by number.

    With `together` the numbers of a row count as one: what is rare in each may be seen in all.
    """
    a = a.flatten(1)[:, :WIDEST]
    b = b.flatten(1)[:, :WIDEST]
    if not a.numel():
        return True
    for f_a, f_b in _compared(a, b):
        size = torch.maximum(f_a.abs(), f_b.abs()).amax(0)
        difference = f_a - f_b
        difference = difference.where(difference.abs() > ROUNDING * size, 0.0)
        if together:  # numbers of one row may depend on each other; rows do not
            difference = difference.sum(1, keepdim=True)
        chance = difference.square().sum(0).sqrt()
        if (difference.sum(0).abs() > BEYOND * chance).any():
            return False
    return True


def _compared(
    a: Float[Tensor, "row n"], b: Float[Tensor, "row n"]
) -> Iterator[tuple[Tensor, Tensor]]:
    """The numbers of both samples, and smooth steps of them at several heights.

    The steps are smooth, so that rounding changes nothing.
    """
    yield a, b
    both = torch.cat([a, b])
    middle = both.mean(0)
    spread = both.std(0).clamp(min=torch.finfo(both.dtype).tiny)
    a = (a - middle) / (0.1 * spread)
    b = (b - middle) / (0.1 * spread)
    for height in HEIGHTS:
        yield (a - 10 * height).atan(), (b - 10 * height).atan()
