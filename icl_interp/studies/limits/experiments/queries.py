"""One function, many contexts, and a query that moves: what the paper's plots of single functions show."""

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
    xs = law.sample((n, n_points, 1), generator(seed, "experiments/contexts"), torch.float64)
    return Prompts(xs, function(xs), xs.new_zeros(n, 0), torch.zeros(n, dtype=torch.int64))


def sweep(checkpoint: Checkpoint, prompts: Prompts, xs: Xs) -> Float[Tensor, "context query"]:
    """The prediction at each x after each context, in float64 (far out float32 has lost the context)."""
    return _run(checkpoint, prompts, xs)


def polynomial_fit(prompts: Prompts, xs: Xs, degree: int) -> Float[Tensor, "context query"]:
    """Least squares by a polynomial of this degree on the pairs of each context, read at each x.

    >>> from icl_interp.tasks.distributions import Uniform
    >>> fit = polynomial_fit(contexts(torch.square, Uniform(0, 1), n_points=9, n=2, seed=0), [3.0], degree=2)
    >>> bool((fit - 9).abs().max() < 1e-9)
    True
    """
    powers = torch.arange(degree + 1, dtype=torch.float64)
    features = prompts.xs[:, :-1].double() ** powers
    fit = as_numbers(
        torch.linalg.lstsq(features, prompts.ys[:, :-1].double(), driver="gelsd").solution
    )
    return fit @ (torch.as_tensor(xs, dtype=torch.float64)[:, None] ** powers).T


def lens(
    checkpoint: Checkpoint, prompts: Prompts, xs: Xs | None = None
) -> Float[Tensor, "layer context query"]:
    """The logit lens (`probes.logit_lens`) at the query, after 0, 1, ..., all blocks.

    Without `xs`, each prompt's own query. Source: Naim & Asher (2025), appendix F.
    """
    read_out = LogitLens(per_prompt=True)
    _run(checkpoint, prompts, xs, (read_out,))
    found = torch.from_numpy(
        read_out.results()["prediction"].sel(target=0).values
    )  # (layer, query, context)
    return found.transpose(1, 2)


def _run(
    checkpoint: Checkpoint, prompts: Prompts, xs: Xs | None, probes: tuple[Probe, ...] = ()
) -> Float[Tensor, "context query"]:
    """Predictions in float64 at each x after each context."""
    model = copy.deepcopy(checkpoint.model).double().eval().requires_grad_(False)
    shown = prompts.double()
    queries = shown.xs[:, -1:] if xs is None else places(xs, shown.xs.shape[-1])
    labels = ("query",) if xs is None else [float(x) for x in xs]
    return as_numbers(
        run(model, checkpoint.encoding, [Sweep(shown, queries, labels, probes=probes)])[0]
    )


def summary(
    values: Float[Tensor, "*batch context query"],
    truth: Float[Tensor, " query"],
    xs: Xs,
    note: str,
    **axes: Sequence[str],
) -> DataArray:
    """Mean, standard deviation, and the 5 and 95 % quantiles over contexts, along x; and the truth beside them.

    Args:
        values: of f.
        truth: the function's own values.
        xs: queries.
        note: how the values were measured.
        axes: coordinates of the leading axes, by name.
    """
    low, high = torch.quantile(values, torch.tensor([0.05, 0.95], dtype=values.dtype), dim=-2)
    mean = values.mean(-2)
    rows = torch.stack([mean, values.std(-2), low, high, truth.expand_as(mean)], -2)
    return make_curve(
        rows.numpy(), {**axes, "statistic": STATISTICS, "x": tuple(float(x) for x in xs)}, note=note
    )


def far_grid(low: float = 0.1, high: float = 1e4, per_decade: int = 8) -> np.ndarray:
    """Magnitudes from low to high on a logarithmic grid, in both directions, and 0."""
    decades = np.log10(high / low)
    sizes = np.round(low * 10 ** np.linspace(0, decades, round(decades * per_decade) + 1), 10)
    return np.concatenate([-sizes[::-1], [0.0], sizes])
