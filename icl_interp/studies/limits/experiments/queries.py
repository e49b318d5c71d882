"""One function, many contexts, and a query that moves: what the paper's plots of single functions show."""

import copy
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError
from icl_interp.models import tokens
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.results import make_curve
from icl_interp.tasks.distributions import Distribution

CHUNK = 2048  # prompts at once
Function = Callable[[Tensor], Tensor]
Xs = Sequence[float] | np.ndarray  # queries
STATISTICS = ("mean", "std", "low", "high", "truth")


def contexts(function: Function, law: Distribution, n_points: int, n: int, seed: int) -> Prompts:
    """Prompts of one function: n contexts with inputs of this law, in float64; the last point is a place for queries.

    >>> from icl_interp.tasks.distributions import Uniform
    >>> contexts(torch.square, Uniform(0, 1), n_points=5, n=3, seed=0).xs.shape
    torch.Size([3, 5, 1])
    """
    xs = law.sample((n, n_points, 1), generator(seed, "experiments/contexts"), torch.float64)
    return Prompts(xs, function(xs[..., 0]), xs.new_zeros(n, 0), torch.zeros(n, dtype=torch.int64))


def sweep(checkpoint: Checkpoint, prompts: Prompts, xs: Xs) -> Float[Tensor, "context query"]:
    """The prediction at each x after each context, in float64 (far out float32 has lost the context)."""
    return _each(checkpoint, prompts, xs, lambda model, asked: model(asked)[:, -1, 0])


def polynomial_fit(prompts: Prompts, xs: Xs, degree: int) -> Float[Tensor, "context query"]:
    """Least squares by a polynomial of this degree on the pairs of each context, read at each x.

    >>> from icl_interp.tasks.distributions import Uniform
    >>> fit = polynomial_fit(contexts(torch.square, Uniform(0, 1), n_points=9, n=2, seed=0), [3.0], degree=2)
    >>> bool((fit - 9).abs().max() < 1e-9)
    True
    """
    powers = torch.arange(degree + 1, dtype=torch.float64)
    features = prompts.xs[:, :-1].double() ** powers
    fit = torch.linalg.lstsq(features, prompts.ys[:, :-1, None].double(), driver="gelsd").solution[..., 0]
    return fit @ (torch.as_tensor(xs, dtype=torch.float64)[:, None] ** powers).T


def lens(checkpoint: Checkpoint, prompts: Prompts, xs: Xs | None = None) -> Float[Tensor, "layer context query"]:
    """The logit lens: the prediction read off the residual stream after each block, by the final norm and the read-out.

    Row 0 is the read-in before any block, the last row the model's own prediction. Without `xs`, each prompt's own
    query.

    Source: nostalgebraist (2020), *interpreting GPT: the logit lens*; Naim & Asher (2025), appendix F.

    Raises:
        InputError: a post-norm model, whose stream has no final norm to go through.
    """
    cfg = checkpoint.model.cfg
    if cfg.norm_position == "post":
        raise InputError(
            "the logit lens needs a stream that a final norm reads; this model normalises after each block"
        )
    names = ["blocks.0.hook_resid_pre", *(f"blocks.{i}.hook_resid_post" for i in range(cfg.n_layers))]

    def read(model: HookedTransformer, asked: Tensor) -> Tensor:
        _, cache = model.run_with_cache(asked, names_filter=names)
        streams = [cache[name][:, -1:] for name in names]
        normed = [model.ln_final(stream) for stream in streams] if cfg.normalization_type else streams
        return (torch.stack(normed) @ model.unembed.W_U + model.unembed.b_U)[..., 0, 0]

    return _each(checkpoint, prompts, xs, read)


def _each(
    checkpoint: Checkpoint,
    prompts: Prompts,
    xs: Xs | None,
    read: Callable[[HookedTransformer, Tensor], Float[Tensor, "*batch prompt"]],
) -> Float[Tensor, "*batch context query"]:
    """`read` of every context with every query, in chunks."""
    model = copy.deepcopy(checkpoint.model).double().eval().requires_grad_(False)
    if not isinstance(checkpoint.encoding, tokens.Interleaved):
        raise InputError("sweeps of a single function need interleaved prompts")
    context = checkpoint.encoding.encode(prompts.double())
    queries = None if xs is None else torch.as_tensor(xs, dtype=torch.float64)
    each = 1 if queries is None else len(queries)
    parts = []
    step = max(1, CHUNK // each)
    for start in range(0, len(prompts), step):
        block = context[start : start + step]
        asked = block.repeat_interleave(each, 0)
        if queries is not None:
            asked[:, -1, 0] = queries.repeat(len(block))
        with torch.no_grad():
            out = read(model, asked.to(model.unembed.W_U)).cpu()
        parts.append(out.unflatten(-1, (len(block), each)))
    return torch.cat(parts, -2)


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
    return make_curve(rows.numpy(), {**axes, "statistic": STATISTICS, "x": tuple(float(x) for x in xs)}, note=note)


def far_grid(low: float = 0.1, high: float = 1e4, per_decade: int = 8) -> np.ndarray:
    """Magnitudes from low to high on a logarithmic grid, in both directions, and 0."""
    decades = np.log10(high / low)
    sizes = np.round(low * 10 ** np.linspace(0, decades, round(decades * per_decade) + 1), 10)
    return np.concatenate([-sizes[::-1], [0.0], sizes])
