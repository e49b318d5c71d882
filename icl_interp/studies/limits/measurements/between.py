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
from icl_interp.prompts import as_numbers
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
LINE_AT = (
    (8, 10),
    (13, 14, 15),
)  # strata of `MIDDLES` that lines go through: with 1e6 on the grid, and beyond it


def stratum(low: float, high: float, sign: int | None = None) -> np.ndarray:
    """Which places of `DRAWN` lie between two sizes in units of x, in one direction or in both.

    >>> stratum(1e5, 1e6, 1), len(stratum(1e6, 1e10))
    (array([26, 27]), 8)
    """
    keep = (np.abs(DRAWN) > low) & (np.abs(DRAWN) < high)
    return np.flatnonzero(keep if sign is None else keep & (np.sign(DRAWN) == sign))


def pairs(per_unit: Float[np.ndarray, "unit *rest"]) -> Float[np.ndarray, "pair *rest"]:
    """Means over the two units that share drawn places: these are what an interval resamples then.

    Without its partner a last unit is left out.

    >>> pairs(np.array([1.0, 3.0, 5.0, 5.0, 9.0])).tolist()
    [2.0, 5.0]
    """
    n = len(per_unit) // 2
    return per_unit[: 2 * n].reshape(n, 2, *per_unit.shape[1:]).mean(1)


@measurement("far/places")
def drawn_places(lab: Lab) -> DataArray:
    """Where the queries of `far/drawn` lie: signed sizes, (unit, x).

    x is the middle of a place's stratum.
    """
    axes = {"unit": tuple(range(lab.n_units)), "x": tuple(lab.x_unit * DRAWN)}
    return make_curve(
        lab.drawn_sizes, axes, note="log-uniform within each stratum; two units share each place"
    )


@measurement("far/drawn", asks=lambda lab: lab.ask_at(lab.drawn_queries))
def drawn(lab: Lab, swept: Swept) -> DataArray:
    """f at far queries that are drawn: (statistic, unit, x); x is the middle of a stratum.

    x is the middle of a place's stratum. Each pair of units has places of its own, one in each
    stratum (`Bench.drawn_sizes`), and for inputs of several coordinates a direction of its own
    (`Bench.rays`). Statistics, means over the prompts of a unit but for the largest ones: "gap",
    squared distance from f at 1e6 units in the same direction, and "largest gap", the largest
    distance of a single prompt; "step", squared change from the stratum before (NaN at the first);
    "spread", the variance over prompts by the two units that share a place, and "largest
    deviation", the largest distance of one from their mean; "squared error", and that of the "law's
    mean"; "size", the squared distance of f from the law's mean.
    """
    queries = lab.drawn_queries
    f = as_numbers(swept.f)
    asked, n = queries[:, : len(DRAWN)], lab.n_units
    truth = as_numbers(lab.task.targets(lab.prompts.parameters, asked))
    guess = as_numbers(lab.task.expected(asked))
    below, above = f[:, -2:-1], f[:, -1:]
    f = f[:, : len(DRAWN)]
    gap = torch.where(torch.from_numpy(DRAWN) > 0, f - above, f - below)
    half, missing = len(MIDDLES), torch.full((len(f), 1), torch.nan, dtype=f.dtype)
    # Outwards in both directions: the places of the negative one stand in descending order of size.
    step = torch.cat([-f[:, :half].diff(dim=1), missing, missing, f[:, half:].diff(dim=1)], 1)
    spread, deviation = [], []
    for pair in f.view(n, lab.unit_size, -1).split(2):
        # Within units, and of their means: unbiased, as with all units at one place.
        within, means = pair.var(1, unbiased=False).mean(0), pair.mean(1)
        between = means.var(0) if len(pair) > 1 else torch.zeros_like(within)
        spread.append((within + between).expand(len(pair), -1))
        deviation.append((pair - means.mean(0)).abs().amax((0, 1)).expand(len(pair), -1))
    values = {
        "gap": lab.by_unit(gap.square()),
        "step": lab.by_unit(step.square()),
        "largest gap": gap.abs().view(n, lab.unit_size, -1).amax(1).numpy(),
        "spread": torch.cat(spread).numpy(),
        "largest deviation": torch.cat(deviation).numpy(),
        "squared error": lab.by_unit((f - truth).square()),
        "law's mean": lab.by_unit((guess - truth).square()),
        "size": lab.by_unit((f - guess).square()),
    }
    axes = {"statistic": AT_DRAWN, "unit": tuple(range(n)), "x": tuple(lab.x_unit * DRAWN)}
    note = (
        f"query arm; places drawn for each pair of units; {lab.unit_size} prompts a unit; float64"
    )
    return make_curve([values[name] for name in AT_DRAWN], axes, note=note)


@measurement("far/drawn ends", asks=lambda lab: lab.ask_at(lab.drawn_queries))
def drawn_ends(lab: Lab, swept: Swept) -> DataArray:
    """f of every context where lines are drawn through (`LINE_AT`): `far/ends`, places drawn.

    It is like `far/ends`. The first two and the end of the grid make one line, the other three one
    beyond it.
    """
    f = as_numbers(swept.f)
    half = len(MIDDLES)
    by_direction = []
    for at, end in ((half + np.arange(half), -1), (half - 1 - np.arange(half), -2)):
        columns = [int(at[k]) for k in LINE_AT[0]] + [end] + [int(at[k]) for k in LINE_AT[1]]
        by_direction.append(f[:, columns].T.reshape(6, lab.n_units, -1).numpy())
    names = (*(f"on the grid, {i}" for i in range(3)), *(f"beyond, {i}" for i in range(3)))
    axes = {
        "direction": ("+", "-"),
        "place": names,
        "unit": tuple(range(lab.n_units)),
        "context": tuple(range(lab.unit_size)),
    }
    return make_array(by_direction, axes, note="query arm; drawn places; float64")


FROZEN_AT = np.concatenate([stratum(1e3, 1e6, sign) for sign in (-1, 1)])  # of `far/drawn growth`
GROWS_AT = {"+": stratum(1e4, 1e6, 1), "-": stratum(1e4, 1e6, -1)}  # of `far/scale growth`


def _drawn_while_frozen(lab: Lab) -> Sweep | None:
    """Drawn places with every norm frozen at the query; nothing without norms."""
    if not lab.model.norms:
        return None
    queries = lab.drawn(lab.few, lab.drawn_sizes[:, FROZEN_AT])
    return lab.ask_at(queries, lab.few, query=[lab.frozen.at_query()])


@measurement("far/drawn growth", asks=_drawn_while_frozen)
def drawn_growth(lab: Lab, swept: Swept | None) -> DataArray:
    """The "step" of `far/drawn`, 1e3 to 1e6 units, every norm frozen at the query: (unit, x).

    The axes are (unit, x). On one context of each function. Empty without norms.
    """
    values = np.zeros((0, len(FROZEN_AT)))
    if swept:
        f = as_numbers(swept.f)
        missing = torch.full((len(f), 1), torch.nan, dtype=f.dtype)
        against, along = f.chunk(2, 1)
        steps = torch.cat([-against.diff(dim=1), missing, missing, along.diff(dim=1)], 1)
        values = lab.by_unit(steps.square(), lab.few)
    axes = {"unit": tuple(range(len(values))), "x": tuple(lab.x_unit * DRAWN[FROZEN_AT])}
    return make_curve(
        values, axes, note="norms frozen at their mean scale in distribution, at the query"
    )


def _scales_at_drawn(lab: Lab) -> Sweep | None:
    """The scales of all norms at drawn places; nothing where the model's norms have none."""
    probe = LayerNormScale(per_prompt=True)
    if probe.refusal(lab.model):
        return None
    queries = lab.drawn(lab.few, _sizes_where_scales_grow(lab))
    return lab.ask_at(queries, lab.few, probes=[probe])


def _sizes_where_scales_grow(lab: Lab) -> Float[np.ndarray, "unit place"]:
    return lab.drawn_sizes[:, np.concatenate(list(GROWS_AT.values()))]


@measurement("far/scale growth", asks=_scales_at_drawn)
def scale_growth(lab: Lab, swept: Swept | None) -> DataArray:
    """d log sigma / d log |x| over drawn places, 1e4 to 1e6 units: (norm, unit, direction).

    It is taken over drawn places from 1e4 to 1e6 units. It is 1 where the scale grows like |x|. On
    two prompts of each unit; empty without a scale.
    """
    values, norms = np.zeros((0, lab.n_units, 2)), tuple(lab.model.norms)
    if swept:
        sizes = _sizes_where_scales_grow(lab)
        of_prompts = swept.probe(LayerNormScale).results()["scale"].values
        scales = torch.from_numpy(of_prompts).log()  # (norm, place, prompt)
        logs = (
            scales.unflatten(-1, (lab.n_units, -1)).mean(-1).movedim(1, -1).numpy()
        )  # (norm, unit, place)
        sides = np.split(logs, 2, axis=-1), np.split(np.log(np.abs(sizes)), 2, axis=-1)
        values = np.stack([_slopes(log_x, log_y) for log_y, log_x in zip(*sides, strict=True)], -1)
    axes = {
        "norm": norms[: len(values)],
        "unit": tuple(range(lab.n_units)),
        "direction": tuple(GROWS_AT),
    }
    return make_array(values, axes, note="query arm; drawn places; float64")


def _slopes(log_x: np.ndarray, log_y: np.ndarray) -> np.ndarray:
    """Least-squares slopes along the last axis, with abscissas of each row's own."""
    centred = log_x - log_x.mean(-1, keepdims=True)
    return (log_y * centred).sum(-1) / np.square(centred).sum(-1)
