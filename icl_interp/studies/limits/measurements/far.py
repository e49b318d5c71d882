"""Measurements far out on the query axis: f as x grows, intact and with edits of the norms."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from pandas import DataFrame
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.interventions.norms import InsertNorm
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.layers import Norm
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.norms import LayerNormScale
from icl_interp.probes.record import Activations
from icl_interp.probes.residual import depths
from icl_interp.probes.sweep import Sweep, Swept, places, run
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.resampling import LEVEL, Interval, draw_weights
from icl_interp.results import make_array, make_curve, make_table
from icl_interp.theory import limits as theory


def _powers_of_ten(exponents: Iterable[int]) -> np.ndarray:
    """Of these exponents, first the negative ones."""
    sizes = np.array([10.0**k for k in exponents])
    return np.concatenate([-sizes, sizes])


# All in units of `Lab.x_unit`.
DECADES = _powers_of_ten(range(-1, 7))  # the control's: one a decade
GROWTH = _powers_of_ten((3, 4, 5, 6))  # growth exponents: of changes between these
LINE = np.array([1e4, 1e5, 1e6])
GROWN = ("mean", "mean square", "squared error", "squared increment")
CONSTANT = 1e-9  # half-width r of the certificate up to which the output is a constant
N_SHOWN = 32  # contexts drawn in the figure of f(x)
OUTWEIGHS = 20.0  # how many times x outweighs the rest under a norm's root where f counts as level
ONSET_SIZES = 10.0 ** np.arange(0, 12.01, 2)  # in units of x: where post-norm inputs are looked at
SLOW = 0.25  # growth exponent of a norm's input up to which it counts as standing still


def power(x: float) -> str:
    """A size in two digits, large ones as powers of ten.

    >>> power(1e4), power(25_000.0), power(5.0)
    ('1e4', '2.5e4', '5')
    """
    return f"{x:.2g}".replace("e+0", "e").replace("e+", "e")


def _moments(lab: Lab, f: torch.Tensor) -> np.ndarray:
    """Mean and mean square over the prompts of each unit: (statistic, unit, x)."""
    return np.stack([lab.by_unit(f), lab.by_unit(f.square())])


def _over_contexts(lab: Lab, f: torch.Tensor, xs: np.ndarray, note: str = "") -> DataArray:
    """Mean, mean square and variance over the prompts of each unit."""
    # The difference of the first two would lose the variance to rounding: far out f is large or its
    # spread tiny.
    by_unit = f.view(lab.n_units, -1, f.shape[1])
    variance = by_unit.var(1, unbiased=False).numpy()
    moments = _moments(lab, f)
    values = np.concatenate([moments, variance[None]])
    units = tuple(range(lab.n_units))
    axes = {"statistic": ("mean", "mean square", "variance"), "unit": units, "x": tuple(xs)}
    return make_curve(values, axes, note=note)


@measurement("far/intact", asks=lambda lab: lab.on_grid)
def intact(lab: Lab, swept: Swept) -> DataArray:
    """f over the query, both directions: mean, mean square and variance over prompts of a unit."""
    f = as_numbers(swept.f)
    note = f"{lab.unit_size} prompts of each unit; query arm; float64"
    return _over_contexts(lab, f, lab.grid, note)


@measurement("far/decades", asks=lambda lab: lab.ask(lab.x_unit * DECADES))
def decades(lab: Lab, swept: Swept) -> DataArray:
    """`far/intact` at one point a decade, for controls."""
    f = as_numbers(swept.f)
    return _over_contexts(lab, f, lab.x_unit * DECADES, "query arm; float64")


@measurement("far/contexts", asks=lambda lab: lab.on_grid)
def contexts(lab: Lab, swept: Swept) -> DataArray:
    """f over the query for single contexts of the first units: what the figure draws."""
    n = min(N_SHOWN, lab.n_units)
    rows = torch.arange(n) * lab.unit_size
    f = as_numbers(swept.f)
    truth = as_numbers(lab.truth(lab.grid))
    values = torch.stack([f[rows], truth[rows]])
    contexts = tuple(range(n))
    axes = {"curve": ("model", "truth"), "context": contexts, "x": tuple(lab.grid)}
    return make_curve(values.numpy(), axes)


@measurement("far/in distribution", asks=lambda lab: lab.ask(lab.inner))
def in_distribution(lab: Lab, swept: Swept) -> DataArray:
    """f in distribution, at two fixed queries a quarter from each end of the inputs' interval.

    The query is the same for all prompts, so that the spread over contexts can be compared with
    that far out.
    """
    f = as_numbers(swept.f)
    return _over_contexts(lab, f, np.array(lab.inner))


def increments(f: Float[torch.Tensor, "batch x"], xs: np.ndarray) -> Float[torch.Tensor, "batch x"]:
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


def _growth(lab: Lab, prompts: Prompts, f: torch.Tensor) -> np.ndarray:
    """The `GROWN` statistics of f on the grid of growth, (statistic, unit, x)."""
    xs = lab.x_unit * GROWTH
    truth = as_numbers(lab.truth(xs, prompts))
    error = f - truth
    step = increments(f, xs)
    values = (f, f.square(), error.square(), step.square())
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
        f = as_numbers(arm.f)
        values.append(_growth(lab, arm.prompts, f))
    guess = law_mean(lab, xs).expand(len(prompts), -1)
    values.append(_growth(lab, prompts, guess))
    names = (*arms, "law mean")
    units = tuple(range(lab.n_units))
    axes = {"arm": names, "statistic": GROWN, "unit": units, "x": tuple(xs)}
    note = "norms frozen at their mean scale on in-distribution prompts, at the query position"
    return make_curve(values, axes, note=note)


def law_mean(lab: Lab, xs: np.ndarray) -> Float[torch.Tensor, "1 x"]:
    """The mean of the law of functions at some queries: the best guess without any example."""
    queries = places(xs, lab.task.dim)
    expected = lab.task.expected(queries[None])
    return as_numbers(expected)


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
        f = as_numbers(other.sweep(xs, prompts=few))
        values = _growth(other, few, f)
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
        step = increments(as_numbers(f), xs)
        values.append(control.by_unit(step.square()))
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


def _about_onset(lab: Lab) -> dict[str, Sweep]:
    """What the onset of a model with a certificate rests on; nothing where no formula applies."""
    if not has_certificate(lab):
        return {}
    if has_plateaus(lab):
        before_norm = depths(lab.model)[-1:]
        return {"near": lab.ask(probes=[Activations(before_norm)])}
    return _inputs_of_norms(lab) if levels_off_after_norms(lab) else {}


@measurement("far/certificate", version=2, asks=_about_onset)
def certificate(lab: Lab, swept: Mapping[str, Swept]) -> DataFrame:
    """What weights alone say: outputs lie in [c - r, c + r]; plateaus and onset of pre-norm models.

    "onset" is the |x| from which a norm divides the
    query out, with its interval over units: of pre-norm models `predicted_onset`, of post-norm ones
    `norms_begin`. NaN where a formula does not apply: no final norm, a read-in that centring
    removes or `embed_bound` bounds. The plateaus are those along the first coordinate.
    """
    above = float("nan")
    below = float("nan")
    onset = NO_ONSET
    c, r = certified(lab)
    if has_certificate(lab) and has_plateaus(lab):
        model = lab.model
        ends = theory.plateau(model.embed.W_E[0], *_read_out(model))
        above, below = map(float, ends)
        onset = predicted_onset(lab, swept["near"])
    elif has_certificate(lab) and levels_off_after_norms(lab):
        onset = norms_begin(lab, swept["near"], swept["far"])
    # A table of one row.
    found = {"c": [c], "r": [r], "plateau +": [above], "plateau -": [below]}
    found["onset"] = [onset.value]
    found["onset low"] = [onset.low]
    found["onset high"] = [onset.high]
    return make_table(found)


NO_ONSET = Interval(float("nan"), float("nan"), float("nan"))


def has_certificate(lab: Lab) -> bool:
    """Whether the last norm bounds the output, a number, in an interval that weights tell."""
    if not lab.norms:
        return False
    cfg = lab.model.cfg
    centres = cfg.normalization_type in ("LN", "LNPre") and cfg.output_is_normed
    return centres and cfg.d_out == 1


def certified(lab: Lab) -> tuple[float, float]:
    """c and r: outputs lie in [c - r, c + r]; both NaN for a model without a certificate."""
    if not has_certificate(lab):
        return float("nan"), float("nan")
    c, r = theory.output_certificate(*_read_out(lab.model))
    return float(c), float(r)


def levels_off_after_norms(lab: Lab) -> bool:
    """Whether norms stand in a model's stream and it reads x in without a bound: `norms_begin`."""
    cfg = lab.model.cfg
    return not cfg.stream_is_a_sum and cfg.embed_bound is None


def has_plateaus(lab: Lab) -> bool:
    """Whether the plateaus of a model follow from its weights.

    They do if it is pre-norm with a final norm, and centring leaves the read-in of x.
    """
    cfg = lab.model.cfg
    read_in = lab.model.embed.W_E[0]
    grows = cfg.norm_position == "pre" and cfg.has_final_norm and cfg.embed_bound is None
    return grows and _centred_size(read_in) > 1e-9 * float(read_in.norm())


def _read_out(
    model: HookedTransformer,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Read-out weights, gain and bias of the last norm, and the read-out's bias."""
    last = _last_norm(model)
    width = model.cfg.d_model
    gain = torch.ones(width).double()
    bias = torch.zeros(width).double()
    if last is not None and last.w is not None:
        gain = last.w
    if last is not None and last.b is not None:
        bias = last.b
    unembed = model.unembed
    return unembed.W_U[:, 0], gain, bias, unembed.b_U[0]


def _read_ins(lab: Lab) -> Float[torch.Tensor, "unit d_model"]:
    """What the unit vector along each unit's ray is read in as."""
    of_x = lab.model.embed.W_E[: lab.task.dim]
    return lab.rays @ of_x.cpu()


def _at_ends(lab: Lab) -> Sweep | None:
    """The drawn queries, which end at 1e6 units, where the weights predict plateaus."""
    predicted = bool(lab.norms) and has_plateaus(lab)
    return lab.ask_at(lab.drawn_queries) if predicted else None


@measurement("far/plateaus", asks=_at_ends)
def plateaus(lab: Lab, swept: Swept | None) -> DataArray:
    """Squared distance of f at 1e6 units from the plateau that weights predict on each unit's ray.

    The axes are (unit, direction): means over the prompts of a unit; empty where the weights
    predict none.
    """
    values = np.zeros((0, 2))
    if swept:
        f = as_numbers(swept.f)[:, -2:]
        read_out = [part.cpu() for part in _read_out(lab.model)]
        by_unit = []
        for read_in in _read_ins(lab):
            above, below = theory.plateau(read_in, *read_out)
            by_unit.append((below, above))
        ends = torch.tensor(by_unit)
        distance = f - ends.repeat_interleave(lab.unit_size, 0)
        values = lab.by_unit(distance.square())
    units = tuple(range(len(values)))
    axes = {"unit": units, "direction": ("-", "+")}
    return make_array(values, axes, note="query arm; directions of drawn inputs; float64")


def predicted_onset(lab: Lab, near: Swept) -> Interval:
    """|x| beyond which the read-in outweighs the rest under the final norm's root twenty times.

    The rest is eps and, measured in distribution, the final norm's input without what x is read in
    as: what 95 % of prompts have at most. The read-in is the least along any direction that is
    asked about. `near` has each prompt's own query, with the stream before the final norm
    (`Activations`).
    """
    (stream,) = near.probe(Activations).recorded.values()
    cfg = lab.model.cfg
    read_in = lab.model.embed.W_E[: lab.task.dim].cpu()
    queries = lab.prompts.xs[:, -1]
    rest = stream[:, 0] - queries @ read_in
    centred = rest - rest.mean(-1, keepdim=True)
    squares = centred.square().sum(-1)
    read_ins = (read_in[0], *_read_ins(lab))
    least = min(_centred_size(row) for row in read_ins)
    eps = cfg.d_model * cfg.eps

    def at(square: np.ndarray) -> np.ndarray:
        return OUTWEIGHS * np.sqrt(square + eps) / least

    most = float(squares.quantile(0.95))
    draws = _quantiles(squares.numpy(), 0.95, lab.n_units)
    value = float(at(np.array(most)))
    return _around(value, at(draws))


def _inputs_of_norms(lab: Lab) -> dict[str, Sweep]:
    """The inputs of the norms in a model's stream, near and far."""
    prompts = lab.one_each
    sizes = lab.x_unit * ONSET_SIZES
    signed = np.concatenate([sizes, -sizes])
    by_unit = np.tile(signed, (lab.n_units, 1))
    queries = lab.drawn(prompts, by_unit)
    hooks = []
    for name in _in_stream(lab.model):
        hooks += [f"{name}.hook_scale", f"{name}.hook_normalized"]
    near = Activations(hooks, keep=_mean_square)
    out = Activations(hooks, keep=_mean_square)
    return {
        "near": lab.ask(prompts=prompts, probes=[near]),
        "far": lab.ask_at(queries, prompts, probes=[out]),
    }


def norms_begin(lab: Lab, near: Swept, far: Swept) -> Interval:
    """|x| from which the first norm in a model's stream divides the query out.

    There the variance of its input outweighs eps and its own in-distribution value under the root
    twenty times, as in `predicted_onset`: this value of 95 % of prompts, that far out of 5 %. It is
    looked for up to 1e12 units; infinite where a norm's input grows but is not there yet, NaN where
    none grows. `near` and `far` are those of `_inputs_of_norms`.
    """
    sizes = lab.x_unit * ONSET_SIZES
    n_units = lab.n_units
    eps = lab.model.cfg.eps
    each = []
    for name in _in_stream(lab.model):
        inside = _variance(near, name)
        far_out = _variance(far, name)
        of_most = _quantiles(inside[:, 0], 0.95, n_units)
        asked = OUTWEIGHS**2 * (of_most + eps)
        reached = [_quantiles(column, 0.05, n_units) for column in far_out.T]
        # Each size stands twice, for the two directions: the smaller variance counts.
        above, below = np.split(np.stack(reached, -1), 2, axis=-1)
        least = np.minimum(above, below)
        each.append(_begins(sizes, least, asked))
    known = np.where(np.isnan(each), np.inf, each).min(0)
    found = np.where(np.isnan(each).all(0), np.nan, known)
    return _around(float(found[0]), found)


def _variance(swept: Swept, norm: str) -> np.ndarray:
    """The variance of a norm's input: (prompt, query).

    The normalised input squared is variance / scale^2, which says more than scale^2 - eps where eps
    is large.
    """
    recorded = swept.probe(Activations).recorded
    scale = recorded[f"{norm}.hook_scale"]
    normalized = recorded[f"{norm}.hook_normalized"]
    variance = scale * normalized
    return variance.flatten(1).numpy()


def _in_stream(model: HookedTransformer) -> list[str]:
    """The norms that the stream itself passes; one before attention is none of them."""
    both = model.cfg.norm_position == "both"
    return [name for name in model.norms if not (both and name.endswith(".ln1"))]


def _mean_square(t: torch.Tensor) -> torch.Tensor:
    return t.square().mean(-1)


def _begins(sizes: np.ndarray, variance: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """The size from which a variance stays above what is asked, for each row.

    Between sizes the variance is taken to lie on lines in logarithms. Beyond the last size it is
    infinite where the variance grows, NaN where it does not.

    Args:
        sizes: ascending, `(size,)`.
        variance: `(row, size)`.
        asked: `(row,)`.
    """
    tiny = np.finfo(float).tiny
    log_variance = np.log(np.maximum(variance, tiny))
    log_asked = np.log(np.maximum(asked, tiny))
    excess = log_variance - log_asked[:, None]
    below = excess < 0
    end = len(sizes) - 1

    # Between the last size at which the variance is too small and the next one.
    last = end - np.argmax(below[:, ::-1], -1)
    after = np.minimum(last + 1, end)
    rows = np.arange(len(excess))
    at_last = excess[rows, last]
    rise = excess[rows, after] - at_last
    is_rise = rise > 0
    share = np.where(is_rise, -at_last / np.where(is_rise, rise, 1.0), 0.0)
    logs = np.log(sizes)
    width = logs[after] - logs[last]
    found = np.exp(logs[last] + share * width)

    # Beyond the last size, and before the first.
    last_rise = excess[:, -1] - excess[:, -2]
    grows = last_rise > 2 * SLOW * (logs[-1] - logs[-2])
    beyond = np.where(grows, np.inf, np.nan)
    found = np.where(last == end, beyond, found)
    return np.where(below.any(-1), found, sizes[0])


def _quantiles(per_prompt: np.ndarray, q: float, n_units: int) -> np.ndarray:
    """A quantile over prompts, of the sample (first) and of every bootstrap draw of whole units."""
    size = len(per_prompt) // n_units
    alike = np.full((1, n_units), 1 / n_units)
    weights = np.concatenate([alike, draw_weights(n_units)])
    order = np.argsort(per_prompt)
    unit = order // size
    reached = weights[:, unit].cumsum(1) / size
    first = np.argmax(reached > q - 1e-9, 1)
    ascending = per_prompt[order]
    return np.asarray(ascending[first])


def _around(value: float, rows: np.ndarray) -> Interval:
    """A value with the percentiles of its draws (all rows but the first).

    A quantile has no standard error to use.
    """
    if np.isnan(value):
        return NO_ONSET
    ends = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    draws = rows[1:]
    draws = np.where(np.isnan(draws), np.inf, draws)
    low, high = np.quantile(draws, ends, method="nearest")
    return Interval(value, min(float(low), value), max(float(high), value))


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
    """f at 1e4, 1e5, 1e6 units in each direction, for every context."""
    xs = lab.x_unit * LINE
    n_units = lab.n_units
    values = []
    for one in both:
        by_unit = as_numbers(one.f).T.reshape(3, n_units, -1)
        values.append(by_unit.numpy())
    units = tuple(range(n_units))
    contexts = tuple(range(lab.unit_size))
    axes = {"direction": ("+", "-"), "x": tuple(xs), "unit": units, "context": contexts}
    return make_array(values, axes, note="query arm; x is the magnitude; float64")


def _last_norm(model: HookedTransformer) -> Norm | None:
    return list(model.norms.values())[-1] if model.norms else None


def _centred_size(vector: torch.Tensor) -> float:
    centred = vector - vector.mean()
    return float(centred.norm())
