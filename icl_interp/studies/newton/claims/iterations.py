"""The claims of `newton`: layers move on by as many of Newton's iterations each, about three."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from pandas import DataFrame, concat
from xarray import DataArray

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import (
    Condition,
    Criterion,
    Estimate,
    Found,
    Precondition,
    at_least,
    at_most,
)
from icl_interp.analyses.facts import Facts, needs_linear_functions
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap, simultaneous, slope
from icl_interp.studies.newton.measurements import iterates as measured

# Layers count from the first whose read-out explains `EXPLAINED` of f(x) to the first whose error
# is at most so many times the last one's.
SETTLED = 1.1
FEWEST = 3  # layers that count: two points lie on every line
# Squared distances from the nearest iterate, of the mean square of f(x).
NEAR = 0.05
FAR = 0.10
# Deviations from exponential growth of 2^k: linear growth has 1. Up to a half it is nearer to
# exponential growth.
STRAIGHT = 0.5
BENT = 0.75
ROOM = 0.05  # doublings between both: where they are less apart, k does not grow
# Iterations a layer that are roughly 3, and up to which they are not.
THREE = (2.0, 4.0)
FEWER = 1.5
LAYERS = "layers"
CLOSE = "distance"
LINE = "line"
GROWTH = "growth"
RATE = "iterations a layer"
SLOWEST = "fewest iterations of a layer"
FASTEST = "most iterations of a layer"
UNKNOWN = Interval(math.nan, math.nan, math.nan)


def excluded(facts: Facts) -> str | None:
    """Why a model has no trend over layers."""
    reason = needs_linear_functions(facts)
    if facts.config.n_layers >= FEWEST:
        return reason
    return reason or (
        f"The claim is about a trend over layers, and this model has fewer than {FEWEST}."
    )


def errors(result: DataArray) -> Float[np.ndarray, " depth"]:
    """Mean squared error of the read-out after 0, 1, ... blocks, of the mean square of f(x)."""
    return result.sel(comparison=measured.TRUTH).mean("unit").values


def middle(result: DataArray) -> list[int]:
    """The layers that count, by the blocks passed."""
    found = errors(result)
    telling = 1 + np.flatnonzero(found[1:] <= 1 - measured.EXPLAINED)
    if not telling.size:
        return []
    settled = np.flatnonzero(found <= SETTLED * found[-1])
    last = max(telling[0], settled[0])
    return list(range(telling[0], last + 1))


def distances(result: DataArray, family: str, layers: list[int]) -> np.ndarray:
    """Squared distances of some layers from the iterates of a family, (unit, layer, exponent)."""
    chosen = result.sel(comparison=measured.NAMES[family], depth=layers)
    return chosen.transpose("unit", "depth", "comparison").values


def shape(k: Float[np.ndarray, "*batch layer"]) -> tuple[np.ndarray, np.ndarray]:
    """How far k is from a line, and how far it bends towards a line in 2^k with the same ends.

    Both are in units of how far these lines are apart, and 1 where that is less than `ROOM`.

    >>> [found.round(9) for found in shape(np.stack([np.arange(3.0), np.log2([1.0, 2.0, 3.0])]))]
    [array([0., 1.]), array([0., 1.])]
    """
    # Both ends are on both lines, and do not count.
    inner = slice(1, -1)
    share = np.linspace(0, 1, k.shape[-1])[inner]
    first = k[..., :1]
    last = np.maximum(k[..., -1:], first)
    straight = first + share * (last - first)
    above = k[..., inner] - straight
    steps = 2**first + share * (2**last - 2**first)
    between = np.log2(steps) - straight
    square = (between**2).mean(-1)
    grows = square > ROOM**2
    unit = np.where(grows, square, 1.0)
    missed = (above**2).mean(-1)
    common = (above * between).mean(-1)
    line = np.sqrt(np.where(grows, missed, 1.0) / unit)
    return line, np.where(grows, common, 1.0) / unit


def moves(apart: Float[np.ndarray, "*batch layer exponent"]) -> np.ndarray:
    """By how many iterations each layer moves on from the one before, (*batch, layer - 1)."""
    return np.diff(measured.best(apart), axis=-1)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """What both criteria ask for."""
    return numbers(results[measured.iterates])


def numbers(result: DataArray) -> dict[str, Found]:
    """How many layers count, how near they are to Newton's iterates, and how the best ones grow."""
    layers = middle(result)
    found: dict[str, Found] = {LAYERS: len(layers)}
    # Too few have no trend; how near they are is then told of all.
    enough = len(layers) >= FEWEST
    asked = layers if enough else list(range(1, result.sizes["depth"]))
    newton = distances(result, measured.NEWTON, asked)
    found[CLOSE] = bootstrap(lambda mean: mean.min(-1).max(-1), newton)
    if enough:
        found |= _growth(result, layers)
    return found


def inside(result: DataArray, family: str, layers: list[int]) -> list[int]:
    """The layers before the first whose nearest iterate is the largest that is asked.

    Of that one k is not known, and neither is by how much the next one differs from it.
    """
    mean = distances(result, family, layers).mean(0)
    told = []
    for layer, k in zip(layers, measured.best(mean), strict=True):
        if k >= measured.EXPONENTS[-1] - measured.STEP:
            break
        told.append(layer)
    return told


def _growth(result: DataArray, layers: list[int]) -> dict[str, Found]:
    """How k grows over the layers where it is known; not known where these are too few."""
    found: dict[str, Found] = dict.fromkeys((LINE, GROWTH, RATE, SLOWEST, FASTEST), UNKNOWN)
    told = inside(result, measured.DESCENT, layers)
    if len(told) >= FEWEST:
        descent = distances(result, measured.DESCENT, told)
        found[GROWTH] = bootstrap(lambda mean: shape(measured.best(mean))[1], descent)
    told = inside(result, measured.NEWTON, layers)
    if len(told) >= FEWEST:
        newton = distances(result, measured.NEWTON, told)
        places = np.array(told, dtype=float)
        found[LINE] = bootstrap(lambda mean: shape(measured.best(mean))[0], newton)
        found[RATE] = bootstrap(lambda mean: slope(places, measured.best(mean)), newton)
        found[SLOWEST] = bootstrap(lambda mean: moves(mean).min(-1), newton)
        found[FASTEST] = bootstrap(lambda mean: moves(mean).max(-1), newton)
    return found


def by_layer(result: DataArray) -> DataFrame:
    """Of every family and layer the best exponent with its interval, and its distance."""
    layers = list(range(1, result.sizes["depth"]))
    tables = []
    for family in measured.NAMES:
        apart = distances(result, family, layers)
        k, low, high = simultaneous(measured.best, apart)
        near = apart.mean(0).min(-1)
        columns = {"layer": layers, "k": k, "low": low, "high": high, "D": near}
        table = DataFrame({"family": family, **columns, "error": errors(result)[1:]})
        tables.append(table)
    return concat(tables)


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Which layers count, and what is nearest to each."""
    result = results[measured.iterates]
    layers = middle(result)
    caveat = f"Only layers {layers[0]} to {layers[-1]} count." if layers else "No layer counts."
    known = inside(result, measured.NEWTON, layers) if layers else []
    if len(known) < len(layers):
        caveat += (
            f" The nearest of Newton's iterates to layer {layers[len(known)]} is the largest that "
            "is asked, so how k grows from there on is not known."
        )
    scope = "these weights, and linear read-outs of f(x) fitted on other functions"
    return Remarks(scope, caveat, details=tuple(by_layer(result).to_dict("records")))


ENOUGH = Precondition(
    LAYERS,
    at_least(FEWEST),
    "Between the first read-out that explains a tenth of f(x) and the first that is as good as "
    f"the last lie too few layers ({{value:.0f}}, {FEWEST} needed).",
)
QUOTE = Quote(
    "Empirically, predictions from successive Transformer layers closely match different "
    "iterations of Newton's Method linearly, with each middle layer roughly computing 3 "
    "iterations; thus, Transformers and Newton's method converge at roughly the same rate. In "
    "contrast, Gradient Descent converges exponentially more slowly.",
    "Fu, Chen, Jia & Sharan (2023), abstract (as printed in 2024)",
    'Section 4.2 sees "a clear linear trend between layer 3 and layer 9". We read both sentences '
    "word for word in a transcript. The paper has no thresholds.",
)
LINEAR_CLAIM = Claim(
    id="newton.iterations_linear",
    kind="learning",
    statement="Layers match Newton's iterates: their number grows linearly over layers, and that "
    "of matching descent steps exponentially.",
    denied="Layers do not match Newton's iterates, or their number does not grow linearly, or "
    "that of descent steps not exponentially.",
    question="algorithm",
    quote=QUOTE,
    criterion=Criterion(
        (
            Condition(
                CLOSE,
                "largest squared distance of a layer's read-out from Newton's best iterate",
                at_most(NEAR),
                at_least(FAR),
                unit="share",
                scale="log",
            ),
            Condition(
                LINE,
                "distance of Newton's best iterates from a line (equal steps of descent: 1)",
                at_most(STRAIGHT),
                at_least(BENT),
            ),
            Condition(
                GROWTH,
                "shortfall of the number of descent steps from exponential growth (equal steps: 1)",
                at_most(STRAIGHT),
                at_least(BENT),
            ),
        ),
        (ENOUGH,),
        terms="The layers that count are those from the first whose read-out explains a tenth of "
        "f(x) to the first that is as good as the last. Read-outs are linear, and fitted on other "
        "functions. Newton's iterate k leaves (1 - a l^2)^(2^k) of the error along an eigenvector "
        "of X'X / n with eigenvalue l, and t steps of descent leave (1 - a l)^t.",
    ),
    measurements=(measured.iterates,),
    control=(measured.iterates,),
    aspects=("depth", "single layer", "kind of task"),
    evidence=evidence,
    remarks=remarks,
    excluded=excluded,
    figures=("newton_iterates",),
)
THREE_CLAIM = replace(
    LINEAR_CLAIM,
    id="newton.three_iterations",
    statement="Each middle layer moves on by about three of Newton's iterations.",
    denied="Layers do not match Newton's iterates, or each moves on by fewer than three of them.",
    criterion=Criterion(
        (
            LINEAR_CLAIM.criterion.conditions[0],
            Condition(RATE, "Newton's iterations per layer", THREE, at_most(FEWER)),
            # Layers of 1.5, 6 and 1.5 iterations have the slope of three each.
            Condition(SLOWEST, "Newton's iterations of the layer with fewest", at_least(THREE[0])),
            Condition(FASTEST, "Newton's iterations of the layer with most", at_most(THREE[1])),
        ),
        (ENOUGH,),
        terms=LINEAR_CLAIM.criterion.terms,
    ),
)
CLAIMS = (LINEAR_CLAIM, THREE_CLAIM)
