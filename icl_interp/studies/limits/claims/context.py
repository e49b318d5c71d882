"""The claims of `limits` about the context far out: it is erased, and without a norm f becomes one line."""

import numpy as np
import torch
from xarray import DataArray

from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Planned, Results, measurement
from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.resampling import Interval, bootstrap, slope
from icl_interp.results import make_array, make_curve
from icl_interp.studies.limits.claims.layernorm import ONSET, SCOPE
from icl_interp.studies.limits.measurements import far
from icl_interp.studies.limits.measurements.far import power

ERASED_AT = 1e4  # in units of `Lab.x_unit`
N_FOLDS = 8
ROUNDING = 1e-9  # of f: a spread below this is what float64 leaves, not what the model does
TINY = float(np.finfo(float).tiny)


@measurement("context/information")
def information(lab: Lab) -> Planned[DataArray]:
    """How well the function's coefficients predict f far out: what it still tells about the context.

    Cross-validated least squares over functions (no function is in training and test at once) of f at +-1e4 units on
    the coefficients and their products; the null is the same with coefficients permuted over functions.
    """
    out = ERASED_AT * lab.x_unit
    f = as_numbers((yield from lab.ask([out, -out])))
    order = torch.randperm(lab.n_functions, generator=generator(lab.seed, "context/permutation"))
    parameters = lab.prompts.parameters
    permuted = parameters.view(lab.n_functions, lab.n_contexts, -1)[order].flatten(0, 1)
    rows = []
    for target in f.T:
        for inputs in (parameters, permuted):
            residual, total = _cross_validated(
                _products(inputs, lab.n_functions), target, lab.prompts.function, lab.n_functions
            )
            rows.append(np.stack([lab.by_function(residual), lab.by_function(total)]))
    values = np.reshape(rows, (2, 2, 2, lab.n_functions))
    axes = {
        "direction": ("+", "-"),
        "inputs": ("coefficients", "permuted"),
        "statistic": ("residual", "total"),
        "function": tuple(range(lab.n_functions)),
    }
    return make_array(values, axes, note=f"{N_FOLDS}-fold cross-validation over functions, at |x| = {power(out)}")


@measurement("context/swap")
def swap(lab: Lab) -> Planned[DataArray]:
    """Squared change of f when another function's context is put before the same query, in distribution and far out."""
    xs = [lab.inner[1], ERASED_AT * lab.x_unit]
    f = as_numbers((yield from lab.ask(xs)))
    # Every context meets the same queries, so another function's context is another row.
    other = f.roll(lab.n_contexts, 0)
    return make_curve(
        lab.by_function((f - other).square()), {"function": tuple(range(lab.n_functions)), "x": tuple(xs)}
    )


def _products(parameters: torch.Tensor, n_functions: int) -> torch.Tensor:
    """1, each coefficient, and each product of two where there are eight functions for every feature to fit it on."""
    one = torch.ones_like(parameters[:, :1])
    first, second = torch.triu_indices(parameters.shape[1], parameters.shape[1])
    features = torch.cat([one, parameters, parameters[:, first] * parameters[:, second]], 1)
    return features if 8 * features.shape[1] <= n_functions else features[:, : 1 + parameters.shape[1]]


def _cross_validated(
    features: torch.Tensor, target: torch.Tensor, function: torch.Tensor, n_functions: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Squared error of the held-out prediction and of the held-out mean, for each prompt."""
    # Relative to its spread: far out f may vary by 1e-4 only, and that is what is to be explained. Rounding is not.
    size, target = target.abs().max(), target - target.mean()
    target = target / target.std() if target.std() > ROUNDING * size else torch.zeros_like(target)
    residual, total = torch.empty_like(target), torch.empty_like(target)
    for fold in range(N_FOLDS):
        test = function % N_FOLDS == fold
        fit = torch.linalg.lstsq(features[~test], target[~test, None], driver="gelsd").solution[:, 0]
        residual[test] = (target[test] - features[test] @ fit).square()
        total[test] = (target[test] - target[~test].mean()).square()
    return residual, total


# ---- the context is erased ------------------------------------------------------------------------------------------


def _parts(curve: DataArray) -> np.ndarray:
    """What the spread is made of, for each function: (function, x, part).

    Parts: the function's mean less the mean of all, its square, and the variance over the function's contexts.
    """
    mean, within = curve.sel(statistic="mean").values, curve.sel(statistic="variance").values
    mean = mean - mean.mean(0)
    return np.stack([mean, mean**2, within], -1)


def _variance(parts: np.ndarray) -> np.ndarray:
    """Variance over all prompts from parts averaged over functions."""
    return np.maximum(parts[..., 1] - parts[..., 0] ** 2, 0.0) + parts[..., 2]


def spread(curve: DataArray) -> np.ndarray:
    """Standard deviation of f over functions and contexts, at each x."""
    return np.sqrt(_variance(_parts(curve).mean(0)))


def _amplitude(far_curve: DataArray, near: DataArray, x_unit: float = 1.0) -> Interval:
    out = np.isclose(np.abs(far_curve["x"].values), ERASED_AT * x_unit)

    def ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        inside = _variance(b).mean(-1)
        return np.sqrt(_variance(a).mean(-1) / np.maximum(inside, np.finfo(float).tiny))

    return bootstrap(ratio, _parts(far_curve)[:, out], _parts(near))


def _decay(curve: DataArray, x_unit: float = 1.0) -> float:
    """Log-log slope of the spread over 1e3 .. 1e5 units; -inf where it has sunk into rounding."""
    sd, size = spread(curve), np.abs(curve.values[0]).mean(0)
    slopes = []
    for sign in (1, -1):
        keep = (sign * curve["x"].values > 0.9e3 * x_unit) & (sign * curve["x"].values < 1.1e5 * x_unit)
        if not (sd[keep] > ROUNDING * size[keep]).all():
            slopes.append(-INF)
        else:
            slopes.append(float(slope(np.log(np.abs(curve["x"].values[keep])), np.log(sd[keep]))))
    return max(slopes)


def r_squared(info: DataArray, inputs: str) -> Interval:
    """Cross-validated R2, the mean of both directions, with its interval over functions."""
    residual, total = (info.sel(inputs=inputs, statistic=s).values.mean(0) for s in ("residual", "total"))
    return bootstrap(lambda a, b: (b - a) / np.maximum(b, np.finfo(float).tiny), residual, total)


def context_erased(results: Results, facts: Facts) -> Evidence:
    """Does f still differ between contexts far out, and does it still tell which function they show?"""
    curve, near = results[far.intact], results[far.in_distribution]
    inside = spread(near).max() / max(np.abs(near.values[0]).max(), TINY)
    quantities = {"spread in distribution": Estimate.exactly("spread in distribution", inside, "relative")}
    if not inside >= ROUNDING:
        return Evidence(quantities, "")
    x_unit = facts.x_unit
    out = ERASED_AT * x_unit
    quantities |= _far_spread(curve, near, x_unit)
    onset = results[far.certificate].iloc[0]["onset"] / x_unit
    if not np.isnan(onset):
        quantities["onset"] = Estimate.exactly("predicted onset of saturation", onset, "units of x")
    decay = _decay(curve, x_unit)
    info, null = (r_squared(results[information], i) for i in ("coefficients", "permuted"))
    says = f"the spread of f over contexts at |x| = {power(out)} is {quantities['amplitude'].value:.2g} of that in "
    says += "distribution"
    if np.isfinite(decay):
        informative = info.low > max(null.high, 0.0)
        says += f" and goes like |x|^{decay:.2f}; what is left {'still tells' if informative else 'does not tell'} the "
        says += f"function: R2 {info.value:.2f} (permuted: {null.value:.2f})"
    else:
        says += " (below the resolution of float64)"
    moved = np.sqrt(results[swap].values.mean(0))
    causal = {
        "intervention": "put another function's context before the same query",
        "effect": float(moved[1] / moved[0]) if moved[0] > 0 else float("nan"),
        "change of f in distribution": float(moved[0]),
        "change of f far out": float(moved[1]),
    }
    details = (
        {"statistic": "slope of the spread", "value": decay},
        {"statistic": "information R2", "value": info.value, "low": info.low, "high": info.high},
        {"statistic": "R2 with permuted coefficients", "value": null.value, "low": null.low, "high": null.high},
    )
    twin = _far_spread(results.twin[far.decades], results.twin[far.in_distribution], x_unit)
    return Evidence(
        quantities, says + ".", scope=SCOPE + f"|x| = {power(out)}", causal=causal, twin=twin, details=details
    )


def _far_spread(far_curve: DataArray, near: DataArray, x_unit: float) -> dict[str, Estimate]:
    """The amplitude of the spread and its slope; no slope where the spread has sunk into rounding."""
    decay = _decay(far_curve, x_unit)
    found = {"amplitude": Estimate.of("spread far / in distribution", _amplitude(far_curve, near, x_unit))}
    if np.isfinite(decay):
        found["decay"] = Estimate.exactly("slope of the spread", decay, "exponent")
    return found


# ---- one line per direction -----------------------------------------------------------------------------------------


def _departures(ends: np.ndarray, x_unit: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Slope, intercept and curvature of every context's line: each (direction, function, context).

    Curvature is the change of slope from the first decade to the second, relative to the larger of the two: 0 for a
    line, near 1 for any other power of x.
    """
    x = x_unit * np.stack([far.LINE, -far.LINE])[:, :, None, None]
    slopes = (ends[:, 2] - ends[:, 0]) / (x[:, 2] - x[:, 0])
    intercepts = ends[:, 0] - slopes * x[:, 0]
    first, second = np.moveaxis(np.diff(ends, axis=1) / np.diff(x, axis=1), 1, 0)
    steeper = np.maximum(np.abs(first), np.abs(second))
    return slopes, intercepts, (second - first) / np.maximum(steeper, np.finfo(float).tiny)


def _departure(ends: np.ndarray, x_unit: float = 1.0) -> Interval:
    """The larger of curvature (root mean square) and sd(slope) / |slope|, over both directions."""
    slopes, _, curvature = _departures(ends, x_unit)
    per_function = np.stack([slopes.mean(-1), (slopes**2).mean(-1), (curvature**2).mean(-1)], -1)

    def worst(mean: np.ndarray) -> np.ndarray:
        slope_mean, square, bend = mean[..., 0], mean[..., 1], mean[..., 2]
        # Below 1e-14 of the square the difference is rounding, not spread.
        variance = np.maximum(square - slope_mean**2 - 1e-14 * square, 0)
        varied = np.sqrt(variance) / np.maximum(np.abs(slope_mean), np.finfo(float).tiny)
        return np.maximum(varied, np.sqrt(bend)).max(-1)

    return bootstrap(worst, np.moveaxis(per_function, 1, 0))


def linear_asymptote(results: Results, facts: Facts) -> Evidence:
    """Is f one line in each direction, the same slope whatever the context says?"""
    ends = results[far.ends].values
    x_unit = facts.x_unit
    departure = _departure(ends, x_unit)
    slopes, intercepts, curvature = _departures(ends, x_unit)
    details = tuple(
        {
            "direction": sign,
            "slope": float(s.mean()),
            "sd of slope over contexts": float(s.std()),
            "intercept": float(b.mean()),
            "sd of intercept over contexts": float(b.std()),
            "curvature": float(np.sqrt((k**2).mean())),
        }
        for sign, s, b, k in zip("+-", slopes, intercepts, curvature, strict=True)
    )
    up, down = details
    reached = f"{power(far.LINE[0] * x_unit)} .. {power(far.LINE[-1] * x_unit)}"
    says = (
        f"over {reached} f is {up['slope']:.4g} x + b upwards and "
        f"{down['slope']:.4g} x + b' downwards; the worst departure (curvature, or spread of the slope over "
        f"contexts) is {departure.value:.2g}. The right slope would be the function's own"
    )
    name = "departure from one line"
    quantities = {
        "growth": Estimate.exactly("growth of f over its size", _growth(slopes, ends, x_unit).min(), "relative"),
        "departure": Estimate.of(name, departure, "relative"),
    }
    twin = {"departure": Estimate.of(name, _departure(results.twin[far.ends].values, x_unit), "relative")}
    return Evidence(quantities, says + ".", scope=f"{SCOPE}|x| = {reached}", twin=twin, details=details)


def _growth(slopes: np.ndarray, ends: np.ndarray, x_unit: float) -> np.ndarray:
    """How much f grows over the whole range, relative to its size: (direction)."""
    grown = np.abs(slopes).max((1, 2)) * far.LINE[-1] * x_unit
    return grown / np.maximum(np.abs(ends).max((1, 2, 3)), TINY)


def _without_norm(facts: Facts) -> str | None:
    if facts.config.normalization_type is not None:
        return "the model normalises; the claim is about models without"
    if facts.config.embed_bound is not None:
        return "tokens are read in as bounded vectors (embed_bound): nothing grows along a line"
    return None


CONTEXT_ERASED_CLAIM = Claim(
    id="limits.context_erased",
    question="far from the data",
    short="Far from the data the prediction no longer depends on the context.",
    quote=Quote(
        "This behavior indicates that, in the absence of layer normalization, the model’s predictions "
        "become insensitive to the prompt content as ||x|| increases, thus precluding ICL.",
        "Naim & Asher (2025), section 6, between Propositions 3 and 4",
        "This is the nearest sentence: it is about models without LayerNorm, and appendix G.2 says the "
        "same of softmax. We ask it of every model, and measure how much predictions for a query at 1e4 "
        "units still differ between contexts.",
    ),
    kind="architecture",
    statement="Far from the data the prediction no longer depends on the context",
    source="Naim & Asher (2025), section 6, after Proposition 3",
    criterion=Criterion(
        "spread of f over contexts at 1e4 over that in distribution: <= 0.05, falling with a log-log slope <= -0.9 "
        "/ > 0.2",
        (
            Condition("amplitude", (-INF, 0.05), (0.2, INF), "log"),
            # A spread that has sunk into rounding has no slope.
            Condition("decay", (-INF, -0.9), None, optional=True),
        ),
        (
            Precondition(
                "spread in distribution",
                (ROUNDING, INF),
                "The output f does not depend on the context in distribution either.",
            ),
            Precondition("onset", (-INF, ERASED_AT), ONSET, optional=True),
        ),
    ),
    measurements=(far.intact, far.contexts, far.in_distribution, far.certificate, information, swap),
    twin=(far.decades, far.in_distribution),
    evidence=context_erased,
    of_numbers=True,
    figures=("context",),
)

LINEAR_ASYMPTOTE_CLAIM = Claim(
    id="limits.linear_asymptote",
    question="far from the data",
    short="Without LayerNorm the output becomes one linear function of the query.",
    quote=Quote(
        "In this regime, the model’s output asymptotically converges to a linear function of the form ..."
        " ax + b, where a and b are set by the model’s fixed parameters during pretraining and are "
        "minimally affected by the in-context examples.",
        "Naim & Asher (2025), section 6, between Propositions 3 and 4 (Proposition 5 in appendix G.1 for "
        "attention alone)",
        "The paper derives the line for one attention layer. We fit lines to the whole model's output "
        "from 1e4 to 1e6 units, one for each direction, and ask that the slope be the same in all "
        "contexts; the constant b may differ between contexts.",
    ),
    kind="architecture",
    statement="Without LayerNorm the output becomes one linear function of a far query, fixed by the weights",
    source="Naim & Asher (2025), section 6 and Proposition 5",
    criterion=Criterion(
        "curvature and sd(slope) / |slope| over 1e4 .. 1e6, the larger one, both directions: <= 1 % / > 10 %",
        (Condition("departure", (-INF, 0.01), (0.1, INF), "log"),),
        (
            Precondition(
                "growth",
                (ROUNDING, INF),
                "But f does not grow: what slope there is lies below rounding, and its spread over it is 0 / 0.",
            ),
        ),
    ),
    measurements=(far.ends, far.intact, far.contexts),
    twin=(far.ends,),
    evidence=linear_asymptote,
    of_numbers=True,
    excluded=_without_norm,
    figures=("far_query",),
)
