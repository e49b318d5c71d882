"""One function, many contexts, and a query that moves, as in the paper's plots of functions."""

import copy
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.checkpoints.store import Checkpoint
from icl_interp.probes.base import Probe
from icl_interp.probes.residual import LogitLens
from icl_interp.probes.sweep import Sweep, places, run
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.provenance import generator
from icl_interp.results import make_curve
from icl_interp.tasks.distributions import Distribution

Function = Callable[[Tensor], Tensor]
Xs = Sequence[float] | np.ndarray  # queries
STATISTICS = ("mean", "std", "low", "high", "truth")


def contexts(function: Function, law: Distribution, n_points: int, n: int, seed: int) -> Prompts:
    """Prompts of one function: n contexts with inputs of this law, in float64.

    The last point is a place for queries.

    >>> from icl_interp.tasks.distributions import Uniform
    >>> contexts(torch.square, Uniform(0, 1), n_points=5, n=3, seed=0).xs.shape
    torch.Size([3, 5, 1])
    """
    numbers = generator(seed, "experiments/contexts")
    shape = (n, n_points, 1)
    xs = law.sample(shape, numbers, torch.float64)
    ys = function(xs)
    no_coefficients = xs.new_zeros(n, 0)
    classes = torch.zeros(n, dtype=torch.int64)
    return Prompts(xs, ys, no_coefficients, classes)


def sweep(
    checkpoint: Checkpoint, prompts: Prompts, xs: Xs | None, probes: tuple[Probe, ...] = ()
) -> Float[Tensor, "context query"]:
    """The prediction at each x after each context, in float64.

    Far out float32 has lost the context. Without `xs`, each prompt's own query.
    """
    copied = copy.deepcopy(checkpoint.model)
    model = copied.double().eval()
    model.requires_grad_(False)
    shown = prompts.double()
    queries = shown.xs[:, -1:]
    labels: Sequence = ("query",)
    if xs is not None:
        dim = shown.xs.shape[-1]
        queries = places(xs, dim)
        labels = [float(x) for x in xs]
    moved = Sweep(shown, queries, labels, probes=probes)
    (predictions,) = run(model, checkpoint.encoding, [moved])
    return as_numbers(predictions)


def polynomial_fit(prompts: Prompts, xs: Xs, degree: int) -> Float[Tensor, "context query"]:
    """Least squares by a polynomial of this degree on the pairs of each context, read at each x.

    >>> from icl_interp.tasks.distributions import Uniform
    >>> prompts = contexts(torch.square, Uniform(0, 1), n_points=9, n=2, seed=0)
    >>> fit = polynomial_fit(prompts, [3.0], degree=2)
    >>> bool((fit - 9).abs().max() < 1e-9)
    True
    """
    powers = torch.arange(degree + 1, dtype=torch.float64)
    # The last point is the query, which is no example.
    inputs = prompts.xs[:, :-1].double()
    labels = prompts.ys[:, :-1].double()
    features = inputs**powers
    solved = torch.linalg.lstsq(features, labels, driver="gelsd")
    coefficients = as_numbers(solved.solution)
    queries = torch.as_tensor(xs, dtype=torch.float64)
    column = queries[:, None]
    query_features = column**powers
    return coefficients @ query_features.T


def lens(
    checkpoint: Checkpoint, prompts: Prompts, xs: Xs | None = None
) -> Float[Tensor, "layer context query"]:
    """The logit lens (`probes.logit_lens`) at the query, after 0, 1, ..., all blocks.

    Without `xs`, each prompt's own query. Source: Naim & Asher (2025), appendix F.
    """
    read_out = LogitLens(per_prompt=True)
    sweep(checkpoint, prompts, xs, (read_out,))
    prediction = read_out.results()["prediction"].sel(target=0)  # (layer, query, context)
    found = torch.from_numpy(prediction.values)
    return found.transpose(1, 2)


def summary(
    values: Float[Tensor, "*batch context query"],
    truth: Float[Tensor, " query"],
    xs: Xs,
    note: str,
    **axes: Sequence[str],
) -> DataArray:
    """Mean, standard deviation, and 5 and 95 % quantiles over contexts, along x; and the truth.

    Args:
        values: of f.
        truth: the function's own values.
        xs: queries.
        note: how the values were measured.
        axes: coordinates of the leading axes, by name.
    """
    levels = torch.tensor([0.05, 0.95], dtype=values.dtype)
    low, high = torch.quantile(values, levels, dim=-2)
    mean = values.mean(-2)
    std = values.std(-2)
    everywhere = truth.expand_as(mean)
    statistics = [mean, std, low, high, everywhere]
    rows = torch.stack(statistics, -2)
    along = tuple(float(x) for x in xs)
    coordinates = {**axes, "statistic": STATISTICS, "x": along}
    return make_curve(rows.numpy(), coordinates, note=note)


def far_grid(low: float = 0.1, high: float = 1e4, per_decade: int = 8) -> np.ndarray:
    """Magnitudes from low to high on a logarithmic grid, in both directions, and 0."""
    decades = np.log10(high / low)
    n_steps = round(decades * per_decade)
    exponents = np.linspace(0, decades, n_steps + 1)
    unrounded = low * 10**exponents
    sizes = np.round(unrounded, 10)
    descending = sizes[::-1]
    return np.concatenate([-descending, [0.0], sizes])
