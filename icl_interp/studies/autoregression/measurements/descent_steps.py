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
    n_makers = int(facts.encoding == "states")
    every = facts.config.n_layers - n_makers
    if parts is None:
        return every
    left = layers_in_use(parts) - n_makers
    if left < 1 and first_layer_in_use(parts) == 0:
        return every
    return left


def needs_layers_for_steps(facts: Facts) -> str | None:
    """Why there are no layers whose number steps could be compared with."""
    if reason := needs_paths(facts):
        return reason
    left = layers_left(facts)
    most = max(STEPS[:16])
    if left < 1:
        return (
            "The claim is about layers after the one that makes augmented tokens; this model has "
            "one layer"
        )
    if left > most:
        return f"The claim is about at most {most} layers that take steps; this model has {left}"
    if facts.config.attention_dir != "causal":
        return (
            "The claim is about causal attention, since otherwise the token after a state shows "
            "what is to be predicted"
        )
    return None


def late(n_points: int) -> range:
    """The last quarter of the points, counted from 0; the last one at least."""
    start = math.ceil((1 - LATE) * n_points)
    return range(min(start, n_points - 1), n_points)


class Path:
    """Transitions of prompts up to a point, in the basis of gradient descent.

    Gradient descent acts on each coordinate of this basis alone.

    Args:
        states: s_0, ..., s_T.
    """

    def __init__(self, states: States) -> None:
        before = states[:, :-1]
        after = states[:, 1:]
        gram = before.mT @ before.conj()
        curvatures, basis = torch.linalg.eigh(gram)
        rounding = SINGULAR * curvatures.amax(-1, keepdim=True)
        self.curvatures = curvatures.where(curvatures > rounding, 0.0)
        crossed = after.mT @ before.conj() @ basis
        query = basis.mH @ states[:, -1, :, None]
        self.parts = crossed * query.mT  # (batch, dim, direction)

    def descended(self, sizes: Float[Tensor, " size"], n_steps: int) -> Tensor:
        """W s_T after steps of each size, (batch, dim, size).

        Along a direction of curvature g, W is (1 - (1 - size g)^steps) times the least-squares
        solution.
        """
        g = self.curvatures[..., None]
        curved = (1 - (1 - sizes * g) ** n_steps) / g.clamp(min=TINY)
        flat = sizes * n_steps
        share = torch.where(g > 0, curved, flat)
        return self.parts @ share.to(self.parts.dtype)


def _states(
    task: AutoregressiveProcess, xs: Float[Tensor, "batch point dim"], n_heads: int
) -> States:
    real = xs[..., : task.state_dim].double()
    if commute(task) and n_heads > 1:
        return complex_states(real)
    return real


def _errors(prediction: Tensor, truth: Tensor) -> Float[Tensor, " batch"]:
    gap = prediction - truth
    return gap.abs().square().sum(-1)


@functools.lru_cache(64)
def best_sizes(task: AutoregressiveProcess, n_heads: int, seed: int) -> dict[int, float]:
    """The step size with the least mean error, for each number of steps.

    Errors are at the late points of sampled prompts.

    Args:
        task: of the prompts.
        n_heads: of a layer of the model.
        seed: of the sample.
    """
    draw = generator(seed, "autoregression/step sizes")
    prompts = task.sample(N_FITTED, draw, dtype=torch.float64)
    states = _states(task, prompts.xs, n_heads)
    truth = _states(task, prompts.ys, n_heads)
    paths = {t: Path(states[:, : t + 1]) for t in late(prompts.n_points)}
    largest = [path.curvatures.amax() for path in paths.values()]
    sizes = SIZES / torch.stack(largest).amax()
    best = {}
    for n_steps in STEPS:
        of_points = []
        for t, path in paths.items():
            gap = path.descended(sizes, n_steps) - truth[:, t, :, None]
            squares = gap.abs().square().sum(1)
            of_points.append(squares.mean(0))
        errors = torch.stack(of_points).mean(0)
        # Sizes with which descent overflows are never the best ones.
        at = errors.nan_to_num(nan=torch.inf).argmin()
        best[n_steps] = float(sizes[at])
    return best


@measurement("autoregression/descent", version=2, needs=(in_use,))
def descent(lab: Lab, parts: DataFrame) -> DataArray:
    """Squared error at the late points: (who, point, unit), a mean over the two prompts of a unit.

    Who: the model; "k" for k steps of gradient descent; least squares, where descent ends.
    """
    task = process_of(lab)
    prompts = lab.few
    n_heads = heads_in_use(parts)
    sizes = best_sizes(task, n_heads, lab.seed)
    states = _states(task, prompts.xs, n_heads)
    truth = _states(task, prompts.ys, n_heads)
    points = late(prompts.n_points)
    # The model predicts a state in each of its copies, of which the error is that of one.
    predicted = lab.predict(prompts).double().cpu()
    missed = predicted[:, points.start :] - prompts.ys[:, points.start :].double()
    of_model = missed.square().sum(-1) / task.tiles
    rows = {MODEL: list(of_model.unbind(1)), SQUARES: []}
    for n_steps in STEPS:
        rows[str(n_steps)] = []
    # Descent and least squares see the path up to the point.
    for t in points:
        seen = states[:, : t + 1]
        path = Path(seen)
        squares = solved(seen, states[:, t])
        rows[SQUARES].append(_errors(squares, truth[:, t]))
        for n_steps, size in sizes.items():
            one_size = torch.tensor([size]).double()
            after = path.descended(one_size, n_steps)[..., 0]
            rows[str(n_steps)].append(_errors(after, truth[:, t]))
    axes = {"who": tuple(rows), "point": tuple(points), "unit": tuple(range(lab.n_units))}
    table = [torch.stack(row, 1) for row in rows.values()]
    values = torch.stack(table, 1)
    note = (
        f"{len(prompts)} prompts, the last {len(points)} of {prompts.n_points} points; step sizes "
        f"from {N_FITTED}"
    )
    return make_array(lab.by_unit(values, prompts).transpose(1, 2, 0), axes, note=note)
