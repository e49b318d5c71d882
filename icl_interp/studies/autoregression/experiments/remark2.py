"""Remark 2: a linear recurrent network and attention on the same sequences.

The network x_t = R x_{t-1} + E s_t with output O x_t is a fixed linear map of the states, which no
product of states makes depend on W. It is trained on fresh sequences, for several widths of the law
of angles; the attention is a unit trained on its exact loss for uniform angles, and sees the other
laws without having been trained on them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from jaxtyping import Complex, Float
from pandas import DataFrame
from torch import Tensor, nn
from xarray import DataArray

from icl_interp.errors import InputError
from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.settings import Setting, not_given
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_least, at_most, note, statement
from icl_interp.models.diagonal_unit import DiagonalAttention, pairs
from icl_interp.models.hooks import HookedRootModule, HookPoint
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import Result, make_curve, table_of_rows
from icl_interp.studies.autoregression.experiments import models
from icl_interp.studies.autoregression.experiments.models import Unit
from icl_interp.tasks.autoregressive import AutoregressiveProcess, complex_states
from icl_interp.theory import autoregression as theory

UNIFORM = 1.0  # mu of angles on the whole circle
MUS = (UNIFORM, 2.0, 10.0, 50.0)  # angles on [0, 2 pi / mu]
NETWORK = "linear recurrent network"
ATTENTION = "attention"
BOUND = "best linear map"
RATE = 3e-3  # Adam's largest rate, which falls to 0 along a cosine
CLIP = 1.0  # largest norm of a gradient
LEAST = 1e-12  # of errors and bounds: below it there is only rounding


@dataclass(frozen=True)
class Size:
    """Complex coordinates, states of a prompt, width of x, and numbers of training.

    Those of training: steps, sequences a step, networks, and steps of the unit.
    """

    d: int
    n_points: int
    hidden: int
    steps: int
    batch: int
    seeds: int
    descent: int


SIZES = {
    "smoke": Size(2, 5, 8, 100, 64, 1, 500),
    "small": Size(4, 10, 32, 4000, 256, 2, 20_000),
    "paper": Size(10, 20, 128, 40_000, 1024, 4, 40_000),
}

WORDS = {
    scale: f"linear recurrent networks of width {size.hidden} and a layer of diagonal attention, d "
    f"= {size.d}, {size.n_points} states, {size.steps:,} steps of Adam with batches of "
    f"{size.batch:,}"
    for scale, size in SIZES.items()
}

BLIND = at_least("error of recurrent networks over that of predicting 0, uniform angles", 0.9, 0.5)
SEES = at_most("error of attention over that of predicting 0, uniform angles", 0.05, 0.5)
BELOW = at_least(
    "least error of a recurrent network / least error of any linear map of the states", 0.95
)


class LinearRecurrence(HookedRootModule):
    """x_t = R x_{t-1} + E s_t from x_{-1} = 0, and O x_t predicts the state after s_t; all complex.

    Hooks: `hook_embed` (E s_t, (batch, token, hidden)), `hook_state.{t}` (x_t, (batch, hidden)) and
    `hook_out` (the predictions, (batch, token, dim)). An edit of x_t moves all predictions from
    that of step t on.

    Args:
        d: coordinates of a state.
        hidden: of x.
        numbers: draws the weights: centred, with E |w|^2 = 1 / (inputs of the map).
        n_points: states of the longest prompt: each has a hook of its own.

    >>> network = LinearRecurrence(2, 5, generator(0, "an example"), n_points=4)
    >>> out, cache = network.run_with_cache(torch.ones(3, 4, 2, dtype=torch.complex128))
    >>> out.shape, cache["hook_state.3"].shape
    (torch.Size([3, 4, 2]), torch.Size([3, 5]))
    """

    recurrence: Complex[Tensor, "hidden hidden"]
    embed: Complex[Tensor, "hidden dim"]
    read_out: Complex[Tensor, "dim hidden"]
    hook_embed: HookPoint
    hook_out: HookPoint

    def __init__(self, d: int, hidden: int, numbers: torch.Generator, n_points: int = 20) -> None:
        super().__init__()
        shapes = {"recurrence": (hidden, hidden), "embed": (hidden, d), "read_out": (d, hidden)}
        for name, shape in shapes.items():
            drawn = torch.randn(shape, generator=numbers, dtype=torch.complex128)
            weight = drawn / shape[1] ** 0.5
            self.register_parameter(name, nn.Parameter(weight))
        self.hook_embed = HookPoint()
        self.hook_state = nn.ModuleList(HookPoint() for _ in range(n_points))
        self.hook_out = HookPoint()
        self.setup()

    def forward(
        self, states: Complex[Tensor, "batch token dim"]
    ) -> Complex[Tensor, "batch token dim"]:
        """The prediction of the state after each one."""
        most = len(self.hook_state)
        if states.shape[1] > most:
            raise InputError(
                f"this network has hooks for {most} states, but got {states.shape[1]}: "
                "make it with a larger n_points"
            )
        read = self.hook_embed(states @ self.embed.T)
        x = states.new_zeros(len(states), len(self.recurrence))
        held = []
        # A prompt may be shorter than the longest one.
        for hook, own in zip(self.hook_state, read.unbind(1), strict=False):
            x = hook(x @ self.recurrence.T + own)
            held.append(x)
        path = torch.stack(held, 1)
        return self.hook_out(path @ self.read_out.T)


class OnStates:
    """A predictor on prompts, made of a module on complex states.

    `make` is asked for the module at the first prediction.
    """

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        self._make = make

    @cached_property
    def module(self) -> nn.Module:
        """What predicts."""
        return self._make()

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """As pairs of real numbers."""
        module = self.module  # may be trained here, which needs gradients
        states = complex_states(prompts.xs.double())
        with torch.no_grad():
            predicted = module(states)
        return pairs(predicted)


def process(size: Size, mu: float) -> AutoregressiveProcess:
    """The law of sequences."""
    return AutoregressiveProcess(n_dims=size.d, matrices="unitary", mu=mu, n_points=size.n_points)


def trained(size: Size, mu: float, seed: int) -> LinearRecurrence:
    """A network after Adam on fresh sequences: the loss is the squared error at all points."""
    numbers = generator(seed, "autoregression/recurrence")
    network = LinearRecurrence(size.d, size.hidden, numbers, size.n_points)
    optimizer = torch.optim.Adam(network.parameters(), RATE)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, size.steps)
    task = process(size, mu)
    sequences = generator(seed, "autoregression/recurrence, sequences")
    for _ in range(size.steps):
        prompts = task.sample(size.batch, sequences, dtype=torch.float64)
        # The network is complex, and the targets are pairs of real numbers.
        said = network(complex_states(prompts.xs))
        miss = pairs(said) - prompts.ys
        optimizer.zero_grad()
        miss.square().mean().backward()
        nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimizer.step()
        rate.step()
    return network


def attention(setup: Setup, size: Size) -> DiagonalAttention:
    """A unit with as many heads as coordinates, after gradient descent on its exact loss.

    Angles are uniform.
    """
    unit = Unit(size.d, size.d, size.n_points, paired=False, rate=0.01)
    weights, _ = models.descend(setup, unit, 1, size.descent)
    A = weights.A[0].to(torch.complex128)
    B = weights.B[0].to(torch.complex128)
    P = weights.P[0]
    # No row of a unit is for a single state.
    single = torch.zeros_like(P[:1])
    square = torch.cat([single, P]).tril()
    return DiagonalAttention(A, B, square)


def run(setup: Setup) -> dict[str, Result]:
    """Errors of the networks, of attention and of the best linear map, for each law of angles."""
    size = SIZES[setup.preset.name]
    unit = OnStates(partial(attention, setup, size))
    rows = []
    curves = []
    for mu in MUS:
        task = process(size, mu)
        bounds = [float(theory.recurrent_floor(t + 1, mu)) for t in range(size.n_points)]
        mean_bound = float(np.mean(bounds[1:]))
        networks = []
        for seed in range(size.seeds):
            network = OnStates(partial(trained, size, mu, seed))
            name = f"{NETWORK} {seed} of {size}"
            networks.append(models.point_errors(setup, name, task, network))
        seen = models.point_errors(setup, f"unit of {size}", task, unit)
        # A row for each network, and one for attention.
        for seed, found in enumerate(networks):
            row = {"mu": mu, "model": NETWORK, "seed": seed, **_mean(found)}
            rows.append({**row, BOUND: mean_bound})
        row = {"mu": mu, "model": ATTENTION, "seed": 0, **_mean(seen)}
        rows.append({**row, BOUND: mean_bound})
        # Errors by point: of networks the mean.
        of_networks = np.mean([each.values.mean(0) for each in networks], 0)
        curves.append(np.stack([of_networks, seen.values.mean(0), np.asarray(bounds)]))
    words = (
        f"over that of predicting 0, at points 2 to {size.n_points}; d = {size.d}; networks of "
        f"width {size.hidden} after {size.steps:,} steps of Adam; attention trained for mu = "
        f"{UNIFORM:g}; 95 % over blocks of sequences"
    )
    axes = {"mu": MUS, "model": (NETWORK, ATTENTION, BOUND), "point": range(1, size.n_points + 1)}
    return {
        "errors": table_of_rows(rows, words),
        "points": make_curve(np.stack(curves), axes, note=words),
    }


def _mean(found: DataArray) -> dict[str, float]:
    """The mean error of a model with its interval, as columns of a table."""
    error = bootstrap(lambda each: each, models.scored(found))
    return models.ends(error, "error")


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """Whether networks fail where attention succeeds, and that none is below the bound.

    Small angles have a statement, too.
    """
    rows = errors.rows_of(results, "errors")
    if not rows:
        return (note("Nothing is measured."),)
    networks = errors.rows_of(results, "errors", model=NETWORK)
    alike = errors.rows_of(results, "errors", model=NETWORK, mu=UNIFORM)
    seen = errors.rows_of(results, "errors", model=ATTENTION)
    seen_uniform = errors.rows_of(results, "errors", model=ATTENTION, mu=UNIFORM)
    blind = (
        "linear recurrent networks do not predict, because each sequence has a matrix of its "
        f"own: with uniform angles their error over that of predicting 0 is {_listed(alike)}."
    )
    sees = (
        "attention predicts the same sequences: its error over that of predicting 0 is "
        f"{_listed(seen[:1])}."
    )
    # The network that comes nearest to the bound, or goes furthest below it.
    least = min(map(_over_bound, networks), key=attrgetter("value"))
    below = (
        "no linear map of the states has a smaller error than the closed form "
        f"`theory.recurrent_floor`: errors of the networks are at least {least.value:.3g} "
        "times as large."
    )
    return (
        statement(blind, BLIND, *map(_error, alike)),
        statement(sees, SEES, *map(_error, seen_uniform)),
        statement(below, BELOW, least, kind="formula"),
        note(_small_angles(rows)),
    )


def _error(row: Mapping[str, Any]) -> Interval:
    return errors.interval_of(row, "error")


def _over_bound(row: Mapping[str, Any]) -> Interval:
    """The error of a network over that of the best linear map."""
    error = _error(row)
    bound = max(row[BOUND], LEAST)
    return Interval(error.value / bound, error.low / bound, error.high / bound)


def _small_angles(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the remark does not say: on part of the circle a fixed linear map predicts."""
    parts = []
    for mu in MUS[1:]:
        networks = []
        seen = []
        for row in rows:
            if row["mu"] == mu:
                of_kind = networks if row["model"] == NETWORK else seen
                of_kind.append(row)
        bound = (networks + seen)[0][BOUND]
        parts.append(
            f"μ = {mu:g}: {_listed(networks)} (attention {_listed(seen)}; the best linear map "
            f"for each length {bound:.2g})"
        )
    found = "; ".join(parts)
    return (
        "The remark needs angles that are spread over the circle. On [0, 2π / μ] a fixed linear "
        f"map extrapolates, and no context is needed; errors of the networks: {found}."
    )


def _listed(rows: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{row['error']:.3g}" for row in rows)


def compare(results: Results) -> DataFrame | None:
    """Errors by law of angles and model; the paper gives no numbers."""
    found = results.get("errors")
    return found if isinstance(found, DataFrame) else None


def _by_scale(field: str) -> dict[str, str]:
    """A number of `Size` at each scale."""
    return {scale: f"{getattr(size, field):,}" for scale, size in SIZES.items()}


WORK_AND_OURS = (
    Setting(
        "network",
        "linear recurrent, a remark without an experiment",
        "Remark 2",
        "linear recurrent, trained",
    ),
    not_given("d", _by_scale("d")),
    not_given("length of a sequence", _by_scale("n_points")),
    not_given("width", _by_scale("hidden")),
    not_given("steps", _by_scale("steps")),
    not_given("batch", _by_scale("batch")),
)
REMARK2_EXPERIMENT = Experiment(
    "autoregression.remark2",
    "A linear recurrent network and attention on the same sequences",
    f"{models.WORK}: Remark 2",
    (),
    run,
    states,
    compare,
    sample=models.SAMPLE,
    sizes=WORDS,
    settings=WORK_AND_OURS,
)
