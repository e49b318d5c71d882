"""Measurements at far queries whose places are drawn, beside the known ones of `far`.

What a model does at the places of a known grid it need not do between them, and along the first
coordinate it need not do along others.
"""

import numpy as np
import torch
from jaxtyping import Float
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.analyses.places import DRAWN, MIDDLES
from icl_interp.probes.norms import LayerNormScale
from icl_interp.probes.sweep import Sweep, Swept
from icl_interp.prompts import as_numbers, squared_sizes
from icl_interp.results import make_array, make_curve

AT_DRAWN = (
    "gap",
    "step",
    "largest gap",
    "spread",
    "largest deviation",
    "squared error",
    "law's mean",
    "size",
)
# Strata of `MIDDLES` that lines go through: with 1e6 on the grid, and beyond it.
LINE_AT = ((8, 10), (13, 14, 15))


def stratum(low: float, high: float, sign: int | None = None) -> np.ndarray:
    """Which places of `DRAWN` lie between two sizes in units of x, in one direction or in both.

    >>> stratum(1e5, 1e6, 1), len(stratum(1e6, 1e10))
    (array([26, 27]), 8)
    """
    sizes = np.abs(DRAWN)
    keep = (sizes > low) & (sizes < high)
    if sign is not None:
        keep = keep & (np.sign(DRAWN) == sign)
    return np.flatnonzero(keep)


def pairs(per_unit: Float[np.ndarray, "unit *rest"]) -> Float[np.ndarray, "pair *rest"]:
    """Means over the two units that share drawn places: these are what an interval resamples then.

    Without its partner a last unit is left out.

    >>> pairs(np.array([1.0, 3.0, 5.0, 5.0, 9.0])).tolist()
    [2.0, 5.0]
    """
    n = len(per_unit) // 2
    whole = per_unit[: 2 * n]
    by_pair = whole.reshape(n, 2, *per_unit.shape[1:])
    return by_pair.mean(1)


@measurement("far/places")
def drawn_places(lab: Lab) -> DataArray:
    """Where the queries of `far/drawn` lie: signed sizes, (unit, x).

    x is the middle of a place's stratum.
    """
    units = tuple(range(lab.n_units))
    xs = tuple(lab.x_unit * DRAWN)
    note = "log-uniform within each stratum; two units share each place"
    return make_curve(lab.drawn_sizes, {"unit": units, "x": xs}, note=note)


@measurement("far/drawn", asks=lambda lab: lab.ask_at(lab.drawn_queries))
def drawn(lab: Lab, swept: Swept) -> DataArray:
    """f at far queries that are drawn: (statistic, unit, x); x is the middle of a stratum.

    Each pair of units has places of its own, one in each stratum (`Bench.drawn_sizes`). For inputs
    of several coordinates it has a direction of its own, too (`Bench.rays`).

    Statistics, means over the prompts of a unit but for the largest ones: "gap", squared distance
    from f at 1e6 units in the same direction, and "largest gap", the largest distance of a single
    prompt; "step", squared change from the stratum before (NaN at the first); "spread", the
    variance over prompts by the two units that share a place, and "largest deviation", the largest
    distance of one from their mean; "squared error", and that of the "law's mean"; "size", the
    squared distance of f from the law's mean.
    """
    n_units = lab.n_units
    unit_size = lab.unit_size
    n_places = len(DRAWN)
    asked = lab.drawn_queries[:, :n_places]
    parameters = lab.prompts.parameters
    truth = lab.task.targets(parameters, asked)
    guess = lab.task.expected(asked)

    # The last two queries are the ends of either direction.
    f = swept.f
    below = f[:, -2:-1]
    above = f[:, -1:]
    f = f[:, :n_places]
    is_positive = torch.from_numpy(DRAWN > 0)
    is_positive = is_positive[:, None]
    gap = torch.where(is_positive, f - above, f - below)

    gap_size = gap.norm(dim=-1)
    largest_gap = gap_size.view(n_units, unit_size, -1).amax(1)
    spread = []
    deviation = []
    for pair in f.view(n_units, unit_size, n_places, -1).split(2):
        its_spread, its_deviation = _spread_of_pair(pair)
        n = len(pair)
        spread.append(its_spread.expand(n, -1))
        deviation.append(its_deviation.expand(n, -1))
    distances = {
        "gap": gap,
        "step": _outwards(f, len(MIDDLES)),
        "squared error": f - truth,
        "law's mean": guess - truth,
        "size": f - guess,
    }
    values = {
        "largest gap": largest_gap.numpy(),
        "spread": torch.cat(spread).numpy(),
        "largest deviation": torch.cat(deviation).numpy(),
    }
    for name, distance in distances.items():
        square = squared_sizes(distance)
        values[name] = lab.by_unit(square)
    rows = [values[name] for name in AT_DRAWN]
    units = tuple(range(n_units))
    xs = tuple(lab.x_unit * DRAWN)
    axes = {"statistic": AT_DRAWN, "unit": units, "x": xs}
    note = f"query arm; places drawn for each pair of units; {unit_size} prompts a unit; float64"
    return make_curve(rows, axes, note=note)


def _outwards(f: Float[torch.Tensor, "batch place target"], half: int) -> torch.Tensor:
    """Changes of f from the place before, outwards in both directions; NaN at the first of each.

    The places of the negative direction, the first `half`, stand in descending order of size.
    """
    shape = (len(f), 1, f.shape[-1])
    missing = torch.full(shape, torch.nan, dtype=f.dtype)
    against = -f[:, :half].diff(dim=1)
    along = f[:, half:].diff(dim=1)
    return torch.cat([against, missing, missing, along], 1)


def _spread_of_pair(
    pair: Float[torch.Tensor, "unit prompt place target"],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Variance over the prompts of two units, and the largest distance of one from their mean."""
    # Within units, and of their means: unbiased, as with all units at one place.
    within = pair.var(1, unbiased=False).mean(0).sum(-1)
    means = pair.mean(1)
    between = torch.zeros_like(within)
    if len(pair) > 1:
        between = means.var(0).sum(-1)
    distance = (pair - means.mean(0)).norm(dim=-1)
    return within + between, distance.amax((0, 1))


@measurement("far/drawn ends", asks=lambda lab: lab.ask_at(lab.drawn_queries))
def drawn_ends(lab: Lab, swept: Swept) -> DataArray:
    """f of every context where lines are drawn through (`LINE_AT`): `far/ends`, places drawn.

    The first two places and the end of the grid make one line, the other three one beyond it.
    """
    f = as_numbers(swept.f)
    half = len(MIDDLES)
    on_grid, beyond = LINE_AT
    by_direction = []
    # The strata of either direction in ascending order of size, and the end of its grid.
    for first, sign, end in ((half, 1, -1), (half - 1, -1, -2)):
        columns = [first + sign * k for k in on_grid]
        columns.append(end)
        columns += [first + sign * k for k in beyond]
        at_columns = f[:, columns].T
        by_direction.append(at_columns.reshape(6, lab.n_units, -1).numpy())
    names = [f"on the grid, {i}" for i in range(3)]
    names += [f"beyond, {i}" for i in range(3)]
    units = tuple(range(lab.n_units))
    contexts = tuple(range(lab.unit_size))
    axes = {"direction": ("+", "-"), "place": tuple(names), "unit": units, "context": contexts}
    return make_array(by_direction, axes, note="query arm; drawn places; float64")


FROZEN_AT = np.concatenate([stratum(1e3, 1e6, sign) for sign in (-1, 1)])  # of `far/drawn growth`
GROWS_AT = {"+": stratum(1e4, 1e6, 1), "-": stratum(1e4, 1e6, -1)}  # of `far/scale growth`


def _drawn_while_frozen(lab: Lab) -> Sweep | None:
    """Drawn places with every norm frozen at the query; nothing without norms."""
    if not lab.model.norms:
        return None
    sizes = lab.drawn_sizes[:, FROZEN_AT]
    queries = lab.drawn(lab.few, sizes)
    edit = lab.frozen.at_query()
    return lab.ask_at(queries, lab.few, query=[edit])


@measurement("far/drawn growth", asks=_drawn_while_frozen)
def drawn_growth(lab: Lab, swept: Swept | None) -> DataArray:
    """The "step" of `far/drawn`, 1e3 to 1e6 units, every norm frozen at the query: (unit, x).

    On one context of each function. Empty without norms.
    """
    values = np.zeros((0, len(FROZEN_AT)))
    if swept:
        half = len(FROZEN_AT) // 2
        steps = _outwards(swept.f, half)
        square = squared_sizes(steps)
        values = lab.by_unit(square, lab.few)
    units = tuple(range(len(values)))
    xs = tuple(lab.x_unit * DRAWN[FROZEN_AT])
    note = "norms frozen at their mean scale in distribution, at the query"
    return make_curve(values, {"unit": units, "x": xs}, note=note)


def _scales_at_drawn(lab: Lab) -> Sweep | None:
    """The scales of all norms at drawn places; nothing where the model's norms have none."""
    probe = LayerNormScale(per_prompt=True)
    if probe.refusal(lab.model):
        return None
    sizes = _sizes_where_scales_grow(lab)
    queries = lab.drawn(lab.few, sizes)
    return lab.ask_at(queries, lab.few, probes=[probe])


def _sizes_where_scales_grow(lab: Lab) -> Float[np.ndarray, "unit place"]:
    both = list(GROWS_AT.values())
    return lab.drawn_sizes[:, np.concatenate(both)]


@measurement("far/scale growth", asks=_scales_at_drawn)
def scale_growth(lab: Lab, swept: Swept | None) -> DataArray:
    """d log sigma / d log |x| over drawn places, 1e4 to 1e6 units: (norm, unit, direction).

    It is 1 where the scale grows like |x|. On two prompts of each unit; empty without a scale.
    """
    n_units = lab.n_units
    values = np.zeros((0, n_units, 2))
    if swept:
        found = swept.probe(LayerNormScale).results()
        scales = torch.from_numpy(found["scale"].values)  # (norm, place, prompt)
        by_unit = scales.log().unflatten(-1, (n_units, -1))
        log_scales = by_unit.mean(-1)
        log_y = log_scales.movedim(1, -1).numpy()  # (norm, unit, place)
        sizes = np.abs(_sizes_where_scales_grow(lab))
        log_x = np.log(sizes)
        half = log_x.shape[-1] // 2
        above = _slopes(log_x[..., :half], log_y[..., :half])
        below = _slopes(log_x[..., half:], log_y[..., half:])
        values = np.stack([above, below], -1)
    names = tuple(lab.model.norms)
    norms = names[: len(values)]
    units = tuple(range(n_units))
    axes = {"norm": norms, "unit": units, "direction": tuple(GROWS_AT)}
    return make_array(values, axes, note="query arm; drawn places; float64")


def _slopes(log_x: np.ndarray, log_y: np.ndarray) -> np.ndarray:
    """Least-squares slopes along the last axis, with abscissas of each row's own."""
    centred = log_x - log_x.mean(-1, keepdims=True)
    products = log_y * centred
    along = products.sum(-1)
    squares = np.square(centred)
    return along / squares.sum(-1)
