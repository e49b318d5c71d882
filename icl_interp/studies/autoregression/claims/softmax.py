"""The claim that softmax attention cannot learn the map of matrices that commute."""

import numpy as np
from xarray import DataArray

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.tie import TIED
from icl_interp.resampling import bootstrap
from icl_interp.results import numbers_in
from icl_interp.studies.autoregression.measurements.maps import TINY
from icl_interp.studies.autoregression.measurements.softmax_misses import (
    ALL,
    GAIN,
    MISSED,
    missed,
    needs_softmax_layer,
    trained_on,
)
from icl_interp.studies.autoregression.measurements.ties import layer_tie, tied_everywhere
from icl_interp.studies.autoregression.measurements.unit import (
    PAPER,
    SOURCE,
    process_in,
    real_heads_needed,
)

FAILS, LEARNS = 0.01, 0.001  # normalised error
# Share of the error that is left after more training, from which a layer counts as trained as far
# as it goes.
KEPT = 0.8
SOME = 0.5  # normalised error from which a model has learned too little to tell

SOFTMAX = Criterion(
    (
        Condition("error", "", (FAILS, INF), (0.0, LEARNS), scale="log"),
        # A layer that more training betters was trained badly: that says nothing about softmax.
        Condition("trained on", "", (KEPT, INF), None),
    ),
    (
        Precondition(
            "learned",
            (0.0, SOME),
            "The model has hardly learned: its error is {value:.2g} times that of the best guess "
            f"without the prompt (at most {SOME:g} allowed).",
        ),
        *TIED,
    ),
    terms=(
        "mean squared error over that of the best guess without the prompt, of a layer of softmax "
        f"attention, where a layer of linear attention with as many heads has 0: >= {FAILS:g} / <= "
        f"{LEARNS:g}; and the share of its error that more training of these weights leaves: >= "
        f"{KEPT:g}"
    ),
)


def quantities(result: DataArray) -> dict[str, Estimate]:
    """What the criterion asks for."""
    own, mean = (result.sel(who=who).values for who in (MISSED, ALL))
    found = bootstrap(lambda a, b: a / np.maximum(b, TINY), own, mean, positive=True)
    return {
        name: Estimate.of("error over that of the best guess without the prompt", found)
        for name in ("error", "learned")
    }


def evidence(results: Results, facts: Facts) -> Evidence:
    """Does a softmax layer stop short of the error 0 that a linear one can have?"""
    left = numbers_in(results[trained_on])[GAIN]
    asked = {
        **quantities(results[missed]),
        "trained on": Estimate.exactly("error after more training, over that before", left),
        **tied_everywhere(results[layer_tie]),
    }
    says = answer(
        SOFTMAX,
        asked,
        "This layer of softmax attention has not learned the map of matrices that commute.",
        "This layer of softmax attention has learned the map of matrices that commute.",
        "this layer of softmax attention has learned the map",
    )
    threshold = bound(SOFTMAX, asked, "error", f"at least {FAILS:g}", f"at most {LEARNS:g}")
    says += (
        f" Its mean squared error is {asked['error'].value:.3g} times that of the best guess "
        f"without the prompt ({threshold}), where linear attention with "
        f"{real_heads_needed(process_in(facts))} heads can have 0."
    )
    return Evidence(
        asked,
        says,
        scope="these weights and this training, in distribution, all points but the first",
        control=quantities(results.control[missed]),
        caveat=f"More training leaves {100 * left:.3g} % of it (asked: at least {100 * KEPT:g} %).",
    )


SOFTMAX_CLAIM = Claim(
    id="autoregression.softmax_fails_commuting",
    question="weights and training",
    short="Softmax attention misses the map of commuting matrices.",
    quote=Quote(
        "in the case of commuting context matrices, using a softmax is incompatible with learning "
        "the underlying in-context mapping.",
        f"{PAPER}, section 5.1 and appendix B, Figure 9",
        "The paper compares trained models with and without softmax. We judge one model: its "
        "linear counterpart is not trained, since a closed form (Proposition 3) says that its "
        "error can be 0. An error above 0.01 that more training hardly lowers says that training "
        "ends there from these weights, not that it must from all.",
    ),
    kind="architecture",
    statement="One layer of softmax attention, trained as far as its weights go, misses some of "
    "the map of matrices that commute, which a layer of linear attention with as many heads can "
    "have without an error",
    source=f"{SOURCE}, section 5.1, Figure 9",
    criterion=SOFTMAX,
    measurements=(missed, trained_on, layer_tie),
    control=(missed,),
    about_weights=True,
    aspects=("single layer", "depth", "shares of heads"),
    evidence=evidence,
    excluded=needs_softmax_layer,
)
