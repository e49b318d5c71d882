"""The claim of `limits` that the last layer forms the prediction.

It is tested by what is there before the last layer, and by what is left without that layer. What
can be decoded before the last layer need not be what the prediction is made of. So two questions
are asked, and a verdict needs the same answer to both. How much of the prediction does a read-out
of the stream before the last layer see? How much of it is left with the last layer's outputs at
their mean? Both are shares of the part of the prediction that the context makes: what differs from
the mean over all functions at that query.

A prediction in another basis escapes the logit lens, so the first question is judged by the best
affine read-out instead (`measurements.lens`).
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from xarray import DataArray

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Found, at_least, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap, r_squared
from icl_interp.studies.limits.claims.far_words import NO_PROMPT
from icl_interp.studies.limits.measurements.ablation import (
    ALL,
    BLIND,
    QUERY,
    ablated,
    without_attention,
)
from icl_interp.studies.limits.measurements.lens import EDITS, LENSES, curves, lens, without_last

# Shares of the prediction before the last layer, and without it. At a share of a half the standard
# error is 0.03 with 128 units, at half the sample 0.05: the zone between is four of these wide.
MAINLY = 0.4
ALREADY = 0.6
# Share of the prediction's variance: what varies less without the last layer is rounding.
ROUNDING = 1e-10
CONSTANT = 1e-140  # a variance below is none; its square times `ROUNDING` is still a number
SCOPE = "these weights, this task, the last query in distribution"
AS_IT_IS = "; the model has no final norm, so both read-outs take the stream as it is"


def seen_by(result: DataArray, name: str, depth: int) -> Interval:
    """R2: share of the final prediction's variance that a lens sees at a depth.

    It is below 0 where a constant does better. A prediction that no context changes is seen whole:
    no later layer makes it.
    """
    seen = result.sel(lens=name, depth=depth)
    residual = seen.sel(statistic="residual").values
    total = seen.sel(statistic="total").values
    return bootstrap(partial(r_squared, empty=1.0), residual, total)


def left(result: DataArray, edit: str) -> Interval:
    """Share of the prediction's variance that is left under an edit, up to scale and offset.

    The squared partial correlation of the prediction before and after the edit, given the mean of
    the law of functions: an edited model that knows that mean, and no context, has none.
    """
    moments = result.sel(edit=edit).values
    return bootstrap(_share_left, np.moveaxis(moments, -1, 0))


def _share_left(mean: Float[np.ndarray, "draw 4 4"]) -> Float[np.ndarray, " draw"]:
    """The share of `left`, from means of products of 1, intact, edited and law."""
    # Covariances of intact, edited and law.
    about = mean[:, 1:, 1:] - mean[:, 1:, :1] * mean[:, :1, 1:]
    # A law's mean that never varies is a constant up to rounding: nothing is taken off for it.
    floor = np.maximum(ROUNDING * about[:, :1, :1], CONSTANT)
    law = np.maximum(about[:, 2:, 2:], floor)
    told_by_law = about[:, :, 2:] * about[:, 2:] / law
    about = about - told_by_law
    intact = np.maximum(about[:, 0, 0], CONSTANT)
    edited = np.maximum(about[:, 1, 1], ROUNDING * intact)
    return about[:, 0, 1] ** 2 / (intact * edited)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How much of the prediction is there before the last block, and how much without it."""
    return _before(results, facts.config.n_layers)


def _before(results: Results, n_layers: int) -> dict[str, Found]:
    """Both shares, as one estimate that spans them."""
    seen = seen_by(results[lens], "affine", n_layers - 1)
    kept = left(results[without_last], EDITS[0])
    return {"before": Estimate.spanning("before", [seen, kept])}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Both shares by themselves, what every lens sees after each layer, and what blocks do."""
    n_layers = facts.config.n_layers
    rows = []
    for name in LENSES:
        for depth in range(n_layers + 1):
            share = seen_by(results[lens], name, depth)
            row = {"depth": depth, "lens": name}
            row["R2"] = share.value
            row["low"] = share.low
            row["high"] = share.high
            rows.append(row)
    # What is left without the last layer, or without a part of it.
    causal = _blocks(results, n_layers)
    shares = {edit: left(results[without_last], edit) for edit in EDITS}
    for edit, share in shares.items():
        if np.isfinite(share.value):
            causal[f"share left, {edit} at its mean"] = share.value
    seen = seen_by(results[lens], "affine", n_layers - 1)
    without = shares[EDITS[0]]
    caveat = (
        f"A read-out before this layer sees {_percent(seen)}, and {_percent(without)} is left "
        "without the layer."
    )
    if seen.low >= ALREADY and without.high <= MAINLY:
        caveat = "The last layer makes a prediction that could have been read before it."
    scope = SCOPE
    if facts.config.norm_position != "pre":
        scope += AS_IT_IS
    quantity = "share of the prediction that an affine read-out sees before the last layer (R2)"
    return Remarks(
        scope=scope,
        caveat=caveat,
        estimate=Estimate.of(quantity, seen),
        causal=causal,
        details=tuple(rows),
    )


def _percent(share: Interval) -> str:
    """A share in words."""
    return f"{100 * share.value:.0f} %"


def _blocks(results: Results, n_layers: int) -> dict[str, Any]:
    """Error over that of the best guess without the prompt, with each block at its mean."""
    everywhere = _error_rates(results, n_layers, ALL)
    at_query = _error_rates(results, n_layers, QUERY)
    whole = results[without_attention].sel(points=ALL)
    intact = whole.sel(arm="intact").mean()
    blind = whole.sel(arm=BLIND).mean()
    return {
        "intervention": "outputs of one layer (attention and MLP) replaced by their mean, at every "
        "position",
        "effect": everywhere[-1],
        "the same for another block (the largest effect)": max(everywhere[:-1]),
        "by block": everywhere,
        "by block, at the query's token only": at_query,
        "intact": float(intact / blind),
    }


def _error_rates(results: Results, n_layers: int, points: str) -> list[float]:
    """The same error for each block, replaced at some of the positions."""
    parts = results[ablated].sel(points=points)
    blind = results[without_attention].sel(points=points, arm=BLIND).mean()
    rates = []
    for layer in range(n_layers):
        error = parts.sel(arm=f"block {layer}").mean()
        rates.append(float(error / blind))
    return rates


def _one_layer(facts: Facts) -> str | None:
    if facts.config.mlp_only:
        return (
            "The claim is about what layers make of a context; this model has no attention to read "
            "one."
        )
    if facts.config.n_layers == 1:
        return "The claim compares the last layer with those before; this model has one layer."
    return None


CRITERION = Criterion(
    (
        Condition(
            "before",
            "share of the prediction that is there before the last layer, or left without it",
            at_most(MAINLY),
            at_least(ALREADY),
            unit="share",
        ),
    ),
    terms="Two shares of the prediction's variance are measured, and both must meet the "
    "threshold. The first is what the best affine read-out (cross-validated over functions) sees "
    "in the stream before the last layer. The second is what is left, up to scale and offset, "
    f"when the last layer's outputs are replaced by their mean. From the prediction {NO_PROMPT} "
    "is subtracted first. In a model without norms the read-out sees what later weights read.",
)

LAST_LAYER_CLAIM = Claim(
    id="limits.last_layer",
    question="algorithm",
    statement="The prediction is mainly formed in the last layer.",
    denied="The prediction is mainly formed before the last layer.",
    quote=Quote(
        "Evolution of predictions over layers show that the final prediction is mainly generated "
        "in the last layer.",
        "Naim & Asher (2025), appendix F, with Figure 8 (also section 4.1)",
        "The paper shows a plot for f(x) = x and does not say how predictions were read from "
        "inner layers. We fit the best affine read-out before the last layer. What can be decoded "
        "there need not be what the prediction is made of, so we also replace the last layer's "
        "outputs by their mean over prompts. Either way at most 0.4 of the variance of the "
        "prediction may be there.",
    ),
    kind="learning",
    reads="the stream after each layer",
    criterion=CRITERION,
    measurements=(lens, without_last, curves, without_attention, ablated),
    control=(lens, without_last),
    aspects=("affine lens", "depth"),
    evidence=evidence,
    remarks=remarks,
    of_numbers=True,
    excluded=_one_layer,
    figures=("layers", "lens_by_layer"),
)
