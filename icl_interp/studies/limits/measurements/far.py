"""Measurements far out on the query axis: f as x grows, intact and with edits of the norms."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.interventions.norms import InsertNorm
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.norms import LayerNormScale
from icl_interp.probes.sweep import Sweep, Swept, places, run
from icl_interp.prompts import Prompts, squared_sizes
from icl_interp.results import make_array, make_curve


def _powers_of_ten(exponents: Iterable[int]) -> np.ndarray:
    """Of these exponents, first the negative ones."""
    sizes = np.array([10.0**k for k in exponents])
    return np.concatenate([-sizes, sizes])


# All in units of `Lab.x_unit`.
DECADES = _powers_of_ten(range(-1, 7))  # the control's: one a decade
GROWTH = _powers_of_ten((3, 4, 5, 6))  # growth exponents: of changes between these
LINE = np.array([1e4, 1e5, 1e6])
GROWN = ("mean", "mean square", "squared error", "squared increment")
N_SHOWN = 32  # contexts drawn in the figure of f(x)


def power(x: float) -> str:
    """A size in two digits, large ones as powers of ten.

    >>> power(1e4), power(25_000.0), power(5.0)
    ('1e4', '2.5e4', '5')
    """
    return f"{x:.2g}".replace("e+0", "e").replace("e+", "e")


def _moments(lab: Lab, f: Float[torch.Tensor, "batch x target"]) -> np.ndarray:
    """Mean and mean square over the prompts of each unit: (statistic, unit, x)."""
    return np.stack([lab.by_unit(f[..., 0]), lab.by_unit(squared_sizes(f))])


def _over_contexts(
    lab: Lab, f: Float[torch.Tensor, "batch x target"], xs: np.ndarray, note: str = ""
) -> DataArray:
    """Mean, mean square and variance over the prompts of each unit.

    Of vectors these are the mean of the first coordinate, the mean squared length, and the summed
    variances.
    """
    # The difference of the first two would lose the variance to rounding: far out f is large or its
    # spread tiny.
    by_unit = f.view(lab.n_units, -1, *f.shape[1:])
    variance = by_unit.var(1, unbiased=False).sum(-1).numpy()
    moments = _moments(lab, f)
    values = np.concatenate([moments, variance[None]])
    units = tuple(range(lab.n_units))
    axes = {"statistic": ("mean", "mean square", "variance"), "unit": units, "x": tuple(xs)}
    return make_curve(values, axes, note=note)


@measurement("far/intact", asks=lambda lab: lab.on_grid)
def intact(lab: Lab, swept: Swept) -> DataArray:
    """f over the query, both directions: mean, mean square and variance over prompts of a unit."""
    note = f"{lab.unit_size} prompts of each unit; query arm; float64"
    return _over_contexts(lab, swept.f, lab.grid, note)


@measurement("far/decades", asks=lambda lab: lab.ask(lab.x_unit * DECADES))
def decades(lab: Lab, swept: Swept) -> DataArray:
    """`far/intact` at one point a decade, for controls."""
    return _over_contexts(lab, swept.f, lab.x_unit * DECADES, "query arm; float64")


@measurement("far/contexts", asks=lambda lab: lab.on_grid)
def contexts(lab: Lab, swept: Swept) -> DataArray:
    """f over the query for single contexts of the first units: what the figure draws.

    Of vectors it is their first coordinate.
    """
    n = min(N_SHOWN, lab.n_units)
    rows = torch.arange(n) * lab.unit_size
    truth = lab.truth(lab.grid)
    values = torch.stack([swept.f[rows, :, 0], truth[rows, :, 0]])
    contexts = tuple(range(n))
    axes = {"curve": ("model", "truth"), "context": contexts, "x": tuple(lab.grid)}
    return make_curve(values.numpy(), axes)


@measurement("far/in distribution", asks=lambda lab: lab.ask(lab.inner))
def in_distribution(lab: Lab, swept: Swept) -> DataArray:
    """f in distribution, at two fixed queries a quarter from each end of the inputs' interval.

    The query is the same for all prompts, so that the spread over contexts can be compared with
    that far out.
    """
    return _over_contexts(lab, swept.f, np.array(lab.inner))


def increments(
    f: Float[torch.Tensor, "batch x *target"], xs: np.ndarray
) -> Float[torch.Tensor, "batch x *target"]:
    """f(10 x) - f(x) at every x of a grid; NaN where 10 x is not on it.

    A constant that is added to f leaves them as they are.

    >>> increments(torch.tensor([[1.0, 31.0, 301.0]]), np.array([1.0, 10.0, 100.0]))
    tensor([[ 30., 270.,  nan]])
    """
    ratio = xs / xs[:, None]
    is_decade = np.isclose(ratio, 10.0)
    at, ahead = np.nonzero(is_decade)
    found = torch.full_like(f, torch.nan)
    found[:, at] = f[:, ahead] - f[:, at]
    return found


def _growth(
    lab: Lab, prompts: Prompts, f: Float[torch.Tensor, "batch x target"]
) -> Float[np.ndarray, "statistic unit x"]:
    """The `GROWN` statistics of f on the grid of growth; the mean is that of `_moments`."""
    xs = lab.x_unit * GROWTH
    error = f - lab.truth(xs, prompts)
    step = increments(f, xs)
    values = (f[..., 0], *map(squared_sizes, (f, error, step)))
    return np.stack([lab.by_unit(v) for v in values])


def _norm_arms(lab: Lab) -> dict[str, Sweep]:
    """The arms of `far/norm arms`."""
    xs = lab.x_unit * GROWTH
    few = lab.few
    arms = {"intact": lab.ask(xs)}
    if lab.model.norms:
        at_query = lab.frozen.at_query()
        arms["frozen"] = lab.ask(xs, query=[at_query])
        # The control intervention reads every context anew and there are many norms: few contexts,
        # and an exponent needs no more.
        arms["sham"] = lab.ask(xs, prompts=few, context=[lab.frozen])
        for name in lab.model.norms:
            alone = at_query.only(name)
            arms[name] = lab.ask(xs, prompts=few, query=[alone])
    return arms


@measurement("far/norm arms", version=2, asks=_norm_arms)
def norm_arms(lab: Lab, arms: Mapping[str, Swept]) -> DataArray:
    """f far out, intact and with norm scales frozen at in-distribution values.

    Arms: intact; every norm frozen at the query only; the control intervention, every norm frozen
    at the context positions only; each norm alone, at the query. The last two on one context of
    each function. Beside them the mean of the law of functions as a predictor. Statistics are means
    over the prompts of a unit; "squared increment" is that of f(10 x) - f(x).
    """
    xs = lab.x_unit * GROWTH
    prompts = lab.prompts
    values = []
    for arm in arms.values():
        values.append(_growth(lab, arm.prompts, arm.f))
    guess = law_mean(lab, xs).expand(len(prompts), -1, -1)
    values.append(_growth(lab, prompts, guess))
    names = (*arms, "law mean")
    units = tuple(range(lab.n_units))
    axes = {"arm": names, "statistic": GROWN, "unit": units, "x": tuple(xs)}
    note = "norms frozen at their mean scale on in-distribution prompts, at the query position"
    return make_curve(values, axes, note=note)


def law_mean(lab: Lab, xs: np.ndarray) -> Float[torch.Tensor, "1 x target"]:
    """The mean of the law of functions at some queries: the best guess without any example."""
    queries = places(xs, lab.task.dim)
    return lab.task.expected(queries[None])


@measurement("far/counterpart", version=2)
def matched(lab: Lab) -> DataArray:
    """`far/norm arms` of the model trained without normalisation, on one context per function.

    Empty where there is no such model.
    """
    other = lab.matched
    xs = lab.x_unit * GROWTH
    values = np.zeros((len(GROWN), 0, len(xs)))
    if other:
        few = other.few
        values = _growth(other, few, other.sweep(xs, prompts=few))
    n_units = values.shape[1]
    units = tuple(range(n_units))
    return make_curve(values, {"statistic": GROWN, "unit": units, "x": tuple(xs)})


@measurement("far/sufficiency", version=2)
def sufficiency(lab: Lab) -> DataArray:
    """Squared increments of an untrained control without norms, intact and with a final LayerNorm.

    This one LayerNorm stands before the read-out.
    """
    settings = {
        **vars(lab.model.cfg),
        "normalization_type": None,
        "norm_position": "pre",
        "final_norm": None,
        "init_std": 0.2,
    }
    cfg = HookedTransformerConfig(**settings)
    bare = HookedTransformer(cfg, seed=lab.seed + 1)
    n_units = lab.n_units
    control = Lab(bare, lab.task, lab.encoding, n_units=n_units, n_contexts=1, seed=lab.seed)
    xs = lab.x_unit * GROWTH
    last = cfg.n_layers - 1
    insert = InsertNorm(f"blocks.{last}.hook_resid_post", lab.model.cfg.eps)
    asked = [control.ask(xs), control.ask(xs, query=[insert])]
    # All in float64: without norms numbers outgrow float32 while the context is read.
    found = run(control.model, control.encoding, asked)
    values = []
    for f in found:
        step = increments(f, xs)
        values.append(control.by_unit(squared_sizes(step)))
    units = tuple(range(n_units))
    axes = {"arm": ("intact", "norm inserted"), "unit": units, "x": tuple(xs)}
    return make_curve(values, axes)


def _costs(lab: Lab) -> dict[str, Sweep]:
    """The arms of `far/cost`."""
    frozen = [lab.frozen.at_query()] if lab.model.norms else []
    return {"intact": lab.ask(), "frozen": lab.ask(query=frozen)}


@measurement("far/cost", version=2, asks=_costs)
def cost(lab: Lab, arms: Mapping[str, Swept]) -> DataArray:
    """In-distribution error of each unit at the query, intact and with every norm frozen.

    Beside the two stands that of the mean of the law of functions.
    """
    prompts = lab.prompts
    truth = prompts.ys[:, -1]
    guesses = [arm.f[:, 0] for arm in arms.values()]
    law_mean = lab.task.expected(prompts.xs[:, -1:])
    guesses.append(law_mean[:, 0])
    values = []
    for f in guesses:
        missed = (f - truth).square()
        values.append(lab.by_unit(missed.mean(-1)))
    names = (*arms, "law mean")
    units = tuple(range(lab.n_units))
    return make_array(values, {"arm": names, "unit": units})


def _scales_far_out(lab: Lab) -> Sweep | None:
    """The scales of all norms as the query grows; nothing where the model's norms have none."""
    probe = LayerNormScale(per_prompt=True)
    if lab.outside or probe.refusal(lab.model):
        return None
    xs = lab.x_unit * np.sort(DECADES)
    return lab.ask(xs, probes=[probe])


@measurement("far/norm scales", asks=_scales_far_out)
def norm_scales(lab: Lab, swept: Swept | None) -> DataArray:
    """Every norm's scale at the query as the query grows: mean of its logarithm over contexts."""
    xs = lab.x_unit * np.sort(DECADES)
    values = np.zeros((0, len(xs)))
    if swept:
        found = swept.probe(LayerNormScale).results()
        scales = torch.from_numpy(found["scale"].values)
        # By torch, which takes the logarithm of a scale of 0 without a warning.
        values = scales.log().mean(-1).numpy()
    return make_curve(values, {"norm": lab.norms, "x": tuple(xs)}, units="log")


def _both_ends(lab: Lab) -> list[Sweep]:
    """Both directions of `LINE`."""
    xs = lab.x_unit * LINE
    return [lab.ask(xs), lab.ask(-xs)]


@measurement("far/ends", asks=_both_ends)
def ends(lab: Lab, both: Sequence[Swept]) -> DataArray:
    """f at 1e4, 1e5, 1e6 units in each direction, for every context (`each_context`)."""
    return each_context(lab, both, LINE)


def each_context(lab: Lab, both: Sequence[Swept], sizes: np.ndarray) -> DataArray:
    """f of every context in both directions: (direction, x, unit, context).

    Vectors have an axis more, "target".

    Args:
        lab: which ran them.
        both: one sweep for each direction.
        sizes: of the queries, in units of x.
    """
    xs = lab.x_unit * sizes
    values = []
    for one in both:
        by_x = one.f.movedim(1, 0)
        by_unit = by_x.unflatten(1, (lab.n_units, -1))
        values.append(by_unit.numpy())
    units = tuple(range(lab.n_units))
    contexts = tuple(range(values[0].shape[2]))
    axes = {"direction": ("+", "-"), "x": tuple(xs), "unit": units, "context": contexts}
    n_targets = lab.task.n_targets
    if n_targets == 1:
        values = [one[..., 0] for one in values]
    else:
        axes["target"] = tuple(range(n_targets))
    return make_array(values, axes, note="query arm; x is the magnitude; float64")


def squares_of(steps: DataArray) -> np.ndarray:
    """Squares of numbers by context, or squared lengths of vectors (`each_context`)."""
    squares = steps**2
    if "target" in squares.dims:
        squares = squares.sum("target")
    return squares.values


def n_contexts(ends: DataArray) -> int:
    """How many contexts `each_context` holds."""
    return ends.sizes["unit"] * ends.sizes["context"]
