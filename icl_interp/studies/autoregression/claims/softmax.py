"""The claim that softmax attention cannot learn the map of matrices that commute."""

from collections.abc import Mapping

import numpy as np

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
from icl_interp.analyses.tie import TIED
from icl_interp.resampling import bootstrap
from icl_interp.results import numbers_in
from icl_interp.studies.autoregression.measurements.maps import TINY
from icl_interp.studies.autoregression.measurements.softmax_misses import (
    ALL,
    GAIN,
    MISSED,
    N_STEPS,
    N_TRAINED,
    missed,
    needs_softmax_layer,
    trained_on,
)
from icl_interp.studies.autoregression.measurements.ties import layer_tie, tied_everywhere
from icl_interp.studies.autoregression.measurements.unit import PAPER, process_in, real_heads_needed

FAILS = 0.01  # normalised error
LEARNS = 0.001
# Share of the error that is left after more training, from which a layer counts as trained as far
# as it goes.
KEPT = 0.8
SOME = 0.5  # normalised error from which a model has learned too little to tell

ERROR = Condition(
    "error",
    "mean squared error over that of the best guess without the prompt",
    at_least(FAILS),
    at_most(LEARNS, least=0.0),
    unit="times",
    scale="log",
)
# A layer that more training betters was trained badly: that says nothing about softmax.
TRAINED_ON = Condition(
    "trained on",
    "share of the error that is left after more training of these weights",
    at_least(KEPT),
    unit="share",
)
HARDLY_LEARNED = Precondition(
    "learned",
    at_most(SOME, least=0.0),
    "The model has hardly learned its task: its error is {value:.2g} times that of the best guess "
    f"without the prompt (at most {SOME:g} allowed).",
)

CRITERION = Criterion(
    (ERROR, TRAINED_ON),
    (HARDLY_LEARNED, *TIED),
    terms=f"More training is {N_STEPS} steps of L-BFGS on {N_TRAINED} prompts.",
)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """The error of the layer, and how much of it more training leaves."""
    result = results[missed]
    error = bootstrap(
        lambda own, all_of_it: own / np.maximum(all_of_it, TINY),
        result.sel(who=MISSED).values,
        result.sel(who=ALL).values,
        positive=True,
    )
    return {
        "error": error,
        "learned": error,
        "trained on": numbers_in(results[trained_on])[GAIN],
        **tied_everywhere(results[layer_tie]),
    }


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """What linear attention can do."""
    n_heads = real_heads_needed(process_in(facts))
    return Remarks(
        scope="these weights and this training, in distribution, all points but the first",
        caveat=f"A layer of linear attention with {n_heads} heads can have an error of 0.",
    )


SOFTMAX_CLAIM = Claim(
    id="autoregression.softmax_fails_commuting",
    question="weights and training",
    statement="This layer of softmax attention misses part of the map of matrices that commute.",
    denied="This layer of softmax attention has learned the map of matrices that commute.",
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
    reads="weights of the layer",
    criterion=CRITERION,
    measurements=(missed, trained_on, layer_tie),
    control=(missed,),
    of_control=("error", "learned"),
    about_weights=True,
    aspects=("single layer", "depth", "shares of heads"),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_softmax_layer,
)
