"""The claim that the first layer makes augmented tokens.

An augmented token holds the state before beside the state.
"""

from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
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
from icl_interp.studies.autoregression.measurements.unit import PAPER, SOURCE, process_in
from icl_interp.tasks.autoregressive import AutoregressiveProcess

SAME, MOVED = (
    0.05,
    0.2,
)  # mean squared change of the prediction, over the variance of the next state
KEPT, NEEDED = "with the two tokens of the lemma", "without the token before"
EVERYWHERE = "without the token before, where least"

TOKENS = Criterion(
    (
        Condition(KEPT, "", (0.0, SAME), (MOVED, INF)),
        Condition(NEEDED, "", (MOVED, INF), (0.0, SAME)),
        # Early predictions are small, so that they are asked in their own size; a faint model moves
        # by much of that.
        Condition(EVERYWHERE, "", (MOVED, INF), None),
    ),
    (
        Precondition(
            "later layers",
            (1, INF),
            "The first layer that predictions depend on is the last one here.",
        ),
    ),
    terms=(
        "mean squared change of the prediction over the variance of the next state, where the first "
        "layer attends by position only, to its own token and the one before, and other tokens are at "
        f"their means, after the state where it is largest: <= {SAME:g} / >= {MOVED:g}; where it "
        f"attends to its own token alone: >= {MOVED:g} / <= {SAME:g}, and over the variance of "
        f"predictions, after the state where it is smallest: >= {MOVED:g}"
    ),
)


def quantities(result: DataArray) -> dict[str, Estimate]:
    """What the criterion asks of a model and its randomly initialised control."""
    kept, needed = (_numbers(result, arm, "moved") for arm in (LEMMA, OWN))
    largest, _ = worst(
        f"largest change of the prediction {KEPT}",
        lambda mean: mean,
        kept,
        unit="of the variance",
        positive=True,
    )
    mean = bootstrap(lambda mean: mean.mean(-1), needed, positive=True)
    return {
        KEPT: largest,
        NEEDED: Estimate.of(f"change of the prediction {NEEDED}", mean, "of the variance"),
    }


def everywhere(result: DataArray, task: AutoregressiveProcess) -> Estimate:
    """The least change of the prediction without the token before.

    It is over the variance of predictions.

    Where s_0 is the same in all prompts, it is not asked after s_1: then the state before is its
    own mean.
    """
    first = 2 if task.start is None else 1
    later = result.sel(point=[point for point in result.indexes["point"] if point >= first])
    share, name = _numbers(later, OWN, "share"), f"smallest change of the prediction {NEEDED}"
    return worst(
        name, lambda mean: mean, share, unit="of its variance", smallest=True, positive=True
    )[0]


def _numbers(result: DataArray, arm: str, number: str) -> np.ndarray:
    return result.sel(arm=arm, number=number).transpose("unit", "point").values


def evidence(results: Results, facts: Facts) -> Evidence:
    """Do later layers have from the first one what Lemma 1 would give them, and nothing else?"""
    result, heads = results[first_layer], details(results[first_pattern])
    n_later = facts.config.n_layers - 1 - first_layer_in_use(results[in_use])
    asked = {
        **quantities(result),
        EVERYWHERE: everywhere(result, process_in(facts)),
        "later layers": Estimate.exactly("layers after the first one in use", n_later),
    }
    errors = {
        arm: float(result.sel(arm=arm, number="error").mean())
        for arm in (INTACT, POSITIONS, LEMMA, OWN)
    }
    decided = TOKENS.decide(asked).condition
    says = answer(
        TOKENS,
        asked,
        "The first layer puts the state before beside each state, and later layers need no more.",
        {
            KEPT: "Later layers need more of the first layer than the state before beside each "
            "state.",
            NEEDED: "Later layers do not need the state before from the first layer.",
        },
        "later layers need just the state before from the first layer",
    )
    unit = "of the next state's variance"
    limits = {
        KEPT: bound(TOKENS, asked, KEPT, f"at most {SAME:g}", f"at least {MOVED:g}"),
        NEEDED: bound(TOKENS, asked, NEEDED, f"at least {MOVED:g}", f"at most {SAME:g}"),
    }
    if decided and decided.quantity == NEEDED:
        says += (
            " Where that layer attends to its own token alone, predictions change by "
            f"{asked[NEEDED].value:.3g} "
        )
        says += f"{unit} ({limits[NEEDED]})."
        caveat = (
            "Where it attends by position to the token before as well, they change by at most "
            f"{asked[KEPT].value:.3g}."
        )
    else:
        says += (
            " Where that layer attends to its own token and the one before alone, predictions "
            "change by at "
        )
        says += f"most {asked[KEPT].value:.3g} {unit} ({limits[KEPT]})."
        caveat = f"Where it attends to its own alone, they change by {asked[NEEDED].value:.3g} "
        caveat += f"({limits[NEEDED]})."
    moved = asked[NEEDED]
    return Evidence(
        asked,
        says,
        scope="these weights, in distribution, after every scored state; the attention of the "
        "first layer that predictions depend on; what its MLP does is left as it is",
        causal={
            "intervention": "the first layer attends by position, to its own token alone; its "
            "output keeps its mean",
            "effect": moved.value,
            "low": moved.low,
            "high": moved.high,
            "sham": asked[KEPT].value,
            "unit": "change of the prediction, of the variance of the next state",
        },
        control=quantities(results.control[first_layer]),
        details=(
            *heads,
            *(
                {"attention of the first layer": arm, "error / variance of the next state": e}
                for arm, e in errors.items()
            ),
        ),
        caveat=caveat,
    )


def details(patterns: DataArray) -> tuple[dict[str, Any], ...]:
    """A row for each head of the first layer."""
    return tuple(
        {
            "head": head,
            **{name: float(patterns.sel(head=head, number=name)) for name in (BEFORE, ALIKE)},
        }
        for head in patterns.indexes["head"]
    )


AUGMENTED_CLAIM = Claim(
    id="autoregression.augmented_tokens",
    question="attention",
    short="The first layer puts the state before beside each state.",
    quote=Quote(
        "The tokens [e_t] can be approximated with arbitrary precision given tokens [s_t] with a "
        "Transformer (1).",
        f"{PAPER}, section 4, Lemma 1",
        "The lemma says that a layer can make such tokens. The test asks whether the first layer "
        "of this model does: that is more. Its first token has none before it; the lemma would "
        "show s_0 twice there, which is not asked.",
    ),
    kind="learning",
    statement="The first layer makes augmented tokens: by position alone it puts the state before "
    "beside each state, and later layers need nothing else of it",
    source=f"{SOURCE}, Lemma 1",
    criterion=TOKENS,
    measurements=(first_layer, first_pattern, in_use),
    control=(first_layer,),
    aspects=("depth",),
    evidence=evidence,
    excluded=needs_layers_on_states,
    learned=not_learned,
    figures=("autoregression_tokens",),
)
