"""The claims of `limits` about the context far out: it is erased, and without a norm f becomes one line."""

import numpy as np
import torch
from xarray import DataArray

from icl_interp.analyses import far
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.far import power
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.limits_layernorm import SCOPE
from icl_interp.analyses.measurement import Results, measurement
from icl_interp.analyses.verdicts import Claim, Criterion, Estimate, Judgement, register
from icl_interp.provenance import generator
from icl_interp.resampling import Interval, bootstrap, slope
from icl_interp.results import make_array, make_curve

ERASED_AT = 1e4  # in units of `Lab.x_unit`
N_FOLDS = 8
ROUNDING = 1e-9  # of f: a spread below this is what float64 leaves, not what the model does
INF = float("inf")


@measurement("context/information")
def information(lab: Lab) -> DataArray:
    """How well the function's coefficients predict f far out: what it still tells about the context.

    Cross-validated least squares over functions (no function is in training and test at once) of f at +-1e4 units on
    the coefficients and their products; the null is the same with coefficients permuted over functions.
    """
    out = ERASED_AT * lab.x_unit
    f = lab.sweep([out, -out])
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
        "direction": ("+", "-"), "inputs": ("coefficients", "permuted"), "statistic": ("residual", "total"),
        "function": tuple(range(lab.n_functions)),
    }  # fmt: skip
    return make_array(values, axes, note=f"{N_FOLDS}-fold cross-validation over functions, at |x| = {power(out)}")


@measurement("context/swap")
def swap(lab: Lab) -> DataArray:
    """Squared change of f when another function's context is put before the same query, in distribution and far out."""
    xs = [lab.inner[1], ERASED_AT * lab.x_unit]
    f = lab.sweep(xs)
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


def judge_erased(results: Results, facts: Facts) -> Judgement:
    """Does f still differ between contexts far out, and does it still tell which function they show?"""
    curve, near = results[far.intact], results[far.in_distribution]
    if spread(near).max() <= ROUNDING * np.abs(near.values[0]).max():
        return Judgement(None, "f does not depend on the context in distribution either.", "inconclusive")
    x_unit = facts.x_unit
    out = ERASED_AT * x_unit
    amplitude, decay = _amplitude(curve, near, x_unit), _decay(curve, x_unit)
    info, null = (r_squared(results[information], i) for i in ("coefficients", "permuted"))
    readable = np.isfinite(decay)
    reason = f"the spread of f over contexts at |x| = {power(out)} is {amplitude.value:.2g} of that in distribution"
    reason += f" and goes like |x|^{decay:.2f}" if readable else " (below the resolution of float64)"
    if readable:
        reason += f"; what is left follows the function with R2 {info.value:.2f} (permuted: {null.value:.2f})"
    verdict = None
    if amplitude.high <= 0.05:
        verdict = "supported" if decay <= -0.9 else "inconclusive"
        told = readable and info.low > max(null.high, 0.0)
        reason += ": attenuated, but not erased as information" if told else ": erased"
    onset = results[far.certificate].iloc[0]["onset"]
    if verdict is None and onset > out:
        verdict = "inconclusive"
        reason += f". But the predicted onset of saturation, |x| = {power(onset)}, lies further out"
    moved = np.sqrt(results[swap].values.mean(0))
    causal = {
        "intervention": "put another function's context before the same query",
        "effect": float(moved[1] / moved[0]) if moved[0] > 0 else float("nan"),
        "change of f in distribution": float(moved[0]), "change of f far out": float(moved[1]),
    }  # fmt: skip
    details = (
        {"statistic": "slope of the spread", "value": decay},
        {"statistic": "information R2", "value": info.value, "low": info.low, "high": info.high},
        {"statistic": "R2 with permuted coefficients", "value": null.value, "low": null.low, "high": null.high},
    )
    of_twin = (results.twin[m] for m in (far.decades, far.in_distribution))
    twin = Estimate.of("spread far / in distribution", _amplitude(*of_twin, x_unit))
    return Judgement(
        Estimate.of("spread far / in distribution", amplitude), reason + ".", verdict,
        SCOPE + f"|x| = {power(out)}", causal=causal, twin=twin, details=details,
    )  # fmt: skip


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


def judge_linear(results: Results, facts: Facts) -> Judgement:
    """Is f one line in each direction, the same slope whatever the context says?"""
    ends = results[far.ends].values
    x_unit = facts.x_unit
    departure = _departure(ends, x_unit)
    slopes, intercepts, curvature = _departures(ends, x_unit)
    details = tuple(
        {
            "direction": sign, "slope": float(s.mean()), "sd of slope over contexts": float(s.std()),
            "intercept": float(b.mean()), "sd of intercept over contexts": float(b.std()),
            "curvature": float(np.sqrt((k**2).mean())),
        }
        for sign, s, b, k in zip("+-", slopes, intercepts, curvature, strict=True)
    )  # fmt: skip
    up, down = details
    reached = f"{power(far.LINE[0] * x_unit)} .. {power(far.LINE[-1] * x_unit)}"
    reason = (
        f"over {reached} f is {up['slope']:.4g} x + b upwards and "
        f"{down['slope']:.4g} x + b' downwards; the worst departure (curvature, or spread of the slope over "
        f"contexts) is {departure.value:.2g}. The right slope would be the function's own"
    )
    verdict = None
    if _flat(slopes, ends, x_unit).any():
        verdict = "inconclusive"
        reason += ". But f does not grow: what slope there is lies below rounding, and its spread over it is 0 / 0"
    twin = Estimate.of("departure from one line", _departure(results.twin[far.ends].values, x_unit))
    scope = f"{SCOPE}|x| = {reached}"
    estimate = Estimate.of("departure from one line", departure, "relative")
    return Judgement(estimate, reason + ".", verdict, scope=scope, twin=twin, details=details)


def _flat(slopes: np.ndarray, ends: np.ndarray, x_unit: float) -> np.ndarray:
    """Whether f stays what it is, up to rounding, over the whole range: (direction)."""
    grown = np.abs(slopes).max((1, 2)) * far.LINE[-1] * x_unit
    return grown <= ROUNDING * np.abs(ends).max((1, 2, 3))


def _without_norm(facts: Facts) -> str | None:
    if facts.config.normalization_type is not None:
        return "the model normalises; the claim is about models without"
    if facts.config.embed_bound is not None:
        return "tokens are read in as bounded vectors (embed_bound): nothing grows along a line"
    return None


register(
    Claim(
        id="limits.context_erased",
        kind="architecture",
        statement="Far from the data the prediction no longer depends on the context",
        source="Naim & Asher (2025), section 6, Propositions 3 to 6",
        criterion=Criterion(
            "spread of f over contexts at 1e4 over that in distribution: <= 0.05, falling with a log-log slope <= -0.9 "
            "/ > 0.2",
            supported=(-INF, 0.05), contradicted=(0.2, INF), scale="log",
        ),
        measurements=(far.intact, far.contexts, far.in_distribution, far.certificate, information, swap),
        twin=(far.decades, far.in_distribution),
        judge=judge_erased,
        figures=("context",),
    )
)  # fmt: skip

register(
    Claim(
        id="limits.linear_asymptote",
        kind="architecture",
        statement="Without LayerNorm the output becomes one linear function of a far query, fixed by the weights",
        source="Naim & Asher (2025), Proposition 5",
        criterion=Criterion(
            "curvature and sd(slope) / |slope| over 1e4 .. 1e6, the larger one, both directions: <= 1 % / > 10 %",
            supported=(-INF, 0.01), contradicted=(0.1, INF), scale="log",
        ),
        measurements=(far.ends, far.intact, far.contexts),
        twin=(far.ends,),
        judge=judge_linear,
        excluded=_without_norm,
        figures=("far_query",),
    )
)  # fmt: skip
