"""The claim that the first layer makes augmented tokens.

An augmented token holds the state before beside the state.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
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
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import bootstrap
from icl_interp.studies.autoregression.claims.map import not_learned
from icl_interp.studies.autoregression.measurements.augmented_tokens import (
    ALIKE,
    BEFORE,
    INTACT,
    LEMMA,
    OWN,
    POSITIONS,
    first_layer,
    first_pattern,
    needs_layers_on_states,
)
from icl_interp.studies.autoregression.measurements.lengths import worst
from icl_interp.studies.autoregression.measurements.parts import first_layer_in_use, in_use
from icl_interp.studies.autoregression.measurements.unit import PAPER, process_in

SAME = 0.05  # mean squared change of the prediction over the next state's variance
MOVED = 0.2
KEPT = "with the two tokens of the lemma"
NEEDED = "without the token before"
EVERYWHERE = "without the token before, where least"
UNIT = "of the variance"

TWO_TOKENS = Condition(
    KEPT,
    "largest change of predictions when the first layer sees two tokens only",
    at_most(SAME, least=0.0),
    at_least(MOVED),
    unit=UNIT,
    denied="Later layers need more from the first layer than the previous state beside each state.",
)
ONE_TOKEN = Condition(
    NEEDED,
    "mean change of predictions when the first layer sees one token only",
    at_least(MOVED),
    at_most(SAME, least=0.0),
    unit=UNIT,
    denied="Later layers do not need the previous state from the first layer.",
)
# Early predictions are small, so that they are asked in their own size; a faint model moves
# by much of that.
ONE_TOKEN_AT_LEAST = Condition(
    EVERYWHERE,
    "smallest change of predictions when the first layer sees one token only",
    at_least(MOVED),
    unit="of its variance",
)

CRITERION = Criterion(
    (TWO_TOKENS, ONE_TOKEN, ONE_TOKEN_AT_LEAST),
    (
        Precondition(
            "later layers",
            at_least(1),
            "Here the first layer that predictions depend on is also the last one.",
        ),
    ),
    terms="In this test the first layer attends by position alone: to a token and the one before "
    "it (two tokens), or to the token itself (one); other tokens are at their means. Changes are "
    "mean squares over the variance of the next state, and the smallest one over that of "
    "predictions. Largest and smallest are over the states of a prompt.",
)


def everywhere(result: DataArray, needs_two: bool) -> Estimate:
    """The least change of the prediction without the token before.

    It is over the variance of predictions.

    Args:
        result: of the first layer.
        needs_two: whether s_0 is the same in all prompts. Then it is not asked after s_1, where
            the state before is its own mean.
    """
    points = result.indexes["point"]
    later = result.sel(point=points[points >= (2 if needs_two else 1)])
    share = _numbers(later, OWN, "share")
    return worst(lambda mean: mean, share, smallest=True, positive=True)


def _numbers(result: DataArray, arm: str, number: str) -> np.ndarray:
    return result.sel(arm=arm, number=number).transpose("unit", "point").values


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How far predictions move with the tokens of Lemma 1 alone, and without the one before."""
    result = results[first_layer]
    with_two = _numbers(result, LEMMA, "moved")
    with_one = _numbers(result, OWN, "moved")
    n_later = facts.config.n_layers - 1 - first_layer_in_use(results[in_use])
    return {
        KEPT: worst(lambda mean: mean, with_two, positive=True),
        NEEDED: bootstrap(lambda mean: mean.mean(-1), with_one, positive=True),
        EVERYWHERE: everywhere(result, process_in(facts).start is None),
        "later layers": n_later,
    }


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """What each head of the first layer attends to, and errors with other patterns."""
    moved = found[NEEDED]
    return Remarks(
        scope="these weights, in distribution, after every scored state; the attention of the "
        "first layer that predictions depend on, whose MLP is left as it is",
        causal={
            "intervention": "the first layer attends by position, to its own token alone; its "
            "output keeps its mean",
            "effect": moved.value,
            "low": moved.low,
            "high": moved.high,
            "sham": found[KEPT].value,
            "unit": "change of the prediction, over the variance of the next state",
        },
        details=(*_by_head(results[first_pattern]), *_by_arm(results[first_layer])),
    )


def _by_head(patterns: DataArray) -> list[dict[str, Any]]:
    """A row for each head of the first layer."""
    rows = []
    for head in patterns.indexes["head"]:
        row = {"head": head}
        for number in (BEFORE, ALIKE):
            row[number] = float(patterns.sel(head=head, number=number))
        rows.append(row)
    return rows


def _by_arm(result: DataArray) -> list[dict[str, Any]]:
    """A row for each pattern of the first layer: the error with it."""
    rows = []
    for arm in (INTACT, POSITIONS, LEMMA, OWN):
        error = float(result.sel(arm=arm, number="error").mean())
        rows.append(
            {"attention of the first layer": arm, "error / variance of the next state": error}
        )
    return rows


AUGMENTED_CLAIM = Claim(
    id="autoregression.augmented_tokens",
    question="attention",
    statement="The first layer puts the previous state beside each state, and later layers need "
    "nothing else from it.",
    denied="The first layer does not put the previous state beside each state, or later layers "
    "need more from it.",
    quote=Quote(
        "The tokens [e_t] can be approximated with arbitrary precision given tokens [s_t] with a "
        "Transformer (1).",
        f"{PAPER}, section 4, Lemma 1",
        "The lemma says that a layer can make such tokens. We test whether the first layer of "
        "this model does make them, which is more. The first token has none before it; the lemma "
        "would have s_0 twice there, which we do not ask for.",
    ),
    kind="learning",
    reads="the first layer, and the parts in use",
    criterion=CRITERION,
    measurements=(first_layer, first_pattern, in_use),
    control=(first_layer,),
    of_control=(KEPT, NEEDED),
    aspects=("depth",),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_layers_on_states,
    learned=not_learned,
    figures=("autoregression_tokens",),
)
