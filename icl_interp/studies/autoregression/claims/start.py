"""The claim of `autoregression` on the first state: any fixed s_0 will do.

Heads are rescaled for it.
"""

from collections.abc import Mapping

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Found, at_least, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.tie import TIED
from icl_interp.studies.autoregression.claims.errors import (
    ERROR,
    PREDICTS,
    TERMS,
    UNIT,
    error,
    error_rows,
    rise,
)
from icl_interp.studies.autoregression.measurements.start_states import (
    LEAST,
    MOST,
    N_STARTS,
    PLAIN,
    RESCALED,
    USUAL,
    starts,
)
from icl_interp.studies.autoregression.measurements.ties import layer_tie, tied_everywhere
from icl_interp.studies.autoregression.measurements.unit import PAPER, needs_commuting, process_in

SAME = 0.01  # rise of the normalised error
OTHER = 0.05

RISE = Condition(
    "rise",
    "largest rise of the error from another start, with rescaled heads",
    at_most(SAME),
    at_least(OTHER),
    unit=UNIT,
)

CRITERION = Criterion(
    (RISE,),
    (PREDICTS, *TIED),
    terms=f"The other starts are {N_STARTS} states s_0, each the same in all sequences. Rescaled "
    f"heads have keys divided by the squared coordinates of s_0. {TERMS}",
)


def needs_fixed_start(facts: Facts) -> str | None:
    """Why s_0 is not the same in all sequences, or heads cannot be rescaled for it."""
    if reason := needs_commuting(facts):
        return reason
    if process_in(facts).start is not None:
        return (
            "The claim is about tasks with the same s_0 in all sequences; this task draws a new "
            "one for each"
        )
    return None


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How far the error rises from other starts, with rescaled heads."""
    result = results[starts]
    return {
        "rise": rise(result, RESCALED, USUAL),
        "error": error(result, USUAL),
        **tied_everywhere(results[layer_tie]),
    }


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """What happens with heads as they are."""
    result = results[starts]
    rescaled = found["rise"]
    plain = rise(result, PLAIN, USUAL)
    return Remarks(
        scope="these weights, this task's matrices; each other s_0 is the same in all sequences, "
        f"|s_0i| from {LEAST:g} to {MOST:g} times as large, any phases",
        caveat=f"Without rescaling, the error rises by up to {plain.value:.3g}.",
        causal={
            "intervention": "paths from another s_0, and keys divided by |s_0i|^2 coordinate by "
            "coordinate",
            f"largest rise of the {ERROR}": rescaled.value,
            "low": rescaled.low,
            "high": rescaled.high,
            "the same without rescaling": plain.value,
        },
        details=error_rows(result, "start"),
    )


START_CLAIM = Claim(
    id="autoregression.start_free",
    question="weights and training",
    statement="After rescaling for another fixed start state, the heads predict as well from it.",
    denied="After rescaling for another fixed start state, the heads predict worse from it.",
    quote=Quote(
        "In fact, looking at the above proof, considering arbitrary real values for the vector , "
        "one can absorb the terms in in each and the terms in in each , since these are learnable "
        "parameters. Therefore, our results can be adapted to any arbitrary initial value .",
        f"{PAPER}, appendix A.4, remark after the proof of Lemma 2 (formulas are lost in the text "
        "at hand)",
        "The remark is about what can be learned, for real s_0. We do what it says to given "
        "weights, for complex s_0: dividing keys by |s_0i|^2 is enough, because phases cancel in "
        "<s_{T-1}, a_h * s_t>. The remark says nothing about a random s_0, nor that a trained "
        "model works at another s_0 without the change; the report shows what happens then. We "
        "also test layers other than that of equation (6). The remark need not hold behind a "
        "norm, nor for matrices that are not diagonal, which may use that the second token is "
        "lambda if s_0 = 1.",
    ),
    kind="architecture",
    reads="weights of the layer",
    criterion=CRITERION,
    measurements=(starts, layer_tie),
    control=(starts,),
    of_control=("rise",),
    about_weights=True,
    aspects=("single layer", "depth"),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_fixed_start,
    figures=("autoregression_starts",),
)
