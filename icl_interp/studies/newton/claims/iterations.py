"""The claims of `newton`: layers move on by as many of Newton's iterations each, about three."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float
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
from icl_interp.resampling import bootstrap, simultaneous, slope
from icl_interp.studies.newton.measurements.iterates import (
    DESCENT,
    EXPLAINED,
    EXPONENTS,
    NEWTON,
    TRUTH,
    best,
    iterates,
    least,
    row_of,
)

# Layers count from the first whose read-out explains `EXPLAINED` of f(x) to the first whose error
# is at most so many times the last one's.
SETTLED = 1.1
FEWEST = 3  # layers that count: two points lie on every line
# Squared distances from the nearest iterate, of the mean square of f(x).
NEAR = 0.05
FAR = 0.10
# Doublings of steps by which linear and exponential growth between the same ends lie apart.
ROOM = 0.05
# Deviations from exponential growth of 2^k, in units of that: linear growth has 1. Up to a half it
# is nearer to exponential growth.
STRAIGHT = 0.5
BENT = 0.75
# Iterations a layer that are roughly 3, and up to which they are not.
THREE = (2.0, 4.0)
FEWER = 1.5
LAYERS = "layers"
NEAREST = "nearest"
CLOSE = "distance"
APART = "room"
LINE = "line"
GROWTH = "growth"
RATE = "iterations a layer"


def excluded(facts: Facts) -> str | None:
    """Why a model has no trend over layers."""
    reason = needs_linear_functions(facts)
    if reason is None and facts.config.n_layers < FEWEST:
        return (
            f"The claim is about a trend over layers, which takes {FEWEST}; this model has fewer."
        )
    return reason


def errors(result: DataArray) -> Float[np.ndarray, " depth"]:
    """Mean squared error of the read-out after 0, 1, ... blocks, of the mean square of f(x)."""
    apart = result.sel(comparison=TRUTH)
    return apart.mean("unit").values


def middle(result: DataArray) -> list[int]:
    """The layers that count, by the blocks passed."""
    found = errors(result)
    telling = np.flatnonzero(found <= 1 - EXPLAINED)
    if not telling.size:
        return []
    settled = np.flatnonzero(found <= SETTLED * found[-1])
    first = max(1, telling[0])
    last = max(first, settled[0])
    return list(range(first, last + 1))


def distances(result: DataArray, family: str, layers: list[int]) -> np.ndarray:
    """Squared distances of some layers from the iterates of a family, (unit, layer, exponent)."""
    rows = [row_of(family, k) for k in EXPONENTS]
    chosen = result.sel(comparison=rows, depth=layers)
    return chosen.transpose("unit", "depth", "comparison").values


def shape(k: Float[np.ndarray, "*batch layer"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How far k is from a line, how far it bends towards a line in 2^k, and how far both are apart.

    The first two are in units of the third; they are 1 where k does not grow.

    >>> [found.round(9) for found in shape(np.stack([np.arange(3.0), np.log2([1.0, 2.0, 3.0])]))]
    [array([0., 1.]), array([0., 1.]), array([0.32192809, 0.20751875])]
    """
    share = np.linspace(0, 1, k.shape[-1])
    first = k[..., :1]
    last = k[..., -1:]
    straight = first + share * (last - first)
    linear = np.log2(2**first + share * (2**last - 2**first))
    above = k - straight
    between = linear - straight
    # Both ends are on both lines, and do not count.
    inner = slice(1, -1)
    square = (between[..., inner] ** 2).mean(-1)
    missed = (above[..., inner] ** 2).mean(-1)
    common = (above * between)[..., inner].mean(-1)
    grows = (last > first)[..., 0]
    unit = np.where(grows, square, 1.0)
    line = np.where(grows, np.sqrt(missed / unit), 1.0)
    bend = np.where(grows, common / unit, 1.0)
    return line, bend, np.sqrt(np.where(grows, square, 0.0))


def rate(k: Float[np.ndarray, "*batch layer"]) -> np.ndarray:
    """Least-squares slope of k in the layer."""
    layers = np.arange(k.shape[-1], dtype=float)
    return slope(layers, k)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """`numbers` of the stored distances."""
    return numbers(results[iterates])


def numbers(result: DataArray) -> dict[str, Found]:
    """How many layers count, how near they are to iterates, and how the best of these grow."""
    layers = middle(result)
    found: dict[str, Found] = {LAYERS: len(layers)}
    # Too few have no trend; how near they are is then told of all.
    enough = len(layers) >= FEWEST
    asked = layers if enough else list(range(1, result.sizes["depth"]))
    newton = distances(result, NEWTON, asked)
    descent = distances(result, DESCENT, asked)
    found[NEAREST] = bootstrap(_farthest, newton, descent)
    found[CLOSE] = bootstrap(_farthest, newton, newton)
    if enough:
        found[APART] = bootstrap(_least_room, newton, descent)
        found[LINE] = bootstrap(lambda mean: shape(best(mean))[0], newton)
        found[GROWTH] = bootstrap(lambda mean: shape(best(mean))[1], descent)
        found[RATE] = bootstrap(lambda mean: rate(best(mean)), newton)
    return found


def _farthest(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """How far the farthest layer is from the nearer of two families."""
    nearer = np.minimum(least(one), least(other))
    return nearer.max(-1)


def _least_room(newton: np.ndarray, descent: np.ndarray) -> np.ndarray:
    """How far linear and exponential growth are apart, in the family where they are less so."""
    _, _, of_newton = shape(best(newton))
    _, _, of_descent = shape(best(descent))
    return np.minimum(of_newton, of_descent)


def rows(result: DataArray) -> list[dict[str, Any]]:
    """Of every layer and family the best exponent with its interval, and its distance."""
    depths = list(range(1, result.sizes["depth"]))
    error = errors(result)
    counted = middle(result)
    found = []
    for family in (NEWTON, DESCENT):
        apart = distances(result, family, depths)
        nearest = least(apart.mean(0))
        value, low, high = simultaneous(best, apart)
        for place, layer in enumerate(depths):
            row = {"layer": layer, "counts": layer in counted, "rival": family}
            ends = {"k": value[place], "low": low[place], "high": high[place]}
            ends |= {"D": nearest[place], "error": error[layer]}
            row |= {name: float(each) for name, each in ends.items()}
            found.append(row)
    return found


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Which layers count, and by how many iterations they move on."""
    layers = middle(results[iterates])
    caveat = ""
    if RATE in found:
        a = found[RATE]
        caveat = (
            f"Layers {layers[0]} to {layers[-1]} count, and move on by {a.value:.2g} [{a.low:.2g}, "
            f"{a.high:.2g}] iterations each."
        )
    scope = "these weights, and linear read-outs of f(x) fitted on other functions"
    return Remarks(scope=scope, caveat=caveat, details=tuple(rows(results[iterates])))


PRECONDITIONS = (
    Precondition(
        LAYERS,
        at_least(FEWEST),
        "Too few layers lie between the first read-out that explains a tenth of f(x) and the first "
        f"that is as good as the last ({{value:.0f}}, {FEWEST} needed).",
    ),
    Precondition(
        NEAREST,
        at_most(NEAR),
        "The read-out of a layer is {value:.2g} of the mean square of f(x) from every iterate (at "
        f"most {NEAR:g} asked).",
    ),
    Precondition(
        APART,
        at_least(ROOM),
        "Linear and exponential growth are only {value:.2g} doublings apart in these layers "
        f"({ROOM:g} needed).",
    ),
)
QUOTE = Quote(
    "Empirically, predictions from successive Transformer layers closely match different "
    "iterations of Newton's Method linearly, with each middle layer roughly computing 3 "
    "iterations; thus, Transformers and Newton's method converge at roughly the same rate. In "
    "contrast, Gradient Descent converges exponentially more slowly.",
    "Fu, Chen, Jia & Sharan (2023), abstract (as printed in 2024)",
    'Section 4.2 sees "a clear linear trend between layer 3 and layer 9". Both were read word for '
    "word in a transcript. The paper has no thresholds; ours were set before any bundled model was "
    "asked.",
)
LINEAR_CLAIM = Claim(
    id="newton.iterations_linear",
    kind="learning",
    statement="From layer to layer Newton's best iterate grows linearly, and descent's steps "
    "exponentially.",
    denied="From layer to layer Newton's best iterate does not grow linearly, or descent's steps "
    "not exponentially.",
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
                "shortfall of descent's steps from exponential growth (equal steps: 1)",
                at_most(STRAIGHT),
                at_least(BENT),
            ),
        ),
        PRECONDITIONS,
        terms="Layers count from the first whose read-out explains a tenth of f(x) to the first "
        "that is as good as the last. Read-outs are linear, and fitted on other functions. "
        "Newton's iterate k leaves (1 - a l^2)^(2^k) of the error along an eigenvector of X'X / n "
        "with eigenvalue l, and t steps of descent leave (1 - a l)^t.",
    ),
    measurements=(iterates,),
    control=(iterates,),
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
    denied="Each middle layer moves on by fewer than three of Newton's iterations.",
    criterion=Criterion(
        (
            LINEAR_CLAIM.criterion.conditions[0],
            Condition(RATE, "Newton's iterations a layer", THREE, at_most(FEWER)),
        ),
        PRECONDITIONS[:2],
        terms=LINEAR_CLAIM.criterion.terms,
    ),
)
CLAIMS = (LINEAR_CLAIM, THREE_CLAIM)
