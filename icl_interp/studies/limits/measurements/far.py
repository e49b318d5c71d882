"""Measurements far out on the query axis: what f does as x grows, intact and under interventions on the norms."""

from collections.abc import Sequence

import numpy as np
import torch
from pandas import DataFrame
from xarray import DataArray

from icl_interp.analyses.lab import Lab, few_contexts, is_large
from icl_interp.analyses.measurement import Planned, measurement
from icl_interp.analyses.plan import Numbers
from icl_interp.interventions.base import Intervention
from icl_interp.interventions.norms import InsertNorm
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.layers import Norm
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.norms import LayerNormScale
from icl_interp.probes.record import Activations
from icl_interp.probes.residual import depths
from icl_interp.probes.sweep import together
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.results import make_array, make_curve, make_table
from icl_interp.theory import limits as theory

# All in units of `Lab.x_unit`.
DECADES = np.array([s * 10.0**k for s in (-1, 1) for k in range(-1, 7)])  # the twin's: one a decade
GROWTH = np.array([s * 10.0**k for s in (-1, 1) for k in (3, 3.5, 4, 4.5, 5)])  # where growth exponents are fitted
Interventions = Sequence[Intervention]
LINE = np.array([1e4, 1e5, 1e6])
CONSTANT = 1e-9  # half-width r of the certificate up to which the output is a constant
N_SHOWN = 32  # contexts drawn in the figure of f(x)


def power(x: float) -> str:
    """A size in two digits, large ones as powers of ten.

    >>> power(1e4), power(25_000.0), power(5.0)
    ('1e4', '2.5e4', '5')
    """
    return f"{x:.2g}".replace("e+0", "e").replace("e+", "e")


def _moments(lab: Lab, f: torch.Tensor) -> np.ndarray:
    """Mean and mean square over the contexts of each function: (statistic, function, x)."""
    return np.stack([lab.by_function(f), lab.by_function(f.square())])


def _over_contexts(lab: Lab, f: torch.Tensor, xs: np.ndarray, note: str = "") -> DataArray:
    """Mean, mean square and variance over the contexts of each function."""
    # The difference of the first two would lose the variance to rounding: far out f is large or its spread tiny.
    variance = f.view(lab.n_functions, -1, f.shape[1]).var(1, unbiased=False).numpy()
    axes = {"statistic": ("mean", "mean square", "variance"), "function": tuple(range(lab.n_functions)), "x": tuple(xs)}
    return make_curve(np.concatenate([_moments(lab, f), variance[None]]), axes, note=note)


@measurement("far/intact")
def intact(lab: Lab) -> Planned[DataArray]:
    """f over the query, in both directions: mean, mean square and variance over the contexts of each function."""
    f = as_numbers((yield from lab.on_grid()))
    return _over_contexts(lab, f, lab.grid, f"{lab.n_contexts} contexts a function; query arm; float64")


@measurement("far/decades")
def decades(lab: Lab) -> Planned[DataArray]:
    """`far/intact` at one point a decade, for twins."""
    xs = lab.x_unit * DECADES
    f = as_numbers((yield from lab.ask(xs)))
    return _over_contexts(lab, f, xs, "query arm; float64")


@measurement("far/contexts")
def contexts(lab: Lab) -> Planned[DataArray]:
    """f over the query for single contexts, one of each of the first functions: what the figure draws."""
    n = min(N_SHOWN, lab.n_functions)
    rows = torch.arange(n) * lab.n_contexts
    f, truth = as_numbers((yield from lab.on_grid())), as_numbers(lab.truth(lab.grid))
    values = np.stack([f[rows].numpy(), truth[rows].numpy()])
    return make_curve(values, {"curve": ("model", "truth"), "context": tuple(range(n)), "x": tuple(lab.grid)})


@measurement("far/in distribution")
def in_distribution(lab: Lab) -> Planned[DataArray]:
    """f in distribution, at two fixed queries a quarter from each end of the inputs' interval.

    The query is the same for all prompts, so that the spread over contexts can be compared with that far out.
    """
    f = as_numbers((yield from lab.ask(lab.inner)))
    return _over_contexts(lab, f, np.array(lab.inner))


def _growth(lab: Lab, prompts: Prompts, f: torch.Tensor) -> np.ndarray:
    """(statistic, function, x) of f where growth exponents are fitted: mean, mean square, squared error."""
    f, truth = as_numbers(f), as_numbers(lab.truth(lab.x_unit * GROWTH, prompts))
    return np.concatenate([_moments(lab, f), lab.by_function((f - truth).square())[None]])


@measurement("far/norm arms")
def norm_arms(lab: Lab) -> Planned[DataArray]:
    """f far out, intact and with norm scales frozen at in-distribution values.

    Arms: intact; every norm frozen at the query only; the sham, every norm frozen at the context positions only; each
    norm alone, at the query. The last two on two contexts a function, one of a large model. The truth's own square
    stands beside them as the error of the zero predictor.
    """
    names = list(lab.model.norms)
    arms: dict[str, tuple[Prompts, Interventions, Interventions]] = {"intact": (lab.prompts, (), ())}
    if names:
        at_query = lab.frozen.at_query()
        # The sham reads every context anew and there are many norms: few contexts, and an exponent needs no more.
        arms |= {"frozen": (lab.prompts, (), [at_query]), "sham": (lab.few, [lab.frozen], ())}
        arms |= {name: (lab.few, (), [at_query.only(name)]) for name in names}
    xs = lab.x_unit * GROWTH
    found = yield from together(*(lab.ask(xs, prompts=p, context=c, query=q) for p, c, q in arms.values()))
    values = [_growth(lab, prompts, f) for (prompts, _, _), f in zip(arms.values(), found, strict=True)]
    square = lab.by_function(as_numbers(lab.truth(xs)).square())
    values.append(np.stack([np.zeros_like(square), square, square]))
    axes = {
        "arm": (*arms, "zero predictor"),
        "statistic": ("mean", "mean square", "squared error"),
        "function": tuple(range(lab.n_functions)),
        "x": tuple(xs),
    }
    return make_curve(
        values, axes, note="norms frozen at their mean scale on in-distribution prompts, at the query position"
    )


@measurement("far/counterpart")
def counterpart(lab: Lab) -> DataArray:
    """Far error of the model trained without normalisation, on two of the contexts; empty where there is none."""
    statistics = ("mean", "mean square", "squared error")
    other = lab.counterpart
    functions = tuple(range(lab.n_functions)) if other else ()
    xs = lab.x_unit * GROWTH
    values = np.zeros((3, 0, len(xs)))
    if other:
        values = _growth(other, other.small_sample, other.sweep(xs, prompts=other.small_sample))
    return make_curve(values, {"statistic": statistics, "function": functions, "x": tuple(xs)})


@measurement("far/sufficiency")
def sufficiency(lab: Lab) -> DataArray:
    """An untrained twin without any norm, intact and with one LayerNorm inserted before the read-out."""
    settings = {**vars(lab.model.cfg), "normalization_type": None, "norm_position": "pre", "init_std": 0.2}
    bare = HookedTransformer(HookedTransformerConfig(**settings), seed=lab.seed + 1)
    few = few_contexts(lab.model)
    twin = Lab(bare, lab.task, lab.encoding, n_functions=lab.n_functions, n_contexts=few, seed=lab.seed)
    insert = InsertNorm(f"blocks.{bare.cfg.n_layers - 1}.hook_resid_post", lab.model.cfg.eps)
    xs = lab.x_unit * GROWTH
    axes = {"arm": ("intact", "norm inserted"), "function": tuple(range(lab.n_functions)), "x": tuple(xs)}
    shown = twin.few if is_large(bare) else twin.prompts
    found = twin.run([twin.ask(xs, query=edits, prompts=shown) for edits in ([], [insert])])
    return make_curve([twin.by_function(as_numbers(f).square()) for f in found], axes)


@measurement("far/cost")
def cost(lab: Lab) -> Planned[DataArray]:
    """What freezing costs: in-distribution error of each function at the query, intact and with every norm frozen."""
    edits = {"intact": [], "frozen": [lab.frozen.at_query()] if lab.model.norms else []}
    found = yield from together(*(lab.ask(query=edit) for edit in edits.values()))
    axes = {"arm": tuple(edits), "function": tuple(range(lab.n_functions))}
    return make_array([lab.by_function((f[:, 0] - lab.prompts.ys[:, -1]).square().mean(-1)) for f in found], axes)


@measurement("far/certificate")
def certificate(lab: Lab) -> Planned[DataFrame]:
    """What the weights alone say: outputs lie in [c - r, c + r], and the plateaus of a pre-norm model.

    NaN where a formula does not apply: no final norm, a read-in that centring removes or `embed_bound` bounds, more
    than one block post-norm.
    """
    model, cfg = lab.model, lab.model.cfg
    c = r = above = below = onset = float("nan")
    last = _last_norm(model)
    if cfg.normalization_type in ("LN", "LNPre") and last is not None and cfg.d_out == 1:
        one, zero = torch.ones(cfg.d_model).double(), torch.zeros(cfg.d_model).double()
        gain = one if last.w is None else last.w
        bias = zero if last.b is None else last.b
        read_out = (model.unembed.W_U[:, 0], gain, bias, model.unembed.b_U[0])
        c, r = map(float, theory.output_certificate(*read_out))
        read_in = model.embed.W_E[0]
        grows = cfg.norm_position == "pre" and cfg.embed_bound is None
        if grows and _centred_size(read_in) > 1e-9 * float(read_in.norm()):
            above, below = map(float, theory.plateau(read_in, *read_out))
            onset = yield from predicted_onset(lab)
    return make_table({"c": [c], "r": [r], "plateau +": [above], "plateau -": [below], "onset": [onset]})


def predicted_onset(lab: Lab) -> Numbers[float]:
    """|x| beyond which the read-in outweighs the rest under the final norm's root twenty times: then f is level.

    The rest is eps and, measured in distribution, the final norm's input without x W_E.
    """
    seen = Activations(depths(lab.model)[-1:])
    yield from lab.ask(probes=[seen])
    (stream,) = seen.recorded.values()
    rest = stream[:, 0] - lab.prompts.xs[:, -1, :1] * lab.model.embed.W_E[0].cpu()
    rest = rest - rest.mean(-1, keepdim=True)
    square = rest.square().sum(-1).quantile(0.95) + lab.model.cfg.d_model * lab.model.cfg.eps
    return 20 * float(square.sqrt()) / _centred_size(lab.model.embed.W_E[0])


@measurement("far/norm scales")
def norm_scales(lab: Lab) -> Planned[DataArray]:
    """Every norm's scale at the query as the query grows: mean of its logarithm over contexts."""
    xs = lab.x_unit * np.sort(DECADES)
    probe = LayerNormScale(per_prompt=True)
    values = np.zeros((0, len(xs)))
    if not probe.refusal(lab.model):
        yield from lab.ask(xs, probes=[probe])
        # By torch, which takes the logarithm of a scale of 0 without a warning.
        values = torch.from_numpy(probe.results()["scale"].values).log().mean(-1).numpy()
    return make_curve(values, {"norm": tuple(lab.model.norms), "x": tuple(xs)}, units="log")


@measurement("far/ends")
def ends(lab: Lab) -> Planned[DataArray]:
    """f at 1e4, 1e5, 1e6 units in each direction, for every context: enough for lines and for plateaus."""
    xs = lab.x_unit * LINE
    found = yield from together(lab.ask(xs), lab.ask(-xs))
    values = [as_numbers(f).T.reshape(3, lab.n_functions, -1).numpy() for f in found]
    axes = {
        "direction": ("+", "-"),
        "x": tuple(xs),
        "function": tuple(range(lab.n_functions)),
        "context": tuple(range(lab.n_contexts)),
    }
    return make_array(values, axes, note="query arm; x is the magnitude; float64")


def _last_norm(model: HookedTransformer) -> Norm | None:
    return list(model.norms.values())[-1] if model.norms else None


def _centred_size(vector: torch.Tensor) -> float:
    return float((vector - vector.mean()).norm())
