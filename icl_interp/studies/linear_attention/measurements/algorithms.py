"""Algorithms for linear regression as weight vectors, and how near a model is to each.

Nearness is in predictions and in input gradients.

Every algorithm here predicts <w, x_q> with w made from the m labelled examples: S = (1/m) sum x x^T
and h = (1/m) sum y x. So w is also the gradient of its prediction with respect to the query, which
a model's own gradient is compared with. Step sizes and preconditioners are the best for the task,
told its law: a model that was trained on prompts of one length has that length's, one that was
trained on all prefixes each prefix's own.
"""

import functools
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.probes.residual import depths, logit_lens
from icl_interp.probes.sweep import Sweep
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.linear_attention.measurements.setting import (
    by_function,
    grouped_prompts,
    is_stacked,
    room,
    task_of,
)
from icl_interp.tasks.regression import LinearRegression
from icl_interp.theory import linear_attention as theory

LEAST_SQUARES, ONE, PRECONDITIONED = (
    "least squares",
    "one step of gradient descent",
    "one preconditioned step",
)
PENALTIES = (0.1, 1.0)
STEPS = (2, 4, 8)
TRUTH, SIZE = "truth", "size"
N_CONTEXTS, N_TUNING = 4, 8192
FRACTIONS = np.geomspace(
    0.02, 2.0, 25
)  # step sizes that are tried, over 1 / largest eigenvalue of E S
N_ORDERS = 16
N_LENGTHS = 4
# Half the width of central differences, over the spread of the inputs: so wide that the last bits
# of a prediction in float32 move a gradient by less than 1e-4 of it.
HALF_WIDTH = 1e-2

Examples = tuple[Float[Tensor, "batch example dim"], Float[Tensor, "batch example"]]
Weights = Float[Tensor, "batch dim"]


def landscape_at(task: LinearRegression, n: int) -> theory.Landscape:
    """The loss of a layer over prompts of n examples of this task."""
    tau2 = task.noise_std**2
    if task.random_covariance:
        return theory.random_landscape(task.spectrum_moments(), n, tau2)
    return theory.landscape(task.covariance_matrix, n, tau2)


def descend(xs: Tensor, ys: Tensor, steps: int, rate: float) -> Weights:
    """w after some steps of gradient descent on |X w - y|^2 / (2 m) from 0."""
    m = xs.shape[1]
    w = torch.zeros_like(xs[:, 0])
    for _ in range(steps):
        w = w - rate * ((xs.transpose(1, 2) @ (xs @ w[..., None] - ys[..., None]))[..., 0] / m)
    return w


@functools.lru_cache(maxsize=64)  # a model and its control meet the same prompts
def best_rate(task: LinearRegression, m: int, steps: int, seed: int) -> float:
    """The step size with the least error at the query, of a few.

    The error is on prompts of m examples drawn for this.

    In the eigenbasis of S each coordinate of w is h (1 - (1 - rate s)^steps) / s, for every rate at
    once. A rate too large is punished by rare prompts with large s, so these are many.
    """
    prompts = task.sample(
        N_TUNING, generator(seed, "lsa/rates", m), n_points=m + 1, dtype=torch.float64
    )
    labels = as_numbers(prompts.ys)
    xs, ys, query, truth = prompts.xs[:, :-1], labels[:, :-1], prompts.xs[:, -1], labels[:, -1]
    sizes, basis = torch.linalg.eigh(xs.transpose(1, 2) @ xs / m)
    sizes = sizes.clamp_min(1e-12)
    along = ((xs.transpose(1, 2) @ ys[..., None] / m).transpose(1, 2) @ basis)[:, 0] / sizes
    along = along * (query[:, None] @ basis)[:, 0]
    rates = torch.tensor(FRACTIONS) / sizes[:, -1].mean()
    errors = [
        ((along * (1 - (1 - rate * sizes) ** steps)).sum(-1) - truth).square().mean()
        for rate in rates
    ]
    return float(rates[int(torch.stack(errors).argmin())])


def weights(task: LinearRegression, examples: Examples, n: int, seed: int) -> dict[str, Weights]:
    """w of every algorithm for a batch of examples.

    Args:
        task: whose law the algorithms are told.
        examples: inputs and labels.
        n: length for which step sizes and preconditioner are the best.
        seed: of the prompts on which rates of several steps are chosen.
    """
    xs, ys = examples
    m, where, eye = xs.shape[1], landscape_at(task, n), torch.eye(task.dim, dtype=torch.float64)
    h = (xs.transpose(1, 2) @ ys[..., None])[..., 0]
    gram = xs.transpose(1, 2) @ xs
    rate = float(where.slope.sum() / where.curvature.diagonal().sum())
    penalties = PENALTIES if task.noise_std == 0 else (*PENALTIES, task.noise_std**2)
    return {
        LEAST_SQUARES: (torch.linalg.pinv(xs) @ ys[..., None])[..., 0],
        **{
            f"ridge, penalty {p:g}": torch.linalg.solve(gram + p * eye, h[..., None])[..., 0]
            for p in penalties
        },
        ONE: rate * h / m,
        PRECONDITIONED: h / m @ where.product,
        **{
            f"{k} steps of gradient descent": descend(xs, ys, k, best_rate(task, n, k, seed))
            for k in STEPS
        },
    }


def read_depths(
    lab: Lab, prompts: Prompts
) -> tuple[Float[Tensor, "depth batch"], Float[Tensor, "depth batch dim"]]:
    """What the logit lens reads at the query after each block, and its gradient.

    The gradient is with respect to the query's x. A predictor that is seen from outside has one
    depth, its prediction.
    """
    if lab.outside:
        return read_outputs(lab, prompts)
    model, names = lab.model, depths(lab.model)[1:]
    streams: dict[str, Tensor] = {}
    tokens = lab.tokens(prompts).requires_grad_(True)
    keep = [(name, lambda stream, hook: streams.__setitem__(hook.name, stream)) for name in names]
    with torch.enable_grad(), model.hooks(fwd_hooks=keep):
        model(tokens)
        outs = [as_numbers(logit_lens(model, streams[name][:, -1:]))[:, 0] for name in names]
        grads = [
            torch.autograd.grad(out.sum(), tokens, retain_graph=True)[0][
                :, -1, : prompts.xs.shape[-1]
            ]
            for out in outs
        ]
    return torch.stack(outs).detach().cpu(), torch.stack(grads).cpu()


def read_outputs(
    lab: Lab, prompts: Prompts
) -> tuple[Float[Tensor, "1 batch"], Float[Tensor, "1 batch dim"]]:
    """What is predicted at the query, and its gradient there by central differences."""
    query = prompts.xs[:, -1]
    width = HALF_WIDTH * prompts.xs.std()
    steps = width * torch.eye(query.shape[-1], dtype=query.dtype)

    # The query itself, and a step forth and back along each coordinate.
    places = torch.cat([query[:, None], query[:, None] + steps, query[:, None] - steps], 1)
    said = as_numbers(lab.run([Sweep(prompts, places, range(places.shape[1]))])[0])
    forth, back = said[:, 1:].chunk(2, dim=1)
    return said[None, :, 0], (forth - back)[None] / (2 * width)


def _how_read(lab: Lab) -> str:
    """Where gradients and depths come from, in the result's note."""
    if lab.outside:
        return f"gradients by central differences, {HALF_WIDTH:g} spreads of the inputs each way"
    return "logit lens by depth"


def lengths(lab: Lab) -> tuple[int, ...]:
    """A few prompt lengths up to N, and 2 N where the model can read it."""
    n = task_of(lab).n_points - 1
    shown = {int(m) for m in np.unique(np.geomspace(1, n, N_LENGTHS).round())} | {n}
    return tuple(sorted(shown | ({2 * n} if 2 * n <= room(lab) else set())))


@measurement("lsa/algorithms")
def algorithms(lab: Lab) -> DataArray:
    """How near a model and algorithms are, by depth and length.

    The numbers are the squared distance of predictions and the cosine of input gradients.

    "apart" is how far an algorithm is from one preconditioned step itself. "truth" is <w, x_q> and
    w, without noise; "size" is the truth's mean square (in every cell), the unit of the distances.
    """
    task, n = task_of(lab), task_of(lab).n_points - 1
    shown, columns = lengths(lab), []
    for m in shown:
        sample = grouped_prompts(lab, m, N_CONTEXTS, "algorithms").prompts
        predictions, slopes = read_depths(lab, sample)
        query = sample.xs[:, -1]
        n_known = n if is_stacked(lab) else min(m, n)
        known = weights(task, (sample.xs[:, :-1], as_numbers(sample.ys)[:, :-1]), n_known, lab.seed)
        step = known[PRECONDITIONED]
        known |= {TRUTH: sample.parameters}
        truth = (sample.parameters * query).sum(-1).square()
        cells = []
        for w in known.values():
            theirs = (w * query).sum(-1)
            apart = (theirs - (step * query).sum(-1)).square()
            cells.append(
                [
                    [
                        by_function(part, lab.n_units)
                        for part in (
                            (mine - theirs).square(),
                            torch.cosine_similarity(slope, w, dim=-1),
                            apart,
                        )
                    ]
                    for mine, slope in zip(predictions, slopes, strict=True)
                ]
            )
        cells.append([[by_function(truth, lab.n_units)] * 3 for _ in predictions])
        columns.append(cells)
    names = (*known, SIZE)
    axes = {
        "M": shown,
        "algorithm": names,
        "depth": tuple(range(1, len(predictions) + 1)),
        "statistic": ("distance", "cosine", "apart"),
        "unit": tuple(range(lab.n_units)),
    }
    return make_array(
        np.array(columns),
        axes,
        note=f"{N_CONTEXTS} prompts of each function; float64; {_how_read(lab)}",
    )


def _with_others_examples(prompts: Prompts, size: int) -> Prompts:
    """Before each query the examples of the function that stands `size` prompts further."""
    xs, ys = prompts.xs.roll(size, 0), prompts.ys.roll(size, 0)
    xs[:, -1] = prompts.xs[:, -1]
    return replace(prompts, xs=xs, ys=ys)


@measurement("lsa/order", version=2)
def order(lab: Lab) -> DataArray:
    """Squared changes of predictions, each by function.

    "orders": their variance over orders of the examples. "prompts": over prompts. "contexts": half
    of the squared change when another function's examples stand before the same query.
    """
    sample = grouped_prompts(lab, task_of(lab).n_points - 1, 2, "order").prompts
    stream = generator(lab.seed, "lsa/order")
    shuffled = (sample.reordered(stream) for _ in range(N_ORDERS))
    values = torch.stack([as_numbers(lab.at_query(prompts)) for prompts in shuffled])
    others = _with_others_examples(sample, len(sample) // lab.n_units)
    swapped = as_numbers(lab.at_query(others))
    change = (swapped - values.mean(0)).square() / 2
    rows = (values.var(0), (values.mean(0) - values.mean()).square(), change)
    axes = {"over": ("orders", "prompts", "contexts"), "unit": tuple(range(lab.n_units))}
    return make_array(
        [by_function(row, lab.n_units) for row in rows], axes, note=f"{N_ORDERS} orders; float64"
    )
