"""How f runs into its boundary values, between the training range and the plateau, and far out.

Most of it reads the sweep that the far claims share (`Lab.on_grid`): no forward passes of its own.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from pandas import DataFrame
from xarray import DataArray

from icl_interp.analyses import output_unit
from icl_interp.analyses.bench import Xs
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.probes.norms import LayerNormScale
from icl_interp.probes.sweep import Sweep, Swept, places
from icl_interp.prompts import Prompts, as_numbers, squared_sizes
from icl_interp.resampling import Interval, bootstrap, slope
from icl_interp.results import make_curve, make_table
from icl_interp.studies.limits.measurements import certificates, far
from icl_interp.studies.limits.measurements.far import power

# Share of u, the spread of f in distribution: f counts as level within so much of where it ends.
LEVEL = 0.1
# Share of the error of the law's mean: up to this squared error f counts as following the function.
FOLLOWS = 0.1
# |x| in units of `Lab.x_unit`:
LAST = 1e5  # an onset beyond is none: at 1e6 every curve meets its own end
# Where the approach is fitted: past every onset, and far enough from 1e6, which stands for inf.
RATE = (1e3, 10**4.5)
FAR = (1e4, 1e6)  # between which elasticities are far ones
SCALES = (1.0, 1e2, 1e4, 1e6)
ARMS = ("query", "inputs", "functions")
SIGNS = {"+": 1, "-": -1}
NEVER = Interval(float("nan"), float("nan"), float("nan"))


# ---- measurements --------------------------------------------------------------------------------


def gap_to_end(
    f: Float[torch.Tensor, "batch x target"], xs: Xs
) -> Float[torch.Tensor, "batch x target"]:
    """f less its own value at the end of its direction."""
    xs = np.asarray(xs)
    last = int(xs.argmax())
    first = int(xs.argmin())
    from_above = f - f[:, [last]]
    from_below = f - f[:, [first]]
    is_positive = torch.as_tensor(xs > 0)[:, None]
    return torch.where(is_positive, from_above, from_below)


def without_own(per_unit: np.ndarray) -> np.ndarray:
    """For each unit the mean over all others."""
    return (per_unit.sum(0) - per_unit) / (len(per_unit) - 1)


def _squares(
    lab: Lab, f: Float[torch.Tensor, "batch x target"], xs: np.ndarray, prompts: Prompts
) -> DataArray:
    truth = lab.truth(xs, prompts)
    mean = far.law_mean(lab, xs)
    distances = {"gap": gap_to_end(f, xs), "squared error": f - truth, "law's mean": mean - truth}
    values = []
    for distance in distances.values():
        square = squared_sizes(distance)
        values.append(lab.by_unit(square))
    units = tuple(range(lab.n_units))
    axes = {"statistic": tuple(distances), "unit": units, "x": tuple(xs)}
    size = len(prompts) // lab.n_units
    return make_curve(values, axes, note=f"query arm; {size} prompts a unit; float64")


@measurement("far/approach", version=2, asks=lambda lab: lab.on_grid)
def approach(lab: Lab, swept: Swept) -> DataArray:
    """Squares that tell where f follows the function and where it levels off.

    Statistics, each a mean over the prompts of a unit: "gap", squared distance of f from its own
    end at 1e6; "squared error"; "law's mean", the squared error of E f over the law of functions,
    the best guess without any example.
    """
    return _squares(lab, swept.f, lab.grid, lab.prompts)


def _decades(lab: Lab) -> Sweep:
    """One point a decade on few contexts."""
    xs = lab.x_unit * far.DECADES
    return lab.ask(xs, prompts=lab.few)


@measurement("far/approach, decades", version=2, asks=_decades)
def approach_decades(lab: Lab, swept: Swept) -> DataArray:
    """`far/approach` at one point a decade on few contexts, for controls."""
    xs = lab.x_unit * far.DECADES
    return _squares(lab, swept.f, xs, lab.few)


def _with_scales(lab: Lab) -> Sweep:
    """f at one point a decade on few contexts, and the norms' scales where they have any."""
    probe = LayerNormScale(per_prompt=True)
    is_refused = lab.outside or probe.refusal(lab.model)
    probes = [] if is_refused else [probe]
    xs = lab.x_unit * np.sort(far.DECADES)
    return lab.ask(xs, prompts=lab.few, probes=probes)


@measurement("far/logs", asks=_with_scales)
def logs(lab: Lab, swept: Swept) -> DataArray:
    """log |f - c| and log of the last norm's scale, means over contexts: slopes are elasticities.

    Here c is the certificate's centre, what the output is where the norm passes on nothing (0
    without a certificate). A model without a norm has the scale 1.
    """
    xs = lab.x_unit * np.sort(far.DECADES)
    c, _ = certificates.certified(lab)
    distance = (swept.f - c.nan_to_num()).norm(dim=-1).clamp(min=1e-300)
    scale = torch.zeros_like(distance)
    if swept.sweep.probes:
        scales = swept.probe(LayerNormScale).results()
        of_last = scales["scale"].isel(norm=-1).values
        scale = torch.from_numpy(of_last).log().T
    rows = [lab.by_unit(distance.log()), lab.by_unit(scale)]
    units = tuple(range(lab.n_units))
    axes = {"quantity": ("f", "scale"), "unit": units, "x": tuple(xs)}
    return make_curve(rows, axes, units="log", note="query arm; float64")


def _arms(lab: Lab) -> dict[tuple[str, float], Sweep]:
    """All scales of the query arm in one sweep, and one for each other arm and scale."""
    prompts = lab.one_each
    query = np.array(lab.inner)
    # The query arm, and scale 1 of the others, share the contexts: they are read once.
    of_query = np.concatenate([factor * query for factor in SCALES])
    asked = {("query", 1.0): lab.ask(of_query, prompts=prompts)}
    for arm in ARMS[1:]:
        for factor in SCALES[1:]:
            at = query * factor if arm == "inputs" else query
            scaled = _scaled(lab, prompts, arm, factor)
            asked[arm, factor] = lab.ask(at, prompts=scaled)
    return asked


@measurement("far/arms", version=2, asks=_arms)
def arms(lab: Lab, swept: Mapping[tuple[str, float], Swept]) -> DataArray:
    """f, the truth and the law's mean as the query, all inputs or the function are scaled.

    One of these three is scaled at a time. Functions are scaled about the law's mean E f, so that a
    constant added to all values changes nothing.

    One context of each unit. The query is the same for all of them (times the scale in the first
    two arms), so that f's spread is over contexts.
    """
    # (curve, unit, x) of each.
    curves = {}
    dim = lab.task.dim
    for key, one in swept.items():
        at = places(one.xs, dim)
        mean = lab.task.expected(at[None]).expand_as(one.f)
        # The truth's column holds its distance from the law's mean until the function is scaled.
        of_truth = lab.truth(one.xs, one.prompts) - mean
        lines = [as_numbers(v) for v in (one.f, of_truth, mean)]
        curves[key] = torch.stack(lines).numpy()
    n_units = lab.n_units
    of_query = curves["query", 1.0].reshape(3, n_units, len(SCALES), 2)
    as_drawn = of_query[:, :, 0]
    rows = [of_query]
    for arm in ARMS[1:]:
        parts = [as_drawn]
        for factor in SCALES[1:]:
            of_function = factor if arm == "functions" else 1.0
            times = np.array([1.0, of_function, 1.0])
            parts.append(curves[arm, factor] * times[:, None, None])
        rows.append(np.stack(parts, 2))
    by_arm = np.stack(rows)
    by_arm[:, 1] += by_arm[:, 2]
    values = np.moveaxis(by_arm, 3, 4)
    axes = {
        "arm": ARMS,
        "curve": ("model", "truth", "law's mean"),
        "unit": tuple(range(n_units)),
        "query": tuple(lab.inner),
        "scale": SCALES,
    }
    return make_curve(values, axes, note="one context a unit; float64")


def _scaled(lab: Lab, prompts: Prompts, arm: str, factor: float) -> Prompts:
    if arm == "functions":
        mean = lab.task.expected(prompts.xs)
        distance = prompts.ys - mean
        return replace(prompts, ys=mean + factor * distance)
    parameters = prompts.parameters
    clean = lab.task.targets(parameters, prompts.xs)
    xs = prompts.xs * factor
    scaled = lab.task.targets(parameters, xs)
    # What noise there was stays: it belongs to the labels, not to the inputs.
    return replace(prompts, xs=xs, ys=scaled + prompts.ys - clean)


# ---- from squares to places ----------------------------------------------------------------------


def direction(curve: DataArray, sign: int) -> tuple[np.ndarray, np.ndarray]:
    """|x| in ascending order in one direction, and where these stand on the curve's axis."""
    xs = curve["x"].values
    order = np.argsort(np.abs(xs))
    signs = np.sign(xs[order])
    keep = order[signs == sign]
    return np.abs(xs[keep]), keep


def _between(
    xs: np.ndarray, size: np.ndarray, i: np.ndarray | np.integer, bound: float
) -> np.ndarray:
    """Where size crosses the bound between points i and i + 1, on a straight line in logarithms."""
    tiny = np.finfo(float).tiny
    logs = np.log(np.maximum(size, tiny))
    log_bound = np.log(max(bound, tiny))
    log_x = np.log(xs)
    i = np.asarray(i)
    at = i[..., None]
    a = np.take_along_axis(logs, at, -1)[..., 0]
    b = np.take_along_axis(logs, at + 1, -1)[..., 0]
    fall = np.where(a == b, 1.0, a - b)
    share = np.clip((a - log_bound) / fall, 0.0, 1.0)
    width = log_x[i + 1] - log_x[i]
    log_crossing = log_x[i] + share * width
    return np.asarray(np.exp(log_crossing))


def last(xs: np.ndarray) -> float:
    """The largest |x| that counts as an onset: `LAST`, where 1e6 units are the largest |x|."""
    return float(xs[-1]) * (LAST / 1e6)


def settles(xs: np.ndarray, size: np.ndarray, bound: float) -> np.ndarray:
    """The smallest x from which size stays within the bound; `last(xs)` where further out or never.

    Args:
        xs: ascending, `(x,)`; the last one is the end that f is compared with.
        size: `(..., x)`.
        bound: what size has to stay within from there on.
    """
    outside = size > bound
    end = len(xs) - 1
    furthest = last(xs)
    worst = end - np.argmax(outside[..., ::-1], -1)
    found = _between(xs, size, np.minimum(worst, end - 1), bound)
    found = np.where(worst == end, furthest, found)
    found = np.where(outside.any(-1), found, xs[0])
    return np.asarray(np.minimum(found, furthest))


def leaves(xs: np.ndarray, size: np.ndarray, bound: float) -> np.ndarray:
    """The largest x up to which size stays within the bound.

    The first x where size is outside from the start.
    """
    outside = size > bound
    first = np.argmax(outside, -1)
    before = np.maximum(first - 1, 0)
    found = _between(xs, size, before, bound)
    found = np.where(first > 0, found, xs[0])
    return np.where(outside.any(-1), found, xs[-1])


def onset(curve: DataArray, sign: int, level: float) -> Interval:
    """|x| from which f stays within `level` of its end, in one direction.

    The distance is a root mean square over contexts.
    """
    xs, keep = direction(curve, sign)
    gap = curve.sel(statistic="gap")
    square = gap.values[:, keep]
    return bootstrap(lambda m: settles(xs, np.sqrt(m), level), square)


def rate(curve: DataArray, sign: int, x_unit: float = 1.0) -> Interval:
    """Log-log slope of f's distance from its end over `RATE`: -1 where it goes like 1/|x|."""
    xs, keep = direction(curve, sign)
    low, high = RATE
    window = (xs > 0.99 * low * x_unit) & (xs < 1.01 * high * x_unit)
    gap = curve.sel(statistic="gap")
    square = gap.values[:, keep[window]]
    log_x = np.log(xs[window])

    def of_mean(mean_square: np.ndarray) -> Any:
        log_gap = 0.5 * np.log(np.maximum(mean_square, 1e-300))
        return slope(log_x, log_gap)

    return bootstrap(of_mean, square)


def zone(curve: DataArray, sign: int) -> Interval:
    """|x| up to which f follows the function.

    There the squared error is within `FOLLOWS` of that of the law's mean.
    """
    xs, keep = direction(curve, sign)
    error = curve.sel(statistic="squared error").values[:, keep]
    guess = curve.sel(statistic="law's mean").values[:, keep]

    def of_means(error: np.ndarray, guess: np.ndarray) -> np.ndarray:
        share = error / np.maximum(guess, 1e-300)
        return leaves(xs, share, FOLLOWS)

    return bootstrap(of_means, error, guess)


def elasticities(curve: DataArray, sign: int, low: float, high: float) -> dict[str, Interval]:
    """E_f, E_N and E_sigma between two |x|: exponents of f - c, of the norm's numerator and scale.

    With the norm's scale sigma, its numerator is N = sigma (f - c), so E_f = E_N - E_sigma.
    """
    xs, keep = direction(curve, sign)
    ends = keep[[_nearest(xs, low), _nearest(xs, high)]]
    width = np.log(high / low)
    exponents = []
    for quantity in ("f", "scale"):
        at_ends = curve.sel(quantity=quantity).values[:, ends]
        rise = np.diff(at_ends, axis=1)
        exponents.append(rise[:, 0] / width)
    f, scale = exponents
    return {"E_f": _mean(f), "E_N": _mean(f + scale), "E_sigma": _mean(scale)}


def _nearest(xs: np.ndarray, x: float) -> int:
    """Where the value stands that is nearest to x."""
    distance = np.abs(xs - x)
    return int(np.argmin(distance))


# ---- the table -----------------------------------------------------------------------------------


def peaks(
    f: Float[torch.Tensor, "batch x target"], xs: np.ndarray, margin: float
) -> dict[str, torch.Tensor]:
    """The largest |f| of each context on its way out, where it is, and whether it stands out.

    A peak stands out that exceeds the end by a margin.

    Args:
        f: in one direction, |x| ascending.
        xs: |x|, `(x,)`.
        margin: by what factor a peak that stands out exceeds the end.
    """
    sizes = f.norm(dim=-1)
    highest, at = sizes.max(1)
    place = torch.from_numpy(xs)[at]
    end = sizes[:, -1]
    stands_out = highest > end + margin
    return {"peak": highest, "peak at": place.log(), "overshoot": stands_out.double()}


@measurement(
    "far/boundary",
    version=2,
    needs=(approach, logs, certificates.certificate, output_unit.own),
    asks=lambda lab, *_: lab.on_grid,
)
def boundary(
    lab: Lab,
    swept: Swept,
    squares: DataArray,
    logarithms: DataArray,
    certificate: DataFrame,
    own: DataArray,
) -> DataFrame:
    """The boundary values of this model: a row a direction and quantity, with intervals over units.

    Rows: trained range (the largest |x| in it); zone; peak, the mean over contexts of the largest
    |f|, where it is (geometric mean over contexts) and the share of contexts whose peak exceeds the
    end's |f| by `LEVEL` u; onset; level and the spread over contexts there; the same one decade
    beyond the trained range; level in closed form; approach rate; far elasticities. NaN for what a
    model that does not level off lacks: peak, onset, level and rate.
    """
    u = float(own.sel(statistic="u"))
    known = _Known(swept.f, squares, logarithms, certificate, u)
    names = ("direction", "quantity", "value", "low", "high", "unit")
    columns: dict[str, list[Any]] = {key: [] for key in names}
    for name, sign in SIGNS.items():
        for quantity, interval, unit in _rows(lab, known, name, sign):
            columns["direction"].append(name)
            columns["quantity"].append(quantity)
            columns["value"].append(interval.value)
            columns["low"].append(interval.low)
            columns["high"].append(interval.high)
            columns["unit"].append(unit)
    note = (
        f"query arm; {lab.n_units} units x {lab.unit_size} prompts; level: within {LEVEL} u of the "
        f"end at {power(1e6 * lab.x_unit)}, u being the standard deviation of f in distribution; "
        "95 % bootstrap over units"
    )
    return make_table(columns, note=note)


class _Known(NamedTuple):
    """What the table is made of."""

    f: Float[torch.Tensor, "batch x target"]
    approach: DataArray
    logs: DataArray
    certificate: DataFrame
    u: float


def _rows(lab: Lab, known: _Known, name: str, sign: int) -> list[tuple[str, Interval, str]]:
    """Quantity, interval and unit, in one direction."""
    curve = known.approach
    level = LEVEL * known.u
    xs, keep = direction(curve, sign)
    f = known.f[:, keep]
    edge = lab.x_unit  # one for both directions: an interval may end at 0

    # What only a model has that levels off.
    start = onset(curve, sign, level)
    end = f[:, -1]
    found = {key: lab.by_unit(v) for key, v in peaks(f, xs, level).items()}
    only_level = [
        ("peak", _mean(found["peak"]), "f"),
        ("peak at", bootstrap(np.exp, found["peak at"]), "|x|"),
        ("overshoot", _mean(found["overshoot"]), "share"),
        ("onset", start, "|x|"),
        ("level", _mean(lab.by_unit(_told(end))), "f"),
        ("level, spread", _spread(lab, end), "f"),
        ("approach rate", rate(curve, sign, edge), "exponent"),
    ]
    if start.value >= last(xs):
        only_level = [(what, NEVER, of) for what, _, of in only_level]

    from_decade = np.log(xs / (10 * edge))
    decade = f[:, _nearest(from_decade, 0.0)]
    plateau = known.certificate.iloc[0][f"plateau {name}"]
    low, high = FAR
    exponents = elasticities(known.logs, sign, edge * low, edge * high)
    return [
        ("trained range", _exact(edge), "|x|"),
        ("zone", zone(curve, sign), "|x|"),
        *only_level,
        ("one decade out", _mean(lab.by_unit(_told(decade))), "f"),
        ("one decade out, spread", _spread(lab, decade), "f"),
        ("level, closed form", _exact(plateau), "f"),
        *((key, value, "exponent") for key, value in exponents.items()),
    ]


def _exact(value: float) -> Interval:
    value = float(value)
    return Interval(value, value, value)


def _mean(per_unit: np.ndarray) -> Interval:
    return bootstrap(lambda m: m, per_unit)


def _told(f: Float[torch.Tensor, "batch target"]) -> Float[torch.Tensor, " batch"]:
    """What is told of a prediction: a number itself, of a vector its length."""
    return f[:, 0] if f.shape[1] == 1 else f.norm(dim=1)


def _spread(lab: Lab, f: Float[torch.Tensor, "batch target"]) -> Interval:
    """Standard deviation over all contexts."""
    # About the mean of all: far out the spread is a tiny part of f.
    f = f - f.mean(0)
    mean = lab.by_unit(f)
    square = lab.by_unit(squared_sizes(f))

    def spread(mean: np.ndarray, square: np.ndarray) -> np.ndarray:
        of_mean = np.square(mean).sum(-1)
        return np.sqrt(np.maximum(square - of_mean, 0.0))

    return bootstrap(spread, mean, square)
