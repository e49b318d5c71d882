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
from icl_interp.models.hooks import HookPoint
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

LEAST_SQUARES = "least squares"
ONE = "one step of gradient descent"
PRECONDITIONED = "one preconditioned step"
PENALTIES = (0.1, 1.0)
STEPS = (2, 4, 8)
TRUTH = "truth"
SIZE = "size"
N_CONTEXTS = 4
N_TUNING = 8192
# Step sizes that are tried, over 1 / largest eigenvalue of E S.
FRACTIONS = np.geomspace(0.02, 2.0, 25)
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
        residuals = xs @ w[..., None] - ys[..., None]
        gradient = (xs.transpose(1, 2) @ residuals)[..., 0] / m
        w = w - rate * gradient
    return w


@functools.lru_cache(maxsize=64)  # a model and its control meet the same prompts
def best_rate(task: LinearRegression, m: int, steps: int, seed: int) -> float:
    """The step size with the least error at the query, of a few.

    The error is on prompts of m examples drawn for this.

    In the eigenbasis of S each coordinate of w is h (1 - (1 - rate s)^steps) / s, for every rate at
    once. A rate too large is punished by rare prompts with large s, so these are many.
    """
    stream = generator(seed, "lsa/rates", m)
    prompts = task.sample(N_TUNING, stream, n_points=m + 1, dtype=torch.float64)
    labels = as_numbers(prompts.ys)
    xs = prompts.xs[:, :-1]
    ys = labels[:, :-1]
    query = prompts.xs[:, -1]
    truth = labels[:, -1]

    # Each coordinate's part of the prediction of least squares, in the eigenbasis of S.
    sizes, basis = torch.linalg.eigh(xs.transpose(1, 2) @ xs / m)
    sizes = sizes.clamp_min(1e-12)
    h = xs.transpose(1, 2) @ ys[..., None] / m
    solution = (h.transpose(1, 2) @ basis)[:, 0] / sizes
    along = solution * (query[:, None] @ basis)[:, 0]

    rates = torch.tensor(FRACTIONS) / sizes[:, -1].mean()
    errors = []
    for rate in rates:
        reached = 1 - (1 - rate * sizes) ** steps
        prediction = (along * reached).sum(-1)
        errors.append((prediction - truth).square().mean())
    best = int(torch.stack(errors).argmin())
    return float(rates[best])


def weights(task: LinearRegression, examples: Examples, n: int, seed: int) -> dict[str, Weights]:
    """w of every algorithm for a batch of examples.

    Args:
        task: whose law the algorithms are told.
        examples: inputs and labels.
        n: length for which step sizes and preconditioner are the best.
        seed: of the prompts on which rates of several steps are chosen.
    """
    xs, ys = examples
    m = xs.shape[1]
    h = (xs.transpose(1, 2) @ ys[..., None])[..., 0]
    least_squares = torch.linalg.pinv(xs) @ ys[..., None]
    found = {LEAST_SQUARES: least_squares[..., 0]}

    # Ridge regression; with noise also with the penalty that is the best for it.
    gram = xs.transpose(1, 2) @ xs
    identity = torch.eye(task.dim, dtype=torch.float64)
    penalties = PENALTIES if task.noise_std == 0 else (*PENALTIES, task.noise_std**2)
    for penalty in penalties:
        solution = torch.linalg.solve(gram + penalty * identity, h[..., None])
        found[f"ridge, penalty {penalty:g}"] = solution[..., 0]

    # One step from 0: with the best step size, and with the best preconditioner.
    where = landscape_at(task, n)
    rate = float(where.slope.sum() / where.curvature.diagonal().sum())
    found[ONE] = rate * h / m
    found[PRECONDITIONED] = h / m @ where.product

    for steps in STEPS:
        rate = best_rate(task, n, steps, seed)
        found[f"{steps} steps of gradient descent"] = descend(xs, ys, steps, rate)
    return found


def read_depths(
    lab: Lab, prompts: Prompts
) -> tuple[Float[Tensor, "depth batch"], Float[Tensor, "depth batch dim"]]:
    """What the logit lens reads at the query after each block, and its gradient.

    The gradient is with respect to the query's x. A predictor that is seen from outside has one
    depth, its prediction.
    """
    if lab.outside:
        return read_outputs(lab, prompts)
    model = lab.model
    dim = prompts.xs.shape[-1]
    names = depths(model)[1:]
    streams: dict[str, Tensor] = {}

    def keep(stream: Tensor, hook: HookPoint) -> None:
        assert hook.name is not None
        streams[hook.name] = stream

    # One run of the model serves all depths, so its graph is kept.
    tokens = lab.tokens(prompts).requires_grad_(True)
    outs = []
    grads = []
    with torch.enable_grad(), model.hooks(fwd_hooks=[(name, keep) for name in names]):
        model(tokens)
        for name in names:
            at_query = streams[name][:, -1:]
            out = as_numbers(logit_lens(model, at_query))[:, 0]
            outs.append(out)
            (grad,) = torch.autograd.grad(out.sum(), tokens, retain_graph=True)
            grads.append(grad[:, -1, :dim])
    return torch.stack(outs).detach().cpu(), torch.stack(grads).cpu()


def read_outputs(
    lab: Lab, prompts: Prompts
) -> tuple[Float[Tensor, "1 batch"], Float[Tensor, "1 batch dim"]]:
    """What is predicted at the query, and its gradient there by central differences."""
    query = prompts.xs[:, -1]
    width = HALF_WIDTH * prompts.xs.std()
    steps = width * torch.eye(query.shape[-1], dtype=query.dtype)

    # The query itself, and a step forth and back along each coordinate.
    here = query[:, None]
    places = torch.cat([here, here + steps, here - steps], 1)
    sweep = Sweep(prompts, places, range(places.shape[1]))
    said = as_numbers(lab.run([sweep])[0])
    forth, back = said[:, 1:].chunk(2, dim=1)
    slopes = (forth - back) / (2 * width)
    return said[None, :, 0], slopes[None]


def _how_read(lab: Lab) -> str:
    """Where gradients and depths come from, in the result's note."""
    if lab.outside:
        return f"gradients by central differences, {HALF_WIDTH:g} spreads of the inputs each way"
    return "logit lens by depth"


def lengths(lab: Lab) -> tuple[int, ...]:
    """A few prompt lengths up to N, and 2 N where the model can read it."""
    n = task_of(lab).n_points - 1
    shown = {int(m) for m in np.geomspace(1, n, N_LENGTHS).round()}
    shown.add(n)
    if 2 * n <= room(lab):
        shown.add(2 * n)
    return tuple(sorted(shown))


@measurement("lsa/algorithms")
def algorithms(lab: Lab) -> DataArray:
    """How near a model and algorithms are, by depth and length.

    The numbers are the squared distance of predictions and the cosine of input gradients.

    "apart" is how far an algorithm is from one preconditioned step itself. "truth" is <w, x_q> and
    w, without noise; "size" is the truth's mean square (in every cell), the unit of the distances.
    """
    task = task_of(lab)
    n = task.n_points - 1
    n_units = lab.n_units
    shown = lengths(lab)
    columns = []
    for m in shown:
        # What the model predicts, and every algorithm's w for the same examples.
        sample = grouped_prompts(lab, m, N_CONTEXTS, "algorithms").prompts
        predictions, slopes = read_depths(lab, sample)
        query = sample.xs[:, -1]
        examples = (sample.xs[:, :-1], as_numbers(sample.ys)[:, :-1])
        best_at = n if is_stacked(lab) else min(m, n)
        known = weights(task, examples, best_at, lab.seed)
        known[TRUTH] = sample.parameters

        # A cell holds the three statistics of an algorithm and a depth.
        cells = []
        step = _products(known[PRECONDITIONED], query)
        for w in known.values():
            theirs = _products(w, query)
            apart = by_function((theirs - step).square(), n_units)
            of_algorithm = []
            for mine, slope in zip(predictions, slopes, strict=True):
                distance = by_function((mine - theirs).square(), n_units)
                cosines = torch.cosine_similarity(slope, w, dim=-1)
                of_algorithm.append([distance, by_function(cosines, n_units), apart])
            cells.append(of_algorithm)
        truth = _products(sample.parameters, query)
        size = by_function(truth.square(), n_units)
        cells.append([[size] * 3] * len(predictions))
        columns.append(cells)
    axes = {
        "M": shown,
        "algorithm": (*known, SIZE),
        "depth": tuple(range(1, len(predictions) + 1)),
        "statistic": ("distance", "cosine", "apart"),
        "unit": tuple(range(n_units)),
    }
    note = f"{N_CONTEXTS} prompts of each function; float64; {_how_read(lab)}"
    return make_array(np.array(columns), axes, note=note)


def _products(w: Weights, query: Weights) -> Float[Tensor, " batch"]:
    return (w * query).sum(-1)


def _with_others_examples(prompts: Prompts, size: int) -> Prompts:
    """Before each query the examples of the function that stands `size` prompts further."""
    xs = prompts.xs.roll(size, 0)
    ys = prompts.ys.roll(size, 0)
    xs[:, -1] = prompts.xs[:, -1]
    return replace(prompts, xs=xs, ys=ys)


@measurement("lsa/order", version=2)
def order(lab: Lab) -> DataArray:
    """Squared changes of predictions, each by function.

    "orders": their variance over orders of the examples. "prompts": over prompts. "contexts": half
    of the squared change when another function's examples stand before the same query.
    """
    task = task_of(lab)
    sample = grouped_prompts(lab, task.n_points - 1, 2, "order").prompts
    stream = generator(lab.seed, "lsa/order")

    # The same queries after their own examples in other orders, and after another function's.
    predictions = []
    for _ in range(N_ORDERS):
        shuffled = sample.reordered(stream)
        predictions.append(as_numbers(lab.at_query(shuffled)))
    values = torch.stack(predictions)
    means = values.mean(0)
    others = _with_others_examples(sample, len(sample) // lab.n_units)
    swapped = as_numbers(lab.at_query(others))
    over_orders = values.var(0)
    over_prompts = (means - values.mean()).square()
    over_contexts = (swapped - means).square() / 2
    parts = (over_orders, over_prompts, over_contexts)
    rows = [by_function(part, lab.n_units) for part in parts]
    axes = {"over": ("orders", "prompts", "contexts"), "unit": tuple(range(lab.n_units))}
    return make_array(rows, axes, note=f"{N_ORDERS} orders; float64")
