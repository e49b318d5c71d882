"""Steps of gradient descent beside a model, at the late points of prompts.

They ask how many steps the layers of the model are worth.

Descent starts at W = 0 and minimises 1/2 sum_t |s_t - W s_{t-1}|^2 over the transitions of the
prompt. Its step size is the same for all steps and prompts: of those with which it diverges on none
of many prompts drawn apart, the best one there for this number of steps. Early points are left out:
before d transitions W is not determined, and all methods fail alike.
"""

import functools
import math

import torch
from jaxtyping import Float
from pandas import DataFrame
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.autoregression.measurements.maps import (
    MODEL,
    SINGULAR,
    SQUARES,
    TINY,
    States,
    commute,
    needs_paths,
    solved,
)
from icl_interp.studies.autoregression.measurements.parts import (
    first_layer_in_use,
    heads_in_use,
    in_use,
    layers_in_use,
)
from icl_interp.studies.autoregression.measurements.unit import process_of
from icl_interp.tasks.autoregressive import AutoregressiveProcess, complex_states

STEPS = (*range(1, 17), 20, 24, 32)
LATE = 0.25  # share of the points that are late
N_FITTED = 2048  # prompts that step sizes are chosen on
# Over 1 / the largest curvature of these prompts: from 2 on descent diverges on one of them, and on
# others like it.
SIZES = torch.logspace(math.log10(0.02), math.log10(2), 50, dtype=torch.float64)


def layers_left(facts: Facts, parts: DataFrame | None = None) -> int:
    """Layers that can take steps: all of them on augmented states.

    On plain ones the first has to make these.

    Args:
        facts: about the model.
        parts: of `parts.in_use`: layers that predictions do not depend on are then not counted.
            Where none is left but the first one, what follows it must be made elsewhere, and all
            are counted.
    """
    first, n_layers = facts.encoding == "states", facts.config.n_layers
    if parts is None:
        return n_layers - first
    left = layers_in_use(parts) - first
    return n_layers - first if left < 1 and first_layer_in_use(parts) == 0 else left


def needs_layers_for_steps(facts: Facts) -> str | None:
    """Why there are no layers whose number steps could be compared with."""
    if reason := needs_paths(facts):
        return reason
    if layers_left(facts) < 1:
        return (
            "The claim is about layers after the one that makes augmented tokens; this model has "
            "one layer"
        )
    if layers_left(facts) > max(STEPS[:16]):
        return (
            f"The claim is about at most {max(STEPS[:16])} layers that take steps; this model has "
            f"{layers_left(facts)}"
        )
    if facts.config.attention_dir != "causal":
        return (
            "The claim is about causal attention, since otherwise the token after a state shows "
            "what is to be predicted"
        )
    return None


def late(n_points: int) -> range:
    """The last quarter of the points, counted from 0; the last one at least."""
    return range(min(math.ceil((1 - LATE) * n_points), n_points - 1), n_points)


class Path:
    """Transitions of prompts up to a point, in the basis of gradient descent.

    Gradient descent acts on each coordinate of this basis alone.

    Args:
        states: s_0, ..., s_T.
    """

    def __init__(self, states: States) -> None:
        before, after = states[:, :-1], states[:, 1:]
        self.curvatures, basis = torch.linalg.eigh(before.mT @ before.conj())
        rounding = SINGULAR * self.curvatures.amax(-1, keepdim=True)
        self.curvatures = self.curvatures.where(self.curvatures > rounding, 0.0)
        crossed, query = after.mT @ before.conj() @ basis, basis.mH @ states[:, -1, :, None]
        self.parts = crossed * query.mT  # (batch, dim, direction)

    def descended(self, sizes: Float[Tensor, " size"], n_steps: int) -> Tensor:
        """W s_T after steps of each size, (batch, dim, size).

        Along a direction of curvature g, W is (1 - (1 - size g)^steps) times the least-squares
        solution.
        """
        g = self.curvatures[..., None]
        share = torch.where(
            g > 0, (1 - (1 - sizes * g) ** n_steps) / g.clamp(min=TINY), sizes * n_steps
        )
        return self.parts @ share.to(self.parts.dtype)


def _states(
    task: AutoregressiveProcess, xs: Float[Tensor, "batch point dim"], n_heads: int
) -> States:
    real = xs[..., : task.state_dim].double()
    return complex_states(real) if commute(task) and n_heads > 1 else real


def _errors(prediction: Tensor, truth: Tensor) -> Float[Tensor, " batch"]:
    return (prediction - truth).abs().square().sum(-1)


@functools.lru_cache(64)
def best_sizes(task: AutoregressiveProcess, n_heads: int, seed: int) -> dict[int, float]:
    """The step size with the least mean error, for each number of steps.

    Errors are at the late points of sampled prompts.

    Args:
        task: of the prompts.
        n_heads: of a layer of the model.
        seed: of the sample.
    """
    prompts = task.sample(
        N_FITTED, generator(seed, "autoregression/step sizes"), dtype=torch.float64
    )
    states, truth = (_states(task, one, n_heads) for one in (prompts.xs, prompts.ys))
    paths = {t: Path(states[:, : t + 1]) for t in late(prompts.n_points)}
    sizes = SIZES / torch.stack([path.curvatures.amax() for path in paths.values()]).amax()
    found = {}
    for n_steps in STEPS:
        gaps = [path.descended(sizes, n_steps) - truth[:, t, :, None] for t, path in paths.items()]
        errors = torch.stack([gap.abs().square().sum(1).mean(0) for gap in gaps]).mean(0)
        found[n_steps] = float(sizes[errors.nan_to_num(nan=torch.inf).argmin()])
    return found


@measurement("autoregression/descent", version=2, needs=(in_use,))
def descent(lab: Lab, parts: DataFrame) -> DataArray:
    """Squared error at the late points: (who, point, unit), a mean over the two prompts of a unit.

    Who: the model; "k" for k steps of gradient descent; least squares, where descent ends.
    """
    task, prompts = process_of(lab), lab.few
    n_heads = heads_in_use(parts)
    sizes = best_sizes(task, n_heads, lab.seed)
    states, truth = (_states(task, one, n_heads) for one in (prompts.xs, prompts.ys))
    points = late(prompts.n_points)
    said = (
        lab.predict(prompts).double().cpu()[:, points.start :]
        - prompts.ys[:, points.start :].double()
    )
    rows = {MODEL: list((said.square().sum(-1) / task.tiles).unbind(1)), SQUARES: []}
    rows |= {str(n_steps): [] for n_steps in STEPS}
    for t in points:
        path = Path(states[:, : t + 1])
        rows[SQUARES].append(_errors(solved(states[:, : t + 1], states[:, t]), truth[:, t]))
        for n_steps, size in sizes.items():
            after = path.descended(torch.tensor([size]).double(), n_steps)[..., 0]
            rows[str(n_steps)].append(_errors(after, truth[:, t]))
    axes = {"who": tuple(rows), "point": tuple(points), "unit": tuple(range(lab.n_units))}
    values = torch.stack([torch.stack(row, 1) for row in rows.values()], 1)
    note = (
        f"{len(prompts)} prompts, the last {len(points)} of {prompts.n_points} points; step sizes "
        f"from {N_FITTED}"
    )
    return make_array(lab.by_unit(values, prompts).transpose(1, 2, 0), axes, note=note)
