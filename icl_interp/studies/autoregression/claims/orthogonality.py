"""The claim that training makes heads orthogonal."""

from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.studies.autoregression.measurements.maps import TINY
from icl_interp.studies.autoregression.measurements.maps_heads import (
    FIRST_KEPT,
    NOW,
    by_chance,
    likeness,
    needs_heads_of_a_layer,
)
from icl_interp.studies.autoregression.measurements.unit import PAPER, SOURCE, not_above

FALLEN, RISEN = 0.5, 1.0  # mean |cos| over that before training
CHANCE, ABOVE = 1.0, 1.25  # mean |cos| over the largest that chance gives in 97.5 of 100 draws
UPPER = 0.975
LEARNED = 0.1  # R2: without augmented tokens and commuting matrices the paper's own models hardly get further
not_learned = not_above(LEARNED)

ORTHOGONAL = Criterion(
    "mean |cosine| between the tensors (query-key times value-output map) of two heads: over that before training (the "
    f"first model that the run kept, else a randomly initialised control): <= {FALLEN:g} / >= {RISEN:g}; and over the "
    f"{100 * UPPER:g} % quantile of random heads with the same singular values: <= {CHANCE:g} / >= {ABOVE:g}",
    (
        Condition("before", (0.0, FALLEN), (RISEN, INF), scale="log"),
        Condition("chance", (0.0, CHANCE), (ABOVE, INF), scale="log"),
    ),
)


def mean_of(result: DataArray, when: str = NOW) -> float:
    """The mean |cos| over pairs of heads that write anything, NaN where there are none."""
    values = result.sel(when=when).values
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


def quantities(own: float, before: float, chance: DataArray) -> dict[str, Estimate]:
    """What the criterion asks for: ratios of weights, which have no sampling error."""
    highest = float(np.quantile(chance.values, UPPER))
    return {
        "before": Estimate.exactly("mean |cosine| of two heads, over that before training", own / max(before, TINY)),
        "chance": Estimate.exactly(
            f"mean |cosine| of two heads, over the {100 * UPPER:g} % quantile of random heads", own / max(highest, TINY)
        ),
    }


def evidence(results: Results, facts: Facts) -> Evidence:
    """Are heads less alike than before training, and no more alike than random ones?"""
    result, chance = results[likeness], results[by_chance]
    own, kept, fresh = mean_of(result), mean_of(result, FIRST_KEPT), mean_of(results.twin[likeness])
    known = bool(np.isfinite(kept))
    before = kept if known else fresh
    asked, highest = quantities(own, before, chance), float(np.quantile(chance.values, UPPER))
    who = "in the first model that the run kept" if known else "in a randomly initialised control"
    numbers = {who: before, "random heads": float(chance.mean()), f"random heads, {100 * UPPER:g} % quantile": highest}
    decided = ORTHOGONAL.decide(asked).condition
    says = answer(
        ORTHOGONAL,
        asked,
        "After training two heads of the layer are less alike than before, and no more alike than random heads.",
        {
            "before": "After training two heads of the layer are as alike as before, or more.",
            "chance": "After training two heads of the layer are more alike than random heads.",
        },
        "training makes the heads of the layer orthogonal",
    )
    start = (
        f"{asked['before'].value:.3g} times that {who} "
        f"({bound(ORTHOGONAL, asked, 'before', f'at most {FALLEN:g}', f'at least {RISEN:g}')})"
    )
    random = (
        f"{asked['chance'].value:.3g} times the upper end for random heads "
        f"({bound(ORTHOGONAL, asked, 'chance', f'at most {CHANCE:g}', f'at least {ABOVE:g}')})"
    )
    first, second = (random, start) if decided and decided.quantity == "chance" else (start, random)
    says += f" The mean |cosine| of two heads is {own:.3g}, {first}."
    caveat = f"It is {second}."
    estimate = Estimate.exactly("mean |cosine| between two heads", own)
    return Evidence(
        asked,
        says,
        estimate=estimate,
        scope="these weights: no sampling error; all pairs of heads of the layer, useless ones too",
        twin=quantities(fresh, before, results.twin[by_chance]),
        details=(*details(result), *({"mean |cos| of two heads": key, "value": one} for key, one in numbers.items())),
        caveat=caveat,
    )


def details(result: DataArray) -> tuple[dict[str, Any], ...]:
    """A row for each pair of heads."""
    return tuple({"heads": pair, "|cos|": float(result.sel(when=NOW, pair=pair))} for pair in result.indexes["pair"])


HEADS_ORTHOGONAL_CLAIM = Claim(
    id="autoregression.heads_orthogonal_after_training",
    question="weights and training",
    short="Training makes the heads of the layer orthogonal.",
    quote=Quote(
        "We then train the model and compare the quantity after training and at initialization. Note that it "
        "corresponds to a measure of orthogonality of heads. [...] We observe that after training, an orthogonality "
        "property appears.",
        f"{PAPER}, section 6, Figure 8",
        "The paper starts all heads alike, up to a small perturbation, so that any training makes them less alike. We "
        "also ask whether they are more alike than heads with random directions. Where the run kept no first model, a "
        "randomly initialised control stands for the start.",
    ),
    kind="learning",
    statement="After training two heads of the layer are less alike than before, and no more alike than random heads",
    source=f"{SOURCE}, section 6, Figure 8",
    criterion=ORTHOGONAL,
    measurements=(likeness, by_chance),
    twin=(likeness, by_chance),
    aspects=("overlap of heads", "single layer", "depth"),
    evidence=evidence,
    excluded=needs_heads_of_a_layer,
    learned=not_learned,
    figures=("autoregression_likeness",),
)
