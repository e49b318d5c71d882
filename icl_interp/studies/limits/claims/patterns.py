"""The claim of `limits` that attention patterns are alike whatever degree the context shows.

The degree is that of a polynomial. How patterns are compared is in `measurements.patterns`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Found, at_least, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.natural import plain
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.limits.measurements.classes import needs_polynomials, polynomial_in
from icl_interp.studies.limits.measurements.patterns import (
    BY_LAYER,
    LARGEST,
    RESPONDS,
    distances,
    swapped,
)

# A small effect: the mean patterns of two degrees, in units of the distance between two prompts.
ALIKE = 0.2
UNLIKE = 0.5  # a medium one
SCOPE = (
    "these weights, this task, the last query in distribution, polynomials of degree 1 to the "
    "largest trained on"
)


CRITERION = Criterion(
    (
        Condition(
            "ratio",
            "distance of two degrees' mean patterns over that of two prompts",
            at_most(ALIKE),
            at_least(UNLIKE),
        ),
        Condition(
            "response",
            "distance of two prompts of one degree, in attention weight moved",
            at_least(RESPONDS),
            unit="share",
        ),
    ),
    terms="A distance is the attention weight that has to move to turn one pattern into the other "
    "(total variation), with keys sorted by their distance from the query. The two prompts are of "
    "one degree. The first number is the largest over pairs of degrees and over layers. The "
    "second must be large enough, because patterns that hardly depend on the prompt are no "
    "evidence.",
)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """The largest ratio, and how far prompts of one degree are apart.

    The latter is a mean over layers and pairs of degrees.
    """
    result = results[distances]
    ratio = _largest(result, "ratio")
    low = _largest(result, "low")
    high = _largest(result, "high")
    within = result.sel(statistic="within").values[:-1, :-1]
    known = within[np.isfinite(within)]
    response = float(known.mean()) if known.size else float("nan")
    least = min(_largest(result, "response low"), response)
    most = max(_largest(result, "response high"), response)
    return {"ratio": Interval(ratio, low, high), "response": Interval(response, least, most)}


def _largest(result: DataArray, statistic: str) -> float:
    """A statistic, the largest over pairs of degrees and over layers."""
    return _cell(result, LARGEST, statistic)


def _cell(result: DataArray, layer: int | str, statistic: str) -> float:
    """A statistic of a layer, the largest over pairs of degrees."""
    return float(result.sel(pair=LARGEST, layer=layer, statistic=statistic).values)


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Where patterns are furthest apart, what noise alone makes, and every layer."""
    result = results[distances]
    table = result.sel(statistic="ratio").values[:-1, :-1]
    farthest = np.nan_to_num(table, nan=-1.0).argmax()
    pair, layer = np.unravel_index(farthest, table.shape)
    first, second = str(result.indexes["pair"][pair]).split(" ~ ")
    rows = []
    for i in result.indexes["layer"]:
        if i != LARGEST and np.isfinite(_cell(result, i, "within")):
            row = {"layer": i}
            for name in BY_LAYER:
                row[name] = _cell(result, i, name)
            rows.append(row)
    return Remarks(
        scope=SCOPE,
        caveat=f"The furthest apart are degrees {first} and {second} in layer {layer}; with "
        f"degrees shuffled (noise alone) the number is {plain(_largest(result, 'shuffled'))}.",
        causal=_causal(results[swapped]),
        details=tuple(rows),
    )


def _causal(patched: DataArray) -> dict[str, Any]:
    """What attending as to another degree costs; the control attends as to one of the same."""
    targets = patched.indexes["target"]

    def rate(pick: Callable[[str], list[str]]) -> float:
        error = []
        zero = []
        for target in targets:
            for source in pick(target):
                error.append(patched.sel(target=target, source=source).values)
                zero.append(patched.sel(target=target, source="zero").values)
        found = bootstrap(_rate, np.mean(error, 0), np.mean(zero, 0))
        return found.value

    return {
        "intervention": "attend as the model would to another function at the same inputs, all "
        "layers and positions",
        "effect": rate(lambda target: [t for t in targets if t != target]),
        "sham: the other function has the same degree": rate(lambda target: [target]),
        "intact": rate(lambda target: ["own"]),
        "uniform patterns": rate(lambda target: ["uniform"]),
        "unit": "squared error at the last query / that of predicting 0",
    }


def _rate(error: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """An error over that of predicting 0."""
    least = np.finfo(float).tiny
    return error / np.maximum(zero, least)


def _one_degree(facts: Facts) -> str | None:
    """Why the claim cannot be asked: no weights that add up to 1, or no two degrees to compare."""
    reason = needs_polynomials(facts)
    config = facts.config
    if config.mlp_only:
        return "The claim is about attention; this model has none."
    if not config.weights_add_up:
        return "The claim is about attention weights that add up to 1; this model's do not."
    if reason:
        return reason
    if polynomial_in(facts).max_degree < 2:
        return (
            "The claim compares two degrees of at least 1; this model was trained on degree 1 at "
            "most."
        )
    return None


PATTERNS_ALIKE_CLAIM = Claim(
    id="limits.patterns_alike",
    question="attention",
    statement="Attention patterns are alike for polynomials of every degree.",
    denied="Attention patterns differ between polynomials of different degrees.",
    quote=Quote(
        "Moreover, an analysis of the attention weights at all 12 layers in our best models showed "
        "remarkably similar patterns, regardless of the complexity of the polynomial being "
        "computed ...",
        "Naim & Asher (2025), section 4.1, before Proposition 1 (repeated in section 6)",
        "The paper does not say how patterns were compared. We compare the mean patterns of two "
        "degrees with the usual distance between two prompts of one degree, at the last query.",
    ),
    kind="learning",
    reads="attention patterns",
    criterion=CRITERION,
    measurements=(distances, swapped),
    control=(distances,),
    aspects=("depth", "kind of task"),
    evidence=evidence,
    remarks=remarks,
    excluded=_one_degree,
    figures=("layers",),
)
