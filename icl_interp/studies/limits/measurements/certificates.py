"""What the weights of a model with norms say about far queries: bounds, plateaus, onsets."""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float
from pandas import DataFrame
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.models.layers import Norm
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.record import Activations
from icl_interp.probes.residual import depths
from icl_interp.probes.sweep import Sweep, Swept
from icl_interp.prompts import squared_sizes
from icl_interp.resampling import LEVEL, Interval, draw_weights
from icl_interp.results import make_array, make_table
from icl_interp.theory import limits as theory

OUTWEIGHS = 20.0  # how many times x outweighs the rest under a norm's root where f counts as level
ONSET_SIZES = 10.0 ** np.arange(0, 12.01, 2)  # in units of x: where post-norm inputs are looked at
SLOW = 0.25  # growth exponent of a norm's input up to which it counts as standing still


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

    "onset" is the |x| from which a norm divides the query out, with its interval over units: of
    pre-norm models `predicted_onset`, of post-norm ones `norms_begin`. NaN where a formula does not
    apply: no final norm, a read-in that centring removes or `embed_bound` bounds. The plateaus are
    those along the first coordinate. Of vectors only the onset is told: each coordinate has an
    interval (`certified`) and plateaus of its own.
    """
    c = r = above = below = float("nan")
    onset = NO_ONSET
    is_bounded = has_certificate(lab)
    levels_off = is_bounded and has_plateaus(lab)
    if lab.task.n_targets == 1:
        c, r = (float(one[0]) for one in certified(lab))
        if levels_off:
            [read_out] = _read_outs(lab)
            ends = theory.plateau(_read_in(lab)[0], *read_out)
            above, below = map(float, ends)
    if levels_off:
        onset = predicted_onset(lab, swept["near"])
    elif is_bounded and levels_off_after_norms(lab):
        onset = norms_begin(lab, swept["near"], swept["far"])
    # A table of one row.
    found = {"c": [c], "r": [r], "plateau +": [above], "plateau -": [below]}
    found["onset"] = [onset.value]
    found["onset low"] = [onset.low]
    found["onset high"] = [onset.high]
    return make_table(found)


NO_ONSET = Interval(float("nan"), float("nan"), float("nan"))


def has_certificate(lab: Lab) -> bool:
    """Whether the last norm bounds each output in an interval that weights tell."""
    if not lab.norms:
        return False
    cfg = lab.model.cfg
    return cfg.normalization_type in ("LN", "LNPre") and cfg.output_is_normed


def certified(lab: Lab) -> tuple[Float[torch.Tensor, " target"], Float[torch.Tensor, " target"]]:
    """c and r: each coordinate of an output lies in [c - r, c + r].

    Both are NaN for a model without a certificate.
    """
    if not has_certificate(lab):
        nothing = torch.full((lab.task.n_targets,), torch.nan, dtype=torch.float64)
        return nothing, nothing
    ends = [theory.output_certificate(*read_out) for read_out in _read_outs(lab)]
    c, r = torch.tensor(ends, dtype=torch.float64).T
    return c, r


def levels_off_after_norms(lab: Lab) -> bool:
    """Whether norms stand in a model's stream and it reads x in without a bound: `norms_begin`."""
    cfg = lab.model.cfg
    return not cfg.stream_is_a_sum and cfg.embed_bound is None


def has_plateaus(lab: Lab) -> bool:
    """Whether the plateaus of a model follow from its weights.

    They do if it is pre-norm with a final norm, and centring leaves the read-in of x.
    """
    cfg = lab.model.cfg
    read_in = _read_in(lab)[0]
    grows = cfg.norm_position == "pre" and cfg.has_final_norm and cfg.embed_bound is None
    return grows and _centred_size(read_in) > 1e-9 * float(read_in.norm())


ReadOut = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def _read_outs(lab: Lab) -> list[ReadOut]:
    """Of each coordinate: read-out weights, gain and bias of the last norm, the read-out's bias."""
    model = lab.model
    last = _last_norm(model)
    width = model.cfg.d_model
    gain = torch.ones(width).double()
    bias = torch.zeros(width).double()
    if last is not None and last.w is not None:
        gain = last.w
    if last is not None and last.b is not None:
        bias = last.b
    unembed = model.unembed
    parts = (unembed.W_U.T, unembed.b_U)
    return [(w.cpu(), gain.cpu(), bias.cpu(), b.cpu()) for w, b in zip(*parts, strict=True)]


def _read_in(lab: Lab) -> Float[torch.Tensor, "dim d_model"]:
    """What each coordinate of the query's x is read in as, whatever else its token holds."""
    one = lab.prompts[:1]
    dim = lab.task.dim
    units = torch.eye(dim, dtype=torch.float64)[None]
    encode = lab.encoding.queries_after
    tokens = encode(one, units) - encode(one, torch.zeros_like(units))
    return tokens[0] @ lab.model.embed.W_E.cpu()


def _read_ins(lab: Lab) -> Float[torch.Tensor, "unit d_model"]:
    """What the unit vector along each unit's ray is read in as."""
    return lab.rays @ _read_in(lab)


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
        f = swept.f[:, -2:]
        read_outs = _read_outs(lab)
        by_unit = []
        for read_in in _read_ins(lab):
            above_below = [theory.plateau(read_in, *read_out) for read_out in read_outs]
            by_unit.append(torch.tensor(above_below).T.flip(0))  # (direction, target)
        ends = torch.stack(by_unit)
        distance = f - ends.repeat_interleave(lab.unit_size, 0)
        values = lab.by_unit(squared_sizes(distance))
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
    read_in = _read_in(lab)
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


def _last_norm(model: HookedTransformer) -> Norm | None:
    return list(model.norms.values())[-1] if model.norms else None


def _centred_size(vector: torch.Tensor) -> float:
    centred = vector - vector.mean()
    return float(centred.norm())
